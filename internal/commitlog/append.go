package commitlog

import (
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
)

// Origin says who appends, and so which checks apply (AppendOrigin).
type Origin int

// The origins of an append.
const (
	// Client: offsets are assigned; sequences checked and duplicates detected.
	Client Origin = iota
	// Coordinator: offsets are assigned; producer epochs checked.
	Coordinator
	// RaftLeader: offsets are kept and must follow; each batch has the leader's epoch.
	RaftLeader
	// Replication: offsets are kept; nothing about producers is refused.
	Replication
)

// AppendOptions go with AppendAsLeader.
type AppendOptions struct {
	Origin Origin
	// TxnVersion is the transaction version that a marker was written for.
	TxnVersion int16
	// Guard is the transaction verification guard of the request; 0 for none.
	Guard producer.Guard
	// SyncLater returns before the sync that AppendInfo.Owed stands for, which was
	// asked for; otherwise the append waits for it.
	SyncLater bool
}

// AppendInfo is what an append did.
type AppendInfo struct {
	FirstOffset, LastOffset kafka.Offset // -1 when nothing was there to append
	MaxTimestamp            kafka.Timestamp
	// LogAppendTime is -1 unless the topic stamps records, or the batch was a
	// duplicate: then it is the duplicate's timestamp, as Kafka answers.
	LogAppendTime  kafka.Timestamp
	LogStartOffset kafka.Offset
	LeaderEpoch    kafka.LeaderEpoch // of the last batch
	Size           int               // bytes appended
	Rolled         bool              // a new segment was started
	Duplicate      bool              // nothing was written: the batch is already there
	// Owed is what AwaitSync must have waited for before the append is
	// acknowledged: flush.messages or varve.sync asks for it.
	Owed SyncPoint
}

// AppendAsLeader appends the records field of one partition of a Produce
// request, or a coordinator's batch. Offsets, leader epoch and, where the topic
// asks for it, timestamps are patched into buf; buf may be reused when it
// returns. A refused batch is an *AppendError, and nothing was written.
func (l *Log) AppendAsLeader(buf []byte, epoch kafka.LeaderEpoch, o AppendOptions) (AppendInfo, error) {
	in := incoming{origin: o.Origin, cfg: l.config.Load(), now: l.now()}
	if err := l.analyze(&in, buf, epoch); err != nil {
		return l.nothing(), err
	}
	if len(in.buf) == 0 {
		return l.nothing(), nil
	}
	if o.Origin != RaftLeader {
		err := l.validate(&in)
		if err != nil {
			in.release(l.scratch)
			return l.nothing(), err
		}
	}
	info, err := l.append(&in, epoch, o)
	in.release(l.scratch)
	return info, err
}

// AppendAsFollower appends batches that have their offsets, as a leader or an
// older recovery wrote them. Batches of a leader epoch above epoch are left out.
func (l *Log) AppendAsFollower(buf []byte, epoch kafka.LeaderEpoch) (AppendInfo, error) {
	in := incoming{origin: Replication, cfg: l.config.Load(), now: l.now()}
	if err := l.analyze(&in, buf, epoch); err != nil {
		return l.nothing(), err
	}
	if len(in.buf) == 0 {
		return l.nothing(), nil
	}
	return l.append(&in, epoch, AppendOptions{Origin: Replication, TxnVersion: producer.UnknownTxnVersion})
}

func (l *Log) nothing() AppendInfo {
	return AppendInfo{
		FirstOffset: kafka.NoOffset, LastOffset: kafka.NoOffset, MaxTimestamp: kafka.NoTimestamp,
		LogAppendTime: kafka.NoTimestamp, LogStartOffset: l.start.get(), LeaderEpoch: kafka.NoLeaderEpoch,
	}
}

func (l *Log) append(in *incoming, epoch kafka.LeaderEpoch, o AppendOptions) (AppendInfo, error) {
	l.mu.Lock()
	info, err := l.appendLocked(in, epoch, o)
	if errors.Is(err, segment.ErrIndexFull) {
		info, err = l.appendEachLocked(in, epoch, o)
	}
	if err == nil {
		info.Owed = l.owedLocked(in.cfg, &info)
	}
	l.unlock()
	if err == nil && info.Size > 0 && l.opts.Full != nil && l.opts.Full.Load() {
		l.opts.OnRoom()
	}
	if info.Owed.IsZero() {
		return info, err
	}
	l.requestSync(info.Owed.ticket > 0)
	if !o.SyncLater {
		err = l.AwaitSync(info.Owed)
	}
	return info, err
}

