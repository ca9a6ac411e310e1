package logdir

import (
	"errors"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// The tests of this file are public bugs of Kafka and its relatives, one each,
// by the name under which the story can be looked up; docs/regressions.md has
// the whole list.

func TestKAFKA10471ADeathInALoadAfterACleanStopIsUnclean(t *testing.T) {
	clean := withTopics(t, "orders")
	counted := &faultfs.Counter{Match: func(faultfs.Op) bool { return true }}
	load(t, options(faultfs.Wrap(clean.Crash(memfs.KeepAll()), counted.Inject), "/data"), nil)
	opened := 0
	for n := 1; n <= counted.Seen(); n++ {
		disk := clean.Crash(memfs.KeepAll())
		var after *memfs.FS
		logOpened := false
		i := 0
		faults := func(op faultfs.Op) faultfs.Fault {
			i++
			if i == n {
				after = disk.Crash(memfs.DropAll())
			} else if i < n && strings.HasPrefix(op.Name, "/data/orders-0/") {
				logOpened = true
			}
			return faultfs.Fault{}
		}
		load(t, options(faultfs.Wrap(disk, faults), "/data"), nil)
		if after == nil {
			break
		}
		m, err := Open(options(after, "/data"))
		if err != nil {
			t.Fatal(err)
		}
		if _, isClean := m.CleanBrokerEpoch(); logOpened && isClean {
			t.Fatalf("operation %d: a log was opened already, and the next start takes the directory for clean", n)
		}
		if logOpened {
			opened++
		}
		m.abandon()
	}
	if opened == 0 {
		t.Error("no power cut came after the first log was opened")
	}
}

func TestKAFKA13773NoCleanMarkerWhenTheDiskFillsDuringTheLoad(t *testing.T) {
	clean := withTopics(t, "orders", "clicks")
	killed := clean.Crash(memfs.KeepAll())
	must(t, killed.Remove(path.Join("/data", checkpoint.CleanShutdownFile)))
	counted := &faultfs.Counter{Match: func(op faultfs.Op) bool { return op.Kind.Changes() }}
	m := load(t, options(faultfs.Wrap(killed.Crash(memfs.KeepAll()), counted.Inject), "/data"), nil)
	m.abandon()
	for n := 1; n <= counted.Seen(); n++ {
		disk := killed.Crash(memfs.KeepAll())
		full := &faultfs.Counter{From: n, Match: counted.Match, Fault: faultfs.Fault{Err: syscall.ENOSPC}}
		m, err := Open(options(faultfs.Wrap(disk, full.Inject), "/data"))
		if err == nil {
			err = m.Load(LoadOptions{Config: testConfig})
			for _, tp := range []kafka.TopicPartition{tpOf("orders", 0), tpOf("clicks", 0)} {
				if log := m.Log(tp); log != nil && log.EndOffset() != 3 {
					t.Errorf("full from operation %d on: %s ends at %d, want 3", n, tp, log.EndOffset())
				}
			}
			loaded := m.loaded.Load() // else nothing was begun that a stop could end
			if stopped := m.Close(6); stopped == nil && err != nil && loaded {
				t.Errorf("full from operation %d on: the load failed with %v and the stop was clean", n, err)
			}
		}
		if exists(disk, path.Join("/data", checkpoint.CleanShutdownFile)) {
			t.Errorf("full from operation %d on: a clean marker was written", n)
		}
		again := load(t, options(disk, "/data"), nil)
		for _, name := range []string{"orders", "clicks"} {
			if log := again.Log(tpOf(name, 0)); log == nil || log.EndOffset() != 3 {
				t.Errorf("full from operation %d on, then room: %s is %v", n, name, again.Failure(tpOf(name, 0)))
			}
		}
		again.abandon()
	}
}

func TestKAFKA15375NoCleanMarkerForADirectoryThatIsStillRecovering(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/one", "/two")
	m := load(t, options(disk, "/one", "/two"), nil)
	appendRecords(t, create(t, m, "orders", 0), 3)
	appendRecords(t, create(t, m, "clicks", 0), 3)
	m.abandon()
	slow := "/one"
	if exists(disk, "/two/orders-0") {
		slow = "/two"
	}
	held, reached := make(chan struct{}), make(chan struct{})
	var once sync.Once
	faults := func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Read && strings.HasPrefix(op.Name, slow+"/orders-0/") && strings.HasSuffix(op.Name, ".log") {
			once.Do(func() { close(reached) })
			<-held
		}
		return faultfs.Fault{}
	}
	again, err := Open(options(faultfs.Wrap(disk, faults), "/one", "/two"))
	if err != nil {
		t.Fatal(err)
	}
	loaded := make(chan error, 1)
	go func() { loaded <- again.Load(LoadOptions{Config: testConfig}) }()
	<-reached
	if exists(disk, path.Join(slow, checkpoint.CleanShutdownFile)) {
		t.Errorf("%s has a clean marker while it recovers", slow)
	}
	close(held)
	must(t, <-loaded)
	must(t, again.Close(7))
	if !exists(disk, path.Join(slow, checkpoint.CleanShutdownFile)) {
		t.Errorf("%s has no clean marker after a clean stop", slow)
	}
}

