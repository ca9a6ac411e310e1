package logdir

import (
	"errors"
	"maps"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// syncing makes a topic one that syncs each append.
func syncing(log *commitlog.Log) *commitlog.Log {
	c := *log.Config()
	c.FlushMessages = 1
	log.SetConfig(c)
	return log
}

func TestRecoveryPointsOfTopicsThatSyncFollowWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memfs.New()
		format(t, disk, "/data")
		o := options(disk, "/data")
		o.Intervals, o.Now = DefaultIntervals(), clock()
		m := load(t, o, nil)
		synced, other := syncing(create(t, m, "synced", 0)), create(t, m, "other", 0)
		appendRecords(t, synced, 4)
		appendRecords(t, other, 4)
		time.Sleep(SyncedInterval + time.Millisecond)
		synctest.Wait()
		if got, want := readFile(t, disk, "/data/"+checkpoint.RecoveryPointFile), "0\n2\nother 0 0\nsynced 0 4\n"; got != want {
			t.Errorf("recovery points %q after %v, want %q", got, SyncedInterval, want)
		}
	})
}

// TestARecoveryPointThatIsOutOfDateIsNotWritten: compaction has the recovery point
// written that it has read; a truncation in between has lowered it.
func TestARecoveryPointThatIsOutOfDateIsNotWritten(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	log := create(t, m, "orders", 0)
	appendRecords(t, log, 4)
	if err := log.Flush(4); err != nil {
		t.Fatal(err)
	}
	before := log.RecoveryPoint()
	if _, err := log.TruncateTo(2); err != nil {
		t.Fatal(err)
	}
	if err := m.persistRecoveryPoint(m.logs[log.Partition()], before); err != nil {
		t.Fatal(err)
	}
	if got, want := readFile(t, disk, "/data/"+checkpoint.RecoveryPointFile), "0\n1\norders 0 2\n"; got != want {
		t.Errorf("recovery points %q, want %q", got, want)
	}
}

func TestDirectoriesOfOneFileSystemShareAFlusher(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/a", "/b")
	m := load(t, options(disk, "/a", "/b"), nil)
	if m.dirs[0].flusher == nil || m.dirs[0].flusher != m.dirs[1].flusher {
		t.Error("two directories of one disk have two flushers")
	}
}

// TestAFailedSyncTakesItsDirectoryOfflineAndNoOther fails each sync in one of
// two directories in turn, while topics are made, written, rolled, deleted from,
// checkpointed and closed. From then on nothing is changed in that directory, and
// the other one serves.
func TestAFailedSyncTakesItsDirectoryOfflineAndNoOther(t *testing.T) {
	// What runs beside the sync that fails is not after it: one processor keeps them apart.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	n := 0
	for failSyncIn(t, n+1) {
		n++
	}
	if n < 25 {
		t.Errorf("the workload syncs %d times in the directory, want 25 at least", n)
	}
}

