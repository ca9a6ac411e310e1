package server

import (
	"math/bits"
	"sync"
)

// Sizes of pooled buffers: powers of two.
const (
	smallestClass = 4 << 10
	largestClass  = 1 << 20
	classes       = 9
)

// Buffers hands out byte buffers by size class and takes them back. A buffer
// has one owner at a time; one above the largest class is made and dropped.
type Buffers struct {
	pools [classes]sync.Pool
}

// NewBuffers returns pools that are empty.
func NewBuffers() *Buffers { return &Buffers{} }

// Buffer is a pooled buffer. It is handed around by pointer, because putting a
// slice into a pool allocates its header each time.
type Buffer struct {
	B     []byte // full length; the owner slices it
	class int    // -1: not pooled
}

// Get returns a buffer of at least size bytes: of exactly that size above the
// largest class, of the smallest class that fits below.
func (p *Buffers) Get(size int) *Buffer {
	class := classOf(size)
	if class < 0 {
		return &Buffer{B: make([]byte, size), class: -1}
	}
	if b, ok := p.pools[class].Get().(*Buffer); ok {
		return b
	}
	return &Buffer{B: make([]byte, smallestClass<<class), class: class}
}

// Put takes a buffer back. Nil is ignored.
func (p *Buffers) Put(b *Buffer) {
	if b == nil || b.class < 0 {
		return
	}
	poison(b.B)
	p.pools[b.class].Put(b)
}

// classSize is the size of the buffer that Get returns for size.
func classSize(size int) int {
	if class := classOf(size); class >= 0 {
		return smallestClass << class
	}
	return size
}

// classOf is the index of the smallest class that holds size bytes, -1 when
// there is none.
func classOf(size int) int {
	if size > largestClass {
		return -1
	}
	if size <= smallestClass {
		return 0
	}
	return bits.Len(uint((size - 1) / smallestClass))
}

// putGrown takes back a buffer whose owner appended to it: grown is what the
// appending made of it, possibly a larger slice.
func (p *Buffers) putGrown(b *Buffer, grown []byte) {
	if n := cap(grown); n > len(b.B) {
		class := min(bits.Len(uint(n/smallestClass))-1, classes-1)
		b.B, b.class = grown[:smallestClass<<class:smallestClass<<class], class
	}
	p.Put(b)
}
