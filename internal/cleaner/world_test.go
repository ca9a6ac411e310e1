package cleaner

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
	"github.com/varvelog/varve/internal/vfs/tracefs"
)

// world is a log on a memory disk, with a plain list of everything that was
// appended to it. The same calls give the same log.
type world struct {
	disk *memfs.FS
	fs   vfs.FS
	cfg  commitlog.Config
	log  *commitlog.Log
	now  int64
	mem  *memory
	// lowered, unless 0, is max.message.bytes when a round begins: it was lowered
	// after larger batches had come in.
	lowered int32

	recs     []appended
	txns     map[kafka.ProducerID]*openTxn
	sequence map[kafka.ProducerID]kafka.Sequence

	checkpoint kafka.Offset // of the cleaner; NoOffset: none
	recovery   kafka.Offset // of the recovery point checkpoint
	start      kafka.Offset // of the log start checkpoint
	round      int64        // time of the last round
	seen       map[kafka.Offset]int64
	due        []func()
	readEnd    kafka.Offset // behind the last batch that read found

	// lazy has the names of new segments synced after a roll, and not the records.
	lazy bool
	// limit is how many file operations run before the machine stops; negative: all.
	limit, ops int
	torn       bool // of a write at the limit half is done
	stopped    bool

	fault func(op faultfs.Op) error // asked before each operation; may be nil
	trace *tracefs.Log              // of the operations that change the disk; may be nil
}

// appended is one record as it was produced.
type appended struct {
	offset     kafka.Offset
	ts         kafka.Timestamp
	key, value []byte // nil is null
	state      txnState
}

type txnState int

const (
	committed txnState = iota
	aborted
	undecided
)

type openTxn struct{ records []int } // places in recs

const worldDir = "/d/topic-0"

func newWorld(cfg commitlog.Config) (*world, error) {
	w := &world{
		disk: memfs.New(), cfg: cfg, now: 1_750_000_000_000, mem: testMemory(), checkpoint: kafka.NoOffset,
		txns: map[kafka.ProducerID]*openTxn{}, sequence: map[kafka.ProducerID]kafka.Sequence{}, seen: map[kafka.Offset]int64{},
	}
	w.limit = -1
	w.mount(w.disk)
	if err := w.disk.MkdirAll(worldDir, 0o755); err != nil {
		return nil, err
	}
	for _, d := range []string{"/", "/d"} {
		if err := w.disk.SyncDir(d); err != nil {
			return nil, err
		}
	}
	return w, w.open(false)
}

// worldConfig is a compacted topic with small segments.
func worldConfig() commitlog.Config {
	c := commitlog.DefaultConfig()
	c.CleanupCompact, c.CleanupDelete = true, false
	c.SegmentBytes, c.SegmentMs, c.IndexInterval = 2000, 1<<50, 200
	c.SegmentIndexBytes = 4096
	c.DeleteRetentionMs = 10_000
	c.TimestampAfterMax = 1 << 50
	return c
}

// mount puts the disk behind what stops the machine.
func (w *world) mount(disk *memfs.FS) {
	w.disk = disk
	w.disk.SetNow(w.clock)
	w.fs = faultfs.Wrap(disk, w.inject)
	if w.trace != nil {
		w.fs = tracefs.Wrap(w.fs, w.trace)
	}
	w.ops, w.stopped = 0, false
}

var errStopped = errors.New("the machine stopped")

func (w *world) inject(op faultfs.Op) faultfs.Fault {
	if w.fault != nil {
		if err := w.fault(op); err != nil {
			return faultfs.Fault{Err: err}
		}
	}
	if !op.Kind.Changes() {
		return faultfs.Fault{}
	}
	w.ops++
	if w.limit < 0 || w.ops <= w.limit {
		return faultfs.Fault{}
	}
	f := faultfs.Fault{Err: errStopped}
	if !w.stopped && w.torn && op.Kind == faultfs.Write {
		f.Done = op.Length / 2
	}
	w.stopped = true
	return f
}

