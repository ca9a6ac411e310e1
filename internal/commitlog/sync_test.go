package commitlog

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/flusher"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// syncFS is a disk whose fdatasyncs of `.log` files are watched: before is
// called when one begins, after when it has succeeded.
type syncFS struct {
	vfs.FS
	before func()
	after  func()
}

type syncFile struct {
	vfs.File
	fs *syncFS
}

func (s *syncFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return &syncFile{f, s}, nil
}

func (f *syncFile) SyncData() error {
	f.fs.before()
	err := f.File.SyncData()
	if err == nil {
		f.fs.after()
	}
	return err
}

// TestProducersShareSyncs: 64 producers that each wait for the disk make a
// fraction of the syncs, and none is answered before one that covers its record
// has begun and ended.
func TestProducersShareSyncs(t *testing.T) {
	for _, tt := range []struct {
		name  string
		logs  int
		alone bool
		limit func(acks int64) int64
	}{
		{"one partition", 1, false, func(acks int64) int64 { return acks / 30 }},
		{"eight partitions", 8, false, func(acks int64) int64 { return acks / 4 }},
		{"a sync for each", 1, true, func(acks int64) int64 { return acks }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const producers, each = 64, 20
				var syncs, acks atomic.Int64
				var shared flusher.Flusher
				logs := make([]*Log, tt.logs)
				covered := make([]atomic.Int64, tt.logs)
				for i := range logs {
					var begun atomic.Int64
					b := newBench(t, func(o *Options) {
						o.Config.FlushMessages, o.Config.SyncAlone = 1, tt.alone
						o.Flusher = &shared
						o.FS = &syncFS{o.FS, func() {
							syncs.Add(1)
							begun.Store(int64(logs[i].EndOffset()))
							time.Sleep(time.Millisecond)
						}, func() { covered[i].Store(begun.Load()) }}
					})
					logs[i] = b.log
					// In each mode the active segment is one of several.
					if _, err := b.log.AppendAsLeader(batchOf(t, 1, 200, record.None, -1), 0, AppendOptions{}); err != nil {
						t.Fatal(err)
					}
					if err := b.log.Roll(); err != nil {
						t.Fatal(err)
					}
				}
				shared.Wait()
				syncs.Store(0)
				var wg sync.WaitGroup
				for p := range producers {
					l, done := logs[p%tt.logs], &covered[p%tt.logs]
					b := batchOf(t, 1, 200, record.None, -1)
					wg.Go(func() {
						var seq kafka.Sequence
						for range each {
							again(b, &seq)
							info, err := l.AppendAsLeader(b, 0, AppendOptions{})
							if err != nil {
								t.Error(err)
								return
							}
							if got := done.Load(); got <= int64(info.LastOffset) {
								t.Errorf("offset %d was answered when the disk had those below %d", info.LastOffset, got)
							}
							acks.Add(1)
						}
					})
				}
				wg.Wait()
				shared.Wait()
				if acks.Load() != producers*each {
					t.Fatalf("%d answers, want %d", acks.Load(), producers*each)
				}
				n, limit := syncs.Load(), tt.limit(acks.Load())
				if n > limit || tt.alone && n < limit {
					t.Errorf("%d fdatasync for %d answers, want %d", n, acks.Load(), limit)
				}
			})
		})
	}
}

// gate is a log whose syncs wait until the test lets them go.
type gate struct {
	*bench
	flusher        flusher.Flusher
	entered, leave chan struct{}
	moved          atomic.Int32
}

func newGate(t *testing.T, change func(*Options)) *gate {
	g := &gate{entered: make(chan struct{}), leave: make(chan struct{})}
	g.bench = newBench(t, func(o *Options) {
		o.Config.FlushMessages = 1
		o.Flusher = &g.flusher
		o.FS = &syncFS{o.FS, func() { g.entered <- struct{}{}; <-g.leave }, func() {}}
		if change != nil {
			change(o)
		}
	})
	g.log.OnSynced(func() { g.moved.Add(1) })
	return g
}

