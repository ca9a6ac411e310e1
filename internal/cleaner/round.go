package cleaner

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
)

// errAborted ends a round whose log is being deleted, was cut, or is no longer
// compacted, and every round when the cleaner stops. What was swapped in stays:
// each group is complete for itself.
var errAborted = errors.New("cleaning aborted")

// round is one pass over one log: the keys of the dirty part into a map, then
// every segment from the first to the end of the mapped part written anew,
// without the records that the map knows a newer one of.
//
// Invariant: a record is left out only when what replaces it is durable. So the
// log is flushed up to the end of the mapped part before the first segment is
// swapped, and groups are swapped from the oldest to the newest.
type round struct {
	log        *commitlog.Log
	config     *commitlog.Config
	generation uint64
	segs       []*segment.Segment // of the log when the round began
	extent     extent
	now        kafka.Timestamp
	memory     *memory
	cancel     <-chan struct{} // closed when the round is to end soon
	pace       *pacer
	logger     *slog.Logger

	keys *offsetMap
	txns *transactions
	// legacyHorizon is the time of modification below which a segment's tombstones
	// of the formats 0 and 1 have been there for delete.retention.ms.
	legacyHorizon kafka.Timestamp

	stats Stats
}

// memory is what a worker keeps from round to round.
type memory struct {
	mapBytes     int64   // of an offset map
	load         float64 // share of it that is used
	bufferBytes  int     // of the read buffer and of the write buffer
	read, write  []byte
	emptied      []byte // one batch without records
	decompressor record.Decompressor
	records      record.Iterator
	builder      record.Builder
	keep         []bool // by record of a batch
}

// Stats say what a round did.
type Stats struct {
	FirstDirty, NextDirty kafka.Offset // the dirty part was [FirstDirty, NextDirty)
	Uncleanable           kafka.Offset // how far it could have gone
	Keys                  int          // in the offset map
	SegmentsBefore        int
	SegmentsAfter         int
	BytesBefore           int64 // of the segments written anew, and of what came out
	BytesAfter            int64
	RecordsBefore         int64 // read; those of aborted transactions are not
	RecordsAfter          int64
	WithoutKey            int64 // of RecordsBefore; they are dropped
}

// newRound prepares a round over the segments that e was found for.
func newRound(l *commitlog.Log, generation uint64, segs []*segment.Segment, e extent, now kafka.Timestamp, m *memory) *round {
	return &round{
		log: l, config: l.Config(), generation: generation, segs: segs, extent: e, now: now, memory: m,
		pace: new(pacer), logger: slog.New(slog.DiscardHandler),
		stats: Stats{FirstDirty: e.firstDirty, NextDirty: e.firstDirty, Uncleanable: e.uncleanable},
	}
}

// run does the round. stats.NextDirty is what the checkpoint becomes.
//
// Errors: errAborted; commitlog.ErrFull and ErrStorage for what the disk
// refused; record.ErrCorrupt and others when the log has something that the
// cleaner cannot pass, which another round would meet again.
func (r *round) run() error {
	err := r.clean()
	// A segment that records were deleted with is closed at once.
	if err != nil && (r.changed() || errors.Is(err, segment.ErrClosed) || errors.Is(err, index.ErrClosed)) {
		return errAborted
	}
	return err
}

func (r *round) clean() error {
	if err := r.measureLegacyHorizon(); err != nil {
		return err
	}
	if err := r.mapKeys(); err != nil {
		return fmt.Errorf("map keys: %w", err)
	}
	end := r.keys.latest + 1
	r.stats.Keys = r.keys.used
	if err := r.log.Flush(end); err != nil {
		return err
	}
	last := len(r.segs) - 1
	for last > 0 && r.segs[last-1].BaseOffset() >= end {
		last--
	}
	list, err := measure(r.segs[:last], r.extent.uncleanable)
	if err != nil {
		return err
	}
	r.txns = newTransactions(&r.memory.decompressor)
	for _, g := range group(list, int64(r.config.SegmentBytes), int64(r.config.SegmentIndexBytes)) {
		if err := r.rewrite(g); err != nil {
			return err
		}
	}
	r.stats.NextDirty = end
	return nil
}

// changed reports whether the round has no reason to go on.
func (r *round) changed() bool {
	select {
	case <-r.cancel:
		return true
	default:
	}
	return !r.log.Config().CleanupCompact || r.log.Generation() != r.generation
}

// check ends the round soon when it has no reason to go on.
func (r *round) check() error {
	if r.changed() {
		return errAborted
	}
	return r.log.Failure()
}

// measureLegacyHorizon goes by the newest segment that is clean already: its
// tombstones have been seen by whoever read that far since.
func (r *round) measureLegacyHorizon() error {
	r.legacyHorizon = kafka.Timestamp(0)
	for i := len(r.segs) - 1; i >= 0; i-- {
		if r.segs[i].BaseOffset() < r.extent.firstDirty {
			modified, err := r.segs[i].LastModified()
			r.legacyHorizon = modified - kafka.Timestamp(r.config.DeleteRetentionMs)
			return err
		}
	}
	return nil
}

