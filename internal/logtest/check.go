package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func (r *runner) flush() error {
	to := r.m.end
	if r.chance(50) && to > r.m.start {
		to = r.m.start + kafka.Offset(r.rng.Int64N(int64(to-r.m.start)+1))
	}
	r.note("flush to %d", to)
	if err := r.log.Flush(to); err != nil {
		return err
	}
	r.m.synced = max(r.m.synced, to)
	if r.chance(50) {
		r.savedRecovery = r.log.RecoveryPoint()
	}
	return nil
}

func (r *runner) raiseHighWatermark() error {
	if r.m.hw < r.m.end {
		r.m.hw += kafka.Offset(r.rng.Int64N(int64(r.m.end-r.m.hw) + 1))
		r.log.MaybeIncrementHighWatermark(r.m.hw)
		r.note("high watermark %d", r.m.hw)
	}
	return r.checkOffsets()
}

func (r *runner) deleteRecords() error {
	bound := r.m.lastStable()
	if bound <= r.m.start {
		return nil
	}
	// A transaction whose records go must have a marker that no power cut takes.
	if err := r.log.Flush(r.m.end); err != nil {
		return err
	}
	r.m.synced = r.m.end
	to := r.m.start + kafka.Offset(r.rng.Int64N(int64(bound-r.m.start)+1))
	got, err := r.log.DeleteRecordsTo(to)
	r.note("delete records to %d: %d, %v", to, got, err)
	if r.cfg.CleanupCompact && !r.cfg.CleanupDelete {
		if !errors.Is(err, commitlog.ErrPolicyViolation) {
			return fmt.Errorf("delete records of a compacted topic: %v", err)
		}
		return nil
	}
	if err != nil || got != max(to, r.m.start) {
		return fmt.Errorf("delete records to %d: %d, %v", to, got, err)
	}
	r.m.start = got
	return r.checkOffsets()
}

// retain applies retention. Which segments there are is the log's business; the
// model holds the rules against the segments before and after.
func (r *runner) retain() error {
	if r.m.openTxn() {
		return nil // a transaction that loses its records is beyond the model
	}
	if err := r.log.Flush(r.m.end); err != nil {
		return err
	}
	r.m.synced = r.m.end
	before := r.log.Segments()
	var total int64
	for _, s := range before {
		total += s.Size()
	}
	n, err := r.log.DeleteOldSegments()
	r.note("retention: %d of %d segments", n, len(before))
	if err != nil {
		return fmt.Errorf("retention: %w", err)
	}
	after := r.log.Segments()
	first := after[0].BaseOffset()
	if n > 0 {
		r.m.start = max(r.m.start, first)
		r.m.dropBelow(first)
	}
	var left int64
	for _, s := range after {
		left += s.Size()
	}
	switch {
	case first > r.m.hw:
		return fmt.Errorf("retention removed records above the high watermark %d", r.m.hw)
	case r.cfg.CleanupDelete && r.cfg.RetentionBytes >= 0 && total >= r.cfg.RetentionBytes && left < r.cfg.RetentionBytes && len(after) > 0 && first > r.m.start:
		return fmt.Errorf("retention left %d bytes of %d, the limit is %d", left, total, r.cfg.RetentionBytes)
	case len(after) > 1 && after[1].BaseOffset() <= r.m.start && after[1].BaseOffset() <= r.m.hw:
		return fmt.Errorf("retention kept a segment below the log start %d", r.m.start)
	}
	r.savedRecovery = max(r.savedRecovery, 0)
	return r.checkOffsets()
}

func (r *runner) unlink() error {
	r.note("unlink %d", len(r.due))
	for _, f := range r.due {
		f()
	}
	r.due = nil
	return nil
}

func (r *runner) truncate() error {
	span := int64(r.m.end - r.m.start)
	if span == 0 || r.chance(40) {
		return nil
	}
	to := r.m.end - kafka.Offset(r.rng.Int64N(min(span, 60)+1))
	for i := range r.m.entries {
		if e := &r.m.entries[i]; e.control && e.first < r.m.start {
			to = max(to, e.last+1) // else a transaction is open again whose records are gone
		}
	}
	cut, err := r.log.TruncateTo(to)
	r.note("truncate to %d: %v, %v", to, cut, err)
	if err != nil || cut != (to < r.m.end) {
		return fmt.Errorf("truncate to %d of %d: %v, %v", to, r.m.end, cut, err)
	}
	if cut {
		if i := r.m.at(to); i < len(r.m.entries) && r.m.entries[i].base < to {
			r.gaps = max(r.gaps, to+1) // what is appended next leaves a gap behind the batch before
		}
		r.m.cut(to)
	}
	return r.settle()
}

