package producer

import (
	"slices"
	"sort"

	"github.com/varvelog/varve/internal/kafka"
)

// txn is one transaction on the partition.
type txn struct {
	id    kafka.ProducerID
	first kafka.Offset
	last  kafka.Offset // the marker; NoOffset while the transaction is open
}

// CompletedTxn is a transaction that a marker just ended.
type CompletedTxn struct {
	ProducerID  kafka.ProducerID
	FirstOffset kafka.Offset
	LastOffset  kafka.Offset // the marker
	Aborted     bool
}

func insertTxn(list []txn, t txn) []txn {
	i := sort.Search(len(list), func(i int) bool { return list[i].first >= t.first })
	if i < len(list) && list[i].first == t.first {
		list[i] = t
		return list
	}
	list = append(list, txn{})
	copy(list[i+1:], list[i:])
	list[i] = t
	return list
}

// LastStableAfter is the last stable offset once c is complete: where the
// earliest transaction of another producer begins, or behind the marker. It is
// what the transaction index stores; call it before Complete.
func (s *State) LastStableAfter(c CompletedTxn) kafka.Offset {
	for i := range s.ongoing {
		if s.ongoing[i].id != c.ProducerID {
			return s.ongoing[i].first
		}
	}
	return c.LastOffset + 1
}

// Complete moves a transaction from the open ones to those that wait for the
// high watermark.
func (s *State) Complete(c CompletedTxn) {
	for i := range s.ongoing {
		if s.ongoing[i].first == c.FirstOffset {
			s.ongoing = append(s.ongoing[:i], s.ongoing[i+1:]...)
			break
		}
	}
	s.unreplicated = insertTxn(s.unreplicated, txn{id: c.ProducerID, first: c.FirstOffset, last: c.LastOffset})
}

// HighWatermarkPassed forgets completed transactions whose marker lies below hw.
func (s *State) HighWatermarkPassed(hw kafka.Offset) {
	if len(s.unreplicated) == 0 {
		return
	}
	kept := s.unreplicated[:0]
	for _, t := range s.unreplicated {
		if t.last >= hw {
			kept = append(kept, t)
		}
	}
	s.unreplicated = kept
}

// FirstUnstable is the first offset of the earliest transaction that is open or
// not yet below the high watermark; ok is false when there is none.
func (s *State) FirstUnstable() (first kafka.Offset, ok bool) {
	switch {
	case len(s.ongoing) == 0 && len(s.unreplicated) == 0:
		return 0, false
	case len(s.ongoing) == 0:
		return s.unreplicated[0].first, true
	case len(s.unreplicated) == 0:
		return s.ongoing[0].first, true
	}
	return min(s.ongoing[0].first, s.unreplicated[0].first), true
}

// HasOngoing reports whether the producer has a transaction open in this epoch.
func (s *State) HasOngoing(id kafka.ProducerID, epoch kafka.ProducerEpoch) bool {
	e := s.entries[id]
	return e != nil && e.epoch == epoch && e.txnFirst != kafka.NoOffset
}

// OpenTxn is a transaction without a marker.
type OpenTxn struct {
	ProducerID  kafka.ProducerID
	FirstOffset kafka.Offset
}

// OpenTxns lists the transactions that have no marker yet.
func (s *State) OpenTxns() []OpenTxn {
	var list []OpenTxn
	for _, t := range s.ongoing {
		list = append(list, OpenTxn{t.id, t.first})
	}
	return list
}

// DropOpenTxn forgets that the producer has a transaction open.
func (s *State) DropOpenTxn(id kafka.ProducerID) {
	s.ongoing = slices.DeleteFunc(s.ongoing, func(t txn) bool { return t.id == id })
	if e := s.entries[id]; e != nil {
		e.txnFirst = kafka.NoOffset
	}
}

// BeginTxn says that the producer has had a transaction open since first.
func (s *State) BeginTxn(id kafka.ProducerID, first kafka.Offset) {
	if e := s.entries[id]; e != nil {
		e.txnFirst = first
		s.ongoing = insertTxn(s.ongoing, txn{id: id, first: first, last: kafka.NoOffset})
	}
}

// Unreplicated reports whether a completed transaction waits for the high watermark.
func (s *State) Unreplicated() bool { return len(s.unreplicated) > 0 }
