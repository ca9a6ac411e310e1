package admin

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, v *View) *Server {
	t.Helper()
	s, err := Listen(Options{
		Address: "127.0.0.1:0", Look: func() *View { return v }, Logger: slog.New(slog.DiscardHandler),
		Events: func() map[string]uint64 { return map[string]uint64{"tail-cut": 2, "index-rebuilt": 5} },
		Errors: func() map[string]uint64 { return map[string]uint64{"tail-cut": 1} },
		Build:  Build{Version: "1.2.3", Go: "go1", Kafka: "4.4"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// ask sends one request by hand and returns the status line and the rest.
func ask(t *testing.T, s *Server, request string) (status, rest string) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, request)
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(r)
	return strings.TrimSpace(line), string(b)
}

func TestOnlyHostsOfThisMachineAreAnswered(t *testing.T) {
	s := listen(t, &View{State: Running})
	tests := []struct {
		host string
		want int
	}{
		{"localhost:9644", 200}, {"127.0.0.1:9644", 200}, {"[::1]:9644", 200}, {"10.1.2.3", 200}, {"LOCALHOST", 200},
		{"evil.example.com", 421}, {"evil.example.com:9644", 421}, {"localhost.evil.example.com", 421}, {"127.0.0.1.nip.io", 421},
	}
	for _, tt := range tests {
		status, _ := ask(t, s, "GET /metrics HTTP/1.1\r\nHost: "+tt.host+"\r\nConnection: close\r\n\r\n")
		if want := fmt.Sprintf("HTTP/1.1 %d ", tt.want); !strings.HasPrefix(status, want) {
			t.Errorf("Host %s: %s, want %d", tt.host, status, tt.want)
		}
	}
}

func TestOnlyLooksAreAnswered(t *testing.T) {
	s := listen(t, &View{State: Running})
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		status, _ := ask(t, s, method+" /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(status, "HTTP/1.1 405") {
			t.Errorf("%s: %s, want 405", method, status)
		}
	}
	if status, _ := ask(t, s, "GET /debug/pprof/../../etc HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); strings.HasPrefix(status, "HTTP/1.1 200") {
		t.Errorf("a path upwards: %s", status)
	}
}

func TestConnectionsBeyondTheLimitAreTurnedAway(t *testing.T) {
	s := listen(t, &View{State: Running})
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	// An answered request on each shows that it was taken in.
	for i := range maxConns {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
		io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if r, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || r.StatusCode != 200 {
			t.Fatalf("connection %d: %v %v", i, r, err)
		}
	}
	c, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || r.StatusCode != http.StatusTooManyRequests {
		t.Fatalf("connection %d = %v, %v, want 429", maxConns+1, r, err)
	}
	// One that ends makes room. The server sees the end in its own time.
	held[0].Close()
	for {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		c.Close()
		if err == nil && r.StatusCode == 200 {
			break
		}
	}
}

func TestHealthzNamesWhatIsStuck(t *testing.T) {
	v := &View{State: Running, Stuck: []string{"sync of /a/orders-0/00.log for 31 s"}}
	s := listen(t, v)
	status, body := ask(t, s, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	if !strings.HasPrefix(status, "HTTP/1.1 503") || !strings.Contains(body, "sync of /a/orders-0/00.log for 31 s") {
		t.Errorf("/healthz = %s %s", status, body)
	}
}

func TestReadinessByState(t *testing.T) {
	tests := []struct {
		name string
		v    View
		want string
	}{
		{"running", View{State: Running}, ""},
		{"starting", View{State: Starting}, "start"},
		{"recovering", View{State: Recovery, Loaded: 3, ToLoad: 10}, "recovery"},
		{"stopping", View{State: Stopping}, "stop"},
		{"failed", View{State: Running, Failed: errors.New("disk")}, "failed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := readinessOf(&tt.v)
			if r.Ready != (tt.want == "") || !r.Ready && r.Waiting[0].What != tt.want {
				t.Errorf("readiness = %+v, want %q awaited", r, tt.want)
			}
		})
	}
}

func TestThePageOfABrokerThatHasNothingYet(t *testing.T) {
	s := listen(t, &View{State: Starting})
	var b bytes.Buffer
	p := newPage(&b)
	s.collect(p, s.o.Look())
	p.flush()
	for _, want := range []string{
		`varve_build_info{version="1.2.3",go="go1",commit=""} 1`, "varve_ready 0", "kafka_server_kafkaserver_brokerstate 1",
		`varve_events_total{event="tail-cut"} 2`, `varve_corruption_total{kind="index"} 5`, `varve_corruption_total{kind="log"} 1`,
	} {
		if !strings.Contains(b.String(), want+"\n") {
			t.Errorf("the page lacks %s", want)
		}
	}
	for _, unknown := range []string{"kafka_log_log", "partitioncount", "varve_log_dir", "numgroups", "varve_connections"} {
		if strings.Contains(b.String(), unknown) {
			t.Errorf("the page tells %s before it is known", unknown)
		}
	}
}

func TestLabelsAreEscaped(t *testing.T) {
	var b bytes.Buffer
	p := newPage(&b)
	p.family = "m"
	p.count(1, "dir", "a\"b\\c\nd")
	p.flush()
	if want := `m{dir="a\"b\\c\nd"} 1` + "\n"; b.String() != want {
		t.Errorf("sample = %q, want %q", b.String(), want)
	}
}

func TestOpenMetricsOnRequest(t *testing.T) {
	s := listen(t, &View{State: Running})
	_, page := ask(t, s, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n")
	if !strings.Contains(page, "# TYPE varve_events counter\n") || !strings.Contains(page, "\n# EOF\n") {
		t.Errorf("no OpenMetrics: %.300s", page)
	}
}

// TestThePageOfTheManualListsEveryMetric compares docs/metrics.md with the
// catalogue: rows of | `name` | type | labels | meaning |.
func TestThePageOfTheManualListsEveryMetric(t *testing.T) {
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []Metric
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (\\w+) \\| ([^|]*) \\| ([^|]*) \\|$").FindAllStringSubmatch(string(text), -1) {
		got = append(got, Metric{m[1], m[2], strings.ReplaceAll(strings.TrimSpace(m[3]), "`", ""), m[4]})
	}
	want := Catalogue()
	for i := range max(len(got), len(want)) {
		var g, w Metric
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Fatalf("row %d of docs/metrics.md is\n%+v, the catalogue has\n%+v", i+1, g, w)
		}
	}
}
