package cleaner

import (
	"cmp"
	"slices"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
)

// transactions knows, while a pass goes through a log from front to back, which
// batches belong to an aborted transaction and which markers have lost all of
// theirs (Kafka's CleanedTransactionMetadata).
type transactions struct {
	ahead     []index.AbortedTxn // that begin further on, by first offset
	aborted   map[kafka.ProducerID]*abortedTxn
	committed map[kafka.ProducerID]bool // a batch was seen that is not of an aborted one
	markers   record.Iterator
	dec       *record.Decompressor
}

// abortedTxn is an aborted transaction within which the pass is.
type abortedTxn struct {
	index.AbortedTxn
	seen bool // a batch of it is still there
}

func newTransactions(dec *record.Decompressor) *transactions {
	return &transactions{aborted: map[kafka.ProducerID]*abortedTxn{}, committed: map[kafka.ProducerID]bool{}, dec: dec}
}

// add makes aborted transactions known; one may be told of twice.
func (t *transactions) add(list []index.AbortedTxn) {
	for _, a := range list {
		i, found := slices.BinarySearchFunc(t.ahead, a, func(x, y index.AbortedTxn) int { return cmp.Compare(x.FirstOffset, y.FirstOffset) })
		if !found {
			t.ahead = slices.Insert(t.ahead, i, a)
		}
	}
}

// of returns the aborted transaction that a batch lies in, nil if it is in none.
// One whose marker should have come before the batch is over, whether or not the
// marker was there: a stale entry must not take committed records along.
func (t *transactions) of(h *record.Header) *abortedTxn {
	n := 0
	for n < len(t.ahead) && t.ahead[n].FirstOffset <= h.LastOffset {
		a := t.ahead[n]
		if known := t.aborted[a.ProducerID]; known == nil || known.LastOffset < a.FirstOffset {
			t.aborted[a.ProducerID] = &abortedTxn{AbortedTxn: a}
		}
		n++
	}
	t.ahead = t.ahead[n:]
	a := t.aborted[h.ProducerID]
	if a != nil && a.LastOffset < h.BaseOffset {
		delete(t.aborted, h.ProducerID)
		return nil
	}
	return a
}

// data passes a data batch and reports whether its transaction was aborted.
func (t *transactions) data(h *record.Header) (aborted bool) {
	a := t.of(h)
	if !h.IsTransactional() {
		return false
	}
	if a != nil {
		a.seen = true
		return true
	}
	t.committed[h.ProducerID] = true
	return false
}

// marker passes a control batch. done says that no batch of its transaction is
// left, so that it may go. An abort marker that stays needs its entry in the
// transaction index of the segment that it is written to.
func (t *transactions) marker(h *record.Header, b []byte) (done bool, entry *index.AbortedTxn, err error) {
	a := t.of(h)
	if err := t.markers.Reset(b, t.dec); err != nil {
		return false, nil, err
	}
	if !t.markers.Next() {
		return true, nil, t.markers.Err() // emptied by an earlier round
	}
	kind, err := record.ParseControl(t.markers.Record().Key)
	if err != nil {
		return false, nil, err
	}
	switch kind {
	case record.AbortMarker:
		delete(t.aborted, h.ProducerID)
		if a != nil && a.seen {
			return false, &a.AbortedTxn, nil
		}
		return true, nil, nil
	case record.CommitMarker:
		seen := t.committed[h.ProducerID]
		delete(t.committed, h.ProducerID)
		return !seen, nil, nil
	}
	return false, nil, nil
}

// collectAborted lists the aborted transactions that have to do with the offsets
// [from, to). segs are those of the log, oldest first.
func collectAborted(segs []*segment.Segment, from, to kafka.Offset) (list []index.AbortedTxn, err error) {
	for i := floorSegment(segs, from); i < len(segs); i++ {
		var complete bool
		if list, complete, err = segs[i].CollectAborted(list, from, to); err != nil || complete {
			return list, err
		}
	}
	return list, nil
}

// floorSegment is the index of the last segment that begins at or before offset, or 0.
func floorSegment(segs []*segment.Segment, offset kafka.Offset) int {
	i, found := slices.BinarySearchFunc(segs, offset, func(s *segment.Segment, o kafka.Offset) int { return cmp.Compare(s.BaseOffset(), o) })
	if !found {
		i--
	}
	return max(i, 0)
}
