package commitlog

import (
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
)

// settleCompactedTxns corrects the transactions that are open at the end of the
// log by a snapshot, and whose first batch is not in it. Compaction touches no
// undecided transaction, so that one was decided; with the last of its records
// its marker went too. What is open, if anything, begins with the producer's next
// transactional batch. Kafka leaves it as the snapshot has it, and no reader of
// committed records gets past it any more.
func (l *Log) settleCompactedTxns(list *segmentList, logStart kafka.Offset) error {
	st := l.producers
	settled := false
	for _, open := range st.OpenTxns() {
		if open.FirstOffset < max(logStart, list.bases[0]) {
			continue // its records were deleted: that says nothing
		}
		first, ok, err := firstOfTxn(list, open)
		if errors.Is(err, record.ErrCorrupt) || ok && first == open.FirstOffset {
			continue
		}
		if err != nil {
			return err
		}
		l.event("transaction-settled", l.Dir(), fmt.Sprintf("producer %d: its records from offset %d on were compacted away with their marker", open.ProducerID, open.FirstOffset))
		st.DropOpenTxn(open.ProducerID)
		if ok {
			st.BeginTxn(open.ProducerID, first)
		}
		settled = true
	}
	if !settled {
		return nil
	}
	st.ForgetLastSnapshot()
	return l.snapshot(st)
}

// firstOfTxn finds the first batch of a transaction that is in the log, in its
// place or behind it.
func firstOfTxn(list *segmentList, open producer.OpenTxn) (first kafka.Offset, ok bool, err error) {
	errFound := errors.New("found")
	for _, s := range list.span(open.FirstOffset, math.MaxInt64) {
		at, there, err := s.Locate(open.FirstOffset)
		if err != nil {
			return 0, false, err
		}
		if !there {
			continue
		}
		_, err = s.Scan(at.Byte, s.Size(), func(h *record.Header, _ []byte, _ int64) error {
			if h.ProducerID == open.ProducerID && h.IsTransactional() && !h.IsControl() && h.BaseOffset >= open.FirstOffset {
				first = h.BaseOffset
				return errFound
			}
			return nil
		})
		if errors.Is(err, errFound) {
			return first, true, nil
		}
		if err != nil {
			return 0, false, err
		}
	}
	return 0, false, nil
}
