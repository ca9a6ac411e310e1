package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/varvelog/varve/internal/admin"
	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/node"
)

func get(t *testing.T, n *node.Node, path string) (int, string) {
	t.Helper()
	return getAt(t, n.HTTPAddr().String(), path)
}

func getAt(t *testing.T, addr, path string) (int, string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	r, err := (&http.Client{Transport: tr}).Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// startWith starts a node with options besides its settings.
func startWith(t *testing.T, dir string, o node.Options, settings ...string) (*node.Node, error) {
	t.Helper()
	var flags []config.Setting
	for _, s := range append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms=0"}, settings...) {
		key, value, _ := strings.Cut(s, "=")
		flags = append(flags, config.Setting{Key: key, Value: value})
	}
	cfg, _, err := config.Load(config.Sources{Flags: flags, DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return node.Start(context.Background(), cfg, o)
}

func TestHTTPShowsARunningBroker(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	n := start(t, dir, "varve.http.listen=127.0.0.1:0", "num.partitions=2")
	c := client(t, n, kgo.AllowAutoTopicCreation())
	for range 3 {
		if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Partition: 1, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	if code, body := get(t, n, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("/healthz = %d %q", code, body)
	}
	if code, body := get(t, n, "/readyz"); code != 200 || body != `{"ready":true}`+"\n" {
		t.Errorf("/readyz = %d %q", code, body)
	}
	if code, _ := get(t, n, "/version"); code != 200 {
		t.Errorf("/version = %d", code)
	}
	if code, body := get(t, n, "/debug/pprof/goroutine?debug=1"); code != 200 || !strings.Contains(body, "goroutine profile") {
		t.Errorf("/debug/pprof/goroutine = %d %.80q", code, body)
	}
	_, page := get(t, n, "/metrics")
	sum := 0
	for _, want := range []string{
		`kafka_server_kafkaserver_brokerstate 3`,
		`kafka_server_replicamanager_partitioncount 2`,
		`kafka_server_replicamanager_leadercount 2`,
		`kafka_log_logmanager_offlinelogdirectorycount 0`,
		`kafka_log_logmanager_logdirectoryoffline{logDirectory="` + dir + `"} 0`,
		`varve_log_dir_read_only{dir="` + dir + `"} 0`,
		`varve_events_total{event="started"} 1`,
		`varve_ready 1`,
		`# TYPE varve_fsync_seconds histogram`,
		`varve_metrics_partition_series_dropped 0`,
	} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("the metrics lack %s", want)
		}
	}
	for _, m := range regexp.MustCompile(`kafka_log_log_logendoffset\{topic="orders",partition="[01]"\} (\d+)`).FindAllStringSubmatch(page, -1) {
		sum += int(m[1][0] - '0')
	}
	if sum != 3 {
		t.Errorf("end offsets of orders add up to %d, want the 3 records", sum)
	}
	known := map[string]bool{}
	for _, m := range admin.Catalogue() {
		known[m.Name] = true
	}
	for _, line := range strings.Split(strings.TrimSpace(page), "\n") {
		name := strings.FieldsFunc(line, func(r rune) bool { return r == '{' || r == ' ' })[0]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); ok && known[base] {
				name = base
			}
		}
		if name != "#" && !known[name] && !strings.HasPrefix(name, "process_") && !strings.HasPrefix(name, "go_") {
			t.Errorf("%s is not in the catalogue", name)
		}
	}
	addr := n.HTTPAddr().String()
	stop(t, n)
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the HTTP listener outlives the node")
	}
}

func TestReadyzWaitsForRecovery(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir, "num.partitions=3")
	c := client(t, n, kgo.AllowAutoTopicCreation())
	if err := c.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("v")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	stop(t, n)
	path := filepath.Join(t.TempDir(), "http.sock")
	var codes []int
	var bodies []string
	n, err := startWith(t, dir, node.Options{Progress: func(done, of int) {
		tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}
		r, err := (&http.Client{Transport: tr}).Get("http://localhost/readyz")
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		codes, bodies = append(codes, r.StatusCode), append(bodies, string(b))
	}}, "varve.http.listen="+path)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, n)
	if len(codes) != 3 || codes[0] != 503 {
		t.Fatalf("/readyz during the load = %v %q, want three times 503", codes, bodies)
	}
	if want := `{"ready":false,"waiting":[{"what":"recovery","done":2,"total":3}]}` + "\n"; bodies[1] != want {
		t.Errorf("/readyz after two of three partitions = %s, want %s", bodies[1], want)
	}
}

func TestAnHTTPAddressInUse(t *testing.T) {
	t.Run("that somebody set stops the start", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		dir := filepath.Join(t.TempDir(), "data")
		_, err = startWith(t, dir, node.Options{}, "varve.http.listen="+l.Addr().String())
		var bind *node.HTTPListenError
		if !errors.As(err, &bind) || !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatalf("Start = %v, want the address in use", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "meta.properties")); err == nil {
			t.Error("a broker that cannot listen formats its directory")
		}
	})
	t.Run("that is the default does not", func(t *testing.T) {
		// Whoever holds the port, this test or another process, it is in use.
		if l, err := net.Listen("tcp", "127.0.0.1:9644"); err == nil {
			defer l.Close()
		}
		var out bytes.Buffer
		n, err := startWith(t, t.TempDir(), node.Options{HTTP: true, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		stop(t, n)
		if !strings.Contains(out.String(), "event=http-off") {
			t.Errorf("no event http-off in the log:\n%s", out.String())
		}
	})
	t.Run("is not asked for by a program that embeds a broker", func(t *testing.T) {
		n := start(t, t.TempDir())
		defer stop(t, n)
		if n.HTTPAddr() != nil {
			t.Errorf("HTTP on %v", n.HTTPAddr())
		}
	})
}

func TestReadyzNamesADirectoryThatIsOffline(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	n := start(t, dir, "log.dirs="+dir+","+other, "varve.http.listen=127.0.0.1:0")
	stop(t, n)
	if err := os.Rename(other, other+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	n, err := tryStart(t, dir, "log.dirs="+dir+","+other, "varve.http.listen=127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(t.Context()) // not clean: a directory is offline
	code, body := get(t, n, "/readyz")
	var r struct {
		Ready   bool
		Waiting []struct{ What, Dir, Err string }
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		t.Fatal(err)
	}
	if code != 503 || r.Ready || len(r.Waiting) != 1 || r.Waiting[0].What != "directory" || r.Waiting[0].Dir != other || r.Waiting[0].Err == "" {
		t.Errorf("/readyz = %d %s, want 503 with the directory", code, body)
	}
}
