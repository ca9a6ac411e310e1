package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// Run does n random operations, drawn from seed, on a log and on the model, and
// returns the first difference. The same seed does the same operations.
func Run(seed uint64, n int) (err error) {
	r := &runner{
		rng: rand.New(rand.NewPCG(seed, 0x7661727665)), disk: memfs.New(), m: newModel(),
		now: 1_750_000_000_000, scratch: commitlog.NewScratch(2), sizes: []int{},
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
		if err != nil {
			err = fmt.Errorf("seed %d, operation %d: %w\nlast operations:\n  %s", seed, r.step, err, strings.Join(r.trace, "\n  "))
		}
	}()
	if err := r.disk.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range []string{"/", "/d"} { // the directory itself is its owner's business
		if err := r.disk.SyncDir(d); err != nil {
			return err
		}
	}
	r.disk.SetNow(r.clock)
	r.newConfig()
	if err := r.open(false); err != nil {
		return err
	}
	for r.step = range n {
		if err := r.do(); err != nil {
			return err
		}
		if r.step%97 == 0 {
			if err := r.checkAll(); err != nil {
				return err
			}
		}
	}
	if err := r.checkAll(); err != nil {
		return err
	}
	return r.log.Close()
}

const dir = "/d/oracle-0"

// runner is one run.
type runner struct {
	rng     *rand.Rand
	disk    *memfs.FS
	m       *model
	log     *commitlog.Log
	cfg     commitlog.Config
	scratch *commitlog.Scratch
	now     int64
	step    int
	nextPID kafka.ProducerID
	trace   []string
	sizes   []int
	failure error

	// What the owner's checkpoints hold.
	savedRecovery, savedStart, savedHW kafka.Offset
	gaps                               kafka.Offset // offsets may be missing below it, as if it had been compacted
	due                                []func()
}

func (r *runner) clock() time.Time { return time.UnixMilli(r.now) }

func (r *runner) note(format string, args ...any) {
	r.trace = append(r.trace, fmt.Sprintf("%d: ", r.step)+fmt.Sprintf(format, args...))
	if len(r.trace) > 25 {
		r.trace = r.trace[1:]
	}
}

func (r *runner) chance(percent int) bool { return r.rng.IntN(100) < percent }

// newConfig draws topic settings that are met in practice, in small.
func (r *runner) newConfig() {
	c := commitlog.DefaultConfig()
	c.SegmentBytes = int32(2000 + r.rng.IntN(20000))
	c.IndexInterval = []int32{0, 100, 500, 4096}[r.rng.IntN(4)]
	c.SegmentIndexBytes = []int32{64, 240, 4096, 10 << 20}[r.rng.IntN(4)]
	c.SegmentMs = []int64{60_000, 600_000, 1 << 60}[r.rng.IntN(3)]
	c.MaxMessageBytes = 6000
	c.RetentionMs = -1
	c.TimestampAfterMax = 1 << 60
	if r.chance(25) {
		c.TimestampType = kafka.LogAppendTime
	}
	if r.chance(30) {
		c.CompressProducer = false
		c.Codec = record.Codec(r.rng.IntN(5))
	}
	if r.chance(15) {
		c.CleanupCompact = true
	}
	if r.chance(40) {
		c.RetentionBytes = int64(8000 + r.rng.IntN(60000))
	}
	if r.chance(10) {
		c.FlushMessages = int64(1 + r.rng.IntN(20))
	}
	r.cfg = c
}

func (r *runner) open(clean bool) error {
	log, err := commitlog.Open(commitlog.Options{
		FS: r.disk, Dir: dir, Partition: kafka.TopicPartition{Topic: "oracle"}, TopicID: kafka.UUID{1: 9, 15: 7},
		Config: r.cfg, CleanShutdown: clean, FirstDirty: r.gaps, FirstDirtyKnown: true,
		RecoveryPoint: r.savedRecovery, LogStartOffset: r.savedStart, HighWatermark: r.savedHW,
		Now: r.clock, Scratch: r.scratch,
		AfterDelay:           func(_ time.Duration, f func()) { r.due = append(r.due, f) },
		PersistLogStart:      func(o kafka.Offset) error { r.savedStart = o; return nil },
		PersistRecoveryPoint: func(o kafka.Offset) error { r.savedRecovery = o; return nil },
		OnFailure:            func(err error) { r.failure = err },
	})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	r.log = log
	return nil
}