func (g *gate) later(buf []byte) AppendInfo {
	g.t.Helper()
	info, err := g.log.AppendAsLeader(buf, 0, AppendOptions{SyncLater: true})
	if err != nil {
		g.t.Fatal(err)
	}
	return info
}

func TestAppendsGoOnWhileASyncRunsAndAreNotCommittable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		first := g.later(g.records(2, record.NewBuildOptions()))
		<-g.entered
		second := g.later(g.records(3, record.NewBuildOptions())) // would wait for ever if the sync held the log
		if got := g.log.CommittableOffset(); got != 0 {
			t.Errorf("committable to %d while nothing is durable, want 0", got)
		}
		var firstErr, secondErr error
		var done atomic.Int32
		go func() { firstErr = g.log.AwaitSync(first.Owed); done.Add(1) }()
		go func() { secondErr = g.log.AwaitSync(second.Owed); done.Add(1) }()
		synctest.Wait()
		if done.Load() != 0 {
			t.Error("an append was let through before its sync")
		}
		g.leave <- struct{}{}
		<-g.entered
		synctest.Wait()
		if got := g.log.CommittableOffset(); got != 2 || done.Load() != 1 || firstErr != nil {
			t.Errorf("after the first sync: committable to %d, %d answered (%v), want 2 and 1", got, done.Load(), firstErr)
		}
		g.leave <- struct{}{}
		synctest.Wait()
		if got := g.log.CommittableOffset(); got != 5 || done.Load() != 2 || secondErr != nil || g.moved.Load() != 2 {
			t.Errorf("after the second: committable to %d, %d answered (%v), told %d times; want 5, 2 and 2", got, done.Load(), secondErr, g.moved.Load())
		}
	})
}

func TestADuplicateWaitsForTheSyncOfItsFirstCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, nil)
		o := record.NewBuildOptions()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = 7, 0, 0
		g.later(g.records(2, o)) // its connection is gone
		<-g.entered
		retry := g.later(g.records(2, o))
		if !retry.Duplicate || retry.Owed.IsZero() {
			t.Errorf("retry: duplicate %v, owed %v; want one that waits", retry.Duplicate, retry.Owed)
		}
		g.leave <- struct{}{}
		if err := g.log.AwaitSync(retry.Owed); err != nil {
			t.Error(err)
		}
		synctest.Wait() // a round that finds nothing to do makes no sync
		if again := g.later(g.records(2, o)); !again.Duplicate || !again.Owed.IsZero() {
			t.Errorf("a retry of what is durable owes %v, want nothing", again.Owed)
		}
	})
}

