// Command bench runs a varve binary beside the bare system calls of package floor, in the same run on the
// same processors, and prints one table with the ratios. It also writes them as JSON.
//
//	go run . -varve ../bin/varve            every case
//	go run . -varve ../bin/varve -quick     the gate: large and small produce and fetch, start, size
//	go run . -varve ../bin/varve fetch      cases whose name begins with a word
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/varvelog/varve/bench/floor"
)

// options are what the command line says.
type options struct {
	varve  string
	dir    string
	rounds int
	out    string
	quick  bool
	idle   time.Duration
	starts int
	kafka  string // yes, no, auto: measure Apache Kafka too
	names  []string

	classPath string // of Apache Kafka; empty: it is not measured
}

func main() {
	if len(os.Args) > 1 && (childMain(os.Args[1:]) || floor.ChildMain(os.Args[1:])) {
		return
	}
	// The broker is killed when the thread that started it ends (Pdeathsig): the main thread lasts longest.
	runtime.LockOSThread()
	var o options
	flag.StringVar(&o.varve, "varve", "../bin/varve", "the binary to measure")
	flag.StringVar(&o.dir, "dir", "", "folder for the data files, on the file system to measure (default: a temporary one)")
	flag.IntVar(&o.rounds, "rounds", 7, "interleaved rounds of each case")
	flag.StringVar(&o.out, "json", "", "write the results to this file (default: results/DATE.json)")
	flag.BoolVar(&o.quick, "quick", false, "only the cases of the quick gate")
	flag.DurationVar(&o.idle, "idle", 10*time.Second, "how long an idle broker is watched")
	flag.IntVar(&o.starts, "starts", 30, "how often the broker is started")
	flag.StringVar(&o.kafka, "kafka", "no", "measure Apache Kafka beside it: yes, no, or auto, which is yes where there is Java and Maven")
	flag.Parse()
	o.names = flag.Args()
	if ended, err := inPrivateNetwork(); ended {
		os.Exit(exitCode(err))
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(o options) (err error) {
	if o.varve, err = filepath.Abs(o.varve); err != nil {
		return err
	}
	if o.dir, err = os.MkdirTemp(o.dir, "varve-bench-"); err != nil {
		return err
	}
	if o.classPath, err = prepareKafka(o); err != nil {
		return errors.Join(err, os.RemoveAll(o.dir))
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		_ = os.RemoveAll(o.dir) // the children end when their pipe closes or their parent does
		os.Exit(130)
	}()
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	debug.SetGCPercent(400)
	e, err := floor.NewEnv(o.dir, o.rounds)
	if err != nil {
		return err
	}
	e.Deadline = time.Now().Add(time.Hour)
	e.Facts["varve"] = version(o.varve)
	e.PrintFacts()
	r := &report{env: e}
	fmt.Println()
	r.header()
	for _, part := range []struct {
		name  string
		quick bool
		run   func(options, *report) error
	}{
		{"size", true, measureSize},
		{"start", true, measureStart},
		{"idle", false, measureIdle},
		{"", true, measureLoad},
		{"partitions", false, measurePartitions},
		{"recovery", false, measureRecovery},
		{"durable", false, measureDurable},
		{"connections", false, measureConnections},
	} {
		if part.name != "" && !o.wants(part.name) || !part.quick && o.quick && len(o.names) == 0 {
			continue
		}
		if err := part.run(o, r); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if o.out == "" {
		o.out = filepath.Join("results", time.Now().UTC().Format("2006-01-02T150405")+".json")
	}
	return r.write(o.out)
}

// wants says whether a case was asked for by the beginning of its name.
func (o options) wants(name string) bool {
	if len(o.names) == 0 {
		return true
	}
	for _, n := range o.names {
		if strings.HasPrefix(name, n) {
			return true
		}
	}
	return false
}

func exitCode(err error) int {
	var exit interface{ ExitCode() int }
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	return 1
}
