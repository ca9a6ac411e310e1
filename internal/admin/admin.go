// Package admin is the broker's HTTP side: health, readiness, metrics, version
// and profiles. It only looks; nothing here changes the broker.
//
// Before it on the path: node, which opens it first of all, so that a start can
// be watched. After it: the packages whose state it shows.
package admin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"
)

// Limits of the listener (faults.md 8.2).
const (
	maxConns      = 64
	headerTimeout = 10 * time.Second
	maxBody       = 1 << 20
	writeTimeout  = 30 * time.Second
	idleTimeout   = time.Minute
	maxHeader     = 64 << 10
)

// Options say where to listen and what does not change. Address, Look and
// Logger are needed.
type Options struct {
	// Address is host:port, or the path of a unix socket, which holds a slash.
	Address string
	// Look returns the state of the broker now. It is called for each request.
	Look   func() *View
	Logger *slog.Logger
	// Events counts what was logged. It may be nil.
	Events func() map[string]uint64
	// Errors are those of level ERROR among them. It may be nil.
	Errors func() map[string]uint64
	Build  Build
	// PartitionLimit is varve.metrics.partition.limit. 0: 10,000.
	PartitionLimit int
}

// Build is what /version answers.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go"`
	Kafka   string `json:"kafka"`
}

// Server answers HTTP requests until it is closed.
type Server struct {
	o    Options
	ln   net.Listener
	http *http.Server
	done chan struct{} // closed when Serve has returned

	serving atomic.Int64 // connections
}

// Listen binds the address and starts to answer.
func Listen(o Options) (*Server, error) {
	network := "tcp"
	if strings.Contains(o.Address, "/") {
		network = "unix"
	}
	ln, err := net.Listen(network, o.Address)
	if err != nil {
		return nil, err
	}
	if o.PartitionLimit == 0 {
		o.PartitionLimit = 10_000
	}
	s := &Server{o: o, ln: ln, done: make(chan struct{})}
	s.http = &http.Server{
		Handler:           s.guard(s.routes()),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       writeTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(&limited{ln, s}); !errors.Is(err, http.ErrServerClosed) {
			o.Logger.Error("HTTP listener failed", "event", "http-failed", "err", err)
		}
	}()
	return s, nil
}

// Addr is the bound address.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Close ends the answers under way within a moment and closes the listener.
func (s *Server) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close() // what answers still would not end in its time
	}
	<-s.done
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /version", s.version)
	mux.HandleFunc("GET /debug/pprof/{name}", s.profile)
	mux.HandleFunc("GET /debug/pprof/{$}", s.profiles)
	mux.HandleFunc("GET /{$}", s.index)
	return mux
}

// guard refuses what a browser was tricked into (a Host that is a name of
// somebody's choosing resolves to this machine) and bounds the body.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.ours(r.Host) {
			http.Error(w, "unknown host", http.StatusMisdirectedRequest)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// ours reports whether a Host header names this machine: by an address, as
// localhost, or by the name that the listener was configured with.
func (s *Server) ours(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || strings.EqualFold(host, "localhost") {
		return true
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	name, _, err := net.SplitHostPort(s.o.Address)
	return err == nil && name != "" && strings.EqualFold(name, host)
}

// limited closes connections beyond maxConns, with an answer.
type limited struct {
	net.Listener
	s *Server
}

const tooMany = "HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.s.serving.Add(1) <= maxConns {
			return &counted{Conn: c, s: l.s}, nil
		}
		l.s.serving.Add(-1)
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte(tooMany)) // into an empty send buffer: does not wait
		_ = c.Close()
	}
}

// counted is a connection that is counted out when it is closed, once.
type counted struct {
	net.Conn
	s      *Server
	closed atomic.Bool
}

// Close implements net.Conn.
func (c *counted) Close() error {
	if c.closed.CompareAndSwap(false, true) {
		c.s.serving.Add(-1)
	}
	return c.Conn.Close()
}