func TestWhoWaitsForASyncIsToldOfTheEndOfTheLog(t *testing.T) {
	for _, tt := range []struct {
		name string
		act  func(g *gate)
		want error
	}{
		{"closed", func(g *gate) { _ = g.log.Abandon() }, ErrClosed},
		{"offline", func(g *gate) { g.log.Fail(errors.New("elsewhere")) }, ErrStorage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t, nil)
				info := g.later(g.records(2, record.NewBuildOptions()))
				<-g.entered
				var err error
				answered := make(chan struct{})
				go func() { err = g.log.AwaitSync(info.Owed); close(answered) }()
				synctest.Wait()
				tt.act(g)
				<-answered // although the disk does not come back
				g.leave <- struct{}{}
				if !errors.Is(err, tt.want) {
					t.Errorf("AwaitSync = %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// TestAWaiterOfRecordsThatWereCutIsNotAnswered: what is appended in their place
// is not what it waits for.
func TestAWaiterOfRecordsThatWereCutIsNotAnswered(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Flusher = new(flusher.Flusher) })
	b.append(2)
	c := *b.log.Config()
	c.FlushMessages = 1
	b.log.SetConfig(c)
	info, err := b.log.AppendAsLeader(b.records(1, record.NewBuildOptions()), 0, AppendOptions{SyncLater: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.log.TruncateTo(1); err != nil {
		t.Fatal(err)
	}
	b.append(5)
	if err := b.log.AwaitSync(info.Owed); !errors.Is(err, ErrCut) {
		t.Errorf("AwaitSync = %v, want ErrCut", err)
	}
	b.opts.Flusher.Wait()
}

// TestFlushMessagesBoundsWhatIsOwed: with N, fewer than N records of those that
// were answered are not on the disk.
func TestFlushMessagesBoundsWhatIsOwed(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.FlushMessages = 7 })
	for range 100 {
		info := b.append(2)
		if owed := info.LastOffset + 1 - b.log.SyncedOffset(); owed >= 7 {
			t.Fatalf("%d records were answered and are not on the disk, want 6 at most", owed)
		}
	}
}

// TestAPowerCutTakesNothingAnswered crashes the disk after each append of a log
// that rolls, and looks for all that was answered.
func TestAPowerCutTakesNothingAnswered(t *testing.T) {
	var background []func()
	b := newBench(t, func(o *Options) {
		o.Config.FlushMessages = 1
		o.Config.SegmentBytes = 1000
		o.Config.SegmentIndexBytes = 4096
		o.Flusher = new(flusher.Flusher)
		o.Background = func(f func()) { background = append(background, f) } // as late as can be
	})
	if err := errors.Join(b.disk.SyncDir("/"), b.disk.SyncDir("/d")); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		end := b.append(1+i%3).LastOffset + 1
		after := *b
		after.disk = b.disk.Crash(memfs.DropAll())
		after.disk.SetNow(b.clock)
		after.opts.FS, after.opts.Flusher = after.disk, nil
		after.opts.Background = nil
		after.open(false)
		if got := after.log.EndOffset(); got != end {
			t.Fatalf("end offset %d after a power cut, want %d", got, end)
		}
		if i%10 == 9 {
			for _, f := range background {
				f()
			}
			background = nil
		}
	}
}

// TestAFailedSyncEndsTheDirectory fails each sync of a workload in turn. No
// waiter is answered, no log of the directory is written to or synced again,
// and the sync is not repeated.
func TestAFailedSyncEndsTheDirectory(t *testing.T) {
	n := 0
	for nth := 1; ; nth++ {
		if failSync(t, nth) {
			n++
			continue
		}
		break
	}
	if n < 15 {
		t.Errorf("the workload has %d syncs, want 15 at least", n)
	}
}

func failSync(t *testing.T, nth int) (hit bool) {
	t.Helper()
	var offline atomic.Pointer[error]
	var failed faultfs.Op
	syncs := 0
	inject := func(op faultfs.Op) faultfs.Fault {
		if hit && op.Kind.Changes() {
			t.Errorf("sync %d (%s %s) failed, and then: %s %s", nth, failed.Kind, failed.Name, op.Kind, op.Name)
		}
		switch op.Kind {
		case faultfs.Sync, faultfs.SyncDir, faultfs.Flush:
			if syncs++; syncs == nth {
				hit, failed = true, op
				return faultfs.Fault{Err: syscall.EIO}
			}
		}
		return faultfs.Fault{}
	}
	var told atomic.Int32
	disk := memfs.New()
	open := func(dir string) (*bench, error) {
		b := &bench{t: t, disk: disk, now: 1_750_000_000_000}
		disk.SetNow(b.clock)
		if err := disk.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		b.opts = Options{
			FS: faultfs.Wrap(disk, inject), Dir: dir, Partition: kafka.TopicPartition{Topic: "test"}, Config: DefaultConfig(), Now: b.clock,
			Offline: &offline, Flusher: new(flusher.Flusher), OnFailure: func(error) { told.Add(1) },
		}
		b.opts.Config.FlushMessages, b.opts.Config.IndexInterval, b.opts.Config.SegmentIndexBytes = 1, 100, 4096
		l, err := Open(b.opts)
		b.log = l
		return b, err
	}
	a, err := open("/d/a-0")
	var other *bench
	if err == nil {
		other, err = open("/d/b-0")
	}
	if err != nil {
		if !hit {
			t.Fatal(err)
		}
		return hit // a log that does not open is not served
	}
	work := func(b *bench) error {
		for range 3 {
			for range 3 {
				info, err := b.log.AppendAsLeader(b.records(3, record.NewBuildOptions()), 0, AppendOptions{})
				if err != nil {
					return err
				}
				b.log.MaybeIncrementHighWatermark(info.LastOffset + 1)
			}
			if err := b.log.Roll(); err != nil {
				return err
			}
		}
		if err := b.log.Failure(); err != nil {
			return err // of a sync behind the roll
		}
		if err := b.log.Flush(b.log.EndOffset()); err != nil {
			return err
		}
		if _, err := b.log.DeleteRecordsTo(10); err != nil {
			return err
		}
		if _, err := b.log.TruncateTo(20); err != nil {
			return err
		}
		return b.log.Failure()
	}
	err = errors.Join(work(a), work(other))
	if hit && err == nil {
		t.Errorf("sync %d (%s %s) failed and nobody was told", nth, failed.Kind, failed.Name)
	}
	if hit {
		for name, b := range map[string]*bench{"the log itself": a, "its neighbour": other} {
			if _, err := b.log.AppendAsLeader(b.records(1, record.NewBuildOptions()), 0, AppendOptions{}); !errors.Is(err, ErrStorage) {
				t.Errorf("sync %d (%s %s) failed; append to %s = %v, want ErrStorage", nth, failed.Kind, failed.Name, name, err)
			}
			if err := b.log.Flush(b.log.EndOffset() + 1); !errors.Is(err, ErrStorage) {
				t.Errorf("sync %d failed; flush of %s = %v, want ErrStorage", nth, name, err)
			}
			if err := b.log.Close(); !errors.Is(err, ErrStorage) {
				t.Errorf("sync %d failed; close of %s = %v, want ErrStorage", nth, name, err)
			}
		}
	} else if err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	return hit
}

// TestAllWaitersOfAFailedRoundAreRefused: nobody who waited for it is answered.
func TestAllWaitersOfAFailedRoundAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var offline atomic.Pointer[error]
		fail := false
		g := newGate(t, func(o *Options) {
			o.Offline = &offline
			s := o.FS.(*syncFS)
			s.FS = faultfs.Wrap(s.FS, func(op faultfs.Op) faultfs.Fault {
				if fail && op.Kind == faultfs.Sync && strings.HasSuffix(op.Name, ".log") {
					return faultfs.Fault{Err: syscall.EIO}
				}
				return faultfs.Fault{}
			})
			o.OnFailure = func(error) {}
		})
		fail = true
		var refused atomic.Int32
		var wg sync.WaitGroup
		wait := func(info AppendInfo) {
			wg.Go(func() {
				if err := g.log.AwaitSync(info.Owed); errors.Is(err, ErrStorage) {
					refused.Add(1)
				}
			})
		}
		wait(g.later(g.records(1, record.NewBuildOptions())))
		<-g.entered
		for range 9 {
			wait(g.later(g.records(1, record.NewBuildOptions())))
		}
		g.leave <- struct{}{}
		wg.Wait()
		if refused.Load() != 10 {
			t.Errorf("%d of 10 waiters were refused", refused.Load())
		}
		if got := g.log.CommittableOffset(); got != 0 {
			t.Errorf("committable to %d, want 0", got)
		}
	})
}