func (w *world) clock() time.Time { return time.UnixMilli(w.now) }

func (w *world) open(clean bool) error {
	l, err := commitlog.Open(commitlog.Options{
		FS: w.fs, Dir: worldDir, Partition: kafka.TopicPartition{Topic: "topic"}, TopicID: kafka.UUID{1: 9, 15: 7},
		Config: w.cfg, CleanShutdown: clean, RecoveryPoint: w.recovery, LogStartOffset: w.start, HighWatermark: 1 << 40,
		ProducerExpiration: 1000 * 24 * time.Hour,
		Now:                w.clock, AfterDelay: func(_ time.Duration, f func()) { w.due = append(w.due, f) },
		PersistLogStart: func(o kafka.Offset) error { w.start = o; return nil },
		PersistRecoveryPoint: func(o kafka.Offset) error {
			w.recovery = min(w.recovery, o)
			return nil
		},
		Background: w.background(),
		OnTruncate: func(o kafka.Offset) {
			if w.checkpoint > o {
				w.checkpoint = o
			}
		},
	})
	w.log = l
	return err
}

func (w *world) background() func(func()) {
	if !w.lazy {
		return nil
	}
	return func(func()) { _ = w.fs.SyncDir(worldDir) }
}

// reopen closes the log cleanly, or forgets it, and opens it again.
func (w *world) reopen(clean bool) error {
	w.unlink()
	if clean {
		if err := w.log.Close(); err != nil {
			return err
		}
		w.recovery = w.log.RecoveryPoint()
	} else if err := w.log.Abandon(); err != nil {
		return err
	}
	return w.open(clean)
}

// unlink does what was delayed by file.delete.delay.ms.
func (w *world) unlink() {
	for _, f := range w.due {
		f()
	}
	w.due = nil
}

// item is a record to append.
type item struct{ key, value []byte }

func kv(key, value string) item { return item{[]byte(key), []byte(value)} }
func tombstone(key string) item { return item{[]byte(key), nil} }

// append writes one batch. pid -1 is a plain producer; with txn the batch is part
// of that producer's transaction.
func (w *world) append(pid kafka.ProducerID, txn bool, codec record.Codec, items ...item) error {
	o := record.NewBuildOptions()
	o.Codec = codec
	if pid >= 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = pid, 0, w.sequence[pid], txn
	}
	var b record.Builder
	b.Reset(o)
	var headers []record.RecordHeader
	first := len(w.recs)
	for i, it := range items {
		if it.key == nil { // it came in before the topic was compacted
			before := w.cfg
			before.CleanupCompact = false
			w.log.SetConfig(before)
			defer w.log.SetConfig(w.cfg)
		}
		w.now += 3
		if i%3 == 1 {
			headers = []record.RecordHeader{{Key: []byte("h"), Value: []byte("x")}}
		} else {
			headers = nil
		}
		b.Append(kafka.Timestamp(w.now), it.key, it.value, headers)
		w.recs = append(w.recs, appended{ts: kafka.Timestamp(w.now), key: it.key, value: it.value})
	}
	batch, err := b.Finish()
	if err != nil {
		return err
	}
	info, err := w.log.AppendAsLeader(bytes.Clone(batch), 0, commitlog.AppendOptions{})
	if err != nil {
		w.recs = w.recs[:first]
		return err
	}
	for i := range items {
		r := &w.recs[first+i]
		r.offset = info.FirstOffset + kafka.Offset(i)
		if txn {
			r.state = undecided
		}
	}
	if pid >= 0 {
		w.sequence[pid] = w.sequence[pid].Add(int32(len(items)))
	}
	if txn {
		t := w.txns[pid]
		if t == nil {
			t = &openTxn{}
			w.txns[pid] = t
		}
		for i := range items {
			t.records = append(t.records, first+i)
		}
	}
	w.log.MaybeIncrementHighWatermark(w.log.EndOffset())
	return nil
}

