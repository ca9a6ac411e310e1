package sim

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/cleaner"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

const cluster = "MkU3OEVBNTcwNTJENDM2Qg"

// dataDirs are the data directories of every world.
var dataDirs = []string{"/data", "/more"}

// world is a broker's data directories at work on a memory disk, and the model
// of what it was told and what it answered. It lives in a synctest bubble: the
// clock moves when a script sleeps.
type world struct {
	disk *memfs.FS
	fs   vfs.FS // what the broker sees
	dirs []string
	rng  *rand.Rand
	m    *logdir.Manager

	mu     sync.Mutex // guards what follows; the hook of the disk reads it
	parts  map[kafka.TopicPartition]*part
	topics map[string]kafka.TopicID // of the metadata log, which is durable at once
	ids    byte
	broken error // what failed although nothing was injected

	stopping atomic.Bool // several logs are closed at once

	tolerant bool // a fault is injected: errors are no violation
	// onStart is told of each start: what an earlier process may not do any more, a
	// new one may. May be nil.
	onStart func()
}

// formatted is an empty disk with formatted data directories, durable.
func formatted(dirs ...string) (*memfs.FS, error) {
	disk := memfs.New()
	for i, dir := range dirs {
		meta := checkpoint.MetaProperties{Version: 1, NodeID: 1, ClusterID: cluster, DirectoryID: kafka.UUID{15: byte(101 + i)}}
		err := errors.Join(disk.MkdirAll(dir, 0o755), checkpoint.WriteMeta(disk, filepath.Join(dir, checkpoint.MetaFile), meta, time.UnixMilli(0)),
			disk.SyncDir(filepath.Dir(dir)))
		if err != nil {
			return nil, err
		}
	}
	return disk, nil
}

// newWorld makes a world on an empty disk. wrap puts something between the disk
// and the broker; nil puts nothing.
func newWorld(seed uint64, wrap func(w *world, disk vfs.FS) vfs.FS, dirs ...string) (*world, error) {
	disk, err := formatted(dirs...)
	if err != nil {
		return nil, err
	}
	w := &world{
		disk: disk, dirs: dirs, rng: rand.New(rand.NewPCG(seed, 0x73696d)),
		parts: map[kafka.TopicPartition]*part{}, topics: map[string]kafka.TopicID{},
	}
	disk.SetNow(time.Now)
	w.fs = disk
	if wrap != nil {
		w.fs = wrap(w, disk)
	}
	return w, nil
}

// managerOptions are those of a broker of node 1. Nothing runs by itself but
// what intervals and cleaning say.
func managerOptions(fsys vfs.FS, now func() time.Time, dirs []string) logdir.Options {
	var ids byte
	var mu sync.Mutex
	return logdir.Options{
		FS: fsys, Dirs: dirs, NodeID: 1, ClusterID: cluster, RecoveryThreads: 1, Scratch: commitlog.NewScratch(1),
		ProducerExpiration: 24 * time.Hour, FileDeleteDelay: time.Minute,
		Now: now, Jitter: func(int64) int64 { return 0 },
		NewID: func() kafka.UUID {
			mu.Lock()
			defer mu.Unlock()
			ids++
			return kafka.UUID{0: 0xab, 1: byte(now().UnixMilli()), 2: byte(now().UnixMilli() >> 8), 15: ids}
		},
	}
}

// start opens and loads the directories, and makes what the metadata says and
// the disk does not have.
func (w *world) start() {
	if w.onStart != nil {
		w.onStart()
	}
	o := managerOptions(w.fs, time.Now, w.dirs)
	o.Intervals = logdir.Intervals{Initial: time.Second, RecoveryPoint: 20 * time.Second, LogStart: 20 * time.Second, HighWatermark: 5 * time.Second}
	o.Cleaner = &cleaner.Config{DedupeBytes: 1 << 16, BufferBytes: 1 << 14, Backoff: 7 * time.Second}
	w.m = nil
	m, err := logdir.Open(o)
	if w.check("open", err) {
		w.m = m
		w.check("load", m.Load(logdir.LoadOptions{Image: w.image(), Config: w.config}))
		synctest.Wait()
		for _, tp := range w.partitions() {
			w.create(tp)
		}
	}
}

