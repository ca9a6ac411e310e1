package wire

import (
	"encoding/binary"
	"math"

	"github.com/varvelog/varve/internal/invariant"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// Chunks is the output of a connection: the bytes of one or more responses,
// with file regions at some places between them. Record bytes of a Fetch are
// not in memory here; they go from the file to the socket when the chunks are
// written.
//
// A response is written between Begin and End; Abort takes it back. The zero
// value is empty and ready. One goroutine at a time uses it.
type Chunks struct {
	buf     []byte
	placed  []Placed
	length  int64 // of the regions in placed
	open    bool  // between Begin and End
	start   int   // where the open response begins in buf
	regions int   // len(placed) at Begin
	flex    bool  // compact lengths and tagged sections in the open response
}

// Placed is a region and the number of buffered bytes that go before it.
type Placed struct {
	At     int
	Region vfs.Region
}

// Begin starts a response: room for the size, the correlation id, and an empty
// tagged section when the header is flexible. flexibleBody selects compact
// lengths for the body that follows.
func (c *Chunks) Begin(correlationID int32, flexibleHeader, flexibleBody bool) {
	invariant.Check(!c.open, "response begun inside another")
	c.open, c.start, c.regions, c.flex = true, len(c.buf), len(c.placed), flexibleBody
	c.buf = append(c.buf, 0, 0, 0, 0)
	c.Int32(correlationID)
	if flexibleHeader {
		c.buf = append(c.buf, 0)
	}
}

// End finishes the response begun last by filling in its size.
func (c *Chunks) End() {
	size := int64(len(c.buf) - c.start - SizePrefix)
	for _, p := range c.placed[c.regions:] {
		size += p.Region.Length
	}
	if !c.open || size > math.MaxInt32 {
		invariant.Violated("response of %d bytes cannot be framed", size)
	}
	binary.BigEndian.PutUint32(c.buf[c.start:], uint32(size))
	c.open = false
}

// Abort takes back the response begun last and releases its regions. Without
// an open response it does nothing.
func (c *Chunks) Abort() {
	if !c.open {
		return
	}
	c.open = false
	c.buf = c.buf[:c.start]
	c.release(c.regions)
}

// Finished is the number of buffered bytes that belong to finished responses.
func (c *Chunks) Finished() int {
	if c.open {
		return c.start
	}
	return len(c.buf)
}

// Bytes is the buffered part; Regions says where the regions lie in it. Both
// are valid until the next change.
func (c *Chunks) Bytes() []byte { return c.buf }

// Regions lists the regions in order of their place.
func (c *Chunks) Regions() []Placed { return c.placed }

// Size is the number of bytes to send, regions included.
func (c *Chunks) Size() int64 { return int64(len(c.buf)) + c.length }

// Discard drops what was sent: the first n buffered bytes, which must be all of
// Finished, and the regions between them, which must have been released by the
// sender (Released). An open response stays; it must not have regions yet.
func (c *Chunks) Discard(n int) {
	invariant.Check(n == c.Finished(), "discard of %d bytes, %d are finished", n, c.Finished())
	kept := len(c.placed)
	if c.open {
		kept = c.regions
	}
	invariant.Check(kept == len(c.placed), "discard below an open response with regions")
	c.buf = c.buf[:copy(c.buf, c.buf[n:])]
	c.start, c.regions = 0, 0
	c.release(0)
}

// Released notes that region i was sent or given up, and gives back the
// reference it held.
func (c *Chunks) Released(i int) {
	if release := c.placed[i].Region.Release; release != nil {
		c.placed[i].Region.Release = nil
		release()
	}
}

// release drops the regions from index i on, with the references still held.
func (c *Chunks) release(i int) {
	for j := i; j < len(c.placed); j++ {
		c.Released(j)
		c.length -= c.placed[j].Region.Length
		c.placed[j] = Placed{}
	}
	c.placed = c.placed[:i]
}

// Reset drops everything and keeps the memory.
func (c *Chunks) Reset() {
	c.open, c.start, c.regions = false, 0, 0
	c.buf = c.buf[:0]
	c.release(0)
}

// SwapBuffer puts an empty buffer under empty chunks and returns the one they
// had, so that the owner can pool it.
func (c *Chunks) SwapBuffer(b []byte) []byte {
	invariant.Check(len(c.buf) == 0 && len(c.placed) == 0, "buffer swapped under %d bytes", len(c.buf))
	old := c.buf
	c.buf = b[:0]
	return old
}

// Appender is a body that encodes itself, such as a kmsg response.
type Appender interface{ AppendTo(dst []byte) []byte }

// Message writes a body that encodes itself.
func (c *Chunks) Message(m Appender) { c.buf = m.AppendTo(c.buf) }

// Raw writes bytes that are encoded already.
func (c *Chunks) Raw(b []byte) { c.buf = append(c.buf, b...) }

// Bool writes one byte, 0 or 1.
func (c *Chunks) Bool(v bool) {
	if v {
		c.buf = append(c.buf, 1)
		return
	}
	c.buf = append(c.buf, 0)
}

// Int8 writes one byte.
func (c *Chunks) Int8(v int8) { c.buf = append(c.buf, byte(v)) }

// Int16 writes two bytes.
func (c *Chunks) Int16(v int16) { c.buf = binary.BigEndian.AppendUint16(c.buf, uint16(v)) }

// Int32 writes four bytes.
func (c *Chunks) Int32(v int32) { c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(v)) }