func (w *world) put(items ...item) error {
	return w.append(kafka.NoProducerID, false, record.None, items...)
}

// end writes the marker that ends the transaction of a producer.
func (w *world) end(pid kafka.ProducerID, commit bool) error {
	m := record.EndTxnMarker{ProducerID: pid, Timestamp: kafka.Timestamp(w.now), Commit: commit}
	if _, err := w.log.AppendAsLeader(record.AppendEndTxnMarker(nil, &m), 0, commitlog.AppendOptions{Origin: commitlog.Coordinator, TxnVersion: 1}); err != nil {
		return err
	}
	state := committed
	if !commit {
		state = aborted
	}
	if t := w.txns[pid]; t != nil {
		for _, i := range t.records {
			w.recs[i].state = state
		}
	}
	delete(w.txns, pid)
	w.log.MaybeIncrementHighWatermark(w.log.EndOffset())
	return nil
}

// clean does a round over what may be cleaned now, as a worker does.
func (w *world) clean() (Stats, error) {
	generation := w.log.Generation()
	v, segs, err := look(w.log, w.checkpoint)
	if err != nil {
		return Stats{}, err
	}
	e := v.extentOf(w.checkpoint, kafka.Timestamp(w.now))
	if e.reset {
		w.checkpoint = e.firstDirty
	}
	if e.dirtyBytes == 0 {
		return Stats{FirstDirty: e.firstDirty, NextDirty: e.firstDirty, Uncleanable: e.uncleanable}, nil
	}
	if w.lowered > 0 {
		lowered := w.cfg
		lowered.MaxMessageBytes = w.lowered
		w.log.SetConfig(lowered)
		defer w.log.SetConfig(w.cfg)
	}
	r := newRound(w.log, generation, segs, e, kafka.Timestamp(w.now), w.mem)
	if err := r.run(); err != nil {
		return r.stats, err
	}
	w.checkpoint, w.round = r.stats.NextDirty, w.now
	return r.stats, nil
}

// read is what is in the log from its start on: records in order, with the
// offsets of the batches that hold them. stable stops at the last stable offset
// and leaves out what a reader of committed transactions does.
func (w *world) read(stable bool) ([]appended, error) {
	var out []appended
	l := w.log
	bound, end := commitlog.LogEnd, l.EndOffset()
	if stable {
		bound, end = commitlog.LastStable, l.LastStable()
	}
	var it record.Iterator
	var dec record.Decompressor
	next := l.StartOffset()
	defer func() { w.readEnd = next }()
	for next < end {
		info, err := l.Read(next, commitlog.ReadOptions{MaxBytes: 700, MinOneBatch: true, Bound: bound, Aborted: stable})
		if err != nil {
			return nil, fmt.Errorf("read %d: %w", next, err)
		}
		buf := make([]byte, info.Region.Length)
		if len(buf) > 0 {
			_, err = info.Region.File.ReadAt(buf, info.Region.Offset)
			if info.Region.Release != nil {
				info.Region.Release()
			}
			if err != nil {
				return nil, err
			}
		}
		if len(buf) == 0 {
			return out, nil
		}
		list := info.Aborted
		dead := map[kafka.ProducerID]bool{}
		for len(buf) > 0 {
			size, ok, err := record.NextBatch(buf)
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			b := buf[:size]
			buf = buf[size:]
			h, err := record.ParseHeader(b)
			if err == nil {
				err = record.Check(b)
			}
			if err != nil {
				return nil, fmt.Errorf("batch at %d: %w", next, err)
			}
			if h.LastOffset < next {
				return nil, fmt.Errorf("read %d: batch %d to %d", next, h.BaseOffset, h.LastOffset)
			}
			next = h.LastOffset + 1
			list = slices.DeleteFunc(list, func(a commitlog.AbortedTxn) bool {
				if a.FirstOffset <= h.LastOffset {
					dead[a.ProducerID] = true
					return true
				}
				return false
			})
			if err := it.Reset(b, &dec); err != nil {
				return nil, err
			}
			if h.IsControl() {
				if it.Next() {
					if kind, _ := record.ParseControl(it.Record().Key); kind == record.AbortMarker {
						delete(dead, h.ProducerID)
					}
				}
				continue
			}
			if stable && h.IsTransactional() && dead[h.ProducerID] {
				continue
			}
			for it.Next() {
				r := it.Record()
				if n := len(out); n > 0 && out[n-1].offset >= r.Offset {
					return nil, fmt.Errorf("offset %d after %d", r.Offset, out[n-1].offset)
				}
				if r.Offset >= l.StartOffset() {
					out = append(out, appended{offset: r.Offset, ts: r.Timestamp, key: bytes.Clone(r.Key), value: bytes.Clone(r.Value)})
				}
			}
			if it.Err() != nil {
				return nil, it.Err()
			}
		}
	}
	return out, nil
}