// appendLocked is UnifiedLog.append from its lock on; the order of the steps is
// Kafka's, so that what a refused batch leaves behind (an epoch, a roll) is too.
func (l *Log) appendLocked(in *incoming, epoch kafka.LeaderEpoch, o AppendOptions) (AppendInfo, error) {
	info := l.nothing()
	if err := l.writableLocked(); err != nil {
		return info, err
	}
	if err := l.placeLocked(in, epoch); err != nil {
		return info, err
	}
	if err := l.assignEpochsLocked(in); err != nil {
		return info, err
	}
	if len(in.buf) > int(in.cfg.SegmentBytes) {
		return info, refuse(ErrRecordBatchTooLarge,
			"Message batch size is %d bytes in append to partition %s, which exceeds the maximum configured segment size of %d.",
			len(in.buf), l.partition, in.cfg.SegmentBytes)
	}
	active, rolled, err := l.maybeRollLocked(in)
	if err != nil {
		return info, err
	}
	info.Rolled = rolled
	dup, found, err := l.checkProducersLocked(in, o)
	if err != nil {
		return info, err
	}
	info.FirstOffset, info.LastOffset = in.first, in.last
	info.MaxTimestamp, info.LogAppendTime = in.maxTimestamp, in.logAppendTime
	info.LeaderEpoch = in.leaderEpoch
	if found {
		info.FirstOffset, info.LastOffset = dup.FirstOffset(), dup.LastOffset
		info.LogAppendTime = dup.Timestamp
		info.Duplicate = true
		return info, nil
	}
	if rolled, err = l.writeLocked(active, in); err != nil {
		return info, err
	}
	info.Rolled = info.Rolled || rolled
	info.Size = len(in.buf)
	if err := l.appendedLocked(in); err != nil {
		return info, err
	}
	return info, nil
}

// placeLocked gives a leader's batch its offsets, and checks those of a follower's.
func (l *Log) placeLocked(in *incoming, epoch kafka.LeaderEpoch) error {
	end := l.end.get()
	if in.origin == RaftLeader || in.origin == Replication {
		first := in.first
		if first == kafka.NoOffset {
			first = in.lastOfFirst
		}
		if first < end {
			return l.unexpectedOffset(in, first, end)
		}
		return nil
	}
	b := record.Batch(in.buf)
	if in.records <= 0 {
		return refuse(ErrInvalidRecord, "Record batch without records in the append to %s", l.partition)
	}
	in.first, in.last = end, end+kafka.Offset(in.records)-1
	b.SetLastOffset(in.last)
	b.SetLeaderEpoch(epoch)
	in.leaderEpoch = epoch
	if in.rebuilt != nil && len(in.buf) > int(in.cfg.MaxMessageBytes) {
		return refuse(ErrMessageTooLarge,
			"Message batch size is %d bytes in append to partition %s which exceeds the maximum configured size of %d.",
			len(in.buf), l.partition, in.cfg.MaxMessageBytes)
	}
	if in.cfg.TimestampType == kafka.LogAppendTime {
		return l.keepTimeRisingLocked(in, b)
	}
	return nil
}

// keepTimeRisingLocked stamps a batch no earlier than the segment's latest: a
// clock that was set back must not make append times fall.
func (l *Log) keepTimeRisingLocked(in *incoming, b record.Batch) error {
	largest, err := l.segments.Load().active().MaxTimestamp()
	if err != nil {
		return l.writeErrorLocked("time index", err)
	}
	if largest.Timestamp > in.logAppendTime && b.TimestampType() == kafka.LogAppendTime {
		in.logAppendTime, in.maxTimestamp = largest.Timestamp, largest.Timestamp
		b.SetMaxTimestamp(kafka.LogAppendTime, largest.Timestamp)
	}
	return nil
}

func (l *Log) unexpectedOffset(in *incoming, first, end kafka.Offset) error {
	return refuse(ErrUnexpectedAppendOffset,
		"Unexpected offset in append to %s. First offset %d is less than the next offset %d. First 10 offsets in append: %s, last offset in append: %d. Log start offset = %d",
		l.partition, first, end, l.firstOffsets(in.buf), in.last, l.start.get())
}