// do is one random operation.
func (r *runner) do() error {
	r.now += int64(r.rng.IntN(200))
	if r.failure != nil {
		return fmt.Errorf("the log failed: %w", r.failure)
	}
	switch n := r.rng.IntN(1000); {
	case n < 170:
		return r.appendPlain()
	case n < 270:
		return r.appendIdempotent()
	case n < 370:
		return r.appendTransactional()
	case n < 430:
		return r.endTransaction()
	case n < 470:
		return r.appendRefused()
	case n < 500:
		return r.appendFollower()
	case n < 515:
		r.note("roll")
		return r.log.Roll()
	case n < 530:
		return r.flush()
	case n < 720:
		return r.read()
	case n < 800:
		return r.lookupTime()
	case n < 830:
		return r.raiseHighWatermark()
	case n < 850:
		return r.deleteRecords()
	case n < 880:
		return r.retain()
	case n < 900:
		return r.unlink()
	case n < 912:
		return r.truncate()
	case n < 925:
		return r.restart()
	case n < 940:
		return r.kill()
	case n < 955:
		return r.powerCut()
	case n < 965:
		r.newConfig()
		r.note("new settings %+v", r.cfg)
		r.log.SetConfig(r.cfg)
	case n < 975:
		r.m.epoch++
		r.note("leader epoch %d", r.m.epoch)
		return r.log.AssignEpoch(r.m.epoch, r.log.EndOffset())
	}
	return r.checkOffsets()
}

// batch builds what a client sends: n records at offset 0.
func (r *runner) batch(n int, o record.BuildOptions) []byte {
	var b record.Builder
	o.Codec = record.Codec(0)
	if r.chance(40) {
		o.Codec = record.Codec(r.rng.IntN(5))
	}
	b.Reset(o)
	ts := r.now + int64(r.rng.IntN(20000)) - 15000
	if r.chance(2) {
		ts = r.now + 500_000
	}
	for range n {
		var key, value []byte
		if r.cfg.CleanupCompact || r.chance(60) {
			key = r.bytes(r.rng.IntN(12))
		}
		if r.chance(90) {
			value = r.bytes(r.rng.IntN(1 + r.rng.IntN(400)))
		}
		var headers []record.RecordHeader
		if r.chance(10) {
			headers = []record.RecordHeader{{Key: []byte("h"), Value: r.bytes(3)}}
		}
		t := kafka.Timestamp(ts)
		if r.cfg.TimestampType == kafka.CreateTime && r.chance(2) {
			t = kafka.NoTimestamp
		}
		b.Append(t, key, value, headers)
		ts += int64(r.rng.IntN(60)) - 20
	}
	out, err := b.Finish()
	if err != nil {
		panic(err)
	}
	return clone(out)
}

func (r *runner) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefgh "[r.rng.IntN(9)]
	}
	return b
}

func (r *runner) count() int { return 1 + r.rng.IntN(1+r.rng.IntN(20)) }

// appended checks what the log did with raw and gives it to the model.
func (r *runner) appended(raw, buf []byte, info commitlog.AppendInfo, wantCount int) error {
	if info.FirstOffset != r.m.end || int(info.LastOffset-info.FirstOffset)+1 != wantCount {
		return fmt.Errorf("append got offsets %d to %d, want %d from %d", info.FirstOffset, info.LastOffset, wantCount, r.m.end)
	}
	stored, err := r.stored(info.FirstOffset, info.Size)
	if err != nil {
		return err
	}
	h, recs, err := parse(stored)
	if err != nil {
		return fmt.Errorf("stored batch: %w", err)
	}
	if err := record.Check(stored); err != nil {
		return fmt.Errorf("stored batch: %w", err)
	}
	if err := r.sameRecords(raw, &h, recs, info); err != nil {
		return err
	}
	e := entry{
		bytes: stored, raw: raw, base: h.BaseOffset, last: h.LastOffset, records: recs, maxTS: h.MaxTimestamp, epoch: h.LeaderEpoch,
		pid: h.ProducerID, txn: h.IsTransactional(), control: h.IsControl(), first: kafka.NoOffset,
	}
	if h.LeaderEpoch != r.m.epoch {
		return fmt.Errorf("stored batch has leader epoch %d, want %d", h.LeaderEpoch, r.m.epoch)
	}
	r.m.entries = append(r.m.entries, e)
	r.m.end = h.LastOffset + 1
	r.flushedByCount()
	if r.chance(85) {
		r.m.hw = r.m.end
		r.log.MaybeIncrementHighWatermark(r.m.hw)
	}
	_ = buf
	return nil
}