// fold is the state that a consumer builds: the newest value of each key, and no
// entry for a key that was deleted.
func fold(recs []appended) map[string]string {
	m := map[string]string{}
	for _, r := range recs {
		if r.key == nil {
			continue
		}
		if r.value == nil {
			delete(m, string(r.key))
		} else {
			m[string(r.key)] = string(r.value)
		}
	}
	return m
}

// visible is what of the appended records a reader of committed transactions may see.
func (w *world) visible(end kafka.Offset) []appended {
	var out []appended
	for _, r := range w.recs {
		if r.state == committed && r.offset >= w.log.StartOffset() && r.offset < end {
			out = append(out, r)
		}
	}
	return out
}

// check holds the log against everything that was appended: what a reader gets,
// and that the rounds removed what they should and nothing else.
func (w *world) check() error {
	there, err := w.checkReaders()
	if err != nil {
		return err
	}
	l := w.log
	if w.readEnd != l.LastStable() && w.readEnd < l.EndOffset() {
		return fmt.Errorf("the last batch ends at %d, the log at %d", w.readEnd, l.EndOffset())
	}
	newest := map[string]*appended{} // of committed records below the checkpoint
	latest := map[string]*appended{} // of all committed records
	for i := range w.recs {
		r := &w.recs[i]
		if r.state != committed || r.key == nil {
			continue
		}
		latest[string(r.key)] = r
		if r.offset < w.checkpoint {
			newest[string(r.key)] = r
		}
	}
	for i := range w.recs {
		r := &w.recs[i]
		if r.offset < l.StartOffset() {
			continue
		}
		clean := r.offset < w.checkpoint
		switch {
		case !clean && !there[r.offset] && r.state != aborted:
			return fmt.Errorf("record %d at or above the checkpoint %d is gone", r.offset, w.checkpoint)
		case clean && there[r.offset] && r.state == aborted:
			return fmt.Errorf("aborted record %d is there still, below the checkpoint %d", r.offset, w.checkpoint)
		case clean && there[r.offset] && r.key == nil:
			return fmt.Errorf("record %d without a key is there still, below the checkpoint %d", r.offset, w.checkpoint)
		case clean && there[r.offset] && r.state == committed && newest[string(r.key)] != r:
			return fmt.Errorf("record %d is there still, key %q has a newer one at %d below the checkpoint %d", r.offset, r.key, newest[string(r.key)].offset, w.checkpoint)
		case !there[r.offset] && r.state == committed && r.key != nil && latest[string(r.key)] == r && r.value != nil:
			return fmt.Errorf("record %d, the newest of key %q, is gone", r.offset, r.key)
		case !there[r.offset] && r.state == committed && r.key != nil && latest[string(r.key)] == r:
			// A tombstone: only once it has been there for delete.retention.ms since a round first met it.
			if first, ok := w.seen[r.offset]; !ok || w.round < first+w.cfg.DeleteRetentionMs {
				return fmt.Errorf("tombstone %d is gone in the round at %d, first met at %d", r.offset, w.round, first)
			}
		case !there[r.offset] && r.state == undecided:
			return fmt.Errorf("record %d of an open transaction is gone", r.offset)
		}
	}
	for i := range w.recs {
		r := &w.recs[i]
		if _, ok := w.seen[r.offset]; !ok && there[r.offset] && r.value == nil && w.round > 0 {
			w.seen[r.offset] = w.round
		}
	}
	return nil
}

