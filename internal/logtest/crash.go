package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// errStopped is what every change of the disk gets once the machine has stopped.
var errStopped = errors.New("the machine stopped")

// CrashRun is a scripted workload on a disk that stops after a number of file
// operations. Steps after the stop do nothing.
type CrashRun struct {
	disk    *memfs.FS
	log     *commitlog.Log
	limit   int // operations that run; negative: all
	torn    bool
	once    error // not nil: the operation at the limit fails with it, and the disk goes on
	ops     int
	atWrite bool // the operation at the limit was a write, which can be torn
	stopped bool
	// syncFailed: what was not durable may be gone from memory too.
	syncFailed bool
	now        int64
	cfg        commitlog.Config
	scratch    *commitlog.Scratch

	// What the checkpoints hold: they are replaced atomically by their owner.
	recovery, start, hw kafka.Offset
	// written are the batches in order of their offsets that may be found:
	// those appended, and the one whose append failed.
	written []entry
	// durable is up to where records must be found.
	durable kafka.Offset
	epoch   kafka.LeaderEpoch
	txns    map[kafka.ProducerID]kafka.Offset // open transactions and where they begin
	aborted map[kafka.Offset]bool             // first offsets of aborted transactions
	err     error
}

// NewFaultRun opens a log on a disk of which one operation, the one after limit
// others, fails with err; everything else works.
func NewFaultRun(cfg commitlog.Config, limit int, err error, torn bool) *CrashRun {
	r := newRun(cfg, limit, torn)
	r.once = err
	r.open(false)
	return r
}

// NewCrashRun opens a log on an empty disk that will stop after limit
// operations. With torn the operation at the limit is a write of which half is done.
func NewCrashRun(cfg commitlog.Config, limit int, torn bool) *CrashRun {
	r := newRun(cfg, limit, torn)
	r.open(false)
	return r
}

func newRun(cfg commitlog.Config, limit int, torn bool) *CrashRun {
	r := &CrashRun{
		disk: memfs.New(), limit: limit, torn: torn, now: 1_750_000_000_000, cfg: cfg,
		scratch: commitlog.NewScratch(1), aborted: map[kafka.Offset]bool{}, txns: map[kafka.ProducerID]kafka.Offset{},
	}
	if err := r.disk.MkdirAll(dir, 0o755); err != nil {
		r.err = err
	}
	for _, d := range []string{"/", "/d"} {
		if err := r.disk.SyncDir(d); err != nil { // the owner's business: the directory itself is durable
			r.err = err
		}
	}
	return r
}

func (r *CrashRun) inject(op faultfs.Op) faultfs.Fault {
	if !op.Kind.Changes() {
		return faultfs.Fault{}
	}
	r.ops++
	if r.limit < 0 || r.ops <= r.limit {
		return faultfs.Fault{}
	}
	if r.ops == r.limit+1 {
		r.atWrite = op.Kind == faultfs.Write
	}
	if r.once != nil {
		if r.ops > r.limit+1 {
			return faultfs.Fault{}
		}
		r.stopped = true
		switch op.Kind {
		case faultfs.Sync, faultfs.SyncDir, faultfs.Flush:
			r.syncFailed = true
		}
		f := faultfs.Fault{Err: r.once}
		if r.torn && op.Kind == faultfs.Write {
			f.Done = op.Length / 2
		}
		return f
	}
	f := faultfs.Fault{Err: errStopped}
	if !r.stopped && r.torn && op.Kind == faultfs.Write {
		f.Done = op.Length / 2
	}
	r.stopped = true
	return f
}

func (r *CrashRun) open(clean bool) {
	log, err := commitlog.Open(commitlog.Options{
		FS: faultfs.Wrap(r.disk, r.inject), Dir: dir, Partition: kafka.TopicPartition{Topic: "oracle"}, TopicID: kafka.UUID{1: 9, 15: 7},
		Config: r.cfg, CleanShutdown: clean, RecoveryPoint: r.recovery, LogStartOffset: r.start, HighWatermark: r.hw,
		Now: func() time.Time { return time.UnixMilli(r.now) }, Scratch: r.scratch,
		PersistLogStart: func(o kafka.Offset) error {
			if r.stopped && r.once == nil {
				return errStopped
			}
			r.start = o
			return nil
		},
		PersistRecoveryPoint: func(o kafka.Offset) error {
			if r.stopped && r.once == nil {
				return errStopped
			}
			r.recovery = o
			return nil
		},
	})
	r.check(err)
	r.log = log
	if err != nil {
		r.log = nil
	}
}

// check notes an error that the stop does not explain.
func (r *CrashRun) check(err error) (ok bool) {
	if err != nil && !r.stopped && r.err == nil {
		r.err = err
	}
	return err == nil && r.err == nil
}

func (r *CrashRun) done() bool {
	if r.err != nil || r.log == nil {
		return true
	}
	if r.once != nil {
		return r.log.Failure() != nil
	}
	return r.stopped
}

