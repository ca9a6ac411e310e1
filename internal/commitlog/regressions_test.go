package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// The tests of this file are public bugs of Kafka and its relatives, one each,
// by the name under which the story can be looked up; docs/regressions.md has
// the whole list.

// powerCut opens the log again after a loss of everything that was not synced.
func (b *bench) powerCut(c memfs.Choice) {
	b.t.Helper()
	b.disk = b.disk.Crash(c)
	b.disk.SetNow(b.clock)
	b.opts.FS = b.disk
	b.due = nil
	b.open(false)
}

// durableDir makes the directory's own name durable, as its owner does.
func (b *bench) durableDir() {
	b.t.Helper()
	if err := errors.Join(b.disk.SyncDir("/"), b.disk.SyncDir("/d")); err != nil {
		b.t.Fatal(err)
	}
}

// from is the options of a producer's batch.
func from(id kafka.ProducerID, epoch kafka.ProducerEpoch, seq kafka.Sequence) record.BuildOptions {
	o := record.NewBuildOptions()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = id, epoch, seq
	return o
}

func (b *bench) send(n int, o record.BuildOptions) AppendInfo {
	b.t.Helper()
	info, err := b.log.AppendAsLeader(b.records(n, o), 0, AppendOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.log.MaybeIncrementHighWatermark(b.log.EndOffset())
	return info
}

func (b *bench) roll() {
	b.t.Helper()
	if err := b.log.Roll(); err != nil {
		b.t.Fatal(err)
	}
}

// offsets reads the log from its start to its end and returns the offsets of
// its records; every batch must be whole.
func (b *bench) offsets() []kafka.Offset {
	b.t.Helper()
	var out []kafka.Offset
	for at := b.log.StartOffset(); at < b.log.EndOffset(); {
		batch := b.stored(at)
		if err := batch.Check(); err != nil {
			b.t.Fatalf("offset %d: %v", at, err)
		}
		for o := batch.BaseOffset(); o <= batch.LastOffset(); o++ {
			out = append(out, o)
		}
		at = batch.NextOffset()
	}
	return out
}

func (b *bench) wantOffsets(from, to kafka.Offset) {
	b.t.Helper()
	var want []kafka.Offset
	for o := from; o < to; o++ {
		want = append(want, o)
	}
	if diff := cmp.Diff(want, b.offsets()); diff != "" {
		b.t.Errorf("offsets in the log (-want +got):\n%s", diff)
	}
}

func TestKAFKA3968ASyncedSegmentKeepsItsName(t *testing.T) {
	b := newBench(t, nil)
	b.durableDir()
	b.append(3)
	if err := b.log.Flush(3); err != nil {
		t.Fatal(err)
	}
	b.powerCut(memfs.DropAll())
	b.wantOffsets(0, 3)
	b.roll()
	b.append(2)
	if err := b.log.Flush(5); err != nil {
		t.Fatal(err)
	}
	b.powerCut(memfs.DropAll())
	b.wantOffsets(0, 5)
}

func TestKAFKA9892AHalfWrittenSnapshotIsNeverLoaded(t *testing.T) {
	for seed := range uint64(60) {
		b := newBench(t, nil)
		b.durableDir()
		b.send(3, from(7, 1, 0))
		if err := errors.Join(b.log.Flush(3), b.log.TakeProducerSnapshot()); err != nil {
			t.Fatal(err)
		}
		b.powerCut(memfs.Random(0.5, seed))
		p := b.log.ActiveProducers()
		if len(p) != 1 || p[0].ProducerID != 7 || p[0].LastSequence != 2 {
			t.Fatalf("seed %d: producers %+v", seed, p)
		}
	}
}

func TestKAFKA10101TheRecoveryPointNeverPassesWhatWasSynced(t *testing.T) {
	for seed := range uint64(40) {
		b := newBench(t, nil)
		b.durableDir()
		b.append(3)
		b.roll()
		b.append(3)
		b.killed()
		b.wantOffsets(0, 6)
		b.append(1)
		b.killed()
		b.opts.RecoveryPoint = b.log.RecoveryPoint()
		b.powerCut(memfs.Random(0.3, seed))
		if end := b.log.EndOffset(); end < b.opts.RecoveryPoint {
			t.Fatalf("seed %d: the log ends at %d, the recovery point was %d", seed, end, b.opts.RecoveryPoint)
		}
		b.wantOffsets(0, b.log.EndOffset())
	}
}

func TestKAFKA10778NothingIsAppendedBehindAHalfWrittenBatch(t *testing.T) {
	for _, tt := range []struct {
		name  string
		fault error
		stays error
	}{
		{"a full disk is cut back", syscall.ENOSPC, nil},
		{"a broken one is given up", syscall.EIO, ErrStorage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fault := &faultfs.Counter{From: 5, Times: 1, Fault: faultfs.Fault{Err: tt.fault, Done: 17},
				Match: func(op faultfs.Op) bool { return op.Kind == faultfs.Write && strings.HasSuffix(op.Name, ".log") }}
			var disk *memfs.FS
			b := newBench(t, func(o *Options) { disk = o.FS.(*memfs.FS); o.FS = faultfs.Wrap(o.FS, fault.Inject) })
			var acked sync.Map
			var wg sync.WaitGroup
			for range 8 {
				buf := b.records(2, record.NewBuildOptions())
				wg.Go(func() {
					for range 5 {
						if info, err := b.log.AppendAsLeader(bytes.Clone(buf), 0, AppendOptions{}); err == nil {
							acked.Store(info.FirstOffset, true)
						}
					}
				})
			}
			wg.Wait()
			if err := b.log.Failure(); !errors.Is(err, tt.stays) && (err != nil || tt.stays != nil) {
				t.Errorf("failure %v, want %v", err, tt.stays)
			}
			b.disk, b.opts.FS = disk, disk
			b.killed()
			b.wantOffsets(0, b.log.EndOffset())
			acked.Range(func(first, _ any) bool {
				if o := first.(kafka.Offset); o >= b.log.EndOffset() {
					t.Errorf("acknowledged offset %d is not below the end %d", o, b.log.EndOffset())
				}
				return true
			})
		})
	}
}