// stop is a clean stop. What was acknowledged is durable after it.
func (w *world) stop() {
	if w.m == nil {
		return
	}
	m := w.m
	w.stopping.Store(true)
	ok := w.check("close", m.Close(7))
	w.stopping.Store(false)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.m = nil
	for _, p := range w.parts {
		if ok {
			p.durable = p.end
		}
	}
}

// check notes an error that nothing explains, and reports whether there was none.
func (w *world) check(what string, err error) bool {
	if err == nil {
		return true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken == nil && !w.tolerant {
		w.broken = fmt.Errorf("%s: %w", what, err)
	}
	return false
}

// image is the metadata that the broker is given: topics with their partitions.
func (w *world) image() *metadata.Image {
	w.mu.Lock()
	defer w.mu.Unlock()
	return imageOf(w.topics, w.parts)
}

func imageOf(topics map[string]kafka.TopicID, parts map[kafka.TopicPartition]*part) *metadata.Image {
	d := metadata.NewDelta(metadata.NewImage())
	for name, id := range topics {
		_ = d.Apply(&metadata.TopicRecord{Name: name, TopicID: id})
	}
	for tp, p := range parts {
		_ = d.Apply(&metadata.PartitionRecord{
			TopicID: p.id, PartitionID: tp.Partition, Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1})
	}
	return d.Finish(1, 1, 0)
}

func (w *world) config(topic string) commitlog.Config {
	w.mu.Lock()
	defer w.mu.Unlock()
	return configOf(w.parts, topic)
}

func configOf(parts map[kafka.TopicPartition]*part, topic string) commitlog.Config {
	for tp, p := range parts {
		if tp.Topic == topic {
			return p.cfg
		}
	}
	return smallConfig()
}

// smallConfig keeps segments and indexes small, so that a few batches cover
// rolls, several segments and several index entries.
func smallConfig() commitlog.Config {
	c := commitlog.DefaultConfig()
	c.SegmentBytes = 1400
	c.SegmentIndexBytes = 4096
	c.IndexInterval = 150
	c.RetentionMs = -1
	c.FileDeleteDelay = 30 * time.Second
	c.DeleteRetentionMs = 60_000
	c.MinCleanableRatio = 0.1
	return c
}

func (w *world) partitions() []kafka.TopicPartition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return sortedParts(w.parts)
}

// topic writes the records of a new topic to the metadata and makes its partitions.
func (w *world) topic(name string, partitions int, set func(c *commitlog.Config)) {
	w.mu.Lock()
	w.ids++
	id := kafka.TopicID{0: 7, 15: w.ids} // ids are as different as random ones
	binary.BigEndian.PutUint64(id[1:], uint64(w.ids)*0x9e3779b97f4a7c15)
	copy(id[1:15], name)
	w.topics[name] = id
	c := smallConfig()
	if set != nil {
		set(&c)
	}
	var made []kafka.TopicPartition
	for i := range partitions {
		tp := kafka.TopicPartition{Topic: name, Partition: int32(i)}
		w.parts[tp] = &part{
			tp: tp, id: id, cfg: c, compacted: c.CleanupCompact, syncEach: c.FlushMessages == 1,
			seqs: map[kafka.ProducerID]kafka.Sequence{}, open: map[kafka.ProducerID]kafka.Offset{},
		}
		made = append(made, tp)
	}
	w.mu.Unlock()
	for _, tp := range made {
		w.create(tp)
	}
}