// settle brings the high watermark to the end, so that what is known of decided
// transactions does not matter.
func (r *runner) settle() error {
	r.m.hw = r.m.end
	r.log.MaybeIncrementHighWatermark(r.m.end)
	return r.checkAll()
}

func (r *runner) restart() error {
	r.note("restart, clean")
	if err := r.log.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if r.log.RecoveryPoint() != r.m.end {
		return fmt.Errorf("recovery point %d after a clean close, want %d", r.log.RecoveryPoint(), r.m.end)
	}
	r.savedRecovery, r.savedHW, r.savedStart = r.m.end, r.m.hw, r.m.start
	r.m.synced = r.m.end
	r.due = nil
	if r.chance(30) { // a power cut after a clean stop loses nothing
		r.crash(memfs.DropAll())
	}
	if err := r.open(true); err != nil {
		return err
	}
	if got := r.log.EndOffset(); got != r.lastEnd() {
		return fmt.Errorf("restarted: the log ends at %d, want %d", got, r.lastEnd())
	}
	r.reopened()
	return r.settle()
}

// crash replaces the disk by what is left of it. Files that the old log still
// has open are of the old disk.
func (r *runner) crash(c memfs.Choice) {
	r.disk = r.disk.Crash(c)
	r.disk.SetNow(r.clock)
	r.due = nil
}

// kill ends the process: what was written is there.
func (r *runner) kill() error {
	r.note("kill")
	if r.chance(50) {
		r.savedHW = r.m.hw
	}
	r.crash(memfs.KeepAll())
	if err := r.open(false); err != nil {
		return err
	}
	if got := r.log.EndOffset(); got != r.lastEnd() {
		return fmt.Errorf("killed: the log ends at %d, want %d", got, r.lastEnd())
	}
	r.reopened()
	return r.settle()
}

// lastEnd is where a log ends that is found by its batches: offsets that a
// truncation left without a batch are not seen.
func (r *runner) lastEnd() kafka.Offset {
	if n := len(r.m.entries); n > 0 {
		return max(r.m.entries[n-1].last+1, r.savedStart, r.log.Segments()[len(r.log.Segments())-1].BaseOffset())
	}
	return r.log.EndOffset()
}

// reopened takes over what an unclean start may change: the end, down to the
// last batch, and the log start, down to what was saved of it.
func (r *runner) reopened() {
	r.m.end = r.log.EndOffset()
	r.m.hw = min(r.m.hw, r.m.end)
	r.m.start = r.log.StartOffset()
	r.m.synced = min(r.m.synced, r.m.end)
	r.m.replay()
}

// powerCut loses any part of what was not durable. What is left is a prefix of
// the log that holds everything durable.
func (r *runner) powerCut() error {
	keep := []float64{0, 0.2, 0.5, 0.9, 1}[r.rng.IntN(5)]
	r.note("power cut, keeping %v of what was not synced; durable to %d of %d", keep, r.m.synced, r.m.end)
	synced, start := r.m.synced, r.savedStart
	r.crash(memfs.Random(keep, r.rng.Uint64()))
	if err := r.open(false); err != nil {
		return err
	}
	end := r.log.EndOffset()
	lost := synced
	if i := r.m.at(synced); i < len(r.m.entries) && r.m.entries[i].base < synced {
		lost = r.m.entries[i].base // half a batch cannot be durable
	}
	if n := r.m.at(lost); n > 0 {
		lost = min(lost, r.m.entries[n-1].last+1)
	} else {
		lost = start
	}
	if end < lost {
		return fmt.Errorf("power cut: the log ends at %d, durable was %d", end, lost)
	}
	if n := r.m.at(end); n < len(r.m.entries) && r.m.entries[n].base < end {
		return fmt.Errorf("power cut: the log ends at %d, inside the batch %d to %d", end, r.m.entries[n].base, r.m.entries[n].last)
	}
	r.m.cut(end)
	r.reopened()
	return r.settle()
}

