package harness

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/protocol"
)

// Driver is one client process that speaks e2e/protocol.
type Driver struct {
	Name string

	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	log   *logBuffer
	mu    sync.Mutex
	addr  string
	ended bool
}

// Clients are the drivers that exist, by name.
func Clients() []string {
	return []string{"franz-go", "sarama", "kafka-go", "confluent-kafka", "kafka-python", "kafkajs"}
}

// StartDriver starts the named client against a broker; it ends with the test.
func StartDriver(t testing.TB, name, bootstrap string) *Driver {
	t.Helper()
	d := &Driver{Name: name, t: t, log: &logBuffer{}, addr: bootstrap}
	d.cmd = driverCommand(t, name)
	d.cmd.Stderr = d.log
	var err error
	if d.in, err = d.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.out = bufio.NewReaderSize(out, 1<<20)
	if err := d.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Cleanup(d.End)
	return d
}

// End stops the client process without ceremony, as a crash would.
func (d *Driver) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return
	}
	d.ended = true
	d.in.Close()
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

// Try performs one operation and returns the client's answer.
func (d *Driver) Try(r protocol.Request) (protocol.Response, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r.Bootstrap = d.addr
	line, err := json.Marshal(r)
	if err != nil {
		return protocol.Response{}, err
	}
	if _, err := d.in.Write(append(line, '\n')); err != nil {
		return protocol.Response{}, fmt.Errorf("%s: %w\n%s", d.Name, err, d.log.tail(2000))
	}
	type result struct {
		line []byte
		err  error
	}
	got := make(chan result, 1)
	go func() {
		line, err := d.out.ReadBytes('\n')
		got <- result{line, err}
	}()
	select {
	case res := <-got:
		if res.err != nil {
			return protocol.Response{}, fmt.Errorf("%s ended: %w\n%s", d.Name, res.err, d.log.tail(2000))
		}
		var out protocol.Response
		if err := json.Unmarshal(res.line, &out); err != nil {
			return out, fmt.Errorf("%s printed %q: %w", d.Name, res.line, err)
		}
		return out, nil
	case <-time.After(120 * time.Second):
		return protocol.Response{}, fmt.Errorf("%s: %s got no answer in 120 s\n%s", d.Name, r.Op, d.log.tail(2000))
	}
}

// Do is Try for operations that have to succeed.
func (d *Driver) Do(r protocol.Request) protocol.Response {
	d.t.Helper()
	out, err := d.Try(r)
	if err != nil {
		d.t.Fatal(err)
	}
	if out.Unsupported != "" {
		d.t.Fatalf("%s %s: not supported by the client: %s", d.Name, r.Op, out.Unsupported)
	}
	if out.Error != "" {
		d.t.Fatalf("%s %s %s: %s\n%s", d.Name, r.Op, r.Topic, out.Error, d.log.tail(2000))
	}
	return out
}

var installed struct {
	sync.Mutex
	python, node string
	goBins       map[string]string
}

// Cache holds what the tests install: $E2E_CACHE, else e2e/.cache.
func Cache(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("E2E_CACHE")
	if dir == "" {
		dir = filepath.Join(Root(t), "e2e", ".cache")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func must(t testing.TB, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// driverCommand is how the named client starts; the first use installs it.
func driverCommand(t testing.TB, name string) *exec.Cmd {
	t.Helper()
	installed.Lock()
	defer installed.Unlock()
	drivers := filepath.Join(Root(t), "e2e", "drivers")
	switch name {
	case "franz-go", "sarama", "kafka-go":
		pkg := map[string]string{"franz-go": "franz", "sarama": "sarama", "kafka-go": "kafkago"}[name]
		if installed.goBins == nil {
			installed.goBins = map[string]string{}
		}
		if installed.goBins[name] == "" {
			bin := filepath.Join(Cache(t), pkg)
			must(t, filepath.Join(Root(t), "e2e"), "go", "build", "-o", bin, "./drivers/"+pkg)
			installed.goBins[name] = bin
		}
		return exec.Command(installed.goBins[name])
	case "confluent-kafka", "kafka-python":
		if installed.python == "" {
			venv := filepath.Join(Cache(t), "python")
			if _, err := os.Stat(filepath.Join(venv, "bin", "python")); err != nil {
				must(t, drivers, "python3", "-m", "venv", venv)
			}
			must(t, drivers, filepath.Join(venv, "bin", "pip"), "install", "-q", "--disable-pip-version-check", "-r", filepath.Join(drivers, "python", "requirements.txt"))
			installed.python = filepath.Join(venv, "bin", "python")
		}
		script := map[string]string{"confluent-kafka": "confluent.py", "kafka-python": "kafkapython.py"}[name]
		return exec.Command(installed.python, filepath.Join(drivers, "python", script))
	case "kafkajs":
		if installed.node == "" {
			dir := filepath.Join(Cache(t), "node")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for _, f := range []string{"package.json", "kafkajs.js"} {
				b, err := os.ReadFile(filepath.Join(drivers, "node", f))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, f), b, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			must(t, dir, "npm", "install", "--silent", "--no-audit", "--no-fund")
			installed.node = dir
		}
		return exec.Command("node", filepath.Join(installed.node, "kafkajs.js"))
	}
	t.Fatalf("no client named %q", name)
	return nil
}
