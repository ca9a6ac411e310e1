package server

import (
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/internal/wire"
)

// Sizes of read buffers. A connection that waits has none; the first read goes
// into a small one, and into a larger one once a read has filled it.
const (
	firstRead  = 16 << 10
	secondRead = 128 << 10
	// readRate is how many bytes a second a request must make, beyond the time
	// that it is granted.
	readRate = 100_000
)

// nextFrame returns the next frame, without its size prefix, in place: it is
// valid until the next call. Queued answers are written before it waits.
func (c *Conn) nextFrame() ([]byte, error) {
	for {
		need := wire.SizePrefix
		if size, ok := wire.FrameSize(c.unread()); ok {
			if err := wire.CheckFrameSize(size, c.l.cfg.MaxRequestBytes); err != nil {
				return nil, &CloseError{Reason: ReasonFrameSize, Err: err}
			}
			need += int(size)
			if c.w-c.r >= need {
				frame := c.in.B[c.r+wire.SizePrefix : c.r+need : c.r+need]
				c.r += need
				c.largest = max(c.largest, classSize(need))
				c.slack = c.l.cfg.ReadTimeout
				return frame, nil
			}
		}
		if err := c.flush(); err != nil {
			return nil, err
		}
		if c.l.isStopping() && c.r == c.w {
			return nil, &CloseError{Reason: ReasonStop}
		}
		if err := c.makeRoom(need); err != nil {
			return nil, err
		}
		if err := c.read(); err != nil {
			return nil, err
		}
	}
}

// unread is what was read and not yet consumed.
func (c *Conn) unread() []byte {
	if c.in == nil {
		return nil
	}
	return c.in.B[c.r:c.w]
}

// frameBuffered reports whether another complete frame was read already.
func (c *Conn) frameBuffered() bool {
	size, ok := wire.FrameSize(c.unread())
	return ok && size >= 0 && c.w-c.r >= wire.SizePrefix+int(size)
}

// makeRoom prepares the buffer for a frame of need bytes with its prefix, as
// much of it as has come: what is unread moves to the front, or to a larger
// buffer.
func (c *Conn) makeRoom(need int) error {
	if c.in == nil {
		return nil // stepRead takes one when there is something to read
	}
	have := copy(c.in.B, c.in.B[c.r:c.w])
	c.r, c.w = 0, have
	size := c.bufferSize(need, have)
	if size <= len(c.in.B) {
		return nil
	}
	more := int64(size) - c.held.n
	if need <= len(c.in.B) {
		if !c.l.cfg.Admission.tryTake(&c.held, more) {
			return nil // a larger buffer would only be faster
		}
	} else if !c.l.cfg.Admission.take(&c.held, more, c.l.stopping) {
		return &CloseError{Reason: ReasonStop}
	}
	larger := c.l.cfg.Buffers.Get(size)
	copy(larger.B, c.in.B[:have])
	c.l.cfg.Buffers.Put(c.in)
	c.in = larger
	return nil
}

// bufferSize chooses the buffer for a frame of need bytes of which have came.
// Memory follows the bytes that came, not what the frame claims: up to the
// largest frame that this connection has completed a frame is believed, beyond
// it the buffer grows eightfold, and above the pooled sizes it doubles.
func (c *Conn) bufferSize(need, have int) int {
	size := len(c.in.B)
	if need <= size {
		if c.filled && size < secondRead {
			return secondRead
		}
		return size
	}
	if wanted := classSize(need); wanted <= c.largest {
		return wanted
	}
	if have < size {
		return size // what is there is not used up yet
	}
	grown := size * 8
	if size >= largestClass {
		grown = size * 2
	} else {
		grown = min(grown, largestClass)
	}
	return min(grown, classSize(need))
}

// read reads once, waiting until there is something to read.
func (c *Conn) read() error {
	c.readErr = nil
	had := c.w
	err := c.rc.Read(c.readFn)
	c.due.Store(never)
	if err == nil {
		err = c.readErr
	}
	if err != nil {
		return c.inputError(err)
	}
	c.lastIn = time.Now()
	if !c.parked.IsZero() {
		c.spend(c.lastIn)
		c.parked = time.Time{}
		c.slack = min(c.slack+time.Duration(c.w-had)*(time.Second/readRate), c.l.cfg.ReadTimeout)
	}
	return nil
}

// spend takes the wait for the rest of a frame off the time that is left for it.
func (c *Conn) spend(now time.Time) { c.slack -= now.Sub(c.parked) }

// stepRead reports false, to wait for the socket, only after the kernel said
// EAGAIN: the poller is edge-triggered, and an edge that came before would be
// lost. While it waits with nothing read the connection holds no buffer.
func (c *Conn) stepRead(fd uintptr) bool {
	if c.in == nil {
		c.takeInput()
	}
	room := c.in.B[c.w:]
	for {
		n, err := unix.Read(int(fd), room)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			c.park()
			return false
		case err != nil:
			c.readErr = err
		case n == 0:
			c.readErr = io.EOF
		default:
			c.w += n
			c.filled = n == len(room)
		}
		return true
	}
}

// takeInput gives the connection its first buffer.
func (c *Conn) takeInput() {
	size := firstRead
	if c.filled && c.l.cfg.Admission.tryTake(&c.held, secondRead) {
		size = secondRead
	}
	c.in = c.l.cfg.Buffers.Get(size)
}

// dropInput gives the buffer back.
func (c *Conn) dropInput() {
	c.l.cfg.Buffers.Put(c.in)
	c.l.cfg.Admission.give(&c.held)
	c.in, c.r, c.w = nil, 0, 0
}

// park says when the wait that begins now has been too long.
func (c *Conn) park() {
	if c.w > 0 {
		now := time.Now()
		if !c.parked.IsZero() { // woken for nothing
			c.spend(now)
		}
		c.parked = now
		c.stalled.Store(int64(now.Sub(c.l.epoch)))
		c.holding.Store(c.held.n)
		c.awaitFrom(now, waitRest, c.slack)
		return
	}
	c.dropInput()
	c.dropOutput()
	switch {
	case !c.greeted:
		c.await(waitFirst, c.l.cfg.FirstRequestTimeout)
	case c.l.cfg.IdleTimeout > 0:
		c.await(waitNext, c.l.cfg.IdleTimeout)
	}
}