func TestKAFKA7866NoOffsetIsGivenTwiceWhenTheTransactionIndexFails(t *testing.T) {
	for _, errno := range []error{syscall.EIO, syscall.ENOSPC} {
		t.Run(errno.Error(), func(t *testing.T) {
			broken := false
			var disk *memfs.FS
			b := newBench(t, func(o *Options) {
				disk = o.FS.(*memfs.FS)
				o.FS = faultfs.Wrap(o.FS, func(op faultfs.Op) faultfs.Fault {
					if broken && op.Kind.Changes() && strings.HasSuffix(op.Name, ".txnindex") {
						return faultfs.Fault{Err: errno}
					}
					return faultfs.Fault{}
				})
			})
			o := from(5, 0, 0)
			o.Transactional = true
			b.send(2, o)
			broken = true
			m := record.AppendEndTxnMarker(nil, &record.EndTxnMarker{ProducerID: 5, Timestamp: kafka.Timestamp(b.now)})
			info, err := b.log.AppendAsLeader(m, 0, AppendOptions{Origin: Coordinator})
			broken = false
			if next, again := b.log.AppendAsLeader(b.records(1, record.NewBuildOptions()), 0, AppendOptions{}); again == nil && err == nil && next.FirstOffset <= info.LastOffset {
				t.Errorf("offset %d after a marker at %d", next.FirstOffset, info.LastOffset)
			}
			b.disk, b.opts.FS = disk, disk
			b.killed()
			b.wantOffsets(0, b.log.EndOffset())
			if b.log.EndOffset() > 2 { // the marker is in the log: so must its transaction be in the index
				b.log.MaybeIncrementHighWatermark(b.log.EndOffset())
				r, err := b.log.Read(0, ReadOptions{MaxBytes: 1 << 20, Bound: LastStable, Aborted: true})
				if err != nil || len(r.Aborted) != 1 {
					t.Fatalf("aborted %v, %v; want the transaction of producer 5", r.Aborted, err)
				}
				r.Region.Release()
			}
		})
	}
}

