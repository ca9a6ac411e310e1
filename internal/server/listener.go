// Package server is the network side of the broker: listeners and connections.
// It reads frames, admits them, has each handled on its connection's goroutine,
// and writes the answers. It knows frames and headers, and no API.
//
// Before it on the path: the socket. After it: the broker, which implements
// Handler.
package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// Listener accepts connections at one address and owns them: the goroutines of
// all of them have ended when Close returns.
type Listener struct {
	cfg     Config
	handler Handler
	ln      *net.TCPListener
	log     *slog.Logger
	epoch   time.Time // from which due times are counted, by the monotonic clock

	stopping chan struct{} // closed when the listener begins to stop
	stopOnce sync.Once
	running  sync.WaitGroup // the accept loop, the sweeper and all connections

	mu       sync.Mutex
	conns    map[*Conn]struct{}
	accepted int64 // connections so far; guarded by mu
	requests int64 // of connections that are closed; guarded by mu

	spare *os.File // a descriptor kept for the moment when there is no other; owned by the accept loop
}

// Listen binds the address and starts accepting. The handler is called from
// many goroutines at once, one a connection.
func Listen(cfg Config, handler Handler) (*Listener, error) {
	cfg = cfg.withDefaults()
	lc := net.ListenConfig{KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 60 * time.Second, Interval: 10 * time.Second, Count: 3,
	}}
	lc.Control = func(_, _ string, rc syscall.RawConn) error { return setBuffers(rc, cfg.SendBuffer, cfg.ReceiveBuffer) }
	ln, err := lc.Listen(context.Background(), "tcp", cfg.Address)
	if err != nil {
		return nil, err
	}
	l := &Listener{
		cfg:      cfg,
		handler:  handler,
		ln:       ln.(*net.TCPListener),
		log:      cfg.Logger.With("listener", cfg.Name),
		epoch:    time.Now(),
		stopping: make(chan struct{}),
		conns:    make(map[*Conn]struct{}),
	}
	if err := setBacklog(l.ln, cfg.Backlog); err != nil {
		ln.Close()
		return nil, err
	}
	l.spare = openSpare()
	l.running.Go(l.accept)
	l.running.Go(l.sweep)
	return l, nil
}

// Addr is the bound address, with the port that the system chose for port 0.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Name is the listener's name in the configuration.
func (l *Listener) Name() string { return l.cfg.Name }

// Shutdown stops accepting, lets each connection finish the request it works
// on, and closes it then. Waits that watch Conn.Done end at once. When ctx ends
// first, connections are closed in the middle of what they do; Shutdown then
// returns ctx's error after they are gone.
func (l *Listener) Shutdown(ctx context.Context) error {
	l.beginStop()
	done := make(chan struct{})
	go func() {
		l.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	l.closeConns()
	<-done
	return ctx.Err()
}

// Close is Shutdown without a grace. A second call does nothing.
func (l *Listener) Close() error {
	l.beginStop()
	l.closeConns()
	l.running.Wait()
	return nil
}

// beginStop closes the socket and wakes every connection that waits for its
// peer; one that handles a request sees it when that is done.
func (l *Listener) beginStop() {
	l.stopOnce.Do(func() {
		close(l.stopping)
		l.ln.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		for c := range l.conns {
			c.end()
			c.tcp.SetReadDeadline(time.Unix(1, 0))
		}
	})
}

func (l *Listener) closeConns() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.tcp.Close()
	}
}

// accept takes connections in until the listener stops.
func (l *Listener) accept() {
	defer func() {
		if l.spare != nil {
			l.spare.Close()
		}
	}()
	backoff := 5 * time.Millisecond
	for {
		for wait := l.cfg.Admission.pause(time.Now()); wait > 0; wait = l.cfg.Admission.pause(time.Now()) {
			if !l.pause(wait) {
				return
			}
		}
		tcp, err := l.ln.AcceptTCP()
		switch {
		case err == nil:
			backoff = 5 * time.Millisecond
			l.admit(tcp)
		case l.isStopping() || errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE):
			l.refuseForWantOfDescriptors()
			fallthrough
		default:
			if !l.pause(backoff) {
				return
			}
			backoff = min(2*backoff, time.Second)
		}
	}
}

// pause waits; false when the listener stops.
func (l *Listener) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.stopping:
		return false
	}
}

func (l *Listener) isStopping() bool {
	select {
	case <-l.stopping:
		return true
	default:
		return false
	}
}

// admit starts the connection's goroutine, or closes the connection.
func (l *Listener) admit(tcp *net.TCPConn) {
	addr := tcp.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	if refused := l.cfg.Admission.connect(addr); refused != "" {
		l.logRefused(tcp.RemoteAddr(), refused)
		tcp.Close()
		return
	}
	c, err := newConn(l, tcp, addr, l.cfg.Admission.lastID.Add(1))
	if err != nil {
		l.cfg.Admission.disconnect(c)
		tcp.Close()
		return
	}
	if evicted := l.cfg.Admission.enter(c); evicted != nil {
		evicted.expire(waitFirst)
	}
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.accepted++
	l.mu.Unlock()
	if l.isStopping() { // beginStop may have missed it
		c.end()
		tcp.SetReadDeadline(time.Unix(1, 0))
	}
	l.running.Go(c.serve)
}

// forget counts a closed connection out.
func (l *Listener) forget(c *Conn) {
	l.cfg.Admission.disconnect(c)
	l.mu.Lock()
	delete(l.conns, c)
	l.requests += c.requests.Load()
	l.mu.Unlock()
}

// refuseForWantOfDescriptors uses the spare descriptor to take one connection
// off the queue and close it, so that its client knows.
func (l *Listener) refuseForWantOfDescriptors() {
	if l.spare == nil {
		return
	}
	l.spare.Close()
	l.ln.SetDeadline(time.Now().Add(time.Millisecond))
	tcp, err := l.ln.AcceptTCP()
	l.ln.SetDeadline(time.Time{})
	if err == nil {
		l.logRefused(tcp.RemoteAddr(), refusedFds)
		tcp.Close()
	}
	l.spare = openSpare()
	l.log.Warn("file descriptors nearly used up", "event", "fd-low", "open", l.cfg.Admission.Connections())
}

func (l *Listener) logRefused(remote net.Addr, reason string) {
	l.log.Info("connection refused", "event", "conn-refused", "remote", remote.String(), "reason", reason)
}

// addrOf is the address of a connection for counting and logs.
func addrOf(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort()
	}
	return netip.AddrPort{}
}
