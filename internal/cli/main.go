package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Version is the release, set by the linker; "dev" in other builds.
var Version = "dev"

// kafkaLevel is the release of Apache Kafka whose behaviour this one has.
const kafkaLevel = "4.4.0"

// Exit statuses of the native commands (CLI-22).
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitProblems = 3 // ran, and found problems
	exitMissing  = 4 // the named thing does not exist
	exitRefused  = 5 // refused for safety
	exitOffline  = 6 // broker not reachable or not authorised
	exitConfig   = 78
)

// Process is what a command sees of the process it runs in.
type Process struct {
	Args   []string // the name it was started by, then the arguments
	Env    []string // "NAME=VALUE"
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	kafkaRules bool // the configuration is judged as Kafka does: nothing is filled in
}

// getenv returns the value of a variable, empty when it is not set.
func (p *Process) getenv(name string) string {
	for i := len(p.Env) - 1; i >= 0; i-- {
		if v, ok := strings.CutPrefix(p.Env[i], name+"="); ok {
			return v
		}
	}
	return ""
}

// Main runs the command line of this process and returns its exit status.
func Main() int {
	return Run(&Process{Args: os.Args, Env: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
}

// Run runs one command line.
func Run(p *Process) int {
	name, args := p.Args[0], p.Args[1:]
	if tool, ok := kafkaTool(filepath.Base(name)); ok {
		return p.runKafkaTool(tool, args)
	}
	if len(args) > 0 {
		if tool, ok := kafkaTool(args[0]); ok {
			return p.runKafkaTool(tool, args[1:])
		}
	}
	return p.runNative(args)
}

func (p *Process) runNative(args []string) int {
	if len(args) > 0 {
		switch args[0] {
		case "serve":
			// The broker has its own way with signals.
			return p.runCommand(context.Background(), args)
		}
	}
	ctx, ended := p.interruptible()
	code := p.runCommand(ctx, args)
	if s := ended(); s != nil {
		return signalStatus(s)
	}
	return code
}

// repeats reports whether a signal is the first one once more: timeout(1) and
// terminals send theirs to a process and then to its group. It says nothing new.
func repeats(first os.Signal, at time.Time, again os.Signal, now time.Time) bool {
	return again == first && now.Sub(at) < time.Second
}

// interruptible returns a context that SIGINT and SIGTERM end, and what to call
// at the end of the command: it says which signal came, if one did. A second
// signal ends the process at once.
func (p *Process) interruptible() (ctx context.Context, ended func() os.Signal) {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			cancel(endedBy{s})
			first := time.Now()
			for again := range signals {
				if !repeats(s, first, again, time.Now()) {
					os.Exit(signalStatus(again))
				}
			}
		case <-ctx.Done():
		}
	}()
	return ctx, func() os.Signal {
		signal.Stop(signals)
		var e endedBy
		errors.As(context.Cause(ctx), &e)
		cancel(nil)
		return e.signal
	}
}

// endedBy is why a command's context ended.
type endedBy struct{ signal os.Signal }

func (e endedBy) Error() string { return "ended by " + e.signal.String() }

// signalStatus is the exit status of a process that a signal ended: 130 or 143.
func signalStatus(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return 128 + int(n)
	}
	return exitFailed
}

func (p *Process) runCommand(ctx context.Context, args []string) int {
	a := &app{Process: p}
	root := a.root()
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		plainUsage(root)
	}
	args, err := a.nativeForm(args)
	if err == nil {
		err = a.unknownBeforeHelp(root, args)
	}
	if err != nil {
		return a.report(root, err)
	}
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitDone
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	var ended endedBy
	if errors.As(context.Cause(ctx), &ended) {
		return exitFailed // nothing to explain
	}
	return a.report(cmd, err)
}
