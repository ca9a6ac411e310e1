package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// row is one line of the table. Those without run are rows of internal/sim.
type row struct {
	name string
	what string
	root bool // needs root
	run  func(*run)
}

// run is one row at work. Its methods may be called by several goroutines.
type run struct {
	*bench
	ctx  context.Context
	mu   sync.Mutex
	line Line
}

// of picks the count of the scale, at least 1.
func (r *run) of(short, long int) int {
	n := short
	if r.scale == "long" {
		n = long
	}
	return max(1, n*r.percent/100)
}

func (r *run) plan(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Planned += n
}

func (r *run) done(n, acked int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Done += n
	r.line.Acked += acked
}

// count adds to a figure of the detail; most raises one.
func (r *run) count(what string, n float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	had, _ := r.line.Detail[what].(float64)
	r.line.Detail[what] = had + n
}

func (r *run) most(what string, n float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	had, _ := r.line.Detail[what].(float64)
	r.line.Detail[what] = max(had, n)
}

func (r *run) violation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Violations++
	if r.line.Violations <= 20 {
		fmt.Printf("VIOLATION in %s: %s\n", r.line.Row, fmt.Sprintf(format, args...))
	}
}

func (r *run) skip(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Skipped = why
	fmt.Printf("SKIPPED in %s: %s\n", r.line.Row, why)
}

// parallel runs the parts two at a time: the harness is made for two cores.
func parallel(parts ...func()) {
	gate := make(chan struct{}, 2)
	var all sync.WaitGroup
	for _, part := range parts {
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			part()
		})
	}
	all.Wait()
}

// script is one call of a script of the folder above, or of another program.
type script struct {
	name     string   // killloop.sh, or an absolute path
	flags    []string // before "--"
	command  []string // after it; nil: there is no "--"
	settings []string // KEY=VALUE of the broker
	dirs     string   // its log.dirs, $FAULT_DIR if empty
	varve    string   // binary, if not the one under test
	prefix   string   // before varve on its command line, as "prlimit --nofile=64 "
	env      []string
	limit    time.Duration
}

// result is what it left.
type result struct {
	status int
	report map[string]any // its last line, if that is JSON
	text   string         // standard error and output
	line   string         // how to run it again
}

func (r result) number(key string) int {
	n, _ := r.report[key].(float64)
	return int(n)
}

// acked is the number of acknowledged records that the last check compared.
func (r result) acked() int {
	verdict, _ := r.report["last_verdict"].(map[string]any)
	n, _ := verdict["acked"].(float64)
	return int(n)
}

const statusHung = -2

// serve is the shell line that becomes the broker on $FAULT_DIR and $PORT.
func (b *bench) serve(s *script) string {
	dirs := s.dirs
	if dirs == "" {
		dirs = "$FAULT_DIR"
	}
	varve := s.varve
	if varve == "" {
		varve = b.varve
	}
	line := fmt.Sprintf(`exec %s%s serve --data-dir "%s" --listen 127.0.0.1:$PORT --override varve.http.listen=`, s.prefix, varve, dirs)
	for _, o := range s.settings {
		line += " --override " + o
	}
	return line
}

// broker returns the command line of broker.sh with a verb.
func (b *bench) broker(args ...string) []string {
	return append([]string{filepath.Join(b.scripts, "broker.sh")}, args...)
}

// check is the usual argument of --verify.
func (b *bench) check(args ...string) string {
	return strings.Join(b.broker(append([]string{"check"}, args...)...), " ")
}