// Append writes one batch of n records, of producer pid unless that is negative.
func (r *CrashRun) Append(n int, pid kafka.ProducerID, seq kafka.Sequence, txn bool) kafka.Offset {
	if r.done() {
		return -1
	}
	o := record.NewBuildOptions()
	if pid >= 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = pid, 0, seq, txn
	}
	var b record.Builder
	b.Reset(o)
	for i := range n {
		r.now += 7
		b.Append(kafka.Timestamp(r.now), []byte("key"), bytes.Repeat([]byte{byte('a' + i)}, 40+i), nil)
	}
	buf, err := b.Finish()
	if !r.check(err) {
		return -1
	}
	at := r.append(clone(buf), commitlog.AppendOptions{})
	if _, open := r.txns[pid]; txn && at >= 0 && !open {
		r.txns[pid] = at
	}
	return at
}

// End writes the marker that ends the transaction of a producer.
func (r *CrashRun) End(pid kafka.ProducerID, commit bool) {
	first, open := r.txns[pid]
	if r.done() || !open {
		return
	}
	m := record.EndTxnMarker{ProducerID: pid, Timestamp: kafka.Timestamp(r.now), Commit: commit}
	at := r.append(record.AppendEndTxnMarker(nil, &m), commitlog.AppendOptions{Origin: commitlog.Coordinator, TxnVersion: 1})
	if at < 0 {
		return
	}
	delete(r.txns, pid)
	if !commit {
		r.aborted[first] = true
	}
}

func (r *CrashRun) append(buf []byte, o commitlog.AppendOptions) kafka.Offset {
	end := r.log.EndOffset()
	info, err := r.log.AppendAsLeader(buf, r.epoch, o)
	h, herr := record.ParseHeader(buf)
	if !r.check(herr) {
		return -1
	}
	if err != nil && r.stopped && h.BaseOffset != end {
		return -1 // it failed before it had an offset
	}
	r.written = append(r.written, entry{bytes: buf, base: h.BaseOffset, last: h.LastOffset, maybe: err != nil})
	if !r.check(err) {
		return -1
	}
	r.log.MaybeIncrementHighWatermark(r.log.EndOffset())
	return info.FirstOffset
}

// Flush makes all records durable; from here on none may be lost.
func (r *CrashRun) Flush() {
	if r.done() {
		return
	}
	end := r.log.EndOffset()
	if r.check(r.log.Flush(end)) && !r.done() {
		r.durable = end
		r.recovery, r.hw = r.log.RecoveryPoint(), r.log.HighWatermark()
	}
}

// Roll starts a new segment.
func (r *CrashRun) Roll() {
	if !r.done() {
		r.check(r.log.Roll())
	}
}

// Epoch begins a leader epoch.
func (r *CrashRun) Epoch(e kafka.LeaderEpoch) {
	if !r.done() && r.check(r.log.AssignEpoch(e, r.log.EndOffset())) {
		r.epoch = e
	}
}

// DeleteTo deletes records and then the segments below them.
func (r *CrashRun) DeleteTo(offset kafka.Offset) {
	if r.done() {
		return
	}
	if _, err := r.log.DeleteRecordsTo(offset); !r.check(err) {
		return
	}
	_, err := r.log.DeleteOldSegments()
	r.check(err)
}

// Truncate cuts the log.
func (r *CrashRun) Truncate(offset kafka.Offset) {
	if r.done() {
		return
	}
	whole := offset // a batch that holds offset goes as a whole
	for i := range r.written {
		if e := &r.written[i]; e.base < offset && e.last >= offset {
			whole = e.base
		}
	}
	r.durable = min(r.durable, whole)
	for i := range r.written {
		if r.written[i].last >= offset {
			r.written[i].maybe = true
		}
	}
	_, err := r.log.TruncateTo(offset)
	if r.check(err) {
		for i := range r.written {
			if r.written[i].last >= offset {
				r.written = r.written[:i]
				break
			}
		}
	}
}

// Restart closes the log cleanly and opens it again.
func (r *CrashRun) Restart() {
	if r.done() {
		return
	}
	if !r.check(r.log.Close()) || r.stopped && r.once == nil {
		r.log = nil
		return
	}
	r.recovery = r.log.RecoveryPoint()
	r.start, r.hw = r.log.StartOffset(), r.log.HighWatermark()
	r.durable = r.log.EndOffset()
	r.open(true)
}

// AtWrite reports whether the operation at the limit was a write.
func (r *CrashRun) AtWrite() bool { return r.atWrite }

// Ops is how many operations ran.
func (r *CrashRun) Ops() int { return r.ops }

// Err is an error that the stop does not explain.
func (r *CrashRun) Err() error { return r.err }

// VerifyProcess ends the process without a power cut and wants everything that
// was acknowledged, whatever failed on the way; after a failed sync, what was
// durable before it.
func (r *CrashRun) VerifyProcess() error {
	for i := range r.written {
		if e := &r.written[i]; !e.maybe && !r.syncFailed {
			r.durable = max(r.durable, e.last+1)
		}
	}
	return r.Verify(memfs.KeepAll(), -1)
}

