package server

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/varvelog/varve/internal/sendfile"
	"github.com/varvelog/varve/internal/wire"
)

// Handler acts on requests.
type Handler interface {
	// Serve handles one request on its connection's goroutine; the next request
	// of the connection is not handled before it returns. It writes the body of
	// the answer into r.Out. With Close the connection is closed for the reason
	// that err gives (a *CloseError, an error wrapping wire.ErrMalformed, or any).
	// A panic is a bug and ends the process.
	Serve(r *Request) (verdict Verdict, err error)
}

// Verdict is what becomes of a request.
type Verdict int

// The verdicts.
const (
	Reply   Verdict = iota // r.Out holds the answer
	NoReply                // there is no answer (Produce with acks=0)
	Close                  // there is no answer, and the connection is closed
)

// Request is one request being handled. It and all it points at are valid until
// Serve returns.
type Request struct {
	Conn     *Conn
	Header   wire.RequestHeader
	Body     []byte       // aliases the connection's buffer
	Out      *wire.Chunks // the answer: its header is written, its body is the handler's
	Received time.Time    // when the last byte of the request was read
}

// ClientID is the header's client id, empty when null.
func (r *Request) ClientID() string { return r.Conn.clientID }

// AfterWrite has f run on the connection's goroutine once the answer was
// written, or queued because the next request has arrived already.
func (r *Request) AfterWrite(f func()) { r.Conn.after = append(r.Conn.after, f) }

// Release says that the handler no longer uses Body or anything that aliases it.
// The connection gives its read buffer back unless more input is in it, so that
// a request that waits holds none.
func (r *Request) Release() {
	r.Body, r.Header.ClientID = nil, nil
	if c := r.Conn; c.r == c.w {
		c.dropInput()
	}
}

// Flush writes the answers to earlier requests that are still queued. A handler
// calls it before it waits for anything but the disk.
func (r *Request) Flush() error { return r.Conn.flush() }

// Conn is one connection. Its goroutine reads, handles and writes; everything
// without another guard belongs to it.
type Conn struct {
	l      *Listener
	id     uint64
	tcp    *net.TCPConn
	rc     syscall.RawConn
	sender *sendfile.Sender
	addr   netip.Addr
	opened time.Time

	readFn  func(fd uintptr) bool // stepRead, bound once: a method value per call would allocate
	in      *Buffer               // nil while there is nothing to read
	r, w    int                   // unread bytes are in.B[r:w]
	held    grant                 // what in takes of the request memory
	largest int                   // size class that a complete frame of this connection has needed
	filled  bool                  // the last read used all the room it had
	readErr error                 // of the last stepRead
	lastIn  time.Time             // when bytes were read last
	parked  time.Time             // when the wait for the rest of a frame began; zero without one
	slack   time.Duration         // how long the rest of this frame may still be waited for

	out     wire.Chunks
	outBuf  *Buffer // under out
	outSize int     // bytes that recent answers took in outBuf
	after   []func()
	req     Request
	greeted bool // a complete request has come

	requests atomic.Int64 // complete ones; written by the connection's goroutine alone

	clientID string // of the last request
	software Software
	state    any

	// due is when the sweeper closes the connection, in nanoseconds since the
	// listener's epoch; never while it is busy. waits says what for; it is set first.
	due   atomic.Int64
	waits atomic.Int32
	// stalled is when it began to wait for the rest of a frame, in nanoseconds
	// since the listener's epoch, and holding what its buffer takes meanwhile.
	stalled, holding atomic.Int64
	// expired is what the connection waited for when another goroutine closed it.
	expired atomic.Int32

	done chan struct{} // closed by end
	gone atomic.Bool   // the peer has closed the connection, as far as the sweeper saw
	once sync.Once     // of end
}

// Software is what a client says of itself in ApiVersions.
type Software struct{ Name, Version string }

