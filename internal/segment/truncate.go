package segment

import (
	"errors"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// TruncateTo removes the batch that holds offset and everything behind it, and
// the index entries at and after offset. It returns the bytes cut. The indexes
// get their full length: a truncated segment is the active one.
//
// It waits for regions on their way to a socket: bytes that may still be sent
// are not cut off and written anew under the sender.
func (s *Segment) TruncateTo(offset kafka.Offset, now kafka.Timestamp) (cut int64, err error) {
	at, ok, err := s.Locate(offset)
	if err != nil {
		return 0, err
	}
	if err := s.VetIndexes(); err != nil {
		return 0, err
	}
	s.activate()
	f, err := s.file()
	if err != nil {
		return 0, err
	}
	// The largest timestamp is read from the time index before that is cut:
	// Kafka forgets it when nobody asked before, and then answers lookups by
	// time as if the segment had none.
	if err := s.loadMax(); err != nil {
		return 0, err
	}
	if err := errors.Join(s.offsets.TruncateTo(offset), s.times.TruncateTo(offset), s.txns.TruncateTo(offset)); err != nil {
		return 0, err
	}
	if err := s.lengthenIndexes(); err != nil {
		return 0, err
	}
	if ok {
		s.forgetDamage(at.Byte)
		size := s.size.Load()
		s.size.Store(at.Byte) // no new reader sees what goes
		s.ring.Store(nil)
		s.waitForReaders()
		if err := f.Truncate(at.Byte); err != nil {
			return 0, err
		}
		s.changed()
		s.broken = nil
		s.reserved, s.reserveStart = 0, at.Byte
		cut = size - at.Byte
	}
	if s.size.Load() == 0 {
		s.created, s.rolling = now, kafka.NoTimestamp
	}
	s.sinceEntry = 0
	return cut, s.reloadMax()
}

// Activate gives the indexes the length that those of an active segment have.
// Those that are wrong are made anew before: entries are added to them.
func (s *Segment) Activate() error {
	if err := s.VetIndexes(); err != nil {
		return err
	}
	s.activate()
	return s.lengthenIndexes()
}

func (s *Segment) lengthenIndexes() error {
	// One that could not be written to the disk is begun anew: lookups walk.
	if s.offsets.InMemory() {
		if err := s.offsets.Truncate(); err != nil {
			return err
		}
	}
	if s.times.InMemory() {
		if err := s.times.Truncate(); err != nil {
			return err
		}
	}
	return errors.Join(s.offsets.Resize(), s.times.Resize())
}

// reloadMax finds the largest timestamp anew after a truncation: the last time
// index entry, or a batch behind it that is later.
func (s *Segment) reloadMax() error {
	largest, err := s.times.Last()
	if err != nil {
		return err
	}
	f, err := s.file()
	if err != nil {
		return err
	}
	err = s.walk(f, s.size.Load(), largest.Offset, func(sc *record.Scanner) bool {
		if h := sc.Header(); h.MaxTimestamp > largest.Timestamp {
			largest = index.TimePosition{Timestamp: h.MaxTimestamp, Offset: h.LastOffset}
		}
		return true
	})
	s.setMax(largest)
	return err
}