// create makes a partition on the disk, or finds it there.
func (w *world) create(tp kafka.TopicPartition) {
	if w.m == nil {
		return
	}
	w.mu.Lock()
	p := w.parts[tp]
	w.mu.Unlock()
	_, err := w.m.Create(logdir.NewPartition{Partition: tp, TopicID: p.id, Config: p.cfg, Dir: p.dir})
	synctest.Wait()
	if w.check("create "+tp.String(), err) {
		w.mu.Lock()
		p.created = true
		if id, ok := w.m.DirectoryOf(tp); ok {
			p.dir = id
		}
		w.mu.Unlock()
		if log := w.m.Log(tp); log != nil {
			log.MaybeIncrementHighWatermark(log.EndOffset())
			p.epoch++
			w.check("epoch", log.AssignEpoch(p.epoch, log.EndOffset()))
		}
	}
}

// dropTopic removes a topic from the metadata, and then its partitions.
func (w *world) dropTopic(name string) {
	w.mu.Lock()
	delete(w.topics, name)
	var gone []kafka.TopicPartition
	for _, tp := range sortedParts(w.parts) {
		if tp.Topic == name {
			gone = append(gone, tp)
			delete(w.parts, tp)
		}
	}
	w.mu.Unlock()
	if w.m == nil {
		return // what it left is found by the next start
	}
	w.check("delete "+name, w.m.Delete(gone...))
	synctest.Wait()
}

func (w *world) of(topic string, partition int32) (*part, *commitlog.Log) {
	tp := kafka.TopicPartition{Topic: topic, Partition: partition}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.m == nil || w.parts[tp] == nil {
		return nil, nil
	}
	return w.parts[tp], w.m.Log(tp)
}

// noted is how the model of a partition changes: never while the disk's hook
// takes a copy of it.
func (w *world) noted(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// produce sends one batch of n records of a producer (negative: none).
func (w *world) produce(topic string, partition int32, n int, pid kafka.ProducerID, txn bool) {
	p, log := w.of(topic, partition)
	if log == nil {
		return
	}
	o := record.NewBuildOptions()
	o.Codec = record.Codec(w.rng.IntN(5))
	if pid >= 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = pid, 0, p.seqs[pid], txn
	}
	var b record.Builder
	b.Reset(o)
	for i := range n {
		time.Sleep(time.Duration(1+w.rng.IntN(5)) * time.Millisecond)
		key := fmt.Appendf(nil, "key-%d", w.rng.IntN(7))
		value := bytes.Repeat([]byte{byte('a' + w.rng.IntN(26))}, 10+w.rng.IntN(90))
		if p.compacted && w.rng.IntN(5) == 0 {
			value = nil
		}
		var headers []record.RecordHeader
		if i == 1 {
			headers = []record.RecordHeader{{Key: []byte("h"), Value: []byte("x")}}
		}
		b.Append(kafka.TimestampOf(time.Now()), key, value, headers)
	}
	raw, err := b.Finish()
	if !w.check("build", err) {
		return
	}
	if w.send(p, log, raw, batch{pid: pid, txn: txn, first: kafka.NoOffset}, commitlog.AppendOptions{}) && pid >= 0 {
		p.seqs[pid] = p.seqs[pid].Add(int32(n))
	}
}

// end ends the transaction of a producer.
func (w *world) end(topic string, partition int32, pid kafka.ProducerID, commit bool) {
	p, log := w.of(topic, partition)
	if log == nil {
		return
	}
	first, open := p.open[pid]
	if !open {
		return
	}
	m := record.EndTxnMarker{ProducerID: pid, Timestamp: kafka.TimestampOf(time.Now()), Commit: commit}
	raw := record.AppendEndTxnMarker(nil, &m)
	b := batch{pid: pid, control: true, txn: true, first: first, aborted: !commit}
	if w.send(p, log, raw, b, commitlog.AppendOptions{Origin: commitlog.Coordinator, TxnVersion: 1}) {
		delete(p.open, pid)
	}
}