func TestKAFKA6624AFlushMeetsADeletion(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	for i := range int32(40) {
		log := create(t, m, "orders", i)
		appendRecords(t, log, 2)
		done := make(chan error, 1)
		go func() {
			err := log.Flush(2)
			if errors.Is(err, commitlog.ErrClosed) {
				err = nil
			}
			done <- err
		}()
		must(t, m.Delete(tpOf("orders", i)))
		must(t, <-done)
	}
	if d := m.Describe(); len(d) != 1 || d[0].Err != nil {
		t.Errorf("directories %+v", d)
	}
	appendRecords(t, create(t, m, "clicks", 0), 1)
	must(t, m.Close(8))
}

func TestKAFKA16588AStopWithoutADeleteDelayEnds(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	o := options(disk, "/data")
	o.FileDeleteDelay = 0
	m := load(t, o, nil)
	for _, name := range []string{"orders", "clicks"} {
		log := create(t, m, name, 0)
		appendRecords(t, log, 3)
		must(t, log.Roll())
		_, err := log.DeleteRecordsTo(3)
		must(t, err)
		_, err = log.DeleteOldSegments()
		must(t, err)
	}
	must(t, m.Delete(tpOf("orders", 0)))
	must(t, m.Close(8)) // ends, whether the files went before it or are left to the next start
	again := load(t, options(disk, "/data"), nil)
	must(t, again.Close(9))
	for _, n := range names(t, disk, "/data") {
		if strings.HasSuffix(n, "-delete") {
			t.Errorf("%s is still there", n)
		}
	}
}

func TestBookkeeper4462NothingIsAcknowledgedAfterTheDeletion(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	for i := range int32(30) {
		log := create(t, m, "orders", i)
		deleted := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			for {
				gone := false
				select {
				case <-deleted:
					gone = true
				default:
				}
				err := tryAppend(log, 1)
				if gone && err == nil {
					done <- errors.New("acknowledged after the deletion was")
					return
				}
				if err != nil {
					if errors.Is(err, commitlog.ErrClosed) {
						err = nil
					}
					done <- err
					return
				}
			}
		}()
		must(t, m.Delete(tpOf("orders", i)))
		close(deleted)
		must(t, <-done)
	}
	must(t, m.Close(8))
}

// One log of two finds no room for its snapshot when it is closed: what the other
// did does not make the directory clean.
func TestNoCleanMarkerWhenOneLogCouldNotBeClosed(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	var closing atomic.Bool
	full := func(op faultfs.Op) faultfs.Fault {
		if closing.Load() && op.Kind.Changes() && strings.HasPrefix(op.Name, "/data/orders-0/") {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	}
	m := load(t, options(faultfs.Wrap(disk, full), "/data"), nil)
	for _, name := range []string{"orders", "clicks"} {
		appendRecords(t, create(t, m, name, 0), 3)
	}
	closing.Store(true)
	_ = m.Close(8) // a full disk is no failure of the stop
	if exists(disk, path.Join("/data", checkpoint.CleanShutdownFile)) {
		t.Error("a clean marker was written")
	}
	again := load(t, options(disk, "/data"), nil)
	for _, name := range []string{"orders", "clicks"} {
		if log := again.Log(tpOf(name, 0)); log == nil || log.EndOffset() != 3 {
			t.Errorf("%s: %v", name, again.Failure(tpOf(name, 0)))
		}
	}
}