// Verify opens what a crash leaves of the disk and wants a prefix of the log
// that holds everything durable. again stops that recovery too, after so many
// operations, and recovers anew; negative does not.
func (r *CrashRun) Verify(c memfs.Choice, again int) error {
	after := &CrashRun{
		disk: r.disk.Crash(c), limit: again, now: r.now, cfg: r.cfg, scratch: r.scratch,
		recovery: r.recovery, start: r.start, hw: r.hw, epoch: r.epoch,
	}
	after.open(false)
	if after.stopped {
		after = &CrashRun{
			disk: after.disk.Crash(c), limit: -1, now: r.now, cfg: r.cfg, scratch: r.scratch,
			recovery: r.recovery, start: r.start, hw: r.hw, epoch: r.epoch,
		}
		after.open(false)
	}
	if after.err != nil {
		return fmt.Errorf("open after the crash: %w", after.err)
	}
	if err := r.compare(after.log); err != nil {
		return err
	}
	// It goes on: what is appended now is there after a clean stop.
	end := after.log.EndOffset()
	after.limit = -1
	after.Append(3, kafka.NoProducerID, kafka.NoSequence, false)
	after.Roll()
	after.Append(1, kafka.NoProducerID, kafka.NoSequence, false)
	after.Restart()
	if after.err != nil {
		return fmt.Errorf("going on after the crash: %w", after.err)
	}
	if got := after.log.EndOffset(); got != end+4 {
		return fmt.Errorf("going on after the crash: end offset %d, want %d", got, end+4)
	}
	return after.log.Close()
}

func (r *CrashRun) compare(l *commitlog.Log) error {
	if l.EndOffset() < r.durable {
		return fmt.Errorf("the log ends at %d, durable was %d", l.EndOffset(), r.durable)
	}
	if l.StartOffset() < r.start {
		return fmt.Errorf("the log starts at %d, below %d: deleted records are back", l.StartOffset(), r.start)
	}
	i := 0
	for i < len(r.written) && r.written[i].last < l.StartOffset() {
		i++
	}
	next := l.StartOffset()
	for next < l.EndOffset() {
		info, err := l.Read(next, commitlog.ReadOptions{MaxBytes: 1, MinOneBatch: true, Bound: commitlog.LogEnd})
		if err != nil {
			return fmt.Errorf("read %d: %w", next, err)
		}
		got := make([]byte, info.Region.Length)
		if len(got) > 0 {
			_, err = info.Region.File.ReadAt(got, info.Region.Offset)
		}
		release(info)
		if err != nil {
			return fmt.Errorf("read %d: %w", next, err)
		}
		if len(got) == 0 {
			break
		}
		for i < len(r.written) && r.written[i].maybe && !bytes.Equal(got, r.written[i].bytes) {
			i++ // an append that failed, and is not there
		}
		if i == len(r.written) {
			return fmt.Errorf("read %d: a batch that was not written, or was cut", next)
		}
		if !bytes.Equal(got, r.written[i].bytes) {
			h, _ := record.ParseHeader(got)
			return fmt.Errorf("read %d: batch %d to %d of %d bytes, want %d to %d of %d", next, h.BaseOffset, h.LastOffset, len(got),
				r.written[i].base, r.written[i].last, len(r.written[i].bytes))
		}
		next = r.written[i].last + 1
		i++
	}
	if next < r.durable {
		return fmt.Errorf("batches end at %d, durable was %d", next, r.durable)
	}
	return r.compareAborted(l)
}

// compareAborted wants every abort that is durable in the transaction index.
func (r *CrashRun) compareAborted(l *commitlog.Log) error {
	l.MaybeIncrementHighWatermark(l.EndOffset())
	listed := map[kafka.Offset]bool{}
	for next := l.StartOffset(); next < l.LastStable(); {
		info, err := l.Read(next, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true, Bound: commitlog.LastStable, Aborted: true})
		if err != nil {
			return err
		}
		for _, a := range info.Aborted {
			listed[a.FirstOffset] = true
		}
		n := info.Region.Length
		buf := make([]byte, n)
		if n > 0 {
			if _, err := info.Region.File.ReadAt(buf, info.Region.Offset); err != nil {
				return err
			}
		}
		release(info)
		if n == 0 {
			break
		}
		for len(buf) > 0 {
			h, err := record.ParseHeader(buf)
			if err != nil {
				return err
			}
			next = h.LastOffset + 1
			buf = buf[h.Size:]
		}
	}
	for first := range r.aborted {
		if first >= l.StartOffset() && first < l.LastStable() && !listed[first] && r.markerThere(first, l.EndOffset()) {
			return fmt.Errorf("the aborted transaction from %d is not in the index", first)
		}
	}
	return nil
}

// markerThere reports whether a control batch lies between first and end.
func (r *CrashRun) markerThere(first, end kafka.Offset) bool {
	for i := range r.written {
		if e := &r.written[i]; e.base > first && e.last < end && record.Batch(e.bytes).IsControl() {
			return true
		}
	}
	return false
}
