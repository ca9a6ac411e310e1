package segment

import (
	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// TimeMatch is a record found by its timestamp.
type TimeMatch struct {
	Timestamp kafka.Timestamp
	Offset    kafka.Offset
	Epoch     kafka.LeaderEpoch // of its batch; -1 for old formats
}

// MaxTimestamp is the largest timestamp of the segment and the last offset of
// the batch that reached it first; -1 when no batch has one.
func (s *Segment) MaxTimestamp() (index.TimePosition, error) {
	if err := s.loadMax(); err != nil {
		return index.TimePosition{}, err
	}
	s.maxMu.Lock()
	defer s.maxMu.Unlock()
	return s.max, nil
}

// LargestTimestamp is what retention by time goes by: MaxTimestamp, or the
// modification time of the .log when no record has a timestamp.
func (s *Segment) LargestTimestamp() (kafka.Timestamp, error) {
	p, err := s.MaxTimestamp()
	if err != nil || p.Timestamp >= 0 {
		return p.Timestamp, err
	}
	info, err := s.fs.Stat(s.Path())
	if err != nil {
		return kafka.NoTimestamp, err
	}
	return kafka.TimestampOf(info.ModTime()), nil
}

// FindByTimestamp finds the first record at or after offset from whose
// timestamp is at or after ts. dec serves compressed batches.
func (s *Segment) FindByTimestamp(ts kafka.Timestamp, from kafka.Offset, dec *record.Decompressor) (m TimeMatch, ok bool, err error) {
	release, held := s.Acquire()
	if !held {
		return TimeMatch{}, false, ErrClosed
	}
	defer release()
	f, err := s.file()
	if err != nil {
		return TimeMatch{}, false, err
	}
	// Where the time index cannot be read, the walk begins at the first record.
	near := from
	if entry, err := s.times.Lookup(ts); err == nil {
		near = max(near, entry.Offset)
	}
	return s.findRecord(f, near, dec,
		func(h *record.Header) bool { return h.MaxTimestamp >= ts },
		func(r *record.Record) bool { return r.Timestamp >= ts && r.Offset >= from })
}

// FindMaxTimestamp finds the first record that has the largest timestamp of the segment.
func (s *Segment) FindMaxTimestamp(dec *record.Decompressor) (m TimeMatch, ok bool, err error) {
	release, held := s.Acquire()
	if !held {
		return TimeMatch{}, false, ErrClosed
	}
	defer release()
	f, err := s.file()
	if err != nil {
		return TimeMatch{}, false, err
	}
	largest, err := s.MaxTimestamp()
	if err != nil {
		return TimeMatch{}, false, err
	}
	return s.findRecord(f, largest.Offset, dec,
		func(h *record.Header) bool { return h.MaxTimestamp == largest.Timestamp },
		func(r *record.Record) bool { return r.Timestamp == largest.Timestamp })
}

// findRecord looks into the batches that batch accepts, from near on, for the
// first record that rec accepts.
func (s *Segment) findRecord(f vfs.File, near kafka.Offset, dec *record.Decompressor, batch func(*record.Header) bool, rec func(*record.Record) bool) (m TimeMatch, ok bool, err error) {
	var inside error
	err = s.walk(f, s.size.Load(), near, func(sc *record.Scanner) bool {
		h := sc.Header()
		if !batch(h) {
			return true
		}
		var b []byte
		if b, inside = sc.Batch(); inside != nil {
			return false
		}
		var it record.Iterator
		if inside = it.Reset(b, dec); inside != nil {
			return false
		}
		for it.Next() {
			if r := it.Record(); rec(r) {
				m, ok = TimeMatch{r.Timestamp, r.Offset, h.LeaderEpoch}, true
				return false
			}
		}
		inside = it.Err()
		return inside == nil
	})
	if inside != nil {
		err = explain(f, inside)
	}
	return m, ok, err
}
