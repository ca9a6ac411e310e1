package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/bench/floor"
)

// broker is a running varve process.
type broker struct {
	cmd  *exec.Cmd
	dir  string // of its data
	port int
	log  *os.File
	// foreign: Apache Kafka, which ends with status 143 after a clean stop and takes its time to start.
	foreign bool
	began   time.Time // of the process
}

// start runs the binary on an empty or existing data directory, bound to a processor (-1: any) and with
// procs Go processors (0: all). It does not wait for the broker to listen.
func start(binary, dir string, core, procs int, settings ...string) (*broker, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{binary, "serve", "--data-dir", dir, "--listen", fmt.Sprintf("127.0.0.1:%d", port)}
	for _, setting := range settings {
		args = append(args, "--override", setting)
	}
	env := os.Environ()
	if procs > 0 {
		env = append(env, fmt.Sprintf("GOMAXPROCS=%d", procs))
	}
	b, err := launch(dir+".log", core, env, args...)
	if err != nil {
		return nil, err
	}
	b.dir, b.port = dir, port
	return b, nil
}

// launch runs a program that ends with this one, bound to a processor (-1: any), its output in a file.
func launch(logName string, core int, env []string, args ...string) (*broker, error) {
	log, err := os.Create(logName)
	if err != nil {
		return nil, err
	}
	if core >= 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, errors.Join(err, log.Close())
		}
		args = append([]string{self, "child:pinned", strconv.Itoa(core)}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return &broker{cmd: cmd, log: log, began: began}, nil
}

// pinned binds this process to a processor and becomes the program of args. The binding is done in the process
// itself: a thread of the parent that was bound for it would end, and take the broker along (Pdeathsig).
func pinned(core string, args []string) error {
	n, err := strconv.Atoi(core)
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(n)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	return syscall.Exec(args[0], args, os.Environ())
}

// freePort is a port that nobody listens on. It is free again when the broker takes it.
func freePort() (int, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return ln.Addr().(*net.TCPAddr).Port, ln.Close()
}

// wait connects as soon as the broker listens.
func (b *broker) wait() (*client, error) {
	for begin := time.Now(); ; time.Sleep(200 * time.Microsecond) {
		k, err := connect(b.port)
		if err == nil {
			return k, nil
		}
		if time.Since(begin) > 90*time.Second || b.cmd.ProcessState != nil {
			return nil, fmt.Errorf("broker does not listen: %w; see %s", err, b.log.Name())
		}
	}
}

func (b *broker) pid() int { return b.cmd.Process.Pid }

// stop ends the broker as a clean stop does.
func (b *broker) stop() error {
	err := b.cmd.Process.Signal(syscall.SIGTERM)
	ended := b.cmd.Wait()
	var exit *exec.ExitError
	if b.foreign && errors.As(ended, &exit) && exit.ExitCode() == 143 {
		ended = nil
	}
	return errors.Join(err, ended, b.log.Close())
}

func version(binary string) string {
	out, err := exec.Command(binary, "version").Output()
	if err != nil {
		return "?"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// rig is a broker with a load generator.
type rig struct {
	*broker
	load    *floor.Child
	control *client
}

func newRig(o options, dir string, p floor.Placement) (*rig, error) {
	b, err := start(o.varve, filepath.Join(o.dir, dir), p.Server, p.Procs)
	if err != nil {
		return nil, err
	}
	return rigOf(b, p)
}

// do runs one job and returns what the load generator saw and the CPU seconds that the broker used.
func (r *rig) do(j job) (floor.Answer, float64, error) {
	var a floor.Answer
	j.Port = r.port
	before, err := floor.ProcessCPU(r.pid())
	if err != nil {
		return a, 0, err
	}
	if err := json.NewEncoder(r.load.In).Encode(j); err != nil {
		return a, 0, err
	}
	if err := r.load.ReadJSON(&a); err != nil {
		return a, 0, err
	}
	if a.Err != "" {
		return a, 0, errors.New(a.Err)
	}
	time.Sleep(time.Millisecond) // let the broker finish its last system call
	after, err := floor.ProcessCPU(r.pid())
	return a, after - before, err
}

func (r *rig) stop() error {
	r.control.close()
	return errors.Join(r.load.Stop(), r.broker.stop())
}
