package commitlog

import (
	"runtime"
	"sync"

	"github.com/varvelog/varve/internal/record"
)

// Scratch is the memory that appends borrow while they look into compressed
// batches. One Scratch serves all logs of a process.
type Scratch struct {
	decompressors *record.Pool
	rebuilds      sync.Pool // of *rebuild
}

// NewScratch makes a Scratch that lets at most n batches be decompressed at a
// time; 0 means as many as there are processors.
func NewScratch(n int) *Scratch { return NewBoundedScratch(n, 0) }

// NewBoundedScratch is NewScratch with a bound for the decompressed records of
// one batch, in bytes; 0: what a batch may expand to.
func NewBoundedScratch(n, maxBytes int) *Scratch {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	return &Scratch{
		decompressors: record.NewPool(n, maxBytes),
		rebuilds:      sync.Pool{New: func() any { return new(rebuild) }},
	}
}

// rebuild is what writing a batch anew needs.
type rebuild struct {
	builder record.Builder
	records record.Iterator
}
