package sim

import (
	"slices"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
)

// batch is one batch as it was sent, and where the log put it.
type batch struct {
	raw     []byte // as sent: the bytes that the checksum covers are those in the log
	base    kafka.Offset
	last    kafka.Offset
	epoch   kafka.LeaderEpoch
	pid     kafka.ProducerID
	control bool
	txn     bool
	first   kafka.Offset // of its transaction; NoOffset without one
	aborted bool         // a marker: of an abort
	acked   bool         // else it may be there or not
}

// part is what the outside knows of one partition.
type part struct {
	tp        kafka.TopicPartition
	id        kafka.TopicID
	dir       kafka.UUID // where the metadata says that it lies; zero until it is made
	cfg       commitlog.Config
	created   bool // its creation was answered: it must be there
	compacted bool
	syncEach  bool // flush.messages=1: what is acknowledged is durable

	batches []batch
	end     kafka.Offset
	durable kafka.Offset // everything below survives a power cut
	// The log start lies in [start, startMax]: start is acknowledged, a change
	// under way may have raised it to startMax.
	start, startMax kafka.Offset
	epoch           kafka.LeaderEpoch
	seqs            map[kafka.ProducerID]kafka.Sequence
	open            map[kafka.ProducerID]kafka.Offset // first offsets of open transactions
}

// snapshot is a copy that stays as it is. The bytes of batches are shared.
func (p *part) snapshot() *part {
	c := *p
	c.batches = slices.Clone(p.batches)
	c.seqs, c.open = nil, nil
	return &c
}

// acked is the end of what was acknowledged.
func (p *part) acked() kafka.Offset {
	for i := len(p.batches) - 1; i >= 0; i-- {
		if p.batches[i].acked {
			return p.batches[i].last + 1
		}
	}
	return p.startMax
}

// ackedRecords counts the acknowledged records.
func (p *part) ackedRecords() int {
	n := 0
	for i := range p.batches {
		if b := &p.batches[i]; b.acked && !b.control {
			n += int(b.last-b.base) + 1
		}
	}
	return n
}

// mayEndAt marks the batches from offset on as those that may go: the log is
// about to be cut there.
func (p *part) mayEndAt(offset kafka.Offset) {
	for i := range p.batches {
		if b := &p.batches[i]; b.last >= offset {
			b.acked = false
			p.durable = min(p.durable, b.base)
		}
	}
}

// endsAt forgets the batches from offset on.
func (p *part) endsAt(offset kafka.Offset) {
	p.batches = slices.DeleteFunc(p.batches, func(b batch) bool { return b.last >= offset })
	p.end = offset
	p.startMax = min(p.startMax, offset)
	p.start = min(p.start, offset)
	p.durable = min(p.durable, offset)
}
