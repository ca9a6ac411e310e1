// Package harness starts what the end-to-end tests talk to: the varve binary
// on a free port with a directory of its own, client drivers as child
// processes, and Apache Kafka with its tools. Everything it starts it stops,
// by the process it started.
package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Broker is one varve process.
type Broker struct {
	Addr string // host:port of its listener
	Dir  string // its data directory
	Args []string

	cmd *exec.Cmd
	log *logBuffer
	end chan error
}

// Binary is the varve under test: $E2E_VARVE, else bin/varve of the checkout.
func Binary(t testing.TB) string {
	t.Helper()
	bin := os.Getenv("E2E_VARVE")
	if bin == "" {
		bin = filepath.Join(Root(t), "bin", "varve")
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("%v: run make build first", err)
	}
	return bin
}

// Root is the root of the checkout.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "e2e", "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("not inside the checkout")
	return ""
}

// FreePort returns a port that nobody listens on, with a free one behind it
// (Kafka's controller). It lies below the range that the kernel takes for
// outgoing connections, so that a broker finds it free again after a restart.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 20000 + 2*rand.IntN(6000)
		if free(port) && free(port+1) {
			return port
		}
	}
	t.Fatal("no free port between 20000 and 32000")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}

// Start runs varve on an empty temporary directory until the test ends.
func Start(t testing.TB, overrides ...string) *Broker {
	t.Helper()
	return StartOn(t, t.TempDir(), FreePort(t), overrides...)
}

// StartOn runs varve on dir and port until the test ends; each override is KEY=VALUE.
func StartOn(t testing.TB, dir string, port int, overrides ...string) *Broker {
	t.Helper()
	b := &Broker{Addr: fmt.Sprintf("127.0.0.1:%d", port), Dir: dir, log: &logBuffer{}}
	b.Args = []string{"serve", "--data-dir", dir, "--listen", b.Addr, "--override", "group.initial.rebalance.delay.ms=0", "--override", "varve.http.listen="}
	for _, o := range overrides {
		b.Args = append(b.Args, "--override", o)
	}
	b.Restart(t)
	t.Cleanup(func() {
		b.Kill()
		if t.Failed() {
			t.Logf("varve's log:\n%s", b.log.tail(8000))
		}
	})
	return b
}

// Restart starts the process again after Stop or Kill and waits until it serves.
func (b *Broker) Restart(t testing.TB) {
	t.Helper()
	b.cmd = exec.Command(Binary(t), b.Args...)
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := make(chan error, 1)
	b.end = end
	go func(cmd *exec.Cmd) { end <- cmd.Wait() }(b.cmd)
	deadline := time.Now().Add(30 * time.Second)
	for {
		c, err := net.DialTimeout("tcp", b.Addr, time.Second)
		if err == nil {
			c.Close()
			break
		}
		select {
		case err := <-end:
			t.Fatalf("varve ended while starting: %v\n%s", err, b.log.tail(4000))
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("varve does not listen on %s after 30 s\n%s", b.Addr, b.log.tail(4000))
		}
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(b.Addr))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	for {
		if err := c.Ping(ctx); err == nil {
			return
		} else if ctx.Err() != nil {
			t.Fatalf("varve does not answer: %v\n%s", err, b.log.tail(4000))
		}
	}
}

// Pid is the process id of the running broker.
func (b *Broker) Pid() int { return b.cmd.Process.Pid }

// Log is what the broker has printed so far.
func (b *Broker) Log() string { return b.log.tail(1 << 20) }

// Stop ends the broker by SIGTERM and fails the test when it does not end cleanly.
func (b *Broker) Stop(t testing.TB) {
	t.Helper()
	if b.cmd == nil {
		return
	}
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatalf("stop varve: %v", err)
	}
	select {
	case err := <-b.end:
		if err != nil {
			t.Fatalf("varve did not stop cleanly: %v\n%s", err, b.log.tail(4000))
		}
	case <-time.After(30 * time.Second):
		b.Kill()
		t.Fatalf("varve did not stop within 30 s of SIGTERM\n%s", b.log.tail(4000))
	}
	b.cmd = nil
}

// Kill ends the broker by SIGKILL.
func (b *Broker) Kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	<-b.end
	b.cmd = nil
}

// Varve runs the binary with args and returns what it printed.
func Varve(t testing.TB, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return run(t, exec.Command(Binary(t), args...))
}

func run(t testing.TB, cmd *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// logBuffer keeps the end of what a process prints.
type logBuffer struct {
	mu  sync.Mutex
	buf []byte
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if len(l.buf) > 4<<20 {
		l.buf = append([]byte(nil), l.buf[len(l.buf)-(2<<20):]...)
	}
	return len(p), nil
}

func (l *logBuffer) tail(n int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf[max(0, len(l.buf)-n):])
}