// Int64 writes eight bytes.
func (c *Chunks) Int64(v int64) { c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(v)) }

// UUID writes sixteen bytes.
func (c *Chunks) UUID(u kafka.UUID) { c.buf = append(c.buf, u[:]...) }

// Uvarint writes an unsigned varint.
func (c *Chunks) Uvarint(v uint32) { c.buf = binary.AppendUvarint(c.buf, uint64(v)) }

// Array writes the number of elements of an array, -1 for null.
func (c *Chunks) Array(n int) {
	if c.flex {
		c.Uvarint(uint32(n + 1))
		return
	}
	c.Int32(int32(n))
}

// NullableString writes a string; nil is null.
func (c *Chunks) NullableString(s []byte) {
	n := len(s)
	if s == nil {
		n = -1
	}
	if c.flex {
		c.Uvarint(uint32(n + 1))
	} else {
		c.Int16(int16(n))
	}
	c.buf = append(c.buf, s...)
}

// String writes a string; nil is the empty one.
func (c *Chunks) String(s []byte) {
	if c.flex {
		c.Uvarint(uint32(len(s) + 1))
	} else {
		c.Int16(int16(len(s)))
	}
	c.buf = append(c.buf, s...)
}

// Text is String for a Go string.
func (c *Chunks) Text(s string) {
	if c.flex {
		c.Uvarint(uint32(len(s) + 1))
	} else {
		c.Int16(int16(len(s)))
	}
	c.buf = append(c.buf, s...)
}

// NullableText is NullableString for a Go string; nil is null.
func (c *Chunks) NullableText(s *string) {
	if s == nil {
		c.NullableString(nil)
		return
	}
	c.Text(*s)
}

// NoTags ends a struct without tagged fields; nothing when not flexible.
func (c *Chunks) NoTags() {
	if c.flex {
		c.buf = append(c.buf, 0)
	}
}

// Records writes a records field: its length, then the region, or the bytes
// where the region is empty. It is never null. The chunks own the region's
// reference from here on.
func (c *Chunks) Records(region vfs.Region, inline []byte) {
	n := region.Length
	if n == 0 {
		n = int64(len(inline))
	}
	if n >= math.MaxInt32 {
		invariant.Violated("records field of %d bytes", n)
	}
	if c.flex {
		c.Uvarint(uint32(n + 1))
	} else {
		c.Int32(int32(n))
	}
	if region.Length == 0 {
		c.buf = append(c.buf, inline...)
		if region.Release != nil {
			region.Release()
		}
		return
	}
	c.placed = append(c.placed, Placed{At: len(c.buf), Region: region})
	c.length += n
}
