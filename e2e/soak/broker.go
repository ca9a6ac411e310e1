package main

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
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// broker is the process under test.
type broker struct {
	addr, data string
	binary     string
	args       []string
	findings   *findings
	logs       string // directory of one file a life; the newest few are kept

	mu      sync.Mutex
	cmd     *exec.Cmd
	log     *os.File
	end     chan error
	life    int
	since   time.Time
	took    time.Duration
	ticks   int64 // CPU of the lives that have ended
	sampled int64 // CPU of this life at its last sample
}

func newBroker(o options, p pacing, f *findings) *broker {
	b := &broker{binary: o.binary, data: filepath.Join(o.dir, "data"), logs: o.dir, findings: f, end: make(chan error, 1)}
	b.addr = fmt.Sprintf("127.0.0.1:%d", freePort())
	b.args = []string{"serve", "--data-dir", b.data, "--listen", b.addr}
	for _, kv := range []string{
		"varve.http.listen=",
		"group.initial.rebalance.delay.ms=0",
		"log.initial.task.delay.ms=" + ms(p.check),
		"log.retention.check.interval.ms=" + ms(p.check),
		"log.segment.delete.delay.ms=" + ms(p.check),
		"log.cleaner.backoff.ms=" + ms(p.check),
		"log.cleaner.dedupe.buffer.size=4194304",
		"offsets.topic.num.partitions=4",
		"offsets.topic.segment.bytes=1048576",
		"metadata.log.max.record.bytes.between.snapshots=65536",
		"metadata.log.segment.bytes=8388608",
		"metadata.max.retention.bytes=1048576",
	} {
		b.args = append(b.args, "--override", kv)
	}
	return b
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// freePort lies below the range of outgoing connections, so that it is still
// free after a restart.
func freePort() int {
	for {
		port := 20000 + rand.IntN(12000)
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			l.Close()
			return port
		}
	}
}

// start runs the broker and returns when it answers.
func (b *broker) start(ctx context.Context) error {
	b.mu.Lock()
	b.life++
	log, err := os.Create(filepath.Join(b.logs, fmt.Sprintf("varve-%d.log", b.life)))
	if err != nil {
		b.mu.Unlock()
		return err
	}
	if b.life > 20 {
		_ = os.Remove(filepath.Join(b.logs, fmt.Sprintf("varve-%d.log", b.life-20)))
	}
	cmd := exec.Command(b.binary, b.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	from := time.Now()
	if err := cmd.Start(); err != nil {
		b.mu.Unlock()
		return err
	}
	end := make(chan error, 1)
	b.cmd, b.log, b.end, b.since, b.sampled = cmd, log, end, from, 0
	b.mu.Unlock()
	go func() { end <- cmd.Wait() }()
	c, err := kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.RetryTimeout(time.Second))
	if err != nil {
		return err
	}
	defer c.Close()
	for time.Since(from) < time.Minute && ctx.Err() == nil {
		if c.Ping(ctx) == nil {
			b.mu.Lock()
			b.took = time.Since(from)
			b.mu.Unlock()
			return nil
		}
		select {
		case err := <-end:
			end <- err
			return fmt.Errorf("varve ended while starting: %v; see %s", err, log.Name())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("varve does not answer a minute after its start; see %s", log.Name())
}

// stop ends the broker by SIGTERM; it has to end with status 0.
func (b *broker) stop() error {
	cmd, end := b.current()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-end:
		b.gone()
		return err
	case <-time.After(time.Minute):
		b.kill()
		return errors.New("varve did not stop within a minute of SIGTERM")
	}
}

func (b *broker) kill() {
	cmd, end := b.current()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-end
	b.gone()
}

func (b *broker) current() (*exec.Cmd, chan error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.cmd, b.end
}

var complaint = regexp.MustCompile(`(?m)^.*(level=ERROR|\bERROR\b|panic:|fatal error:|DATA RACE).*$`)

// gone closes the books of a life: its CPU, and what it complained of.
func (b *broker) gone() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.cmd.ProcessState; s != nil {
		b.ticks += int64(s.UserTime() + s.SystemTime())
	}
	b.cmd, b.sampled = nil, 0
	b.log.Close()
	text, err := os.ReadFile(b.log.Name())
	if err != nil {
		b.findings.add("%v", err)
	}
	for _, line := range complaint.FindAll(text, 3) {
		b.findings.add("life %d of the broker logged: %.300s", b.life, bytes.TrimSpace(line))
	}
}

func (b *broker) running() bool { cmd, _ := b.current(); return cmd != nil && cmd.ProcessState == nil }

// ended delivers the error of a process that ended by itself.
func (b *broker) ended() chan error { _, end := b.current(); return end }

// pid is 0 while the broker is down; life counts its starts.
func (b *broker) pid() (pid, life int, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cmd == nil {
		return 0, b.life, b.since
	}
	return b.cmd.Process.Pid, b.life, b.since
}

func (b *broker) lives() int { _, life, _ := b.pid(); return life }

func (b *broker) startTook() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.took
}

// verify reads the directory as varve verify does.
func (b *broker) verify() (string, int) {
	cmd := exec.Command(b.binary, "verify", b.data)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		return err.Error(), -1
	}
	return string(out), cmd.ProcessState.ExitCode()
}