// TestAReplacedSegmentIsInTheListUntilAnotherIs: a roll by time of an empty
// segment makes it anew, and readers that meet it meanwhile must not look for
// one that is gone.
func TestAReplacedSegmentIsInTheListUntilAnotherIs(t *testing.T) {
	var b *bench
	watch := false
	b = newBench(t, func(o *Options) {
		o.FS = faultfs.Wrap(o.FS, func(op faultfs.Op) faultfs.Fault {
			if watch && op.Kind.Changes() {
				segs := b.log.Segments()
				release, ok := segs[len(segs)-1].Acquire()
				if !ok {
					t.Errorf("at %s %s the log ends in a segment that is gone", op.Kind, op.Name)
				} else {
					release()
				}
			}
			return faultfs.Fault{}
		})
	})
	b.append(3)
	if err := b.log.Roll(); err != nil {
		t.Fatal(err)
	}
	watch = true
	if err := b.log.Roll(); err != nil {
		t.Fatal(err)
	}
	watch = false
	if files := b.files(); strings.Count(files, "00003.log") != 1 {
		t.Errorf("files: %s", files)
	}
	b.append(2)
	if got := b.stored(3).LastOffset(); got != 4 {
		t.Errorf("last offset %d, want 4", got)
	}
	b.killed()
	if got := b.log.EndOffset(); got != 5 {
		t.Errorf("end offset %d after a kill, want 5", got)
	}
}