// flushedByCount follows flush.messages.
func (r *runner) flushedByCount() { r.m.synced = max(r.m.synced, r.log.RecoveryPoint()) }

// stored reads the bytes that an append wrote.
func (r *runner) stored(at kafka.Offset, size int) ([]byte, error) {
	info, err := r.log.Read(at, commitlog.ReadOptions{MaxBytes: int64(size), Bound: commitlog.LogEnd, MinOneBatch: true})
	if err != nil {
		return nil, fmt.Errorf("read back %d: %w", at, err)
	}
	defer release(info)
	if info.Region.Length != int64(size) {
		return nil, fmt.Errorf("read back %d: %d bytes, want %d", at, info.Region.Length, size)
	}
	b := make([]byte, size)
	_, err = info.Region.File.ReadAt(b, info.Region.Offset)
	return b, err
}

func release(info commitlog.ReadInfo) {
	if info.Region.Release != nil {
		info.Region.Release()
	}
}

// sameRecords compares what was sent with what is stored.
func (r *runner) sameRecords(raw []byte, h *record.Header, got []mrecord, info commitlog.AppendInfo) error {
	_, want, err := parse(raw)
	if err != nil {
		return err
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d records stored, want %d", len(got), len(want))
	}
	maxTS := kafka.NoTimestamp
	for i, w := range want {
		g := got[i]
		ts := w.ts
		if r.cfg.TimestampType == kafka.LogAppendTime && !h.IsControl() || h.TimestampType() == kafka.LogAppendTime {
			ts = info.LogAppendTime
		}
		maxTS = max(maxTS, ts)
		if g.offset != info.FirstOffset+kafka.Offset(i) || g.ts != ts || !bytes.Equal(g.key, w.key) || !bytes.Equal(g.value, w.value) ||
			(g.key == nil) != (w.key == nil) || (g.value == nil) != (w.value == nil) {
			return fmt.Errorf("record %d stored as %+v, want %+v at %d", i, g, w, info.FirstOffset+kafka.Offset(i))
		}
	}
	if info.MaxTimestamp != maxTS || h.MaxTimestamp != maxTS {
		return fmt.Errorf("largest timestamp %d (batch %d), want %d", info.MaxTimestamp, h.MaxTimestamp, maxTS)
	}
	return nil
}

func (r *runner) appendPlain() error {
	raw := r.batch(r.count(), record.NewBuildOptions())
	buf := clone(raw)
	info, err := r.log.AppendAsLeader(buf, r.m.epoch, commitlog.AppendOptions{})
	if err != nil {
		return r.allowedRefusal("plain", raw, err)
	}
	r.note("append at %d, %d bytes", info.FirstOffset, info.Size)
	return r.appended(raw, buf, info, int(record.Batch(raw).Count()))
}

// allowedRefusal lets pass what a valid batch may be refused for.
func (r *runner) allowedRefusal(what string, raw []byte, err error) error {
	r.note("%s append of %d bytes refused: %v", what, len(raw), err)
	switch {
	case errors.Is(err, commitlog.ErrMessageTooLarge) && len(raw) > 3000,
		errors.Is(err, commitlog.ErrRecordBatchTooLarge) && len(raw) > int(r.cfg.SegmentBytes)/2:
		return r.checkOffsets()
	}
	return fmt.Errorf("%s append: %w", what, err)
}

