package segment

import (
	"sync/atomic"

	"github.com/varvelog/varve/internal/kafka"
)

// ringSize is how many batches a ring remembers, a power of two.
const ringSize = 256

// ring remembers where the last batches of an active segment start, so that a
// consumer at the tail is answered without touching the index or a header in
// the file. The writer pushes; readers read beside it without a lock and check
// afterwards that the slots they used were not overwritten meanwhile.
type ring struct {
	pushed atomic.Uint64 // batches pushed so far
	slots  [ringSize]ringSlot
}

type ringSlot struct {
	last atomic.Int64 // last offset of the batch
	pos  atomic.Int64 // byte of the .log where it starts
}

func (r *ring) push(last kafka.Offset, pos int64) {
	n := r.pushed.Load()
	slot := &r.slots[n%ringSize]
	slot.last.Store(int64(last))
	slot.pos.Store(pos)
	r.pushed.Store(n + 1)
}

// find returns the start and the end of the first batch whose last offset is at
// or after target; the end is -1 for the newest batch. ok is false when the
// ring does not know: the batch before the one asked for must be in it too,
// or there could be an earlier one that fits.
func (r *ring) find(target kafka.Offset) (pos, end int64, ok bool) {
	n := r.pushed.Load()
	oldest := uint64(0)
	if n >= ringSize {
		oldest = n - ringSize + 1 // one less: the writer may be in that slot
	}
	if n-oldest < 2 || r.slots[oldest%ringSize].last.Load() >= int64(target) {
		return 0, 0, false
	}
	lo, hi := oldest+1, n // the first with last >= target is in [lo, hi]
	for lo < hi {
		mid := lo + (hi-lo)/2
		if r.slots[mid%ringSize].last.Load() >= int64(target) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	if lo == n {
		return 0, 0, false
	}
	pos, end = r.slots[lo%ringSize].pos.Load(), -1
	if lo+1 < n {
		end = r.slots[(lo+1)%ringSize].pos.Load()
	}
	// A slot is overwritten only after pushed has reached its number + ringSize.
	return pos, end, r.pushed.Load() < oldest+ringSize
}
