package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Kafka is one Apache Kafka node, or only its tools when it was not started.
type Kafka struct {
	Release string // such as 4.4.0
	Dir     string // holds server.properties and data
	Addr    string

	owned bool // a test has taken over stopping it
}

func kafkaScript(t testing.TB) string { return filepath.Join(Root(t), "e2e", "kafka", "kafka") }

func (k *Kafka) command(t testing.TB, args ...string) *exec.Cmd {
	cmd := exec.Command(kafkaScript(t), args...)
	cmd.Env = append(os.Environ(), "KAFKA_VERSION="+k.Release)
	return cmd
}

// FormatKafka prepares an Apache Kafka node in a temporary directory.
func FormatKafka(t testing.TB, release string, settings ...string) *Kafka {
	t.Helper()
	k := &Kafka{Release: release, Dir: t.TempDir()}
	port := FreePort(t)
	k.Addr = fmt.Sprintf("127.0.0.1:%d", port)
	out, errs, code := run(t, k.command(t, append([]string{"format", k.Dir, fmt.Sprint(port)}, settings...)...))
	if code != 0 {
		t.Fatalf("format Apache Kafka %s: %s%s", release, out, errs)
	}
	return k
}

// Up starts the node and returns once it serves; it is stopped when the test ends.
func (k *Kafka) Up(t testing.TB) {
	t.Helper()
	cmd := k.command(t, "up", k.Dir)
	cmd.Env = append(cmd.Env, "KAFKA_JVM=-Xms256m -Xmx512m -Djava.awt.headless=true")
	out, errs, code := run(t, cmd)
	if code != 0 {
		t.Fatalf("start Apache Kafka %s: %s%s\n%s", k.Release, out, errs, k.Log())
	}
	if !k.owned { // the test that started it first, not a subtest that restarts it
		k.owned = true
		t.Cleanup(func() { run(t, k.command(t, "down", k.Dir, "KILL")) })
	}
}

// Down stops the node cleanly; Kill ends it at once.
func (k *Kafka) Down(t testing.TB) { t.Helper(); run(t, k.command(t, "down", k.Dir)) }

// Kill ends the node by SIGKILL.
func (k *Kafka) Kill(t testing.TB) { t.Helper(); run(t, k.command(t, "down", k.Dir, "KILL")) }

// Log is what the node has printed.
func (k *Kafka) Log() string {
	b, _ := os.ReadFile(filepath.Join(k.Dir, "broker.log"))
	return string(b)
}

// Tool runs one of Apache Kafka's command line tools, such as dump-log.
func Tool(t testing.TB, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := (&Kafka{Release: "4.4.0"}).command(t, args...)
	cmd.Env = append(cmd.Env, "KAFKA_JVM=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto") // started often, short-lived
	cmd.Stdin = strings.NewReader(stdin)
	return run(t, cmd)
}

// MustTool is Tool for calls that have to succeed; it returns standard output.
func MustTool(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out, errs, code := Tool(t, stdin, args...)
	if code != 0 {
		t.Fatalf("kafka %s: exit %d\n%s%s", strings.Join(args, " "), code, out, errs)
	}
	return out
}

// StartTool starts a tool that runs until it is told to stop. The process is
// the tool's own JVM; it is killed when the test ends.
func StartTool(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	k := &Kafka{Release: "4.4.0"}
	cmd := k.command(t, append([]string{name}, args...)...)
	cmd.Env = append(cmd.Env, "KAFKA_JVM=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "KAFKA_EXEC=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}
