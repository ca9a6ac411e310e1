package verify

import (
	"encoding/binary"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
)

// txnEntry is the size of a transaction index entry.
const txnEntry = 34

// transactions follows the transactions of a log from its start.
type transactions struct {
	open map[kafka.ProducerID]kafka.Offset // first offset
	// aborted are the abort markers of the segment under way. first is
	// NoOffset where the transaction began before the log does.
	aborted map[txnMarker]abortedTxn
	// gaps: offsets are missing, so the log was compacted, and what is left
	// does not tell where a transaction began.
	gaps bool
}

// txnMarker names a control batch by producer and offset.
type txnMarker struct {
	producer kafka.ProducerID
	offset   kafka.Offset
}

type abortedTxn struct{ first, stable kafka.Offset }

func newTransactions() transactions {
	return transactions{open: map[kafka.ProducerID]kafka.Offset{}, aborted: map[txnMarker]abortedTxn{}}
}

// transaction takes one transactional batch whose checksum is right.
func (p *partition) transaction(h *record.Header, b []byte) {
	t := &p.txns
	if !h.IsControl() {
		if _, open := t.open[h.ProducerID]; !open {
			t.open[h.ProducerID] = h.BaseOffset
		}
		return
	}
	if p.it.Reset(b, &p.dec) != nil || !p.it.Next() {
		return
	}
	r := p.it.Record()
	marker, err := record.ParseControl(r.Key)
	if err != nil || marker != record.AbortMarker && marker != record.CommitMarker {
		return
	}
	first, open := t.open[h.ProducerID]
	delete(t.open, h.ProducerID)
	if marker == record.CommitMarker {
		return
	}
	a := abortedTxn{first: kafka.NoOffset, stable: r.Offset + 1}
	if open {
		a.first = first
	}
	for _, o := range t.open {
		a.stable = min(a.stable, o)
	}
	t.aborted[txnMarker{h.ProducerID, r.Offset}] = a
}

// txnIndex compares the entries of the aborted transactions with the markers
// of the segment.
func (p *partition) txnIndex(base kafka.Offset, recovered bool) {
	defer clear(p.txns.aborted)
	path := join(p.dir, segment.Name(base, segment.TxnIndexExt))
	data, ok := p.readIndex(path, CodeTxnIndex, false)
	if !ok {
		p.missingAborts(path, nil, softened(recovered))
		return
	}
	severity := softened(recovered)
	if len(data)%txnEntry != 0 {
		p.add(severity, CodeTxnIndex, path, int64(len(data)/txnEntry*txnEntry), "%d bytes are no whole number of entries of %d", len(data), txnEntry)
	}
	before, beforeStable := base-1, kafka.Offset(0)
	indexed := map[txnMarker]bool{}
	for i := 0; i+txnEntry <= len(data); i += txnEntry {
		e := data[i : i+txnEntry]
		be := binary.BigEndian
		version, id := int16(be.Uint16(e)), kafka.ProducerID(be.Uint64(e[2:]))
		first, last, stable := kafka.Offset(be.Uint64(e[10:])), kafka.Offset(be.Uint64(e[18:])), kafka.Offset(be.Uint64(e[26:]))
		key := txnMarker{id, last}
		want, found := p.txns.aborted[key]
		indexed[key] = true
		switch {
		case version != 0:
			p.add(severity, CodeTxnIndex, path, int64(i), "entry version %d", version)
		case id < 0 || first < 0 || first > last || last <= before || stable < beforeStable || stable > last+1:
			p.add(severity, CodeTxnOrder, path, int64(i), "producer %d, offsets %d to %d, last stable %d; the entry before ends at %d, last stable %d",
				id, first, last, stable, before, beforeStable)
		case last >= p.end:
			p.add(severity, CodeTxnOrder, path, int64(i), "the transaction ends at offset %d, the segment at %d", last, p.end)
		case p.o.Fast:
		case !found:
			p.add(softened(recovered || p.txns.gaps), CodeTxnMarker, path, int64(i), "no abort marker of producer %d at offset %d", id, last)
		case !p.txns.gaps && want.first != kafka.NoOffset && p.contradicts(first, want.first, stable, want.stable):
			p.add(severity, CodeTxnOrder, path, int64(i), "producer %d aborted offsets %d to %d, last stable %d; the log says %d to %d, %d",
				id, first, last, stable, want.first, last, want.stable)
		}
		before, beforeStable = max(before, last), max(beforeStable, stable)
	}
	p.missingAborts(path, indexed, Warning)
}

// contradicts compares an entry with the log. A transaction may have begun
// before the log that is left does.
func (p *partition) contradicts(first, wantFirst, stable, wantStable kafka.Offset) bool {
	start := p.bases[0]
	return first != wantFirst && first >= start || stable != wantStable && stable >= start
}

// missingAborts names abort markers that the index does not have. Kafka's recovery
// leaves single ones: it rebuilds the index with the producers of a snapshot that
// may be younger than the transaction. A file that is gone is damage.
func (p *partition) missingAborts(path string, indexed map[txnMarker]bool, severity Severity) {
	if p.txns.gaps {
		return
	}
	for key, a := range p.txns.aborted {
		if a.first != kafka.NoOffset && !indexed[key] {
			p.add(severity, CodeTxnMarker, path, -1, "no entry for the transaction of producer %d aborted at offset %d: it is served to read_committed", key.producer, key.offset)
		}
	}
}