func newConn(l *Listener, tcp *net.TCPConn, addr netip.Addr, id uint64) (*Conn, error) {
	c := &Conn{l: l, id: id, tcp: tcp, addr: addr, done: make(chan struct{}), slack: l.cfg.FirstRequestTimeout}
	c.readFn = c.stepRead
	c.req.Conn, c.req.Out = c, &c.out
	c.opened = time.Now()
	c.lastIn = c.opened
	c.due.Store(never)
	var err error
	if c.rc, err = tcp.SyscallConn(); err != nil {
		return c, err
	}
	if c.sender, err = sendfile.NewSender(tcp); err != nil {
		return c, err
	}
	c.sender.SetStall(l.cfg.SendTimeout)
	return c, nil
}

// ID numbers the connections of a process, from 1.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr is the peer.
func (c *Conn) RemoteAddr() netip.AddrPort { return addrOf(c.tcp.RemoteAddr()) }

// LocalAddr is this end.
func (c *Conn) LocalAddr() netip.AddrPort { return addrOf(c.tcp.LocalAddr()) }

// Listener is the name of the listener it came in by.
func (c *Conn) Listener() string { return c.l.cfg.Name }

// Done is closed when the broker stops, or the peer has gone: a handler that
// waits must then answer.
func (c *Conn) Done() <-chan struct{} { return c.done }

// end has the handler stop waiting.
func (c *Conn) end() { c.once.Do(func() { close(c.done) }) }

// Software is what SetSoftware was given last.
func (c *Conn) Software() Software { return c.software }

// SetSoftware notes what the client says of itself.
func (c *Conn) SetSoftware(s Software) { c.software = s }

// State is the handler's own value for this connection; nil at first.
func (c *Conn) State() any { return c.state }

// SetState sets it.
func (c *Conn) SetState(v any) { c.state = v }

// serve is the connection's goroutine.
func (c *Conn) serve() {
	err := c.loop()
	if c.gone.Load() && reasonOf(err) == ReasonStop && !c.l.isStopping() {
		err = &CloseError{Reason: ReasonEOF}
	}
	c.out.Reset()
	c.dropInput()
	c.dropOutput()
	c.tcp.Close()
	c.l.forget(c)
	c.logClosed(err)
}

func (c *Conn) loop() error {
	for {
		frame, err := c.nextFrame()
		if err != nil {
			return err
		}
		if err := c.handle(frame); err != nil {
			return err
		}
		if c.l.isStopping() {
			return c.stop()
		}
	}
}

// handle has one request handled and queues its answer.
func (c *Conn) handle(frame []byte) error {
	h, body, err := wire.ParseRequestHeader(frame, c.l.cfg.Flexible)
	if err != nil {
		return err
	}
	c.requests.Store(c.requests.Load() + 1)
	c.req.Header = h
	if c.clientID != string(h.ClientID) { // costs nothing while the client keeps its id
		c.clientID = string(h.ClientID)
	}
	if !c.greeted {
		c.greeted = true
		c.l.cfg.Admission.greeted(c)
	}
	c.req.Body, c.req.Received = body, c.lastIn
	c.takeOutput()
	flexible := c.l.cfg.Flexible(h.Key, h.Version)
	c.out.Begin(h.CorrelationID, flexible && h.Key != wire.APIVersionsKey, flexible)
	verdict, err := c.l.handler.Serve(&c.req)
	c.req.Header.ClientID, c.req.Body = nil, nil // the buffer may move now
	switch verdict {
	case Reply:
		c.out.End()
	case NoReply:
		c.out.Abort()
	default:
		c.out.Abort()
		if flushErr := c.flush(); err == nil {
			err = flushErr
		}
		if err == nil {
			err = &CloseError{Reason: ReasonHandler}
		}
		return err
	}
	return c.finish()
}

// finish writes what is queued unless more answers will soon join it, then runs
// what waits for the answer.
func (c *Conn) finish() error {
	if c.out.Size() >= flushAt || !c.frameBuffered() {
		if err := c.flush(); err != nil {
			c.runAfter()
			return err
		}
	}
	c.runAfter()
	return nil
}

func (c *Conn) runAfter() {
	for i, f := range c.after {
		c.after[i] = nil
		f()
	}
	c.after = c.after[:0]
}

// stop ends the connection in good order: the last answer goes out first.
func (c *Conn) stop() error {
	if err := c.flush(); err != nil {
		return err
	}
	return &CloseError{Reason: ReasonStop}
}