// checkOffsets compares the published offsets.
func (r *runner) checkOffsets() error {
	l, m := r.log, r.m
	if l.StartOffset() != m.start || l.EndOffset() != m.end || l.HighWatermark() != m.hw || l.LastStable() != m.lastStable() {
		return fmt.Errorf("offsets: start %d, stable %d, high watermark %d, end %d; want %d, %d, %d, %d",
			l.StartOffset(), l.LastStable(), l.HighWatermark(), l.EndOffset(), m.start, m.lastStable(), m.hw, m.end)
	}
	if l.RecoveryPoint() < m.synced && m.synced <= m.end && m.synced > 0 && l.RecoveryPoint() > m.end {
		return fmt.Errorf("recovery point %d", l.RecoveryPoint())
	}
	return nil
}

// read asks for a random range and wants exactly the bytes that the rules of a
// fetch give.
func (r *runner) read() error {
	o := commitlog.ReadOptions{
		MaxBytes: int64(r.rng.IntN(1 + r.rng.IntN(9000))), Bound: commitlog.Bound(r.rng.IntN(3)), MinOneBatch: r.chance(70), Aborted: r.chance(50)}
	start := r.m.start + kafka.Offset(r.rng.Int64N(int64(r.m.end-r.m.start)+4)) - 1
	return r.readAt(start, o)
}

