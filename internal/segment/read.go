package segment

import (
	"errors"
	"math"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

const maxRelative = math.MaxInt32

// ReadOptions bound a read.
type ReadOptions struct {
	MaxBytes int64
	// Limit is the first byte that may not be returned: the high watermark's
	// or last stable offset's position when that lies in this segment, else
	// anything at or above Size.
	Limit int64
	// MinOneBatch returns the whole first batch even when it is larger than MaxBytes.
	MinOneBatch bool
	// Hint is the start of the batch that holds the offset, when Known.
	Hint int64
	// Known says that Hint is right: an earlier read said so.
	Known bool
}

// ReadInfo says what a read found.
type ReadInfo struct {
	// Region holds the segment while its Release is not nil and not called. It
	// starts with a whole batch header and may end inside a batch.
	Region vfs.Region
	// Position is the start of the batch that holds the offset, also when the
	// region is empty.
	Position int64
	// FirstBatch is the size of that batch; 0 when the region is empty because
	// it starts at the limit and the size is not known.
	FirstBatch int64
	// FirstBatchIncomplete says that the bytes allowed are fewer than that.
	FirstBatchIncomplete bool
}

// Location is where the batch that holds an offset starts, and its size.
type Location struct {
	Byte int64
	Size int64
}

// Read returns the part of the .log that answers a fetch from start: from the
// batch that holds it, as many bytes as allowed. ok is false when every batch
// of the segment ends before start; the caller goes to the next segment.
// ErrClosed means that the segment has gone from the log.
func (s *Segment) Read(start kafka.Offset, o ReadOptions) (info ReadInfo, ok bool, err error) {
	h, f, err := s.use()
	if err != nil {
		return ReadInfo{}, false, err
	}
	info, ok, err = s.read(f, start, o)
	if info.Region.Length > 0 {
		info.Region.Release = h.release
	} else {
		h.release()
	}
	return info, ok, err
}

func (s *Segment) read(f vfs.File, start kafka.Offset, o ReadOptions) (ReadInfo, bool, error) {
	at, ok, err := s.locate(f, start, o)
	if err != nil || !ok {
		return ReadInfo{}, false, err
	}
	if damaged := s.Damaged(); damaged != nil {
		// What is known to be damaged is not sent: the answer ends before it, and the
		// next fetch, which begins in it, is refused.
		if d := damagedAt(damaged, start, at.Byte); d != nil {
			return ReadInfo{}, false, explain(f, d.err())
		}
		for i := range damaged {
			if damaged[i].Position > at.Byte {
				o.Limit = min(o.Limit, damaged[i].Position)
				break
			}
		}
	}
	info := ReadInfo{Position: at.Byte, FirstBatch: at.Size}
	allowed := max(0, o.MaxBytes)
	if o.MinOneBatch {
		allowed = max(allowed, at.Size)
	}
	info.FirstBatchIncomplete = allowed < at.Size
	info.Region = vfs.Region{File: f, Offset: at.Byte}
	info.Region.Length = max(0, min(allowed, min(o.Limit, s.size.Load())-at.Byte))
	return info, true, nil
}

// locate finds the batch without touching a file when the reader or the ring
// knows where it starts.
func (s *Segment) locate(f vfs.File, start kafka.Offset, o ReadOptions) (Location, bool, error) {
	end := s.size.Load()
	if o.Known && o.Hint < end {
		if at, ok, err := findFrom(f, o.Hint, end, start); ok || err != nil && !errors.Is(err, record.ErrCorrupt) {
			return at, ok, err
		} // else what lies there is damaged
	}
	r := s.ring.Load()
	if r == nil {
		s.ring.CompareAndSwap(nil, new(ring))
	} else if pos, next, ok := r.find(start); ok {
		if next < 0 {
			next = end
		}
		if pos < next && next <= end {
			return Location{pos, next - pos}, true, nil
		}
	}
	return s.find(f, end, start)
}

// Locate finds the first batch whose last offset is at or after offset; ok is
// false when there is none.
func (s *Segment) Locate(offset kafka.Offset) (at Location, ok bool, err error) {
	h, f, err := s.use()
	if err != nil {
		return Location{}, false, err
	}
	defer h.release()
	return s.locate(f, offset, ReadOptions{})
}

// ReadAt reads whole batches from the .log, for who goes through all of it. Each
// call holds the segment for its own time only, so that nobody waits long for a
// reader that is slow; ErrClosed when the segment has gone. It implements io.ReaderAt.
func (s *Segment) ReadAt(p []byte, off int64) (int, error) {
	h, f, err := s.use()
	if err != nil {
		return 0, err
	}
	defer h.release()
	return f.ReadAt(p, off)
}

// UpperBound returns an offset above all records of the size bytes that start
// at from: that of the first index entry behind them. ok is false when the
// index has none.
func (s *Segment) UpperBound(from index.Position, size int32) (bound kafka.Offset, ok bool, err error) {
	s.touch()
	p, ok, err := s.offsets.UpperBound(from, size)
	return p.Offset, ok, err
}

// CollectAborted appends to dst the aborted transactions that a reader of the
// offsets [from, bound) must know of, as far as this segment's markers tell;
// complete is false when the next segment may have more. While the index is known
// to be wrong it waits for the right one.
func (s *Segment) CollectAborted(dst []index.AbortedTxn, from, bound kafka.Offset) (list []index.AbortedTxn, complete bool, err error) {
	s.touch()
	if g := s.txnGate.Load(); g != nil {
		<-g.done
		if g.err != nil {
			return dst, false, g.err
		}
		if g.list != nil {
			list, complete = g.collect(dst, from, bound)
			return list, complete, nil
		}
	}
	return s.txns.Collect(dst, from, bound)
}

// ReadCold is ReadAt without a trace in the page cache, for the scrub.
func (s *Segment) ReadCold(p []byte, off int64) (int, error) {
	h, f, err := s.use()
	if err != nil {
		return 0, err
	}
	defer h.release()
	return vfs.ReadCold(f, p, off)
}