func failSyncIn(t *testing.T, nth int) bool {
	t.Helper()
	disk := memfs.New()
	format(t, disk, "/a", "/b")
	var armed, hit atomic.Bool
	syncs := 0
	var failed faultfs.Op
	var mu sync.Mutex // guards syncs and failed
	fsys := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !armed.Load() || !op.Kind.Changes() || op.Name != "/a" && !strings.HasPrefix(op.Name, "/a/") {
			return faultfs.Fault{}
		}
		if hit.Load() {
			t.Errorf("sync %d (%s %s) failed, and then: %s %s", nth, failed.Kind, failed.Name, op.Kind, op.Name)
		}
		switch op.Kind {
		case faultfs.Sync, faultfs.SyncDir, faultfs.Flush:
			if syncs++; syncs == nth {
				failed = op
				hit.Store(true)
				return faultfs.Fault{Err: syscall.EIO}
			}
		}
		return faultfs.Fault{}
	})
	var lines logLines
	var told atomic.Int32
	offline := make(chan int, 8)
	o := logTo(options(fsys, "/a", "/b"), &lines)
	o.OnOffline = func(_ Offline, online int) { told.Add(1); offline <- online }
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.abandon()
	if err := m.Load(LoadOptions{Config: testConfig}); err != nil {
		t.Fatal(err)
	}
	for range backgroundJobs {
		m.jobs.slots <- struct{}{} // so that what is done in the background is done at once
	}
	armed.Store(true)
	logs := map[string]*commitlog.Log{}
	make := func(topic string) {
		if log, err := m.Create(NewPartition{Partition: tpOf(topic, 0), TopicID: topicID(topic), Config: testConfig(topic)}); err == nil {
			logs[topic] = syncing(log)
		} else if !hit.Load() {
			t.Fatal(err)
		}
	}
	work := func(log *commitlog.Log) error {
		if log == nil {
			return nil
		}
		for range 3 {
			for range 2 {
				if err := tryAppend(log, 3); err != nil {
					return err
				}
			}
			if err := log.Roll(); err != nil {
				return err
			}
		}
		_, err := log.DeleteRecordsTo(8)
		return err
	}
	for _, topic := range []string{"one", "two", "three", "four"} {
		make(topic)
	}
	var errA error
	for topic, log := range logs {
		err := work(log)
		if strings.HasPrefix(log.Dir(), "/b") && err != nil {
			t.Errorf("sync %d in /a failed, and %s in /b: %v", nth, topic, err)
		} else if err != nil {
			errA = err
		}
	}
	m.checkpointSynced()
	m.retain()
	m.checkpointAll(highWatermarks)
	m.checkpointAll(logStarts)
	m.storeEpochs()
	if hit.Load() {
		if online := <-offline; online != 1 {
			t.Errorf("sync %d: %d directories are said to be online, want 1", nth, online)
		}
		if errA != nil && !errors.Is(errA, commitlog.ErrStorage) && !errors.Is(errA, ErrOffline) {
			t.Errorf("sync %d: %v, want a storage error", nth, errA)
		}
		for topic, log := range logs {
			err := tryAppend(log, 1)
			if strings.HasPrefix(log.Dir(), "/b") != (err == nil) {
				t.Errorf("sync %d in /a failed; append to %s in %s: %v", nth, topic, log.Dir(), err)
			}
		}
		if strings.Count(lines.text(), "event=dir-offline") != 1 || !strings.Contains(lines.text(), "file="+failed.Name) {
			t.Errorf("sync %d: log:\n%s", nth, lines.text())
		}
	}
	err = m.Close(7)
	if hit.Load() && err == nil {
		t.Errorf("sync %d (%s %s) failed and the stop was clean", nth, failed.Kind, failed.Name)
	}
	if _, ok := readMarkerOf(t, disk, "/b"); hit.Load() && !ok {
		t.Errorf("sync %d in /a failed and /b has no clean marker", nth)
	}
	if _, ok := readMarkerOf(t, disk, "/a"); hit.Load() && ok && !strings.Contains(failed.Name, checkpoint.CleanShutdownFile) && failed.Kind != faultfs.SyncDir {
		t.Errorf("sync %d (%s %s) failed and /a has the clean marker", nth, failed.Kind, failed.Name)
	}
	return hit.Load()
}

func readMarkerOf(t *testing.T, disk *memfs.FS, dir string) (int64, bool) {
	t.Helper()
	epoch, clean, err := checkpoint.ReadCleanShutdown(disk, dir)
	if err != nil {
		t.Fatal(err)
	}
	return epoch, clean
}

// TestARecoveryPointCostsOnlyWhatChanged: with a sync before each answer the
// recovery points follow every few seconds, of thousands of logs. Those that stand
// cost nothing, and in the others an index is synced when it has a new entry.
func TestARecoveryPointCostsOnlyWhatChanged(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	syncs := map[string]int{}
	fsys := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		switch op.Kind {
		case faultfs.Sync, faultfs.SyncDir, faultfs.Flush:
			syncs[op.Name]++
		}
		return faultfs.Fault{}
	})
	m := load(t, options(fsys, "/data"), nil)
	var logs []*commitlog.Log
	for i := range int32(20) {
		logs = append(logs, syncing(create(t, m, "orders", i)))
	}
	round := func() map[string]int {
		clear(syncs)
		m.checkpointSynced()
		return maps.Clone(syncs)
	}
	want := func(what string, got, want map[string]int) {
		t.Helper()
		if !maps.Equal(got, want) {
			t.Errorf("%s: syncs %v, want %v", what, got, want)
		}
	}
	checkpointed := map[string]int{"/data": 1, "/data/" + checkpoint.RecoveryPointFile + ".tmp": 1}
	for _, log := range logs {
		appendRecords(t, log, 400) // more than an index interval
		appendRecords(t, log, 1)
	}
	round()
	want("nothing appended", round(), map[string]int{})
	for _, log := range logs {
		appendRecords(t, log, 1)
	}
	want("appended without an index entry", round(), checkpointed)
	want("nothing appended since", round(), map[string]int{})
	appendRecords(t, logs[3], 400)
	appendRecords(t, logs[3], 1)
	got := round()
	for name := range checkpointed {
		delete(got, name)
	}
	dir := "/data/orders-3/00000000000000000000"
	want("an entry in one index", got, map[string]int{dir + ".index": 1}) // no later timestamp
	for _, log := range logs {
		if log.RecoveryPoint() != log.EndOffset() {
			t.Errorf("%s: recovery point %d, want %d", log.Dir(), log.RecoveryPoint(), log.EndOffset())
		}
	}
}