func (r *runner) readAt(start kafka.Offset, o commitlog.ReadOptions) error {
	info, err := r.log.Read(start, o)
	defer release(info)
	where := fmt.Sprintf("read %d %+v", start, o)
	if start < r.m.start || start > r.m.end {
		if !errors.Is(err, commitlog.ErrOffsetOutOfRange) {
			return fmt.Errorf("%s: %v, want out of range", where, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	bound := map[commitlog.Bound]kafka.Offset{commitlog.HighWatermark: r.m.hw, commitlog.LastStable: r.m.lastStable(), commitlog.LogEnd: r.m.end}[o.Bound]
	want, first := r.expected(start, bound, o)
	got := make([]byte, info.Region.Length)
	if len(got) > 0 {
		if _, err := info.Region.File.ReadAt(got, info.Region.Offset); err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s: %d bytes, want %d (first batch %d, bound %d)", where, len(got), len(want), first, bound)
	}
	if info.Region.Length > 0 && info.FirstBatchIncomplete != (max(o.MaxBytes, 0) < int64(first) && !o.MinOneBatch) {
		return fmt.Errorf("%s: first batch incomplete = %v", where, info.FirstBatchIncomplete)
	}
	if o.Aborted {
		return r.checkAborted(where, start, got, info)
	}
	return nil
}

// expected is what a fetch returns: from the batch that holds start, within its
// segment, below the bound, by size.
func (r *runner) expected(start, bound kafka.Offset, o commitlog.ReadOptions) (want []byte, first int) {
	i := r.m.at(start)
	if start >= bound || i == len(r.m.entries) || r.m.entries[i].base >= bound {
		return nil, 0
	}
	segs := r.log.Segments()
	next := kafka.Offset(math.MaxInt64)
	for _, s := range segs {
		if s.BaseOffset() > r.m.entries[i].base {
			next = s.BaseOffset()
			break
		}
	}
	first = len(r.m.entries[i].bytes)
	allowed := max(o.MaxBytes, 0)
	if o.MinOneBatch {
		allowed = max(allowed, int64(first))
	}
	for ; i < len(r.m.entries); i++ {
		e := &r.m.entries[i]
		if e.base >= next || e.last >= bound || int64(len(want)) >= allowed {
			break
		}
		want = append(want, e.bytes...)
	}
	return want[:min(int64(len(want)), allowed)], first
}

// checkAborted consumes the bytes as a client does that reads committed
// transactions only, and wants it to see exactly the records of those.
func (r *runner) checkAborted(where string, start kafka.Offset, got []byte, info commitlog.ReadInfo) error {
	pending := append([]commitlog.AbortedTxn{}, info.Aborted...)
	aborted := map[kafka.ProducerID]bool{}
	for len(got) > 0 {
		size, ok, err := record.NextBatch(got)
		if err != nil || !ok {
			return err
		}
		h, err := record.ParseHeader(got)
		if err != nil {
			return err
		}
		got = got[size:]
		rest := pending[:0]
		for _, a := range pending {
			if a.FirstOffset <= h.LastOffset {
				aborted[a.ProducerID] = true
			} else {
				rest = append(rest, a)
			}
		}
		pending = rest
		e := &r.m.entries[r.m.at(h.BaseOffset)]
		switch {
		case h.IsControl():
			if e.aborted {
				delete(aborted, h.ProducerID)
			}
		case h.IsTransactional() && h.LastOffset < r.m.lastStable():
			if aborted[h.ProducerID] != e.aborted {
				return fmt.Errorf("%s: batch at %d of producer %d: the client takes it for aborted = %v, want %v; list %+v",
					where, h.BaseOffset, h.ProducerID, aborted[h.ProducerID], e.aborted, info.Aborted)
			}
		}
	}
	return nil
}

func (r *runner) lookupTime() error {
	bound := r.m.hw
	if r.chance(20) {
		return r.lookupMax(bound)
	}
	ts := kafka.Timestamp(r.now - int64(r.rng.IntN(60_000)) + 15_000)
	if r.chance(5) {
		ts = 0
	}
	got, err := r.log.OffsetForTimestamp(ts, bound)
	if err != nil {
		return fmt.Errorf("lookup of %d: %w", ts, err)
	}
	want := commitlog.TimestampOffset{Timestamp: kafka.NoTimestamp, Offset: kafka.NoOffset, Epoch: kafka.NoLeaderEpoch}
search:
	for i := r.m.at(r.m.start); i < len(r.m.entries); i++ {
		for _, rec := range r.m.entries[i].records {
			if rec.offset >= r.m.start && rec.ts >= ts {
				if rec.offset < bound {
					want = commitlog.TimestampOffset{Timestamp: rec.ts, Offset: rec.offset, Epoch: r.m.entries[i].epoch}
				}
				break search
			}
		}
	}
	if got != want {
		return fmt.Errorf("lookup of %d: %+v, want %+v", ts, got, want)
	}
	return nil
}

func (r *runner) lookupMax(bound kafka.Offset) error {
	got, err := r.log.MaxTimestampOffset(bound)
	if err != nil {
		return fmt.Errorf("lookup of the largest timestamp: %w", err)
	}
	want := commitlog.TimestampOffset{Timestamp: kafka.NoTimestamp, Offset: kafka.NoOffset, Epoch: kafka.NoLeaderEpoch}
	for i := range r.m.entries {
		if e := &r.m.entries[i]; e.last >= r.m.start {
			for _, rec := range e.records {
				if rec.offset >= r.m.start && rec.ts > want.Timestamp {
					want = commitlog.TimestampOffset{Timestamp: rec.ts, Offset: rec.offset, Epoch: e.epoch}
				}
			}
		}
	}
	if got.Offset >= 0 && got.Offset < r.m.start && got.Timestamp >= want.Timestamp {
		return nil // of a record below the log start whose segment is still there
	}
	if want.Offset >= bound {
		want = commitlog.TimestampOffset{Timestamp: kafka.NoTimestamp, Offset: kafka.NoOffset, Epoch: kafka.NoLeaderEpoch}
	}
	if got != want {
		return fmt.Errorf("lookup of the largest timestamp: %+v, want %+v", got, want)
	}
	return nil
}

// checkAll reads the whole log.
func (r *runner) checkAll() error {
	if err := r.checkOffsets(); err != nil {
		return err
	}
	for next := r.m.start; next < r.m.end; {
		o := commitlog.ReadOptions{MaxBytes: 1 << 20, Bound: commitlog.LogEnd, MinOneBatch: true, Aborted: true}
		if err := r.readAt(next, o); err != nil {
			return err
		}
		want, _ := r.expected(next, r.m.end, o)
		if len(want) == 0 {
			break
		}
		i := r.m.at(next)
		for n := 0; n < len(want); i++ {
			n += len(r.m.entries[i].bytes)
			next = r.m.entries[i].last + 1
		}
	}
	return nil
}
