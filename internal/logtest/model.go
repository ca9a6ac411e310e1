// Package logtest holds a log against a plain model of one: seeded random
// operations with the same answers, and crashes after every file operation
// with nothing lost that was durable.
//
// Only tests import it.
package logtest

import (
	"math"
	"sort"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// entry is one batch as the model remembers it.
type entry struct {
	bytes   []byte // as they must be in the log
	raw     []byte // as the client sent them
	base    kafka.Offset
	last    kafka.Offset
	records []mrecord
	maxTS   kafka.Timestamp
	epoch   kafka.LeaderEpoch

	pid     kafka.ProducerID
	control bool
	txn     bool
	first   kafka.Offset // of its transaction
	aborted bool         // its transaction was aborted
	maybe   bool         // its append failed: it may be there or not
}

type mrecord struct {
	offset     kafka.Offset
	ts         kafka.Timestamp
	key, value []byte
}

// mproducer is what the model knows of a producer.
type mproducer struct {
	id      kafka.ProducerID
	epoch   kafka.ProducerEpoch
	nextSeq kafka.Sequence
	open    kafka.Offset // first offset of the open transaction; -1 none
	// sent are the newest batches, as sent, oldest first: at most five.
	sent []sentBatch
}

type sentBatch struct {
	raw         []byte
	first, last kafka.Offset
	// maxTS is -1 when the batch may have come out of a snapshot, which has one
	// timestamp for a producer: that of its last batch or marker.
	maxTS kafka.Timestamp
}

// model is a log without files: a slice of batches and a few offsets.
type model struct {
	start, end, hw kafka.Offset
	synced         kafka.Offset // everything below is durable
	entries        []entry
	producers      map[kafka.ProducerID]*mproducer
	epoch          kafka.LeaderEpoch
}

func newModel() *model { return &model{producers: map[kafka.ProducerID]*mproducer{}} }

// at is the index of the first batch that ends at or after offset.
func (m *model) at(offset kafka.Offset) int {
	return sort.Search(len(m.entries), func(i int) bool { return m.entries[i].last >= offset })
}

// lastStable is where the earliest transaction begins that is open, or whose
// marker the high watermark has not passed; at most the high watermark.
func (m *model) lastStable() kafka.Offset {
	first := kafka.Offset(math.MaxInt64)
	for _, p := range m.producers {
		if p.open >= 0 {
			first = min(first, p.open)
		}
	}
	for i := len(m.entries) - 1; i >= 0 && m.entries[i].last >= m.hw; i-- {
		if e := &m.entries[i]; e.control && e.first >= 0 {
			first = min(first, e.first)
		}
	}
	first = max(first, m.start)
	return min(first, m.hw)
}

// complete marks the batches of a transaction.
func (m *model) complete(pid kafka.ProducerID, first kafka.Offset, aborted bool) {
	for i := m.at(first); i < len(m.entries); i++ {
		if e := &m.entries[i]; e.pid == pid && e.txn && !e.control && e.first == first {
			e.aborted = aborted
		}
	}
}

// open reports whether any transaction is undecided.
func (m *model) openTxn() bool {
	for _, p := range m.producers {
		if p.open >= 0 {
			return true
		}
	}
	return false
}

// cut drops everything from offset on; a batch that holds it goes as a whole.
func (m *model) cut(offset kafka.Offset) {
	m.entries = m.entries[:m.at(offset)]
	m.end = offset
	m.hw = min(m.hw, offset)
	m.start = min(m.start, offset)
	m.synced = min(m.synced, offset)
	m.replay()
}

// dropBelow forgets batches that retention removed with their segments.
func (m *model) dropBelow(base kafka.Offset) {
	i := sort.Search(len(m.entries), func(i int) bool { return m.entries[i].base >= base })
	m.entries = m.entries[i:]
}

// replay finds the state of producers anew from the batches that are left, as
// a log does that is opened or truncated. A producer of whom nothing is left at
// or above the log start may be known to the log or not: it is not used again.
// Of each window only the newest batch is sure to be remembered.
func (m *model) replay() {
	clear(m.producers)
	known := map[kafka.ProducerID]bool{} // whose next sequence follows from what is left
	for i := range m.entries {
		e := &m.entries[i]
		if e.pid < 0 || e.last < m.start {
			continue
		}
		h, err := record.ParseHeader(e.bytes)
		if err != nil {
			panic(err)
		}
		p := m.producers[e.pid]
		if p == nil {
			p = &mproducer{id: e.pid, epoch: h.ProducerEpoch, open: kafka.NoOffset}
			m.producers[e.pid] = p
		}
		if p.epoch != h.ProducerEpoch {
			p.epoch, p.nextSeq, p.sent = h.ProducerEpoch, 0, nil
			known[e.pid] = true
		}
		// A producer whose newest record has no timestamp is taken for one of 1970
		// when a snapshot is loaded, and expires.
		known[e.pid] = (known[e.pid] || !e.control) && e.maxTS >= 0
		if e.control {
			p.open = kafka.NoOffset
			m.complete(e.pid, e.first, e.aborted)
			continue
		}
		e.aborted = false
		p.nextSeq = h.LastSequence().Add(1)
		p.sent = append(p.sent[:0], sentBatch{e.raw, e.base, e.last, kafka.NoTimestamp})
		if e.txn && p.open < 0 {
			p.open = e.first
		}
	}
	for id := range m.producers {
		if !known[id] && m.producers[id].open < 0 {
			delete(m.producers, id)
		}
	}
}

// parse reads a batch, which must be right.
func parse(b []byte) (record.Header, []mrecord, error) {
	h, err := record.ParseHeader(b)
	if err != nil {
		return h, nil, err
	}
	var it record.Iterator
	if err := it.Reset(b, new(record.Decompressor)); err != nil {
		return h, nil, err
	}
	var out []mrecord
	for it.Next() {
		r := it.Record()
		out = append(out, mrecord{r.Offset, r.Timestamp, clone(r.Key), clone(r.Value)})
	}
	return h, out, it.Err()
}

func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}
