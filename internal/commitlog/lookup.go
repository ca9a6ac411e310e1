package commitlog

import (
	"errors"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
)

// TimestampOffset is the answer to a lookup by time. Offset -1: nothing found.
type TimestampOffset struct {
	Timestamp kafka.Timestamp
	Offset    kafka.Offset
	Epoch     kafka.LeaderEpoch
}

func notFound() TimestampOffset {
	return TimestampOffset{Timestamp: kafka.NoTimestamp, Offset: kafka.NoOffset, Epoch: kafka.NoLeaderEpoch}
}

// OffsetForTimestamp finds the first record with a timestamp at or after ts:
// the first segment that holds one as late, then within it. A record at or
// above bound is not found. It takes no lock.
//
// Kafka gives up when the first segment that looks late enough, by the time its
// file was changed or by a record below the log start, has no such record; here
// the search goes on in the next one.
func (l *Log) OffsetForTimestamp(ts kafka.Timestamp, bound kafka.Offset) (TimestampOffset, error) {
	return l.lookup(bound, func() (m segment.TimeMatch, ok bool, err error) {
		start := l.start.get()
		dec := l.scratch.decompressors.Get()
		defer l.scratch.decompressors.Put(dec)
		dec.MaxRecord = int(l.Config().MaxDecompressedBytes)
		for _, s := range l.segments.Load().segs {
			if err := s.VetTimes(); err != nil {
				return m, false, err
			}
			largest, err := s.LargestTimestamp()
			if err != nil {
				return m, false, err
			}
			if largest < ts {
				continue
			}
			if m, ok, err = s.FindByTimestamp(ts, start, dec); ok || err != nil {
				return m, ok, err
			}
		}
		return m, false, nil
	})
}

// MaxTimestampOffset finds the first record that has the largest timestamp of
// the log's segments. A record at or above bound is not found; one below the
// log start is, as long as its segment is there, as in Kafka.
func (l *Log) MaxTimestampOffset(bound kafka.Offset) (TimestampOffset, error) {
	return l.lookup(bound, func() (m segment.TimeMatch, ok bool, err error) {
		var latest *segment.Segment
		best := kafka.NoTimestamp
		for _, s := range l.segments.Load().segs {
			if err := s.VetTimes(); err != nil {
				return m, false, err
			}
			largest, err := s.MaxTimestamp()
			if err != nil {
				return m, false, err
			}
			if latest == nil || largest.Timestamp > best {
				latest, best = s, largest.Timestamp
			}
		}
		dec := l.scratch.decompressors.Get()
		defer l.scratch.decompressors.Put(dec)
		dec.MaxRecord = int(l.Config().MaxDecompressedBytes)
		return latest.FindMaxTimestamp(dec)
	})
}

// lookup runs find until no segment disappears under it.
func (l *Log) lookup(bound kafka.Offset, find func() (segment.TimeMatch, bool, error)) (TimestampOffset, error) {
	for {
		if err := l.usable(); err != nil {
			return notFound(), err
		}
		m, ok, err := find()
		switch {
		case errors.Is(err, segment.ErrClosed), errors.Is(err, index.ErrClosed):
			continue
		case err != nil:
			return notFound(), l.readError(err)
		case !ok || m.Offset >= bound:
			return notFound(), nil
		}
		return TimestampOffset{Timestamp: m.Timestamp, Offset: m.Offset, Epoch: m.Epoch}, nil
	}
}