// firstOffsets lists up to ten record offsets for a message.
func (l *Log) firstOffsets(buf []byte) string {
	var list []byte
	n := 0
	dec := l.scratch.decompressors.Get()
	defer l.scratch.decompressors.Put(dec)
	var it record.Iterator
	for n < 10 {
		size, ok, err := record.NextBatch(buf)
		if !ok || err != nil || it.Reset(buf[:size], dec) != nil {
			break
		}
		for n < 10 && it.Next() {
			if n > 0 {
				list = append(list, ", "...)
			}
			list = fmt.Appendf(list, "%d", it.Record().Offset)
			n++
		}
		buf = buf[size:]
	}
	return string(list)
}

// assignEpochsLocked notes the leader epochs that the batches begin, and makes
// them durable with one that AssignEpoch left. A batch of an old format has
// none: what the cache says ends there.
func (l *Log) assignEpochsLocked(in *incoming) error {
	before, changed := l.epochs.load(), false
	for buf := in.buf; len(buf) > 0; {
		h, err := record.ParseHeader(buf)
		if err != nil {
			return refuse(ErrCorrupt, "%v", err) // cannot be: analyze has read it
		}
		buf = buf[h.Size:]
		switch {
		case h.Magic < record.MagicV2:
			changed = l.epochs.clear() || changed
		case h.LeaderEpoch >= 0:
			changed = l.epochs.assign(h.LeaderEpoch, h.BaseOffset) || changed
		}
	}
	if !changed && !l.epochOwed {
		return nil
	}
	if err := l.writeEpochs(); err != nil {
		l.epochs.store(before)
		return l.writeErrorLocked("leader epochs", err)
	}
	l.epochOwed = false
	return nil
}

// maybeRollLocked makes room for the append and returns the segment to write to.
func (l *Log) maybeRollLocked(in *incoming) (*segment.Segment, bool, error) {
	active := l.segments.Load().active()
	roll, err := active.ShouldRoll(segment.RollParams{
		Bytes: int64(len(in.buf)), MaxTimestamp: in.maxTimestamp, LastOffset: in.last, Now: in.now,
		SegmentBytes: int64(in.cfg.SegmentBytes), SegmentMs: in.cfg.maxSegmentMs(),
	})
	if err != nil {
		return nil, false, l.writeErrorLocked("roll", err)
	}
	if !roll {
		return active, false, nil
	}
	active, err = l.rollLocked(in.rollBase())
	return active, err == nil, err
}

// rollBase is the base offset of a segment that starts with this append. The
// first offset of a compressed batch of an old format is not known without
// decompressing it; Kafka guesses as low as the last offset allows.
func (in *incoming) rollBase() kafka.Offset {
	if in.first != kafka.NoOffset {
		return in.first
	}
	return in.last - math.MaxInt32
}

// checkProducersLocked asks the producer state about each batch. found says
// that a client's batch is there already.
func (l *Log) checkProducersLocked(in *incoming, o AppendOptions) (dup producer.Batch, found bool, err error) {
	l.producers.Begin()
	for buf := in.buf; len(buf) > 0; {
		h, err := record.ParseHeader(buf)
		if err != nil {
			return dup, false, refuse(ErrCorrupt, "%v", err)
		}
		b := buf[:h.Size]
		buf = buf[h.Size:]
		if !h.HasProducerID() {
			continue
		}
		if in.origin == Client {
			if dup, found = l.producers.Duplicate(&h); found {
				return dup, true, nil
			}
		}
		if err := addProducer(l.producers, &h, b, in.origin.producers(), o.TxnVersion, o.Guard); err != nil {
			return dup, false, refusedByProducers(err)
		}
	}
	return dup, false, nil
}

func (o Origin) producers() producer.Origin {
	switch o {
	case Client:
		return producer.Client
	case Coordinator:
		return producer.Coordinator
	}
	return producer.Replication
}

// addProducer gives a batch to the producer state, with its marker if it is one.
func addProducer(st *producer.State, h *record.Header, b record.Batch, o producer.Origin, txnVersion int16, guard producer.Guard) error {
	if !h.IsControl() {
		return st.Add(h, nil, o, txnVersion, guard)
	}
	m, ok, err := parseMarker(b)
	if err != nil {
		return err
	}
	if !ok {
		return st.Add(h, nil, o, txnVersion, guard)
	}
	return st.Add(h, &m, o, txnVersion, guard)
}