// producer picks one to go on with, or a new one.
func (r *runner) producer(open bool) *mproducer {
	var fit []*mproducer
	for id := range r.nextPID {
		if p := r.m.producers[id]; p != nil && (p.open >= 0) == open {
			fit = append(fit, p)
		}
	}
	if len(fit) > 0 && (open || r.chance(85)) {
		return fit[r.rng.IntN(len(fit))]
	}
	if open {
		return nil
	}
	p := &mproducer{id: r.nextPID, epoch: kafka.ProducerEpoch(r.rng.IntN(3)), open: kafka.NoOffset}
	if r.chance(20) {
		p.nextSeq = 1<<31 - 1 - kafka.Sequence(r.rng.IntN(12)) // it will wrap
	}
	r.nextPID++
	return p
}

func (r *runner) appendIdempotent() error {
	p := r.producer(false)
	if len(p.sent) > 0 && r.chance(25) {
		return r.retry(p)
	}
	return r.appendOf(p, false)
}

// retry sends a batch again: one of the last five is a duplicate.
func (r *runner) retry(p *mproducer) error {
	s := p.sent[r.rng.IntN(len(p.sent))]
	end := r.log.EndOffset()
	info, err := r.log.AppendAsLeader(clone(s.raw), r.m.epoch, commitlog.AppendOptions{})
	r.note("retry of producer %d, first sent to %d", p.id, s.first)
	if errors.Is(err, commitlog.ErrInvalidRecord) && r.cfg.CleanupCompact {
		return nil // a key is missing, which was allowed when it was sent first
	}
	if err != nil {
		return r.allowedRefusal("retry", s.raw, err)
	}
	if !info.Duplicate || info.FirstOffset != s.first || info.LastOffset != s.last || r.log.EndOffset() != end || s.maxTS >= 0 && info.LogAppendTime != s.maxTS {
		return fmt.Errorf("retry answered %+v, want a duplicate of %d to %d with timestamp %d", info, s.first, s.last, s.maxTS)
	}
	return nil
}

func (r *runner) appendOf(p *mproducer, txn bool) error {
	o := record.NewBuildOptions()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = p.id, p.epoch, p.nextSeq, txn
	raw := r.batch(r.count(), o)
	info, err := r.log.AppendAsLeader(clone(raw), r.m.epoch, commitlog.AppendOptions{})
	if err != nil {
		return r.allowedRefusal("producer", raw, err)
	}
	r.note("append of producer %d epoch %d sequence %d at %d, transactional %v", p.id, p.epoch, p.nextSeq, info.FirstOffset, txn)
	if info.Duplicate {
		return fmt.Errorf("append of producer %d taken for a duplicate: %+v", p.id, info)
	}
	if err := r.appended(raw, nil, info, int(record.Batch(raw).Count())); err != nil {
		return err
	}
	e := &r.m.entries[len(r.m.entries)-1]
	r.m.producers[p.id] = p
	p.nextSeq = p.nextSeq.Add(record.Batch(raw).Count())
	p.sent = append(p.sent, sentBatch{raw, e.base, e.last, e.maxTS})
	if len(p.sent) > 5 {
		p.sent = p.sent[1:]
	}
	if txn {
		if p.open < 0 {
			p.open = e.base
		}
		e.first = p.open
	}
	return nil
}

func (r *runner) appendTransactional() error {
	p := r.producer(true)
	if p == nil || r.chance(30) {
		p = r.producer(false)
	}
	return r.appendOf(p, true)
}

func (r *runner) endTransaction() error {
	p := r.producer(true)
	if p == nil {
		return r.checkOffsets()
	}
	commit := r.chance(50)
	version := int16(1 + r.rng.IntN(2))
	m := record.EndTxnMarker{ProducerID: p.id, ProducerEpoch: p.epoch, Timestamp: kafka.Timestamp(r.now), Commit: commit}
	if version == 2 {
		m.ProducerEpoch++
	}
	buf := record.AppendEndTxnMarker(nil, &m)
	raw := clone(buf)
	info, err := r.log.AppendAsLeader(buf, r.m.epoch, commitlog.AppendOptions{Origin: commitlog.Coordinator, TxnVersion: version})
	r.note("end of transaction of producer %d from %d: commit %v, version %d, at %d (%v)", p.id, p.open, commit, version, info.FirstOffset, err)
	if err != nil {
		return fmt.Errorf("marker: %w", err)
	}
	first := p.open
	p.open = kafka.NoOffset
	if version == 2 {
		p.epoch, p.nextSeq, p.sent = p.epoch+1, 0, nil
	}
	r.m.complete(p.id, first, !commit)
	if err := r.appended(raw, nil, info, 1); err != nil {
		return err
	}
	e := &r.m.entries[len(r.m.entries)-1]
	e.first, e.aborted = first, !commit
	return nil
}

