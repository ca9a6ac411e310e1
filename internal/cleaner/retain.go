package cleaner

import (
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
)

// verdict is what is decided about a batch before its records are looked at.
type verdict struct {
	// discard: no record of it is kept.
	discard bool
	// keepEmpty: its header stays when no record does.
	keepEmpty bool
	// emptyTxn: it is the marker of a transaction that has no batch left.
	emptyTxn bool
	// abort is the entry of the transaction index that goes with the marker.
	abort *index.AbortedTxn
}

// producers is the last batch that a log remembers of each of its producers.
type producers map[kafka.ProducerID]producer.Entry

// holds reports whether the state of the batch's producer is written nowhere but
// in this batch: its last sequence, or, without data, its epoch.
func (p producers) holds(h *record.Header) bool {
	e, ok := p[h.ProducerID]
	switch {
	case !ok || !h.HasProducerID():
		return false
	case e.LastOffset != kafka.NoOffset:
		return h.LastOffset == e.LastOffset
	}
	return h.IsControl() && h.ProducerEpoch == e.Epoch
}

// judge decides about a batch. Records of aborted transactions go at once. A
// marker goes when its transaction has no batch left and has had none for
// delete.retention.ms, so that a reader that is within the transaction meets it.
func (r *round) judge(h *record.Header, b []byte, active producers) (verdict, error) {
	var v verdict
	if h.IsControl() {
		done, abort, err := r.txns.marker(h, b)
		if err != nil {
			return v, err
		}
		v.emptyTxn, v.abort = done, abort
		v.discard = done && h.HasDeleteHorizon() && h.BaseTimestamp <= r.now
	} else {
		v.discard = r.txns.data(h)
	}
	// The last batch of a round stays too, so that what has been cleaned keeps its end.
	v.keepEmpty = active.holds(h) || h.NextOffset() == r.extent.uncleanable
	return v, nil
}

// keeps decides about a record of a data batch: it stays when no newer one has
// its key and it is not a tombstone that has been there for long enough. What
// lies behind the mapped part is not yet decided.
func (r *round) keeps(h *record.Header, rec *record.Record, oldSegment bool) bool {
	if rec.Offset > r.keys.latest {
		return true
	}
	if rec.Key == nil {
		r.stats.WithoutKey++
		return false
	}
	if rec.Offset < r.keys.get(rec.Key) {
		return false
	}
	if rec.Value != nil {
		return true
	}
	if h.Magic < record.MagicV2 {
		return !oldSegment
	}
	return !h.HasDeleteHorizon() || r.now < h.BaseTimestamp
}

// filter returns what is left of a batch: the batch itself, byte for byte, when
// that is all of it; nil when it is nothing. Bytes are valid until the next call.
//
// The first time that a tombstone, or the marker of a transaction without
// batches, comes through, its batch is rebuilt with a delete horizon (KIP-534).
func (r *round) filter(h *record.Header, b []byte, v verdict, oldSegment bool) ([]byte, error) {
	m := r.memory
	if v.discard {
		if v.keepEmpty {
			r.stats.RecordsBefore += int64(max(h.Count, 0))
			return r.empty(h), nil
		}
		return nil, nil
	}
	if err := m.records.Reset(b, &m.decompressor); err != nil {
		return nil, err
	}
	m.keep = m.keep[:0]
	kept, tombstones := 0, false
	for m.records.Next() {
		rec := m.records.Record()
		keep := h.IsControl() || r.keeps(h, rec, oldSegment)
		m.keep = append(m.keep, keep)
		if keep {
			kept++
			tombstones = tombstones || rec.Value == nil
		}
	}
	if err := m.records.Err(); err != nil {
		return nil, err
	}
	r.stats.RecordsBefore += int64(len(m.keep))
	r.stats.RecordsAfter += int64(kept)
	setHorizon := (tombstones || v.emptyTxn) && !h.HasDeleteHorizon()
	switch {
	case kept == 0 && v.keepEmpty:
		return r.empty(h), nil
	case kept == 0:
		return nil, nil
	case kept == len(m.keep) && !setHorizon && h.Magic >= record.MagicV2:
		return b, nil
	}
	return r.rebuild(h, setHorizon)
}

func (r *round) empty(h *record.Header) []byte {
	r.memory.emptied = record.AppendEmpty(r.memory.emptied[:0], h)
	return r.memory.emptied
}

// rebuild writes the batch anew with the records that are kept, in the format 2,
// with the codec it had at that codec's default level. Offsets, sequences and
// timestamps stay (MemoryRecords.filterTo).
func (r *round) rebuild(h *record.Header, setHorizon bool) ([]byte, error) {
	m := r.memory
	o := record.BuildOptions{
		BaseOffset: h.BaseOffset, LeaderEpoch: h.LeaderEpoch, Codec: h.Codec(), TimestampType: h.TimestampType(), LogAppendTime: h.MaxTimestamp,
		ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, BaseSequence: h.BaseSequence,
		Transactional: h.IsTransactional(), Control: h.IsControl(), DeleteHorizon: kafka.NoTimestamp,
	}
	if o.TimestampType == kafka.NoTimestampType {
		o.TimestampType = kafka.CreateTime
	}
	if setHorizon {
		o.DeleteHorizon = math.MaxInt64 // a retention without end
		if horizon := r.now + kafka.Timestamp(r.config.DeleteRetentionMs); horizon >= r.now {
			o.DeleteHorizon = horizon
		}
	} else if h.HasDeleteHorizon() {
		o.DeleteHorizon = h.BaseTimestamp
	}
	begun := false
	m.records.Rewind()
	for i := 0; m.records.Next(); i++ {
		if !m.keep[i] {
			continue
		}
		rec := m.records.Record()
		if !begun {
			if h.Magic < record.MagicV2 {
				o.BaseOffset = rec.Offset
			}
			m.builder.Reset(o)
			begun = true
		}
		m.builder.AppendAt(rec.Offset, rec.Timestamp, rec.Key, rec.Value, rec.Headers)
	}
	if err := m.records.Err(); err != nil {
		return nil, err
	}
	if h.Magic >= record.MagicV2 {
		m.builder.KeepLastOffset(h.LastOffset)
	}
	out, err := m.builder.Finish()
	if err != nil {
		return nil, fmt.Errorf("rebuild: %w", err)
	}
	return out, nil
}
