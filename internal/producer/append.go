package producer

import (
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// Origin says which of the checks apply.
type Origin int

// Client batches have their sequences checked, Coordinator ones only their
// epochs; Replication (followers, recovery) is never refused.
const (
	Client Origin = iota
	Coordinator
	Replication
)

// UnknownTxnVersion stands where no transaction version is known.
const UnknownTxnVersion int16 = -1

// Marker is the control record that ends a transaction.
type Marker struct {
	Commit           bool
	CoordinatorEpoch int32
	Timestamp        kafka.Timestamp
}

// update is what the append under way adds to one producer: cur as it was
// before (nil when unknown), upd what follows from the append alone.
type update struct {
	cur *entry
	upd entry
}

// linearUpdates is up to how many producers of one append are found without an index.
const linearUpdates = 8

// Begin starts an append. Duplicate and Add look at its batches in order;
// Commit makes the result permanent; without Commit nothing has changed but
// verifications that were used up.
func (s *State) Begin() {
	s.updates = s.updates[:0]
	s.started = s.started[:0]
	s.completed = s.completed[:0]
	if len(s.updateIdx) > 0 {
		clear(s.updateIdx)
	}
}

// Duplicate finds the batch among the last five of its producer.
func (s *State) Duplicate(h *record.Header) (Batch, bool) {
	e := s.entries[h.ProducerID]
	if e == nil || e.epoch != h.ProducerEpoch {
		return Batch{}, false
	}
	last := h.LastSequence()
	for i := range e.n {
		b := &e.window[i]
		if b.LastSequence == last && b.FirstSequence() == h.BaseSequence {
			return *b, true
		}
	}
	return Batch{}, false
}

// Add takes one batch that has a producer id. Offsets in h are final. marker is
// the parsed record of a control batch, nil for a control batch without records
// and for data. The error is a *RefusedError; the append must then be dropped.
func (s *State) Add(h *record.Header, marker *Marker, origin Origin, txnVersion int16, guard Guard) error {
	if origin != Replication && h.IsTransactional() && !h.IsControl() && s.cfg.VerifyTransactions &&
		!s.HasOngoing(h.ProducerID, h.ProducerEpoch) && !s.verified(h.ProducerID, guard) {
		return &RefusedError{ErrInvalidTxnState, "Record was not part of an ongoing transaction"}
	}
	u := s.updateOf(h.ProducerID)
	switch {
	case !h.IsControl():
		if err := s.addData(u, h, origin); err != nil {
			return err
		}
	case marker != nil:
		if err := s.addMarker(u, h, marker, origin, txnVersion); err != nil {
			return err
		}
	}
	if h.IsTransactional() && len(s.verification) > 0 {
		delete(s.verification, h.ProducerID)
	}
	return nil
}

// updateOf finds or makes the update of a producer (prepareUpdate).
func (s *State) updateOf(id kafka.ProducerID) *update {
	if len(s.updates) <= linearUpdates {
		for i := range s.updates {
			if s.updates[i].upd.id == id {
				return &s.updates[i]
			}
		}
	} else if i, ok := s.updateIdx[id]; ok {
		return &s.updates[i]
	}
	cur := s.entries[id]
	u := update{cur: cur, upd: newEntry(id)}
	if cur != nil {
		u.upd.epoch = cur.epoch
		u.upd.coordinatorEpoch = cur.coordinatorEpoch
		u.upd.lastTimestamp = cur.lastTimestamp
		u.upd.txnFirst = cur.txnFirst
	}
	s.updates = append(s.updates, u)
	if n := len(s.updates); n > linearUpdates {
		if s.updateIdx == nil {
			s.updateIdx = make(map[kafka.ProducerID]int)
		}
		if n == linearUpdates+1 {
			for i := range s.updates {
				s.updateIdx[s.updates[i].upd.id] = i
			}
		} else {
			s.updateIdx[id] = n - 1
		}
	}
	return &s.updates[len(s.updates)-1]
}

// addData is ProducerAppendInfo.appendDataBatch: the order of checks is that
// of the errors that clients see.
func (s *State) addData(u *update, h *record.Header, origin Origin) error {
	if h.ProducerEpoch < u.upd.epoch {
		if err := s.staleEpoch(u, h, origin, "<", UnknownTxnVersion); err != nil {
			return err
		}
	}
	if origin == Client {
		if err := s.checkSequence(u, h); err != nil {
			return err
		}
	}
	u.upd.setEpoch(h.ProducerEpoch)
	u.upd.push(Batch{
		LastSequence: h.LastSequence(),
		LastOffset:   h.LastOffset,
		OffsetDelta:  h.LastOffsetDelta,
		Timestamp:    h.MaxTimestamp,
	})
	u.upd.lastTimestamp = h.MaxTimestamp
	switch open := u.upd.txnFirst != kafka.NoOffset; {
	case open && !h.IsTransactional():
		return &RefusedError{ErrInvalidTxnState, fmt.Sprintf(
			"Expected transactional write from producer %d at offset (offset=%d, segment=[-1:-1]) in partition %s",
			h.ProducerID, h.BaseOffset, s.cfg.Partition)}
	case !open && h.IsTransactional():
		u.upd.txnFirst = h.BaseOffset
		s.started = append(s.started, txn{id: h.ProducerID, first: h.BaseOffset, last: kafka.NoOffset})
	}
	return nil
}

func (s *State) staleEpoch(u *update, h *record.Header, origin Origin, relation string, txnVersion int16) error {
	msg := fmt.Sprintf("Epoch of producer %d at offset %d in %s is %d, which is %s the last seen epoch %d (TV%d)",
		h.ProducerID, h.BaseOffset, s.cfg.Partition, h.ProducerEpoch, relation, u.upd.epoch, txnVersion)
	if origin == Replication {
		s.warn(msg)
		return nil
	}
	return &RefusedError{ErrInvalidEpoch, msg}
}

func (s *State) checkSequence(u *update, h *record.Header) error {
	first := h.BaseSequence
	if v := s.verification[h.ProducerID]; v != nil {
		if v.supportsBump && u.cur == nil && first != 0 {
			return &RefusedError{ErrOutOfOrderSequence, fmt.Sprintf(
				"Invalid sequence number for producer %d at offset %d in partition %s: %d (incoming seq. number). Expected sequence 0 for a producer without state",
				h.ProducerID, h.BaseOffset, s.cfg.Partition, first)}
		}
		if first > v.lowest {
			return &RefusedError{ErrOutOfOrderSequence, fmt.Sprintf(
				"Out of order sequence number for producer %d at offset %d in partition %s: %d (incoming seq. number), %d (earliest seen sequence)",
				h.ProducerID, h.BaseOffset, s.cfg.Partition, first, v.lowest)}
		}
	}
	if h.ProducerEpoch != u.upd.epoch {
		if first != 0 && u.upd.epoch != kafka.NoProducerEpoch {
			return &RefusedError{ErrOutOfOrderSequence, fmt.Sprintf(
				"Invalid sequence number for new epoch of producer %d at offset %d in partition %s: %d (request epoch), %d (seq. number), %d (current producer epoch)",
				h.ProducerID, h.BaseOffset, s.cfg.Partition, h.ProducerEpoch, first, u.upd.epoch)}
		}
		return nil
	}
	last := kafka.NoSequence
	curEpoch := kafka.NoProducerEpoch
	if u.cur != nil {
		curEpoch = u.cur.epoch
	}
	switch {
	case u.upd.n > 0:
		last = u.upd.lastSequence()
	case u.cur != nil && h.ProducerEpoch == curEpoch: // a batch may claim epoch -1, which is also that of no entry
		last = u.cur.lastSequence()
	}
	if curEpoch != kafka.NoProducerEpoch && !follows(last, first) {
		return &RefusedError{ErrOutOfOrderSequence, fmt.Sprintf(
			"Out of order sequence number for producer %d at offset %d in partition %s: %d (incoming seq. number), %d (current end sequence number)",
			h.ProducerID, h.BaseOffset, s.cfg.Partition, first, last)}
	}
	return nil
}

// follows reports whether next is the sequence after last. They wrap from 2^31-1 to 0.
func follows(last, next kafka.Sequence) bool {
	return int64(next) == int64(last)+1 || (next == 0 && last == 1<<31-1)
}

const maxEpoch kafka.ProducerEpoch = 1<<15 - 1

// addMarker is ProducerAppendInfo.appendEndTxnMarker. A marker for transaction
// version 2 carries the epoch after the bump, so an equal epoch is a retry at most.
func (s *State) addMarker(u *update, h *record.Header, m *Marker, origin Origin, txnVersion int16) error {
	if txnVersion >= 2 {
		retry := h.ProducerEpoch == u.upd.epoch && (u.upd.txnFirst == kafka.NoOffset || h.ProducerEpoch == maxEpoch)
		if h.ProducerEpoch <= u.upd.epoch && !retry {
			if err := s.staleEpoch(u, h, origin, "<=", txnVersion); err != nil {
				return err
			}
		}
	} else if h.ProducerEpoch < u.upd.epoch {
		if err := s.staleEpoch(u, h, origin, "<", txnVersion); err != nil {
			return err
		}
	}
	if u.upd.coordinatorEpoch > m.CoordinatorEpoch {
		msg := fmt.Sprintf("Invalid coordinator epoch for producerId %d at offset %d in partition %s: %d (zombie), %d (current)",
			h.ProducerID, h.BaseOffset, s.cfg.Partition, m.CoordinatorEpoch, u.upd.coordinatorEpoch)
		if origin != Replication {
			return &RefusedError{ErrCoordinatorFenced, msg}
		}
		s.warn(msg)
	}
	if u.upd.txnFirst != kafka.NoOffset {
		s.completed = append(s.completed, CompletedTxn{
			ProducerID: h.ProducerID, FirstOffset: u.upd.txnFirst, LastOffset: h.BaseOffset, Aborted: !m.Commit})
	}
	u.upd.setEpoch(h.ProducerEpoch)
	u.upd.coordinatorEpoch = m.CoordinatorEpoch
	u.upd.lastTimestamp = m.Timestamp
	u.upd.txnFirst = kafka.NoOffset
	return nil
}

// Completed is the transactions that the append under way ends, in order. The
// slice is valid until Begin.
func (s *State) Completed() []CompletedTxn { return s.completed }

// Commit merges the append under way into the state. Transactions it completed
// are still open until Complete was called for each.
func (s *State) Commit() {
	for i := range s.updates {
		u := &s.updates[i]
		if e := s.entries[u.upd.id]; e != nil {
			e.merge(&u.upd)
			continue
		}
		e := new(entry)
		*e = u.upd
		s.insert(e)
	}
	for _, t := range s.started {
		s.ongoing = insertTxn(s.ongoing, t)
	}
}