func TestKAFKA6492AnEmptiedIndexHasItsFullSizeAgain(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.IndexInterval, o.Config.SegmentIndexBytes = 1, 64 })
	for range 6 {
		b.append(1)
	}
	if n := len(b.log.Segments()); n < 1 {
		t.Fatal(n)
	}
	if _, err := b.log.TruncateTo(0); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.append(1)
	}
	if n := len(b.log.Segments()); n != 1 {
		t.Errorf("%d segments after truncation to nothing and three appends, want 1", n)
	}
	b.wantOffsets(0, 3)
}

func TestKAFKA4099OldRecordsDoNotRollOnEveryAppend(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.SegmentMs = 3_600_000 })
	b.now -= 30 * 86_400_000
	old := b.records(1, record.NewBuildOptions())
	b.now += 30 * 86_400_000
	send := func() {
		if _, err := b.log.AppendAsLeader(bytes.Clone(old), 0, AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		send()
	}
	b.killed()
	for range 5 {
		send()
	}
	if n := len(b.log.Segments()); n != 1 {
		t.Errorf("%d segments, want 1", n)
	}
}

func TestKAFKA13603AnEmptyActiveSegmentWithoutItsIndexesIsNormal(t *testing.T) {
	b := newBench(t, nil)
	b.append(3)
	b.roll()
	for _, ext := range []string{segment.IndexExt, segment.TimeIndexExt} {
		if err := b.disk.Remove(path.Join(testDir, segment.Name(3, ext))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	b.events = nil
	b.killed()
	b.wantOffsets(0, 3)
	for _, e := range b.events {
		if strings.Contains(e, "cut") || strings.Contains(e, "corrupt") {
			t.Errorf("event %s", e)
		}
	}
	if b.append(1).FirstOffset != 3 {
		t.Error("the next offset is not 3")
	}
}

func TestKAFKA12520SealedSegmentsBelowTheRecoveryPointAreNotRead(t *testing.T) {
	reads := map[string]int64{}
	b := newBench(t, nil)
	for i := range 30 {
		b.send(2, from(7, 0, kafka.Sequence(2*i)))
		b.roll()
	}
	b.send(2, from(7, 0, 60))
	b.opts.RecoveryPoint = b.log.RecoveryPoint()
	if b.opts.RecoveryPoint != 60 {
		t.Fatalf("recovery point %d, want 60", b.opts.RecoveryPoint)
	}
	b.disk = b.disk.Crash(memfs.KeepAll())
	b.opts.FS = faultfs.Wrap(b.disk, func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Read && strings.HasSuffix(op.Name, segment.LogExt) {
			reads[path.Base(op.Name)] += op.Length
		}
		return faultfs.Fault{}
	})
	b.open(false)
	delete(reads, segment.Name(60, segment.LogExt))
	if len(reads) != 0 {
		t.Errorf("read of segments that were flushed: %v", reads)
	}
	if p := b.log.ActiveProducers(); len(p) != 1 || p[0].LastSequence != 61 {
		t.Errorf("producers %+v", p)
	}
}

func TestKAFKA5249ASnapshotTakenInRecoveryIsThatOfItsOffset(t *testing.T) {
	b := newBench(t, nil)
	for i := range 4 {
		b.send(2, from(7, 0, kafka.Sequence(2*i)))
		b.send(1, from(kafka.ProducerID(100+i), 0, 0))
		b.roll()
	}
	b.killed()
	recovered := b.log.ActiveProducers()
	b.killed() // now from the snapshots that recovery took
	again := b.log.ActiveProducers()
	names, err := b.disk.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n.Name(), ".snapshot") {
			if err := b.disk.Remove(path.Join(testDir, n.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	b.killed()
	if diff := cmp.Diff(b.log.ActiveProducers(), recovered); diff != "" || len(recovered) != 5 {
		t.Errorf("recovered against replayed from nothing:\n%s", diff)
	}
	if diff := cmp.Diff(b.log.ActiveProducers(), again); diff != "" {
		t.Errorf("from recovery's snapshots against replayed from nothing:\n%s", diff)
	}
}

func TestKAFKA5431PreallocatedSegmentsHaveNoZeroTail(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.Preallocate, o.Config.SegmentBytes = true, 1<<20 })
	b.append(3)
	b.killed()
	b.wantOffsets(0, 3)
	if info := b.append(2); info.FirstOffset != 3 {
		t.Errorf("first offset %d, want 3", info.FirstOffset)
	}
	size := b.log.Size()
	b.roll()
	info, err := b.disk.Stat(path.Join(testDir, segment.Name(0, segment.LogExt)))
	if err != nil || info.Size() != size {
		t.Errorf("the sealed file has %d bytes, %v; want %d", info.Size(), err, size)
	}
	b.killed()
	b.wantOffsets(0, 5)
}

func TestKAFKA8722AWrongChecksumIsRefusedOnEveryPath(t *testing.T) {
	for _, topic := range []struct {
		name   string
		change func(*Config)
	}{
		{"as produced", func(*Config) {}},
		{"recompressed by the topic", func(c *Config) { c.CompressProducer, c.Codec = false, record.Zstd }},
		{"stamped by the broker", func(c *Config) { c.TimestampType = kafka.LogAppendTime }},
	} {
		for _, codec := range []record.Codec{record.None, record.Gzip, record.Snappy, record.LZ4, record.Zstd} {
			for _, txn := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/transactional=%v", topic.name, codec, txn), func(t *testing.T) {
					b := newBench(t, func(o *Options) { topic.change(&o.Config) })
					o := from(9, 0, 0)
					o.Codec, o.Transactional = codec, txn
					buf := b.records(5, o)
					buf[len(buf)-3] ^= 4
					if _, err := b.log.AppendAsLeader(buf, 0, AppendOptions{}); !errors.Is(err, ErrCorrupt) {
						t.Errorf("append: %v, want ErrCorrupt", err)
					}
					if b.log.EndOffset() != 0 || b.log.Size() != 0 || len(b.log.ActiveProducers()) != 0 {
						t.Errorf("end %d, %d bytes, producers %v", b.log.EndOffset(), b.log.Size(), b.log.ActiveProducers())
					}
				})
			}
		}
	}
}