func (w *world) send(p *part, log *commitlog.Log, raw []byte, b batch, o commitlog.AppendOptions) bool {
	b.raw = bytes.Clone(raw)
	b.base, b.epoch = log.EndOffset(), p.epoch
	b.last = b.base + kafka.Offset(record.Batch(raw).Count()) - 1
	if b.txn && !b.control {
		first, open := p.open[b.pid]
		if !open {
			first = b.base
		}
		b.first = first
	}
	w.noted(func() { p.batches = append(p.batches, b) })
	info, err := log.AppendAsLeader(bytes.Clone(raw), p.epoch, o)
	if !w.check(fmt.Sprintf("append to %s", p.tp), err) {
		return false
	}
	if info.Duplicate { // the answer to an earlier one was an error, and it is there
		w.noted(func() {
			p.batches = p.batches[:len(p.batches)-1]
			for i := range p.batches {
				if p.batches[i].base == info.FirstOffset && p.batches[i].last == info.LastOffset {
					p.batches[i].acked = true
				}
			}
		})
		return true
	}
	if info.FirstOffset != b.base || info.LastOffset != b.last {
		w.check("append", fmt.Errorf("%s: answered offsets %d to %d, want %d to %d", p.tp, info.FirstOffset, info.LastOffset, b.base, b.last))
	}
	if b.txn && !b.control {
		p.open[b.pid] = b.first
	}
	w.noted(func() {
		p.batches[len(p.batches)-1].acked = true
		p.end = b.last + 1
		if p.syncEach {
			p.durable = p.end
		}
	})
	log.MaybeIncrementHighWatermark(log.EndOffset())
	synctest.Wait() // what the append left to others is done before the next step
	return true
}

// flush makes all of a partition durable.
func (w *world) flush(topic string, partition int32) {
	p, log := w.of(topic, partition)
	if log == nil {
		return
	}
	end := p.end
	if w.check("flush", log.Flush(log.EndOffset())) {
		w.noted(func() { p.durable = max(p.durable, end) })
	}
	synctest.Wait()
}

func (w *world) roll(topic string, partition int32) {
	if _, log := w.of(topic, partition); log != nil {
		w.check("roll", log.Roll())
		synctest.Wait()
	}
}

func (w *world) epoch(topic string, partition int32) {
	if p, log := w.of(topic, partition); log != nil {
		p.epoch += 2
		w.check("epoch", log.AssignEpoch(p.epoch, log.EndOffset()))
		synctest.Wait()
	}
}

// deleteRecords raises the log start to the first batch at or above a share of the log.
func (w *world) deleteRecords(topic string, partition int32, share float64) {
	p, log := w.of(topic, partition)
	if log == nil || len(p.open) > 0 {
		return
	}
	to := p.start + kafka.Offset(float64(p.end-p.start)*share)
	w.noted(func() { p.startMax = max(p.startMax, to) })
	if _, err := log.DeleteRecordsTo(to); w.check("delete records", err) {
		w.noted(func() { p.start = max(p.start, to) })
	}
	synctest.Wait()
	w.retain(topic, partition)
}

// retain applies retention as the periodic task does.
func (w *world) retain(topic string, partition int32) {
	p, log := w.of(topic, partition)
	if log == nil {
		return
	}
	w.noted(func() { p.startMax = p.end })
	_, err := log.DeleteOldSegments()
	if w.check("retention", err) {
		w.noted(func() {
			p.start = max(p.start, log.StartOffset())
			p.startMax = p.start
		})
	}
	synctest.Wait()
}

// truncate cuts the log at the base of a batch.
func (w *world) truncate(topic string, partition int32, back int) {
	p, log := w.of(topic, partition)
	if log == nil || len(p.batches) <= back {
		return
	}
	to := p.batches[len(p.batches)-back].base
	for i := range p.batches {
		if b := &p.batches[i]; b.last >= to && b.pid >= 0 {
			return // what a producer knows of itself would have to be cut too
		}
	}
	if to < p.start {
		return
	}
	w.noted(func() { p.mayEndAt(to) })
	if _, err := log.TruncateTo(to); w.check("truncate", err) {
		w.noted(func() { p.endsAt(to) })
	}
	log.MaybeIncrementHighWatermark(log.EndOffset())
	synctest.Wait()
}

// sleep lets the clock run: checkpoints, unlinking, compaction.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// restart stops cleanly and starts again.
func (w *world) restart() {
	w.stop()
	w.start()
}
