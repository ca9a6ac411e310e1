package floor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// ChildMain runs one of the child programs and says whether the arguments named one.
func ChildMain(args []string) bool {
	var err error
	switch args[0] {
	case "child:serve":
		err = serve(args[1], args[2], map[string]calls{"announced": announced, "raw": raw}[args[3]])
	case "child:load":
		err = load()
	case "child:idle":
		err = idle(args[1])
	case "child:cold":
		err = coldReader(args[1], args[2])
	case "child:start":
		err = startServer()
	default:
		return false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, args[0]+":", err)
		os.Exit(1)
	}
	return true
}

// child is a process of this program with a pipe to it and one from it.
type Child struct {
	Cmd *exec.Cmd
	In  io.WriteCloser
	Out *bufio.Reader
}

// spawn starts this program again with args, bound to core (-1: any) and with procs Go processors (0: all).
func Spawn(core, procs int, args ...string) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, args...)
	cmd.Stderr = os.Stderr
	cmd.Env = os.Environ()
	if procs > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GOMAXPROCS=%d", procs))
	}
	if strings.HasPrefix(args[0], "child:load") { // the load generator stands in for a C program: no collector, no preemption
		cmd.Env = append(cmd.Env, "GOGC=off", "GODEBUG=asyncpreemptoff=1")
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	err = startOn(core, cmd)
	if err != nil {
		return nil, err
	}
	return &Child{cmd, in, bufio.NewReader(out)}, nil
}

// startOn starts cmd bound to a processor (-1: any).
func startOn(core int, cmd *exec.Cmd) error {
	if core < 0 {
		return cmd.Start()
	}
	done := make(chan error)
	go func() { // a child inherits the processors of the thread that starts it
		runtime.LockOSThread()
		var set unix.CPUSet
		set.Set(core)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			done <- err
			return
		}
		done <- cmd.Start()
	}()
	return <-done
}

// Stop closes the pipe to the child, which ends it, and waits for it.
func (c *Child) Stop() error {
	return errors.Join(c.In.Close(), c.Cmd.Wait())
}

// ReadJSON reads the child's next line into v.
func (c *Child) ReadJSON(v any) error {
	line, err := c.Out.ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(c.Cmd.Args[1:], " "), err)
	}
	return json.Unmarshal([]byte(line), v)
}

func PrintJSON(v any) error {
	return json.NewEncoder(os.Stdout).Encode(v)
}

// untilStdinCloses returns when the parent closes the pipe.
func untilStdinCloses() {
	_, _ = io.Copy(io.Discard, os.Stdin)
}
