package server

import (
	"github.com/varvelog/varve/internal/sendfile"
	"github.com/varvelog/varve/internal/vfs"
)

const (
	// flushAt is how many bytes of answers are gathered while requests are buffered.
	flushAt = 16 << 10
	// burstSize bounds what small regions are gathered into.
	burstSize = 64 << 10
)

// flush writes all finished answers.
func (c *Conn) flush() error {
	n := c.out.Finished()
	if n == 0 {
		return nil
	}
	c.outSize = max(n, c.outSize/2)
	var err error
	if regions := c.out.Regions(); len(regions) == 0 {
		err = c.sender.WriteBurst(c.out.Bytes()[:n], false)
	} else {
		err = c.writeRegions(n)
	}
	c.out.Discard(n)
	if err != nil {
		return c.outputError(err)
	}
	return nil
}

// writeRegions writes n buffered bytes with the regions between them. Bytes and
// small regions are gathered into bursts; a large region follows its burst,
// which says that more comes, by sendfile.
func (c *Conn) writeRegions(n int) error {
	burst := c.l.cfg.Buffers.Get(burstSize)
	defer c.l.cfg.Buffers.Put(burst)
	g := gather{c: c, buf: burst.B[:0]}
	at := 0
	for i, p := range c.out.Regions() {
		if err := g.bytes(c.out.Bytes()[at:p.At]); err != nil {
			return err
		}
		at = p.At
		if err := g.region(p.Region); err != nil {
			return err
		}
		c.out.Released(i)
	}
	if err := g.bytes(c.out.Bytes()[at:n]); err != nil {
		return err
	}
	return g.flush(false)
}

// gather collects the small pieces of a response into bursts.
type gather struct {
	c   *Conn
	buf []byte
}

// bytes adds b. A full buffer is written only when there is something to follow
// it: the announcement that more comes must come true, or the kernel holds the
// end of the answer back for 200 ms.
func (g *gather) bytes(b []byte) error {
	for len(b) > 0 {
		if len(g.buf) == cap(g.buf) {
			if err := g.flush(true); err != nil {
				return err
			}
		}
		n := min(len(b), cap(g.buf)-len(g.buf))
		g.buf = append(g.buf, b[:n]...)
		b = b[n:]
	}
	return nil
}

// region adds r when it is small, and else sends it behind what was gathered.
func (g *gather) region(r vfs.Region) error {
	if r.Length >= sendfile.MinRegion {
		err := g.c.sender.SendBurst(g.buf, r)
		g.buf = g.buf[:0]
		return err
	}
	if r.Length > int64(cap(g.buf)-len(g.buf)) {
		if err := g.flush(true); err != nil {
			return err
		}
	}
	var err error
	g.buf, err = sendfile.AppendRegion(g.buf, r)
	return err
}

func (g *gather) flush(more bool) error {
	if len(g.buf) == 0 {
		return nil
	}
	err := g.c.sender.WriteBurst(g.buf, more)
	g.buf = g.buf[:0]
	return err
}

// takeOutput puts a buffer under the queue of answers when it has none, as large
// as the answers needed last time.
func (c *Conn) takeOutput() {
	if c.outBuf == nil {
		c.outBuf = c.l.cfg.Buffers.Get(min(c.outSize, burstSize))
		c.out.SwapBuffer(c.outBuf.B)
	}
}

// dropOutput gives the buffer of the empty queue back.
func (c *Conn) dropOutput() {
	if c.outBuf == nil {
		return
	}
	c.l.cfg.Buffers.putGrown(c.outBuf, c.out.SwapBuffer(nil))
	c.outBuf = nil
}