// script runs it in a process group of its own and waits for its end.
func (b *bench) script(ctx context.Context, s script) result {
	path := s.name
	if !filepath.IsAbs(path) {
		path = filepath.Join(b.scripts, path)
	}
	args := slices.Clone(s.flags)
	if s.command != nil {
		args = append(append(args, "--"), s.command...)
	}
	if s.limit == 0 {
		s.limit = 20 * time.Minute
		if b.scale == "long" {
			s.limit = 3 * time.Hour
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	port := freePort()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "FAULT_TOOLS="+filepath.Dir(b.tool), "BROKER="+b.serve(&s), fmt.Sprintf("PORT=%d", port))
	cmd.Env = append(cmd.Env, s.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// SIGTERM lets the script give back what it took; then everything dies.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.Process != nil {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	res := result{text: strings.TrimSpace(errs.String() + out.String()), line: replay(&s, b.serve(&s), port, path, args)}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		res.status = statusHung
	case errors.As(err, &exit):
		res.status = exit.ExitCode()
	case err != nil:
		res.status, res.text = 2, err.Error()
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if json.Unmarshal([]byte(lines[len(lines)-1]), &res.report) != nil {
		res.report = nil
	}
	return res
}

// replay is the shell line of a call.
func replay(s *script, broker string, port int, path string, args []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "PORT=%d BROKER=%s", port, quote(broker))
	for _, e := range s.env {
		name, value, _ := strings.Cut(e, "=")
		b.WriteString(" " + name + "=" + quote(value))
	}
	b.WriteString(" " + path)
	for _, a := range args {
		b.WriteString(" " + quote(a))
	}
	return b.String()
}

func quote(s string) string {
	if s != "" && !strings.ContainsAny(s, " \"'$&|;<>*?()\n") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// judge runs a script whose status says whether it went well, and counts so
// many as done when it did; of counts what its report says if done is a name.
func (r *run) judge(s script, planned int, done string) result {
	res := r.script(r.ctx, s)
	n := planned
	if done != "" {
		n = res.number(done)
	}
	switch {
	case r.ctx.Err() != nil: // told to stop: not done, and nobody's fault
		return res
	case res.status == 77:
		r.skip(lastLine(res.text))
		return res
	case res.status != 0:
		r.violation("status %d\n%s\nagain: %s", res.status, tail(res.text, 3000), res.line)
		if done == "" {
			n = 0
		}
	}
	r.done(n, res.acked())
	if slow := res.number("slowest_start_ms"); slow > 0 {
		r.most("slowest_start_ms", float64(slow))
	}
	return res
}

func lastLine(s string) string { return s[strings.LastIndexByte(s, '\n')+1:] }

func tail(s string, n int) string {
	if len(s) > n {
		return "…" + s[len(s)-n:]
	}
	return s
}

var ports = struct {
	sync.Mutex
	used map[int]bool
}{used: map[int]bool{}}

// freePort returns a port that nobody listens on and no other part was given.
// It lies below the range that the kernel takes for outgoing connections, so
// that a broker finds it free again after a restart.
func freePort() int {
	ports.Lock()
	defer ports.Unlock()
	for {
		port := 14000 + rand.IntN(18000)
		if ports.used[port] {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			continue
		}
		l.Close()
		ports.used[port] = true
		return port
	}
}

// server is a broker that a row starts itself.
type server struct {
	cmd  *exec.Cmd
	addr string
	dir  string
	log  string // its output
	end  chan struct{}
	pid  int // of varve, when the command wraps it
}

// start starts a broker on dir and returns when it answers; log is emptied.
func (r *run) start(dir, log string, s script) (*server, error) {
	port := freePort()
	v := &server{addr: fmt.Sprintf("127.0.0.1:%d", port), dir: dir, log: filepath.Join(log, "broker.log"), end: make(chan struct{})}
	out, err := os.Create(v.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	args := []string{"bash", "-c", `echo $$ >"$PID_FILE"; ` + r.serve(&s)}
	if s.name != "" {
		args = append(append([]string{filepath.Join(r.scripts, s.name)}, append(s.flags, "--")...), args...)
	}
	v.cmd = exec.Command(args[0], args[1:]...)
	v.cmd.Env = append(append(os.Environ(), "FAULT_DIR="+dir, "FAULT_LOG="+log, fmt.Sprintf("PORT=%d", port), "FAULT_TOOLS="+filepath.Dir(r.tool), "PID_FILE="+filepath.Join(log, "pid")), s.env...)
	v.cmd.Stdout, v.cmd.Stderr = out, out
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := v.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { _ = v.cmd.Wait(); close(v.end) }()
	for began := time.Now(); ; {
		if c, err := net.DialTimeout("tcp", v.addr, time.Second); err == nil {
			c.Close()
			break
		}
		if v.ended() || time.Since(began) > 20*time.Second {
			v.kill()
			return v, fmt.Errorf("the broker did not start (%s):\n%s", v.state(), v.tail())
		}
		time.Sleep(5 * time.Millisecond)
	}
	text, err := os.ReadFile(filepath.Join(log, "pid"))
	if err != nil {
		return v, err
	}
	v.pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	return v, err
}

func (v *server) ended() bool {
	select {
	case <-v.end:
		return true
	default:
		return false
	}
}

// state is the exit status in words.
func (v *server) state() string {
	if !v.ended() {
		return "running"
	}
	return v.cmd.ProcessState.String()
}

func (v *server) kill() {
	syscall.Kill(-v.cmd.Process.Pid, syscall.SIGKILL)
	<-v.end
}

// stop ends it by SIGTERM and returns its exit status, -1 when it did not end.
func (v *server) stop(grace time.Duration) int {
	if v.ended() {
		return v.cmd.ProcessState.ExitCode()
	}
	syscall.Kill(v.pid, syscall.SIGTERM)
	select {
	case <-v.end:
		return v.cmd.ProcessState.ExitCode()
	case <-time.After(grace):
		v.kill()
		return -1
	}
}

func (v *server) tail() string {
	text, err := os.ReadFile(v.log)
	if err != nil {
		return err.Error()
	}
	return tail(string(text), 2000)
}

// logged reports whether its log has an event.
func (v *server) logged(event string) bool {
	text, err := os.ReadFile(v.log)
	return err == nil && strings.Contains(string(text), "event="+event)
}

// dirs makes a data directory and one for the log of a case.
func (r *run) dirs() (dir, log string, err error) {
	base, err := os.MkdirTemp(r.work, r.line.Row+".")
	if err != nil {
		return "", "", err
	}
	dir, log = filepath.Join(base, "data"), filepath.Join(base, "log")
	return dir, log, errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(log, 0o755))
}

// ack runs the outside witness against a broker.
func (r *run) ack(v *server, limit time.Duration, verb string, args ...string) result {
	args = append([]string{verb, "-addr", v.addr, "-wait", "20s", "-log", filepath.Dir(v.log)}, args...)
	return r.script(r.ctx, script{name: r.client, flags: args, limit: limit})
}

// readBack has the witness verify a broker, and counts the acknowledged.
func (r *run) readBack(v *server, args ...string) bool {
	res := r.ack(v, 2*time.Minute, "verify", args...)
	if res.status != 0 {
		r.violation("the witness: status %d: %s\n%s", res.status, tail(res.text, 1500), v.tail())
		return false
	}
	r.done(0, res.number("acked"))
	return true
}
