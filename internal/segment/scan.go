package segment

import (
	"errors"
	"fmt"
	"sync"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// headerChunk is what one read of a search over batch headers brings in: more
// than one index interval, so that a lookup needs one read.
const headerChunk = 8 << 10

// Scanners lent for the time of one search or scan.
var (
	searches = sync.Pool{New: func() any { return record.NewScanner(nil, 0, 0, headerChunk) }}
	scans    = sync.Pool{New: func() any { return record.NewScanner(nil, 0, 0, record.ScanBuffer) }}
)

// search lends a scanner over the headers of [from, to); giveBack ends the loan.
func search(f vfs.File, from, to int64) *record.Scanner {
	sc := searches.Get().(*record.Scanner)
	sc.Reset(f, from, to)
	sc.ReadAhead()
	return sc
}

func giveBack(sc *record.Scanner) {
	sc.Reset(nil, 0, 0)
	searches.Put(sc)
}

// explain adds the name of the file to an error of a scan.
func explain(f vfs.File, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", f.Name(), err)
}

// walk calls visit for the batch headers from the index entry at or before near
// on, until it returns false, and passes over what is known to be damaged. It
// begins at the start of the .log when the index cannot be read, is being made
// anew, or when its entry does not fit the batch that it points at: a damaged
// index costs time and nothing else.
func (s *Segment) walk(f vfs.File, end int64, near kafka.Offset, visit func(sc *record.Scanner) bool) error {
	_, err := s.walkTo(f, end, near, visit)
	return err
}

// walkTo is walk, and says where it ended: before end, without an error, when the
// length of a batch leads behind it.
func (s *Segment) walkTo(f vfs.File, end int64, near kafka.Offset, visit func(sc *record.Scanner) bool) (to int64, err error) {
	damaged := s.Damaged()
	var entry index.Position
	span := int64(-1)
	if s.offsetsUsable(f) {
		entry, span, err = s.offsets.LookupSpan(near)
		if err != nil || entry.Byte < 0 || entry.Byte >= end {
			entry.Byte = 0
			s.doubtOffsets()
		}
	}
	sc := search(f, entry.Byte, end)
	defer giveBack(sc)
	if span > headerChunk {
		// Batches larger than the index interval: their headers lie far apart,
		// and reading what is between them would be for nothing.
		sc.Reset(f, entry.Byte, end)
	}
	if entry.Byte > 0 && damagedAt(damaged, kafka.NoOffset, entry.Byte) == nil {
		if !(sc.Next() && sc.Header().BaseOffset >= s.base && sc.Header().LastOffset <= entry.Offset) {
			s.doubtOffsets()
			sc.Reset(f, 0, end)
			sc.ReadAhead()
		} else if !visit(sc) {
			return sc.ValidEnd(), nil
		}
	}
	for nextGood(f, sc, damaged, end) {
		if !visit(sc) {
			return sc.ValidEnd(), nil
		}
	}
	return sc.ValidEnd(), explain(f, sc.Err())
}

// nextGood is sc.Next, past what is known to be damaged.
func nextGood(f vfs.File, sc *record.Scanner, damaged []BadRange, end int64) bool {
	for {
		found := sc.Next()
		if damaged == nil {
			return found
		}
		at := sc.Position()
		if !found {
			at = sc.ValidEnd()
		}
		to := behind(damaged, at)
		if to == at {
			return found
		}
		sc.Reset(f, to, end)
		sc.ReadAhead()
	}
}

// find returns the first batch whose last offset is at or after target. When the
// framing breaks on the way it is found how far the damage reaches, and the walk
// goes on behind it.
func (s *Segment) find(f vfs.File, end int64, target kafka.Offset) (at Location, ok bool, err error) {
	for {
		damaged := s.Damaged()
		if d := damagedAt(damaged, target, -1); d != nil {
			return Location{}, false, explain(f, d.err())
		}
		next := s.base
		to, err := s.walkTo(f, end, target, func(sc *record.Scanner) bool {
			h := sc.Header()
			if h.LastOffset >= target {
				at, ok = Location{sc.Position(), int64(h.Size)}, true
			}
			next = h.NextOffset()
			return !ok
		})
		if err == nil && !ok && to < end && s.opts.OnDamage != nil {
			// Nobody reads behind the last whole batch that was appended.
			err = explain(f, &record.CorruptError{Base: next, Position: to, Reason: PartialBatch})
		}
		if err == nil || s.opts.OnDamage == nil || !s.meet(f, err, next) {
			return at, ok, err
		}
	}
}

// findFrom does the same from a byte at which a batch starts.
func findFrom(f vfs.File, from, end int64, target kafka.Offset) (at Location, ok bool, err error) {
	sc := search(f, from, end)
	defer giveBack(sc)
	for sc.Next() {
		if h := sc.Header(); h.LastOffset >= target {
			return Location{sc.Position(), int64(h.Size)}, true, nil
		}
	}
	return Location{}, false, explain(f, sc.Err())
}

// Visit is called with each whole batch of a scan: its header, its bytes, which
// are valid until it returns, and the byte of the .log at which it starts.
type Visit func(h *record.Header, batch []byte, pos int64) error

// Scan calls visit for each whole batch from byte from, where one must start, up
// to the end, or only for those that start before byte to. It looks at no
// checksum. It ends silently at a partial batch and returns where the last whole
// one ended; a *record.CorruptError where the framing breaks.
func (s *Segment) Scan(from, to int64, visit Visit) (end int64, err error) {
	return s.scan(from, to, nil, visit)
}

// errPassOver has a scan go on behind a batch without reading it.
var errPassOver = errors.New("batch passed over")

// scan is Scan. before, unless nil, sees each header before the batch is read
// into memory.
func (s *Segment) scan(from, to int64, before func(f vfs.File, h *record.Header, pos int64) error, visit Visit) (end int64, err error) {
	hold, f, err := s.use()
	if err != nil {
		return from, err
	}
	defer hold.release()
	sc := scans.Get().(*record.Scanner)
	grown := false
	defer func() {
		sc.Reset(nil, 0, 0)
		if !grown {
			scans.Put(sc)
		}
	}()
	sc.Reset(f, from, s.size.Load())
	for sc.Next() && sc.Position() < to {
		h := sc.Header()
		if before != nil {
			err := before(f, h, sc.Position())
			if errors.Is(err, errPassOver) {
				continue
			}
			if err != nil {
				return sc.Position(), explain(f, err)
			}
		}
		grown = grown || h.Size > record.ScanBuffer
		b, err := sc.Batch()
		if err != nil {
			return sc.Position(), explain(f, err)
		}
		if err := visit(h, b, sc.Position()); err != nil {
			return sc.Position(), err
		}
	}
	return sc.ValidEnd(), explain(f, sc.Err())
}

// FirstTimestamp is the largest timestamp of the first batch, -1 when the
// segment is empty.
func (s *Segment) FirstTimestamp() (kafka.Timestamp, error) {
	h, f, err := s.use()
	if err != nil {
		return kafka.NoTimestamp, err
	}
	defer h.release()
	sc := search(f, 0, s.size.Load())
	defer giveBack(sc)
	if sc.Next() {
		return sc.Header().MaxTimestamp, nil
	}
	return kafka.NoTimestamp, explain(f, sc.Err())
}

// ReadNextOffset finds the offset after the last batch by walking from the last
// index entry on; the base offset when there is none.
func (s *Segment) ReadNextOffset() (kafka.Offset, error) {
	h, f, err := s.use()
	if err != nil {
		return 0, err
	}
	defer h.release()
	last, err := s.offsets.LastOffset()
	if err != nil {
		last = s.base
	}
	next := s.base
	err = s.walk(f, s.size.Load(), last, func(sc *record.Scanner) bool {
		next = sc.Header().NextOffset()
		return true
	})
	return next, err
}

// HasOverflow reports whether an offset of the segment cannot be expressed
// relative to its base, so that it must be split.
func (s *Segment) HasOverflow() (bool, error) {
	next, err := s.ReadNextOffset()
	return err == nil && next > s.base && next-1-s.base > maxRelative, err
}
