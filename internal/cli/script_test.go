package cli

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	run := func() { os.Exit(Main()) }
	testscript.Main(m, map[string]func(){
		"varve":                      run,
		"kafka-topics.sh":            run,
		"kafka-dump-log":             run,
		"kafka-dump-log.sh":          run,
		"kafka-console-producer.sh":  run,
		"kafka-console-consumer.sh":  run,
		"kafka-consumer-groups.sh":   run,
		"kafka-server-start.sh":      run,
		"kafka-replica-verification": run,
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup:               cleanEnvironment,
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"serve":     startBroker,
			"stop":      func(ts *testscript.TestScript, neg bool, args []string) { stopBroker(ts, args, syscall.SIGTERM) },
			"interrupt": func(ts *testscript.TestScript, neg bool, args []string) { stopBroker(ts, args, syscall.SIGINT) },
			"log":       matchLog,
			"outlive":   outlive,
		},
	})
}

// cleanEnvironment keeps the settings of whoever runs the tests out of them.
func cleanEnvironment(e *testscript.Env) error {
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("VARVE_BOOTSTRAP_SERVERS", "")
	e.Setenv("KAFKA_BOOTSTRAP_SERVERS", "")
	e.Values["broker"] = &broker{}
	return nil
}

// broker is the one that a script has running.
type broker struct {
	cmd *exec.Cmd
	log logBuffer
}

// logBuffer is what a process has printed so far.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// startBroker is "serve DIR [FLAG...]": a broker on a free port, which becomes
// the one that the script's commands talk to.
func startBroker(ts *testscript.TestScript, _ bool, args []string) {
	b := ts.Value("broker").(*broker)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	addr := l.Addr().String()
	ts.Check(l.Close())
	path, err := exec.LookPath("varve")
	ts.Check(err)
	all := append([]string{"serve", "--data-dir", ts.MkAbs(args[0]), "--listen", addr, "--override", "group.initial.rebalance.delay.ms=0", "--override", "offsets.topic.num.partitions=4", "--override", "varve.http.listen="}, args[1:]...)
	b.cmd = exec.Command(path, all...)
	b.cmd.Dir = ts.MkAbs(".")
	b.cmd.Env = append(os.Environ(), "HOME="+ts.MkAbs("."))
	b.log = logBuffer{}
	b.cmd.Stdout, b.cmd.Stderr = &b.log, &b.log
	ts.Check(b.cmd.Start())
	cmd := b.cmd
	ts.Defer(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	for deadline := time.Now().Add(20 * time.Second); ; {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			ts.Check(c.Close())
			break
		}
		if time.Now().After(deadline) {
			ts.Fatalf("the broker does not listen:\n%s", b.log.String())
		}
		time.Sleep(2 * time.Millisecond) // between attempts; nothing depends on how long
	}
	ts.Setenv("VARVE_BOOTSTRAP_SERVERS", addr)
}

// stopBroker is "stop" or "interrupt"; with "twice" the signal comes twice at once.
func stopBroker(ts *testscript.TestScript, args []string, s syscall.Signal) {
	b := ts.Value("broker").(*broker)
	ts.Check(b.cmd.Process.Signal(s))
	if len(args) > 0 {
		_ = b.cmd.Process.Signal(s) // it may have stopped already
	}
	if err := b.cmd.Wait(); err != nil {
		ts.Fatalf("the broker did not stop cleanly: %v\n%s", err, b.log.String())
	}
}

// matchLog is "log REGEXP": the broker has printed such a line.
func matchLog(ts *testscript.TestScript, neg bool, args []string) {
	b := ts.Value("broker").(*broker)
	re, err := regexp.Compile("(?m)" + strings.Join(args, " "))
	ts.Check(err)
	if re.MatchString(b.log.String()) == neg {
		ts.Fatalf("log matches %q: %v, in\n%s", re, !neg, b.log.String())
	}
}

// outlive is "outlive STATUS REGEXP COMMAND...": the command gets a line of
// input, the broker is killed when the command has printed something, and
// another line comes. The command ends with the status, and has said why.
func outlive(ts *testscript.TestScript, _ bool, args []string) {
	b := ts.Value("broker").(*broker)
	path, err := exec.LookPath(args[2])
	ts.Check(err)
	cmd := exec.Command(path, args[3:]...)
	cmd.Env = append(os.Environ(), "HOME="+ts.MkAbs("."), "VARVE_BOOTSTRAP_SERVERS="+ts.Getenv("VARVE_BOOTSTRAP_SERVERS"))
	var said logBuffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	ts.Check(err)
	out, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	_, err = io.WriteString(in, "a\n")
	ts.Check(err)
	first, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		ts.Fatalf("%v, after %q, %s", err, first, said.String())
	}
	ts.Check(b.cmd.Process.Kill())
	_ = b.cmd.Wait() // its status is that it was killed
	_, err = io.WriteString(in, "b\n")
	ts.Check(err)
	_ = cmd.Wait() // the status is looked at next
	if got := strconv.Itoa(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("status %s, want %s: %s", got, args[0], said.String())
	}
	if !regexp.MustCompile("(?s)" + args[1]).MatchString(said.String()) {
		ts.Fatalf("it said %q, want %q", said.String(), args[1])
	}
}