// batches calls visit for the whole batches of s from byte from on, one after
// the other, with checksums that are right. h and b are valid until visit returns.
func (r *round) batches(s *segment.Segment, from int64, visit func(h *record.Header, b []byte) error) error {
	m := r.memory
	defer func() {
		if cap(m.read) > m.bufferBytes {
			m.read = nil
		}
	}()
	size := s.Size()
	for pos := from; pos < size; {
		if err := r.check(); err != nil {
			return err
		}
		m.read = sizedTo(m.read, max(m.bufferBytes, record.HeaderSize))
		n, err := r.readWhole(s, pos, size)
		if err != nil {
			return err
		}
		for at := 0; at < n; {
			h, err := record.ParseHeader(m.read[at:n])
			if err != nil {
				return damaged(s, pos+int64(at), err)
			}
			b := m.read[at : at+h.Size]
			if err := record.Check(b); err != nil {
				return damaged(s, pos+int64(at), err)
			}
			if err := visit(&h, b); err != nil {
				if isOfRecords(err) {
					err = damaged(s, pos+int64(at), err)
				}
				return err
			}
			at += h.Size
		}
		pos += int64(n)
	}
	return nil
}

// readWhole fills the read buffer from byte pos of s and returns how many bytes
// of it are whole batches. The buffer doubles up to max.message.bytes while not
// even one fits, and then becomes as large as the batch: max.message.bytes may
// have been lowered since.
func (r *round) readWhole(s *segment.Segment, pos, size int64) (int, error) {
	m := r.memory
	for {
		n := int(min(int64(len(m.read)), size-pos))
		if _, err := s.ReadAt(m.read[:n], pos); err != nil {
			return 0, fmt.Errorf("segment %d: %w", s.BaseOffset(), err)
		}
		r.pace.wait(n, r.cancel)
		whole, err := record.ValidBytes(m.read[:n])
		if whole > 0 {
			return whole, nil // what is wrong behind them is met next
		}
		if err != nil {
			return 0, damaged(s, pos, err)
		}
		declared := record.LogOverhead
		if n >= record.HeaderSize {
			declared = record.Batch(m.read).Size()
		}
		if int64(declared) > size-pos || n < record.HeaderSize {
			return 0, damaged(s, pos, &record.CorruptError{Reason: "bytes of the last batch", Found: size - pos, Want: int64(declared)})
		}
		grown := min(2*len(m.read), int(r.config.MaxMessageBytes))
		if len(m.read) >= int(r.config.MaxMessageBytes) {
			grown = declared
		}
		m.read = make([]byte, grown)
	}
}

// isOfRecords tells what is wrong with a batch from everything else.
func isOfRecords(err error) bool {
	for _, target := range []error{record.ErrCorrupt, record.ErrInvalid, record.ErrTooLarge, record.ErrUnknownCodec} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func damaged(s *segment.Segment, pos int64, err error) error {
	var corrupt *record.CorruptError
	if errors.As(err, &corrupt) {
		corrupt.Position = pos
	}
	return fmt.Errorf("%s at byte %d: %w", s.Path(), pos, err)
}

// sizedTo returns a buffer of n bytes, b when it is that.
func sizedTo(b []byte, n int) []byte {
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:cap(b)]
}

// mapKeys puts the newest offset of each key in the dirty part into the map, as
// far as it has room.
func (r *round) mapKeys() error {
	const recordBytes = 32 // of a small record
	r.keys = newOffsetMap(r.memory.mapBytes, r.memory.load, r.extent.dirtyBytes/recordBytes)
	from, to := r.extent.firstDirty, r.extent.uncleanable
	r.keys.latest = from - 1
	r.txns = newTransactions(&r.memory.decompressor)
	aborted, err := collectAborted(r.segs, from, to)
	if err != nil {
		return err
	}
	r.txns.add(aborted)
	for i := floorSegment(r.segs, from); i < len(r.segs) && r.segs[i].BaseOffset() < to; i++ {
		next := to
		if i+1 < len(r.segs) {
			next = min(next, r.segs[i+1].BaseOffset())
		}
		switch err := r.mapSegment(r.segs[i], from); {
		case errors.Is(err, errMapFull):
			return nil
		case err != nil:
			return err
		}
		r.keys.reached(next - 1) // offsets that no batch has any more are clean too
	}
	return nil
}

// errMapFull ends the mapping: what comes behind is for another round.
var errMapFull = errors.New("offset map is full")

func (r *round) mapSegment(s *segment.Segment, from kafka.Offset) error {
	at, ok, err := s.Locate(from)
	if err != nil || !ok {
		return err
	}
	return r.batches(s, at.Byte, func(h *record.Header, b []byte) error {
		if h.IsControl() {
			if _, _, err := r.txns.marker(h, b); err != nil {
				return err
			}
		} else if !r.txns.data(h) {
			if err := r.mapBatch(b, from); err != nil {
				return err
			}
		}
		r.keys.reached(h.LastOffset)
		return nil
	})
}

func (r *round) mapBatch(b []byte, from kafka.Offset) error {
	m := r.memory
	if err := m.records.Reset(b, &m.decompressor); err != nil {
		return err
	}
	mapped := kafka.NoOffset
	for m.records.Next() {
		rec := m.records.Record()
		if rec.Key == nil || rec.Offset < from {
			continue
		}
		if !r.keys.put(rec.Key, rec.Offset) {
			// A map that cannot take one batch would hold the log up for ever.
			if r.keys.latest < from {
				r.keys.reached(mapped)
			}
			return errMapFull
		}
		mapped = rec.Offset
	}
	return m.records.Err()
}
