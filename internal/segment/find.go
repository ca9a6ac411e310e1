package segment

import (
	"errors"
	"io/fs"

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

// ConfirmMaxTimestamp holds MaxTimestamp against the log and puts it right: the
// batch that it names must have it, and no batch behind that one may be later.
// Only then may a record's age be a reason to delete it: a time index that a
// crash left full of zeros makes everything look old. For sealed segments.
func (s *Segment) ConfirmMaxTimestamp() (index.TimePosition, error) {
	h, f, err := s.use()
	if err != nil {
		return index.TimePosition{}, err
	}
	defer h.release()
	claimed, err := s.MaxTimestamp()
	if err != nil {
		return claimed, err
	}
	largest := index.TimePosition{Timestamp: kafka.NoTimestamp, Offset: s.base}
	seen := claimed.Timestamp < 0
	note := func(sc *record.Scanner) bool {
		h := sc.Header()
		seen = seen || h.LastOffset >= claimed.Offset && h.BaseOffset <= claimed.Offset && h.MaxTimestamp == claimed.Timestamp
		if h.MaxTimestamp > largest.Timestamp {
			largest = index.TimePosition{Timestamp: h.MaxTimestamp, Offset: h.LastOffset}
		}
		return true
	}
	near := claimed.Offset
	if claimed.Timestamp < 0 {
		near = s.base
	}
	if err := s.walk(f, s.size.Load(), near, note); err != nil {
		return claimed, err
	}
	if !seen {
		if err := s.walk(f, s.size.Load(), s.base, note); err != nil {
			return claimed, err
		}
	}
	s.setMax(largest)
	return largest, nil
}

// LargestTimestamp is what retention by time goes by: MaxTimestamp, or the
// modification time of the .log when no record has a timestamp.
func (s *Segment) LargestTimestamp() (kafka.Timestamp, error) {
	p, err := s.MaxTimestamp()
	if err != nil || p.Timestamp >= 0 {
		return p.Timestamp, err
	}
	return s.LastModified()
}

// LastModified is when the .log was last written.
func (s *Segment) LastModified() (kafka.Timestamp, error) {
	s.mu.Lock() // its files are not renamed meanwhile
	info, err := s.fs.Stat(s.pathLocked(LogExt))
	s.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) && s.hold.Load() == nil {
		return kafka.NoTimestamp, ErrClosed // deleted beside this
	}
	if err != nil {
		return kafka.NoTimestamp, err
	}
	return kafka.TimestampOf(info.ModTime()), nil
}

// SetLastModified gives the .log another time: a rewritten segment keeps that
// of the segments it was made from.
func (s *Segment) SetLastModified(ts kafka.Timestamp) error {
	h, f, err := s.use()
	if err != nil {
		return err
	}
	defer h.release()
	return f.SetModTime(int64(ts))
}

// FindByTimestamp finds the first record at or after offset from whose
// timestamp is at or after ts. dec serves compressed batches.
func (s *Segment) FindByTimestamp(ts kafka.Timestamp, from kafka.Offset, dec *record.Decompressor) (m TimeMatch, ok bool, err error) {
	h, f, err := s.use()
	if err != nil {
		return TimeMatch{}, false, err
	}
	defer h.release()
	// Where the time index cannot be read, or its entry does not fit the log, the
	// walk begins at the first record.
	near := from
	if s.timesUsable(f) {
		switch entry, err := s.times.Lookup(ts); {
		case err != nil:
			s.doubtTimes()
		case entry.Timestamp >= 0 && entry.Offset > from:
			if fits, err := s.timeEntryFits(f, entry); err == nil && fits {
				near = entry.Offset
			} else {
				s.doubtTimes()
			}
		}
	}
	return s.findRecord(f, near, dec,
		func(h *record.Header) bool { return h.MaxTimestamp >= ts },
		func(r *record.Record) bool { return r.Timestamp >= ts && r.Offset >= from })
}

// FindMaxTimestamp finds the first record that has the largest timestamp of the segment.
func (s *Segment) FindMaxTimestamp(dec *record.Decompressor) (m TimeMatch, ok bool, err error) {
	h, f, err := s.use()
	if err != nil {
		return TimeMatch{}, false, err
	}
	defer h.release()
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