// appendRefused sends what must be refused; nothing may change.
func (r *runner) appendRefused() error {
	o := record.NewBuildOptions()
	var want error
	var what string
	raw := r.batch(1+r.rng.IntN(5), o)
	b := record.Batch(raw)
	switch r.rng.IntN(6) {
	case 0:
		what, want = "bad checksum", commitlog.ErrCorrupt
		raw[len(raw)-1] ^= 0x10
	case 1:
		what, want = "base offset", commitlog.ErrInvalidRecord
		b.SetBaseOffset(3)
	case 2:
		what, want = "too large", commitlog.ErrMessageTooLarge
		var builder record.Builder
		builder.Reset(o)
		builder.Append(kafka.Timestamp(r.now), []byte("k"), make([]byte, 7000), nil)
		raw, _ = builder.Finish()
	case 3:
		what, want = "two batches", commitlog.ErrInvalidRecord
		raw = append(raw, raw...)
	case 4:
		p := r.producer(false)
		if r.m.producers[p.id] == nil || len(p.sent) == 0 {
			return nil
		}
		what, want = "sequence gap", commitlog.ErrOutOfOrderSequence
		b.SetProducer(p.id, p.epoch, p.nextSeq.Add(7), false)
	case 5:
		p := r.producer(false)
		if r.m.producers[p.id] == nil {
			return nil
		}
		what, want = "old epoch", commitlog.ErrInvalidProducerEpoch
		b.SetProducer(p.id, p.epoch-1, 0, false)
		if p.epoch == 0 {
			return nil
		}
	}
	_, err := r.log.AppendAsLeader(raw, r.m.epoch, commitlog.AppendOptions{})
	r.note("refused append, %s of producer %d epoch %d sequence %d: %v", what, b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), err)
	if errors.Is(err, commitlog.ErrRecordBatchTooLarge) && len(raw) > int(r.cfg.SegmentBytes)/2 {
		return nil
	}
	if !errors.Is(err, want) {
		return fmt.Errorf("append with %s: %v, want %v", what, err, want)
	}
	return r.checkOffsets()
}

// appendFollower writes several batches with their offsets, with a gap at times.
func (r *runner) appendFollower() error {
	var buf []byte
	var raws [][]byte
	next, gap := r.m.end, r.gaps
	for range 1 + r.rng.IntN(6) {
		b := record.Batch(r.batch(r.count(), record.NewBuildOptions()))
		if r.chance(10) {
			next += kafka.Offset(1 + r.rng.IntN(3))
			gap = next
		}
		b.SetBaseOffset(next)
		b.SetLeaderEpoch(r.m.epoch)
		next = b.NextOffset()
		raws = append(raws, b)
		buf = append(buf, b...)
	}
	if len(buf) > int(r.cfg.SegmentBytes) {
		return nil
	}
	info, err := r.log.AppendAsFollower(buf, r.m.epoch)
	r.note("follower append of %d batches to %d: %v", len(raws), next, err)
	if err != nil {
		return fmt.Errorf("follower append: %w", err)
	}
	if info.LastOffset != next-1 {
		return fmt.Errorf("follower append ended at %d, want %d", info.LastOffset, next-1)
	}
	for _, b := range raws {
		h, recs, err := parse(b)
		if err != nil {
			return err
		}
		r.m.entries = append(r.m.entries, entry{
			bytes: b, base: h.BaseOffset, last: h.LastOffset, records: recs, maxTS: h.MaxTimestamp, epoch: h.LeaderEpoch, pid: kafka.NoProducerID, first: kafka.NoOffset})
	}
	r.m.end, r.gaps = next, gap
	r.flushedByCount()
	r.m.hw = next
	r.log.MaybeIncrementHighWatermark(next)
	return r.checkOffsets()
}