func TestKAFKA9196AReadRightAfterARollEndsAtTheHighWatermark(t *testing.T) {
	b := newBench(t, nil)
	b.append(3)
	b.roll()
	if _, err := b.log.AppendAsLeader(b.records(2, record.NewBuildOptions()), 0, AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	for at := range kafka.Offset(6) {
		r, err := b.log.Read(at, ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true, Bound: HighWatermark})
		if err != nil {
			t.Fatalf("read %d: %v", at, err)
		}
		want := int64(0)
		if at < 3 {
			want = int64(len(b.stored(0)))
		}
		if r.Region.Length != want {
			t.Errorf("read %d: %d bytes, want %d: the watermark is 3", at, r.Region.Length, want)
		}
		if r.Region.Release != nil {
			r.Region.Release()
		}
	}
}

func TestKAFKA6975TheLogStartInsideABatchIsReadable(t *testing.T) {
	b := newBench(t, nil)
	b.append(10)
	b.append(5)
	if _, err := b.log.DeleteRecordsTo(4); err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		if b.log.StartOffset() != 4 {
			t.Fatalf("%s: log start %d, want 4", when, b.log.StartOffset())
		}
		if got := b.stored(4); got.BaseOffset() != 0 || got.LastOffset() != 9 {
			t.Errorf("%s: read at 4 gives the batch %d to %d, want 0 to 9", when, got.BaseOffset(), got.LastOffset())
		}
		if _, err := b.log.Read(3, ReadOptions{MaxBytes: 1}); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("%s: read at 3: %v, want ErrOffsetOutOfRange", when, err)
		}
	}
	check("deleted")
	b.opts.LogStartOffset = 4
	b.killed()
	b.log.MaybeIncrementHighWatermark(b.log.EndOffset())
	check("started again")
}

