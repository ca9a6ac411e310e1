package segment

import (
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

const (
	// reserveAfter is what a segment must have seen since it was opened before
	// blocks are reserved for it, so that idle partitions reserve nothing.
	reserveAfter = 1 << 20
	// reserveStep is how much is reserved at a time, when less than half of it is left.
	reserveStep = 16 << 20
)

// Append writes whole batches, whose offsets are final, at the end of the .log
// and adds the index entries that are due. largest is the last offset of the
// last batch; a buffer holds one batch or several. Batch by batch, in this order
// (LogSegment.append of 4.4.0): the largest timestamp is brought up to date;
// when more than index.interval.bytes were appended since the last entry, not
// counting this batch, the offset index gets the batch's last offset and start,
// and the time index the largest timestamp so far.
//
// What Append returns an error for is not in the file: a failed or short write
// is cut back first. vfs.IsFull tells a full disk, after which the segment goes
// on; after any other failed write the data directory must not be trusted.
func (s *Segment) Append(largest kafka.Offset, bufs ...[]byte) error {
	var total int64
	for _, b := range bufs {
		total += int64(len(b))
	}
	if total == 0 {
		return nil
	}
	if s.broken != nil {
		return s.broken
	}
	pos := s.size.Load()
	if _, err := index.Relative(s.base, largest); err != nil {
		return err
	}
	if total > math.MaxInt32-pos {
		return fmt.Errorf("append of %d bytes at %d: %w", total, pos, ErrTooLong)
	}
	f, err := s.file()
	if err != nil {
		return err
	}
	if err := s.loadMax(); err != nil {
		return err
	}
	if s.sinceEntry+total > s.opts.IndexInterval {
		if err := s.prepareEntries(bufs); err != nil {
			return err
		}
	}
	if err := s.write(f, bufs, pos); err != nil {
		return err
	}
	if err := s.indexBatches(bufs, pos); err != nil {
		s.ring.Store(nil)
		return errors.Join(err, s.cutBack(f, pos))
	}
	s.size.Store(pos + total)
	if s.damage.Load() != nil && len(bufs[0]) > 0 {
		s.boundDamage(pos, record.Batch(bufs[0]).BaseOffset())
	}
	s.reserveAhead(f, pos+total)
	return nil
}

// prepareEntries counts the entries that the append will add and makes room for
// them, so that a full disk or index is found before a byte is written.
func (s *Segment) prepareEntries(bufs [][]byte) error {
	since, largest := s.sinceEntry, s.max.Timestamp
	last, err := s.times.Newest()
	if err != nil {
		return err
	}
	entries, times := 0, 0
	for _, buf := range bufs {
		for len(buf) > 0 {
			h, err := parseBatch(buf)
			if err != nil {
				return err
			}
			largest = max(largest, h.MaxTimestamp)
			if since > s.opts.IndexInterval {
				entries++
				since = 0
				if largest > last.Timestamp {
					last.Timestamp = largest
					times++
				}
			}
			since += int64(h.Size)
			buf = buf[h.Size:]
		}
	}
	if entries == 0 {
		return nil
	}
	if err := s.offsets.Prepare(entries); err != nil {
		return fmt.Errorf("offset index: %w", err)
	}
	if times > 0 {
		if err := s.times.Prepare(times); err != nil {
			return fmt.Errorf("time index: %w", err)
		}
	}
	return nil
}

// parseBatch reads the header of the batch at the start of buf, all of which
// must be there.
func parseBatch(buf []byte) (record.Header, error) {
	h, err := record.ParseHeader(buf)
	if err == nil && h.Size > len(buf) {
		err = &record.CorruptError{Base: h.BaseOffset, Reason: "bytes of the batch", Found: int64(len(buf)), Want: int64(h.Size)}
	}
	return h, err
}

// write puts the bytes at pos, and cuts a part of them off again when it fails.
func (s *Segment) write(f vfs.File, bufs [][]byte, pos int64) error {
	var n int64
	var err error
	if len(bufs) == 1 {
		var one int
		one, err = f.WriteAt(bufs[0], pos)
		n = int64(one)
	} else {
		s.vec = append(s.vec[:0], bufs...)
		n, err = f.WritevAt(s.vec, pos)
		clear(s.vec)
	}
	// After the write: a Flush that began before may have missed it.
	s.changed()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("append at %d: %w", pos, err)
	if n > 0 {
		err = errors.Join(err, s.cutBack(f, pos))
	}
	return err
}

// cutBack gives the file its last good length again. When that fails no append
// is let through any more: it would stand behind bytes that nobody acknowledged.
func (s *Segment) cutBack(f vfs.File, size int64) error {
	s.reserved = 0
	if err := f.Truncate(size); err != nil {
		s.broken = fmt.Errorf("cut back to %d after a failed append: %w", size, err)
		return s.broken
	}
	return nil
}

// indexBatches adds the entries of the batches written at pos. When it fails the
// indexes and the writer's state are as they were before.
func (s *Segment) indexBatches(bufs [][]byte, pos int64) error {
	since, largest := s.sinceEntry, s.max
	first := -1 // entries of the offset index before the first one added here
	var firstTime int
	for _, buf := range bufs {
		for len(buf) > 0 {
			h, err := parseBatch(buf)
			if err == nil && s.sinceEntry > s.opts.IndexInterval && first < 0 {
				if first, err = s.offsets.Len(); err == nil {
					firstTime, err = s.times.Len()
				}
			}
			if err == nil {
				err = s.indexBatch(&h, pos)
			}
			if err != nil {
				s.setMax(largest)
				s.sinceEntry = since
				if first >= 0 {
					err = errors.Join(err, s.offsets.TruncateEntries(first), s.times.TruncateEntries(firstTime))
				}
				return err
			}
			buf = buf[h.Size:]
			pos += int64(h.Size)
		}
	}
	return nil
}

// indexBatch is the bookkeeping of one batch that starts at pos.
func (s *Segment) indexBatch(h *record.Header, pos int64) error {
	if h.MaxTimestamp > s.max.Timestamp {
		s.setMax(index.TimePosition{Timestamp: h.MaxTimestamp, Offset: h.LastOffset})
	}
	if s.sinceEntry > s.opts.IndexInterval {
		if err := s.offsets.Append(h.LastOffset, pos); err != nil {
			return fmt.Errorf("offset index: %w", err)
		}
		if err := s.times.MaybeAppend(s.max.Timestamp, s.max.Offset, false); err != nil {
			return fmt.Errorf("time index: %w", err)
		}
		s.sinceEntry = 0
	}
	if r := s.ring.Load(); r != nil {
		r.push(h.LastOffset, pos)
	}
	s.sinceEntry += int64(h.Size)
	return nil
}

// reserveAhead allocates blocks in front of the writer. It can fail without
// harm: the next append finds out whether there is room.
func (s *Segment) reserveAhead(f vfs.File, end int64) {
	if s.noReserve || end-s.reserveStart < reserveAfter || s.reserved-end >= reserveStep/2 {
		return
	}
	from := max(s.reserved, end)
	to := from + reserveStep
	if s.opts.SegmentBytes > 0 {
		to = min(to, s.opts.SegmentBytes)
	}
	if to <= from {
		return
	}
	switch err := f.Reserve(from, to-from); {
	case err == nil:
		s.reserved = to
	case vfs.IsFull(err):
		s.reserveStart = end // try again a MiB later
	default:
		s.noReserve = true
	}
}

// AppendTxn notes that a transaction was aborted by a marker in this segment.
func (s *Segment) AppendTxn(a index.AbortedTxn) error {
	err := s.txns.Append(a)
	s.unflushed.Store(true)
	return err
}

// RollParams are what decides whether the next append goes to a new segment.
type RollParams struct {
	Bytes        int64           // of the append
	MaxTimestamp kafka.Timestamp // of the append
	LastOffset   kafka.Offset    // of the append
	Now          kafka.Timestamp
	SegmentBytes int64 // segment.bytes
	SegmentMs    int64 // segment.ms, or less when compaction must not lag
}

// ShouldRoll reports whether an append must go to a new segment: this one is
// full, old, has a full index, or cannot express the offset.
func (s *Segment) ShouldRoll(p RollParams) (bool, error) {
	size := s.size.Load()
	if size > p.SegmentBytes-p.Bytes {
		return true, nil
	}
	if size > 0 {
		waited, err := s.waited(p)
		if err != nil {
			return false, err
		}
		if waited > p.SegmentMs-s.opts.RollJitterMs {
			return true, nil
		}
	}
	if full, err := s.offsets.IsFull(); full || err != nil {
		return full, err
	}
	if full, err := s.times.IsFull(); full || err != nil {
		return full, err
	}
	_, err := index.Relative(s.base, p.LastOffset)
	return err != nil, nil
}

// waited is how long the segment has been filled: in the time of its records
// when they have one, else by the clock.
func (s *Segment) waited(p RollParams) (int64, error) {
	if s.rolling < 0 {
		ts, err := s.FirstTimestamp()
		if err != nil {
			return 0, err
		}
		s.rolling = ts
	}
	if s.rolling >= 0 {
		return int64(p.MaxTimestamp - s.rolling), nil
	}
	return int64(p.Now - s.created), nil
}

// loadMax asks the time index for the largest timestamp after the segment was
// opened: its last entry, which a clean close or a recovery made complete.
func (s *Segment) loadMax() error {
	s.maxMu.Lock()
	defer s.maxMu.Unlock()
	if s.maxKnown {
		return nil
	}
	s.touch()
	last, err := s.times.Last()
	if err != nil {
		return err
	}
	s.max, s.maxKnown = last, true
	return nil
}

func (s *Segment) setMax(p index.TimePosition) {
	s.maxMu.Lock()
	s.max, s.maxKnown = p, true
	s.maxMu.Unlock()
}