// TestASecondDeleteRecordsDoesNotOvertakeTheCheckpointOfTheFirst: the log start
// is where it was asked for, but not durable yet.
func TestASecondDeleteRecordsDoesNotOvertakeTheCheckpointOfTheFirst(t *testing.T) {
	var b *bench
	persisted := 0
	b = newBench(t, func(o *Options) {
		o.PersistLogStart = func(kafka.Offset) error {
			if persisted++; persisted == 1 {
				if _, err := b.log.DeleteRecordsTo(4); err != nil {
					t.Error(err)
				}
				if persisted != 2 {
					t.Error("the second one was answered although nothing was durable")
				}
			}
			return nil
		}
	})
	b.append(5)
	if _, err := b.log.DeleteRecordsTo(4); err != nil {
		t.Fatal(err)
	}
	if _, err := b.log.DeleteRecordsTo(2); err != nil {
		t.Fatal(err)
	}
	if persisted != 2 {
		t.Errorf("the checkpoint was written %d times, want twice: what is durable is not written again", persisted)
	}
}

// TestDeletedRecordsGoAtOnce: as Apache Kafka does, which does not wait for retention.
func TestRecordsDeletedAfterATruncationAreDeletedDurably(t *testing.T) {
	var kept []kafka.Offset
	b := newBench(t, func(o *Options) {
		o.PersistLogStart = func(start kafka.Offset) error { kept = append(kept, start); return nil }
	})
	b.append(10)
	for _, step := range []func() error{
		func() error { _, err := b.log.DeleteRecordsTo(8); return err },
		func() error { return b.log.TruncateFullyAndStartAt(4) },
		func() error { b.append(3); _, err := b.log.DeleteRecordsTo(6); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if want := []kafka.Offset{8, 6}; !slices.Equal(kept, want) {
		t.Errorf("log start offsets made durable: %v, want %v", kept, want)
	}
}

func TestDeletedRecordsGoAtOnce(t *testing.T) {
	b := newBench(t, nil)
	for range 3 {
		b.append(5)
		if err := b.log.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.log.DeleteRecordsTo(11); err != nil {
		t.Fatal(err)
	}
	if files := b.files(); strings.Count(files, ".log.deleted") != 2 || !strings.Contains(files, "00010.log") {
		t.Errorf("files: %s", files)
	}
}

// TestARollBesideDeletedRecordsIsDurable: a log start raised above the new
// segment's base does not make its name durable.
func TestARollBesideDeletedRecordsIsDurable(t *testing.T) {
	var background []func()
	b := newBench(t, func(o *Options) {
		o.Background = func(f func()) { background = append(background, f) }
	})
	b.append(5)
	if err := b.log.Roll(); err != nil {
		t.Fatal(err)
	}
	b.append(2)
	if _, err := b.log.DeleteRecordsTo(7); err != nil {
		t.Fatal(err)
	}
	for _, f := range background {
		f()
	}
	b.append(1)
	if err := b.log.Flush(8); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.disk.SyncDir("/"), b.disk.SyncDir("/d")); err != nil {
		t.Fatal(err)
	}
	b.opts.RecoveryPoint, b.opts.LogStartOffset = b.log.RecoveryPoint(), b.log.StartOffset()
	b.disk = b.disk.Crash(memfs.DropAll())
	b.disk.SetNow(b.clock)
	b.opts.FS, b.opts.Background = b.disk, nil
	b.open(false)
	if got := b.log.EndOffset(); got != 8 {
		t.Errorf("end offset %d after a power cut, want 8", got)
	}
}

// TestACrashAtAnyOperationKeepsWhatWasAnswered stops the disk after each of its
// operations in turn, while a log that syncs each append rolls and deletes, and
// keeps what was synced and any part of the rest.
func TestACrashAtAnyOperationKeepsWhatWasAnswered(t *testing.T) {
	for stop := 1; ; stop++ {
		ops, made, answered := 0, false, kafka.Offset(0)
		var start, point kafka.Offset // of the checkpoints
		var behind []func()
		b := newBench(t, func(o *Options) {
			disk := o.FS
			if err := errors.Join(disk.SyncDir("/"), disk.SyncDir("/d")); err != nil {
				t.Fatal(err)
			}
			o.FS = faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
				if !made || !op.Kind.Changes() {
					return faultfs.Fault{}
				}
				if ops++; ops > stop {
					return faultfs.Fault{Err: syscall.EIO}
				}
				return faultfs.Fault{}
			})
			o.Config.FlushMessages, o.Config.SegmentBytes, o.Config.SegmentIndexBytes, o.Config.IndexInterval = 1, 700, 4096, 200
			o.Flusher = new(flusher.Flusher)
			o.PersistLogStart = func(to kafka.Offset) error { start = to; return nil }
			o.Background = func(f func()) { behind = append(behind, f) } // what follows a roll is late
		})
		made = true
		var err error
		for i := 0; i < 14 && err == nil; i++ {
			var info AppendInfo
			if info, err = b.log.AppendAsLeader(b.records(1+i%3, record.NewBuildOptions()), 0, AppendOptions{}); err == nil {
				answered = info.LastOffset + 1
				b.log.MaybeIncrementHighWatermark(answered)
				point = b.log.RecoveryPoint()
			}
			if i == 7 {
				for _, f := range behind {
					f()
				}
			}
			if i == 9 && err == nil {
				_, err = b.log.DeleteRecordsTo(7)
			}
		}
		for seed := range uint64(4) {
			choice := memfs.Random(0.5, seed)
			if seed == 0 {
				choice = memfs.DropAll()
			}
			after := *b
			after.disk = b.disk.Crash(choice)
			after.disk.SetNow(b.clock)
			after.opts.FS, after.opts.Flusher = after.disk, nil
			after.opts.LogStartOffset, after.opts.RecoveryPoint = start, point
			after.open(false)
			if got := after.log.EndOffset(); got < answered {
				t.Fatalf("stopped after operation %d, seed %d: end offset %d, answered were those below %d", stop, seed, got, answered)
			}
			for at := after.log.StartOffset(); at < answered; at = after.stored(at).NextOffset() {
				if err := after.stored(at).Check(); err != nil {
					t.Fatal(err)
				}
			}
			if err := after.log.Abandon(); err != nil {
				t.Fatal(err)
			}
		}
		if err == nil {
			if stop < 100 {
				t.Errorf("the workload has %d operations, want 100 at least", stop)
			}
			return
		}
	}
}