func TestKAFKA12153TruncationTakesTheWatermarksAlong(t *testing.T) {
	b := newBench(t, nil)
	b.append(4)
	o := from(5, 0, 0)
	o.Transactional = true
	b.send(3, o)
	if b.log.LastStable() != 4 {
		t.Fatalf("last stable offset %d with a transaction from 4 on", b.log.LastStable())
	}
	if _, err := b.log.TruncateTo(4); err != nil {
		t.Fatal(err)
	}
	if hw, lso := b.log.HighWatermark(), b.log.LastStable(); hw != 4 || lso != 4 {
		t.Errorf("high watermark %d, last stable offset %d; want 4", hw, lso)
	}
	b.append(2)
	if lso := b.log.LastStable(); lso != 6 {
		t.Errorf("last stable offset %d, want 6: the transaction is gone", lso)
	}
	if _, err := b.log.TruncateTo(0); err != nil {
		t.Fatal(err)
	}
	if hw, lso := b.log.HighWatermark(), b.log.LastStable(); hw != 0 || lso != 0 {
		t.Errorf("high watermark %d, last stable offset %d; want 0", hw, lso)
	}
}

func TestLinkedin395ACutEpochCheckpointIsRebuilt(t *testing.T) {
	whole := func() *bench {
		b := newBench(t, nil)
		for e := range kafka.LeaderEpoch(3) {
			if err := b.log.AssignEpoch(e, b.log.EndOffset()); err != nil {
				t.Fatal(err)
			}
			if _, err := b.log.AppendAsLeader(b.records(2, record.NewBuildOptions()), e, AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	b := whole()
	name := path.Join(testDir, checkpoint.EpochFile)
	info, err := b.disk.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	for size := range info.Size() {
		b := whole()
		f, err := b.disk.OpenFile(name, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
			t.Fatal(err)
		}
		b.killed()
		e, end := b.log.EndOffsetForEpoch(1)
		if latest, ok := b.log.LatestEpoch(); !ok || latest != 2 || e != 1 || end != 4 {
			t.Errorf("cut to %d bytes: latest epoch %d, epoch 1 ends at %d; want 2 and 4", size, latest, end)
		}
	}
}

func TestJetstream406ShortAndSenselessFilesAreRebuilt(t *testing.T) {
	for _, ext := range []string{segment.IndexExt, segment.TimeIndexExt, segment.TxnIndexExt, ".snapshot"} {
		for _, junk := range [][]byte{{}, {1}, bytes.Repeat([]byte{0xee}, 7), bytes.Repeat([]byte{0xff}, 100), make([]byte, 100)} {
			b := newBench(t, func(o *Options) { o.Config.IndexInterval = 1 })
			b.send(2, from(7, 0, 0))
			b.send(2, from(7, 0, 2))
			b.roll()
			b.send(2, from(7, 0, 4))
			if err := b.log.Close(); err != nil {
				t.Fatal(err)
			}
			base := kafka.Offset(0)
			if ext == ".snapshot" {
				base = 6
			}
			writeFile(t, b.disk, path.Join(testDir, segment.Name(base, ext)), junk)
			b.opts.RecoveryPoint = 6
			for _, clean := range []bool{true, false} {
				b.disk = b.disk.Crash(memfs.KeepAll())
				b.opts.FS = b.disk
				b.open(clean)
				b.log.MaybeIncrementHighWatermark(6)
				b.wantOffsets(0, 6)
				if m, err := b.log.OffsetForTimestamp(kafka.Timestamp(b.now), 6); err != nil || m.Offset != 0 {
					t.Errorf("%s with %d bytes, clean=%v: first record by time at %d, %v; want 0", ext, len(junk), clean, m.Offset, err)
				}
				if p := b.log.ActiveProducers(); len(p) != 1 || p[0].LastSequence != 5 {
					t.Errorf("%s with %d bytes, clean=%v: producers %+v", ext, len(junk), clean, p)
				}
				if err := b.log.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// damageSealed is a log of three segments, the middle one damaged below the
// recovery point.
func damageSealed(t *testing.T, change func(raw []byte) []byte) *bench {
	t.Helper()
	b := newBench(t, nil)
	for range 3 {
		b.append(2)
		b.append(2)
		b.append(2)
		b.roll()
	}
	name := path.Join(testDir, segment.Name(6, segment.LogExt))
	raw := b.read(name)
	writeFile(t, b.disk, name, change(raw))
	b.opts.RecoveryPoint = b.log.RecoveryPoint()
	b.killed()
	b.log.MaybeIncrementHighWatermark(b.log.EndOffset())
	return b
}

func (b *bench) read(name string) []byte {
	b.t.Helper()
	f, err := b.disk.OpenFile(name, 0, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		b.t.Fatal(err)
	}
	raw := make([]byte, size)
	if _, err := f.ReadAt(raw, 0); err != nil {
		b.t.Fatal(err)
	}
	return raw
}

func TestNats7704ATruncatedSegmentInTheMiddleCostsOnlyItself(t *testing.T) {
	b := damageSealed(t, func(raw []byte) []byte { return raw[:len(raw)-30] })
	if b.log.EndOffset() != 18 {
		t.Fatalf("log end %d, want 18: nothing below the recovery point is cut", b.log.EndOffset())
	}
	for _, at := range []kafka.Offset{0, 5, 6, 9, 12, 17} {
		if got := b.stored(at); got.Check() != nil || got.BaseOffset() > at || got.LastOffset() < at {
			t.Errorf("read at %d: batch %d to %d, %v", at, got.BaseOffset(), got.LastOffset(), got.Check())
		}
	}
	if info := b.append(1); info.FirstOffset != 18 {
		t.Errorf("the next offset is %d, want 18", info.FirstOffset)
	}
}

func TestNats7549AFlippedBitCostsItsBatchAlone(t *testing.T) {
	b := damageSealed(t, func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw })
	if b.log.EndOffset() != 18 {
		t.Fatalf("log end %d, want 18", b.log.EndOffset())
	}
	for _, at := range []kafka.Offset{0, 5, 6, 7, 10, 11, 12, 17} {
		if got := b.stored(at); got.Check() != nil || got.BaseOffset() > at || got.LastOffset() < at {
			t.Errorf("read at %d: batch %d to %d, %v", at, got.BaseOffset(), got.LastOffset(), got.Check())
		}
	}
}

func TestNats7556AFlippedSnapshotDeletesNothing(t *testing.T) {
	b := newBench(t, nil)
	for i := range 3 {
		b.send(2, from(7, 0, kafka.Sequence(2*i)))
		b.roll()
	}
	want := b.log.ActiveProducers()
	b.opts.RecoveryPoint = b.log.RecoveryPoint()
	name := path.Join(testDir, segment.Name(6, ".snapshot"))
	raw := b.read(name)
	for bit := range 8 * len(raw) {
		damaged := bytes.Clone(raw)
		damaged[bit/8] ^= 1 << (bit % 8)
		disk := b.disk.Crash(memfs.KeepAll())
		writeFile(t, disk, name, damaged)
		again := *b
		again.disk, again.opts.FS = disk, disk
		again.open(false)
		if diff := cmp.Diff(want, again.log.ActiveProducers()); diff != "" || again.log.EndOffset() != 6 || len(again.log.Segments()) != len(b.log.Segments()) {
			t.Fatalf("bit %d: end %d, %d segments, producers:\n%s", bit, again.log.EndOffset(), len(again.log.Segments()), diff)
		}
		if err := again.log.Abandon(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKAFKA17415TimesAtTheEndsOfInt64ExpireNothingEarly(t *testing.T) {
	for _, tt := range []struct {
		name      string
		now       int64
		retention int64
		record    int64
		gone      int
	}{
		{"a record of the far future stays", 1_750_000_000_000, 1000, math.MaxInt64, 0},
		{"retention without end", 1_750_000_000_000, math.MaxInt64, 0, 0},
		{"a record of the year 1970 with retention without end", math.MaxInt64 / 2, math.MaxInt64, 1, 0},
		{"an old record goes", 1_750_000_000_000, 1000, 1_000_000, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(o *Options) {
				o.Config.RetentionMs, o.Config.TimestampAfterMax = tt.retention, math.MaxInt64
			})
			b.now = tt.record
			buf := func() []byte {
				var w record.Builder
				w.Reset(record.NewBuildOptions())
				w.Append(kafka.Timestamp(tt.record), nil, []byte("v"), nil)
				out, err := w.Finish()
				if err != nil {
					t.Fatal(err)
				}
				return bytes.Clone(out)
			}()
			b.now = tt.now
			if _, err := b.log.AppendAsLeader(buf, 0, AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			b.roll()
			if _, err := b.log.AppendAsLeader(bytes.Clone(buf), 0, AppendOptions{}); err != nil {
				t.Fatal(err)
			}
			b.log.MaybeIncrementHighWatermark(2)
			if n, err := b.log.DeleteOldSegments(); n != tt.gone || err != nil {
				t.Errorf("DeleteOldSegments = %d, %v; want %d", n, err, tt.gone)
			}
		})
	}
}

func TestKAFKA5634RetentionStopsAtTheHighWatermark(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.RetentionMs, o.Config.RetentionBytes = 1000, 1 })
	for range 3 {
		if _, err := b.log.AppendAsLeader(b.records(2, record.NewBuildOptions()), 0, AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		b.roll()
	}
	b.log.UpdateHighWatermark(3)
	b.now += 1_000_000
	if _, err := b.log.DeleteOldSegments(); err != nil {
		t.Fatal(err)
	}
	if start := b.log.StartOffset(); start != 2 {
		t.Errorf("log start %d, want 2: the second segment reaches above the high watermark of 3", start)
	}
	b.wantOffsets(2, 6)
}

func TestKAFKA10432EpochZeroIsInTheRebuiltCache(t *testing.T) {
	b := newBench(t, nil)
	b.append(3)
	if err := b.disk.Remove(path.Join(testDir, checkpoint.EpochFile)); err != nil {
		t.Fatal(err)
	}
	b.killed()
	if e, ok := b.log.LatestEpoch(); !ok || e != 0 {
		t.Errorf("latest epoch %d, %v; want 0", e, ok)
	}
	if e, end := b.log.EndOffsetForEpoch(0); e != 0 || end != 3 {
		t.Errorf("epoch %d ends at %d, want 0 and 3", e, end)
	}
}

func TestKAFKA10706AnEpochThatBeginsAtTheEndIsTruncatedAway(t *testing.T) {
	b := newBench(t, nil)
	b.append(3)
	if err := b.log.AssignEpoch(5, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := b.log.TruncateTo(3); err != nil {
		t.Fatal(err)
	}
	if e, _ := b.log.LatestEpoch(); e != 0 {
		t.Errorf("latest epoch %d, want 0", e)
	}
}

func TestRedpanda6018AnOpenTransactionIsFoundAgain(t *testing.T) {
	b := newBench(t, nil)
	b.append(2)
	o := from(5, 0, 0)
	o.Transactional = true
	b.send(3, o)
	b.append(1)
	b.roll()
	b.append(1)
	b.killed()
	b.log.MaybeIncrementHighWatermark(b.log.EndOffset())
	b.wantOffsets(0, 7)
	if lso := b.log.LastStable(); lso != 2 {
		t.Errorf("last stable offset %d, want 2", lso)
	}
}

func TestKAFKA7692SequencesWrapToZero(t *testing.T) {
	b := newBench(t, nil)
	b.send(3, from(7, 0, math.MaxInt32-1)) // 2147483646, 2147483647, 0
	if info := b.send(2, from(7, 0, 1)); info.Duplicate || info.FirstOffset != 3 {
		t.Errorf("%+v, want new records at 3", info)
	}
	if info := b.send(3, from(7, 0, math.MaxInt32-1)); !info.Duplicate || info.FirstOffset != 0 {
		t.Errorf("%+v, want the duplicate at 0", info)
	}
	b.killed()
	if info := b.send(2, from(7, 0, 3)); info.Duplicate || info.FirstOffset != 5 {
		t.Errorf("after a restart: %+v, want new records at 5", info)
	}
}

func TestKAFKA9144MarkersKeepAProducerAlive(t *testing.T) {
	b := newBench(t, func(o *Options) { o.ProducerExpiration = time.Hour })
	o := from(5, 3, 0)
	o.Transactional = true
	b.send(1, o)
	for range 30 {
		b.now += 50 * 60_000
		m := record.AppendEndTxnMarker(nil, &record.EndTxnMarker{ProducerID: 5, ProducerEpoch: 3, Commit: true, Timestamp: kafka.Timestamp(b.now)})
		if _, err := b.log.AppendAsLeader(m, 0, AppendOptions{Origin: Coordinator}); err != nil {
			t.Fatal(err)
		}
		if n := b.log.ExpireProducers(); n != 0 {
			t.Fatalf("%d producers expired", n)
		}
	}
	if _, err := b.log.AppendAsLeader(b.records(1, from(5, 2, 0)), 0, AppendOptions{}); !errors.Is(err, ErrInvalidProducerEpoch) {
		t.Errorf("an older epoch: %v, want ErrInvalidProducerEpoch", err)
	}
}

func TestRedpanda5026TheSameSequenceInANewEpochIsNoDuplicate(t *testing.T) {
	b := newBench(t, nil)
	b.send(2, from(7, 0, 0))
	if info := b.send(2, from(7, 1, 0)); info.Duplicate || info.FirstOffset != 2 {
		t.Errorf("%+v, want new records at 2", info)
	}
}

func TestRedpanda3077TheFirstOfFiveIsAnsweredAgain(t *testing.T) {
	b := newBench(t, nil)
	for i := range 5 {
		b.send(2, from(7, 0, kafka.Sequence(2*i)))
	}
	if info := b.send(2, from(7, 0, 0)); !info.Duplicate || info.FirstOffset != 0 || info.LastOffset != 1 {
		t.Errorf("%+v, want the duplicate at 0 to 1", info)
	}
	if b.log.EndOffset() != 10 {
		t.Errorf("log end %d, want 10", b.log.EndOffset())
	}
}

func TestNisshiAFetchInsideABatchGetsAllOfIt(t *testing.T) {
	b := newBench(t, nil)
	b.append(10)
	for at := range kafka.Offset(10) {
		if got := b.stored(at); got.BaseOffset() != 0 || got.Count() != 10 || got.Check() != nil {
			t.Errorf("read at %d: %d records from %d, %v", at, got.Count(), got.BaseOffset(), got.Check())
		}
	}
	if got := b.offsets(); !slices.IsSorted(got) || len(got) != 10 {
		t.Errorf("offsets %v", got)
	}
}

// A page of an older life of the file behind the end that a clean stop left:
// its checksum is right, its offset is not.
func TestAnOldBatchBehindACleanEndIsCut(t *testing.T) {
	b := newBench(t, nil)
	b.append(3)
	old := bytes.Clone(b.stored(0))
	b.append(3)
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	name := path.Join(testDir, segment.Name(0, segment.LogExt))
	writeFile(t, b.disk, name, append(b.read(name), old...))
	b.opts.RecoveryPoint = 6
	b.open(true)
	if b.log.EndOffset() != 6 {
		t.Fatalf("log end %d, want 6", b.log.EndOffset())
	}
	b.wantOffsets(0, 6)
	if info := b.append(1); info.FirstOffset != 6 {
		t.Errorf("the next offset is %d, want 6", info.FirstOffset)
	}
	b.wantOffsets(0, 7)
}
