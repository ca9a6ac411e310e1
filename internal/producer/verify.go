package producer

import "github.com/varvelog/varve/internal/kafka"

// Guard proves that the transaction coordinator was asked about a producer's
// transaction before its first batch is appended (KIP-890). 0 is no proof.
type Guard uint64

// verification is a question to the coordinator that is under way or answered.
type verification struct {
	guard        Guard
	created      kafka.Timestamp
	epoch        kafka.ProducerEpoch
	lowest       kafka.Sequence // smallest sequence that was seen while verifying
	supportsBump bool           // the client raises its epoch at each end (transaction version 2)
}

// StartVerification returns the guard for the first batch of a transaction, or
// 0 when none is needed because the transaction is open already. fresh is used
// as the guard's value when there is none yet; it must not be 0 and not repeat.
func (s *State) StartVerification(id kafka.ProducerID, epoch kafka.ProducerEpoch, seq kafka.Sequence, supportsBump bool, now kafka.Timestamp, fresh Guard) Guard {
	if s.HasOngoing(id, epoch) {
		return 0
	}
	v := s.verification[id]
	if v == nil {
		if s.verification == nil {
			s.verification = make(map[kafka.ProducerID]*verification)
		}
		v = &verification{guard: fresh, created: now, epoch: epoch, lowest: seq, supportsBump: supportsBump}
		s.verification[id] = v
		return v.guard
	}
	switch {
	case epoch == v.epoch && seq < v.lowest:
		v.lowest = seq
	case epoch > v.epoch:
		v.epoch, v.lowest = epoch, seq
	}
	return v.guard
}

// verified reports whether guard is the one handed out for the producer.
func (s *State) verified(id kafka.ProducerID, guard Guard) bool {
	v := s.verification[id]
	return v != nil && guard != 0 && v.guard == guard
}