// checkReaders reads the log and wants every record as it was appended, and for
// readers of committed transactions the state that all records together give.
// It returns the offsets that are there.
func (w *world) checkReaders() (there map[kafka.Offset]bool, err error) {
	got, err := w.read(false)
	if err != nil {
		return nil, err
	}
	byOffset := map[kafka.Offset]*appended{}
	for i := range w.recs {
		byOffset[w.recs[i].offset] = &w.recs[i]
	}
	there = map[kafka.Offset]bool{}
	for _, r := range got {
		want := byOffset[r.offset]
		if want == nil {
			return nil, fmt.Errorf("offset %d was never appended", r.offset)
		}
		if want.ts != r.ts || !same(want.key, r.key) || !same(want.value, r.value) {
			return nil, fmt.Errorf("offset %d: %q=%q at %d, want %q=%q at %d", r.offset, r.key, r.value, r.ts, want.key, want.value, want.ts)
		}
		there[r.offset] = true
	}
	stable, err := w.read(true)
	if err != nil {
		return nil, err
	}
	for _, r := range stable {
		if want := byOffset[r.offset]; want.state != committed {
			return nil, fmt.Errorf("a reader of committed transactions sees record %d, which is not", r.offset)
		}
	}
	// A crash in a roll can leave an empty segment behind a tail that was lost.
	want, have := fold(w.visible(min(w.log.LastStable(), w.readEnd))), fold(stable)
	if !maps.Equal(want, have) {
		return nil, fmt.Errorf("a reader builds %d keys, want %d: %s", len(have), len(want), firstDifference(want, have))
	}
	return there, nil
}

func firstDifference(want, have map[string]string) string {
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if v, ok := have[k]; !ok || v != want[k] {
			return fmt.Sprintf("key %q is %q, want %q", k, v, want[k])
		}
	}
	for _, k := range slices.Sorted(maps.Keys(have)) {
		if _, ok := want[k]; !ok {
			return fmt.Sprintf("key %q is %q, want none", k, have[k])
		}
	}
	return "none"
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// leftovers lists files of a rewrite in the directory.
func (w *world) leftovers() (list []string, err error) {
	names, err := w.disk.ReadDir(worldDir)
	for _, d := range names {
		if bytes.HasSuffix([]byte(d.Name()), []byte(".cleaned")) || bytes.HasSuffix([]byte(d.Name()), []byte(".swap")) {
			list = append(list, d.Name())
		}
	}
	return list, err
}

// value is a value whose length depends on n, so that offsets and bytes differ.
func value(n int) string { return fmt.Sprintf("v%d.%s", n, bytes.Repeat([]byte("x"), n*7%90)) }

// randomItems are up to n records of keys out of k; some are tombstones, few have no key.
func randomItems(rng *rand.Rand, n, k int) []item {
	items := make([]item, 1+rng.IntN(n))
	for i := range items {
		key := fmt.Sprintf("key-%d", rng.IntN(k))
		switch {
		case rng.IntN(40) == 0:
			items[i] = item{nil, []byte(value(rng.IntN(200)))}
		case rng.IntN(6) == 0:
			items[i] = tombstone(key)
		default:
			items[i] = kv(key, value(rng.IntN(200)))
		}
	}
	return items
}