// parseMarker reads the record of a control batch; ok is false when compaction
// has emptied it.
func parseMarker(b record.Batch) (m producer.Marker, ok bool, err error) {
	var it record.Iterator
	if err := it.Reset(b, nil); err != nil {
		return m, false, err
	}
	if !it.Next() {
		return m, false, it.Err()
	}
	r := it.Record()
	kind, err := record.ParseControl(r.Key)
	if err != nil {
		return m, false, err
	}
	if kind != record.CommitMarker && kind != record.AbortMarker {
		return m, false, &record.InvalidError{Reason: "control record of a producer is not the end of a transaction: " + kind.String()}
	}
	m.CoordinatorEpoch, err = record.ParseEndTxnMarker(r.Value)
	m.Commit, m.Timestamp = kind == record.CommitMarker, r.Timestamp
	return m, err == nil, err
}

func refusedByProducers(err error) error {
	var r *producer.RefusedError
	if errors.As(err, &r) {
		return &AppendError{Err: r.Err, Message: r.Message}
	}
	return refuse(ErrInvalidRecord, "%v", err)
}

// writeLocked writes the bytes. Many small batches at once can need more index
// entries than the segment has left: they go to a new one. When not even that
// has room for them the error is segment.ErrIndexFull, and nothing was written.
func (l *Log) writeLocked(active *segment.Segment, in *incoming) (rolled bool, err error) {
	err = active.Append(in.last, in.buf)
	if errors.Is(err, segment.ErrIndexFull) && active.Size() > 0 {
		if active, err = l.rollLocked(in.rollBase()); err != nil {
			return false, err
		}
		rolled = true
		err = active.Append(in.last, in.buf)
	}
	if errors.Is(err, segment.ErrIndexFull) && in.batches > 1 {
		return rolled, err
	}
	return rolled, l.writeErrorLocked("append", err)
}

// appendEachLocked appends batches one by one: an index that is smaller than
// the entries of one append (segment.index.bytes of a few entries, or a fetch of
// very many small batches) is filled and followed by another.
func (l *Log) appendEachLocked(in *incoming, epoch kafka.LeaderEpoch, o AppendOptions) (AppendInfo, error) {
	all := l.nothing()
	for buf := in.buf; len(buf) > 0; {
		one := incoming{origin: in.origin, cfg: in.cfg, now: in.now}
		size, ok, err := record.NextBatch(buf)
		if err == nil && ok {
			err = l.analyze(&one, buf[:size], epoch)
		}
		if err != nil || !ok {
			return all, err
		}
		info, err := l.appendLocked(&one, epoch, o)
		if err != nil {
			return all, err
		}
		if all.FirstOffset == kafka.NoOffset {
			all.FirstOffset = info.FirstOffset
		}
		all.LastOffset, all.LeaderEpoch = info.LastOffset, info.LeaderEpoch
		all.MaxTimestamp = max(all.MaxTimestamp, info.MaxTimestamp)
		all.Size += info.Size
		all.Rolled = all.Rolled || info.Rolled
		buf = buf[size:]
	}
	return all, nil
}

// appendedLocked brings everything else up to the bytes that were written, and
// publishes the new end last.
func (l *Log) appendedLocked(in *incoming) error {
	active := l.segments.Load().active()
	completed := l.producers.Completed()
	l.producers.Commit()
	for _, c := range completed {
		if err := l.completeTxnLocked(active, c); err != nil {
			return err
		}
	}
	l.producers.SetMapEnd(in.last + 1)
	l.publishUnstableLocked()
	l.end.store(in.last+1, active.BaseOffset(), active.Size())
	return nil
}

// completeTxnLocked ends a transaction. The index entry must not be lost, or
// readers would take aborted records for committed ones: no error is survived.
func (l *Log) completeTxnLocked(active *segment.Segment, c producer.CompletedTxn) error {
	if c.Aborted {
		err := active.AppendTxn(index.AbortedTxn{
			ProducerID: c.ProducerID, FirstOffset: c.FirstOffset, LastOffset: c.LastOffset, LastStable: l.producers.LastStableAfter(c)})
		if err != nil {
			return l.fail("transaction index", err)
		}
	}
	l.producers.Complete(c)
	return nil
}
