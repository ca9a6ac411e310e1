package replica

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// gated is a node on a disk whose syncs of `.log` files wait for the test.
type gated struct {
	*node
	closed         atomic.Bool
	fail           atomic.Bool
	syncs          atomic.Int32
	entered, leave chan struct{}
}

// newGated makes a topic that syncs each append, with one durable record in it.
func newGated(t *testing.T, settings ...string) (*gated, *Partition) {
	g := &gated{entered: make(chan struct{}), leave: make(chan struct{})}
	g.node = newNode(t, faultfs.Wrap(memfs.New(), func(op faultfs.Op) faultfs.Fault {
		if op.Kind != faultfs.Sync || !strings.HasSuffix(op.Name, ".log") {
			return faultfs.Fault{}
		}
		g.syncs.Add(1)
		if g.closed.Load() {
			g.entered <- struct{}{}
			<-g.leave
		}
		if g.fail.Load() {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	}))
	p := g.topic("orders", setting("orders", "flush.messages", "1"))
	info, err := p.Append(batch(t, 1, 10), AppendOptions{Acks: 1})
	must(t, err, p.AwaitSync(info.Owed))
	synctest.Wait()
	g.syncs.Store(0)
	g.closed.Store(true)
	return g, p
}

func (g *gated) append(p *Partition, acks int16) AppendInfo {
	g.t.Helper()
	info, err := p.Append(batch(g.t, 1, 10), AppendOptions{Acks: acks})
	must(g.t, err)
	return info
}

func (g *gated) let() {
	g.leave <- struct{}{}
	synctest.Wait()
}

// TestTheHighWatermarkWaitsForTheDisk: a consumer reads nothing that a power
// cut could take back, whatever the producer waits for.
func TestTheHighWatermarkWaitsForTheDisk(t *testing.T) {
	for _, acks := range []int16{0, 1, -1} {
		synctest.Test(t, func(t *testing.T) {
			g, p := newGated(t)
			var w Watch
			waiter := NewWaiter()
			read := fetch(t, p, readOptions(1, commitlog.HighWatermark))
			waiter.Arm(1)
			p.Watch(&w, waiter, WatchOptions{Bound: commitlog.HighWatermark, Offset: 1, Mark: read.Mark})
			defer p.Unwatch(&w)
			committed := 0
			defer p.OnCommit(func() { committed++ })()

			info := g.append(p, acks)
			<-g.entered
			if info.Committed || info.Owed.IsZero() || p.Log().HighWatermark() != 1 {
				t.Errorf("acks=%d: committed %v at high watermark %d while the record is on no disk", acks, info.Committed, p.Log().HighWatermark())
			}
			p.Wake()
			if n := fetch(t, p, readOptions(1, commitlog.HighWatermark)).Region.Length; n != 0 {
				t.Errorf("acks=%d: %d bytes can be read that are on no disk", acks, n)
			}
			if n := fetch(t, p, readOptions(1, commitlog.LogEnd)).Region.Length; n == 0 {
				t.Errorf("acks=%d: a follower cannot read the record", acks)
			}
			select {
			case <-waiter.C():
				t.Errorf("acks=%d: the fetch was woken", acks)
			default:
			}
			g.let()
			if p.Log().HighWatermark() != 2 || committed == 0 {
				t.Errorf("acks=%d: high watermark %d, told %d times; want 2", acks, p.Log().HighWatermark(), committed)
			}
			<-waiter.C() // without a producer that wakes it
			g.closed.Store(false)
		})
	}
}

// TestACoordinatorsAppendsShareSyncs: a shard goes on while the disk is at
// work, and all that it wrote meanwhile is one sync.
func TestACoordinatorsAppendsShareSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := newGated(t)
		log, err := p.CoordinatorLog()
		must(t, err)
		for range 50 {
			if _, err := log.Append(batch(t, 1, 10)); err != nil {
				t.Fatal(err)
			}
		}
		<-g.entered
		if p.Log().HighWatermark() != 1 {
			t.Errorf("high watermark %d, want 1", p.Log().HighWatermark())
		}
		g.let()
		if p.Log().HighWatermark() < 51 {
			<-g.entered
			g.let()
		}
		if hw, syncs := p.Log().HighWatermark(), g.syncs.Load(); hw != 51 || syncs > 2 {
			t.Errorf("high watermark %d after %d syncs, want 51 after 2 at most", hw, syncs)
		}
		g.closed.Store(false)
	})
}

// TestACoordinatorsAnswersAreBoundedByFlushMessages: with flush.messages=N a
// power cut takes fewer than N answered records, group commits too.
func TestACoordinatorsAnswersAreBoundedByFlushMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := newGated(t)
		must(t, g.apply(setting("orders", "flush.messages", "3")))
		log, err := p.CoordinatorLog()
		must(t, err)
		told := 0
		defer log.Watch(func() { told++ })()
		write := func() {
			t.Helper()
			_, err := log.Append(batch(t, 1, 10))
			must(t, err)
		}
		write()
		write()
		synctest.Wait()
		if hw := log.HighWatermark(); hw != 3 || g.syncs.Load() != 0 {
			t.Errorf("high watermark %d after %d syncs, want 3 after none: two records may be lost", hw, g.syncs.Load())
		}
		write()
		<-g.entered
		if hw := log.HighWatermark(); hw != 3 {
			t.Errorf("high watermark %d while three records are on no disk, want 3", hw)
		}
		before := told
		g.closed.Store(false)
		g.let()
		if hw := log.HighWatermark(); hw != 4 || told == before {
			t.Errorf("high watermark %d after the sync, told %d times more; want 4, told", hw, told-before)
		}
	})
}

// TestAFailedSyncRefusesAllWhoWait: and tells the coordinator, which hears of
// the high watermark alone.
func TestAFailedSyncRefusesAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := newGated(t)
		told := 0
		defer p.OnCommit(func() { told++ })()
		g.fail.Store(true)
		infos := []AppendInfo{g.append(p, 1)}
		<-g.entered
		for range 4 {
			infos = append(infos, g.append(p, -1))
		}
		g.closed.Store(false)
		g.let()
		for i, info := range infos {
			if err := p.AwaitSync(info.Owed); !errors.Is(err, commitlog.ErrStorage) {
				t.Errorf("append %d: %v, want ErrStorage", i, err)
			}
		}
		if p.Log().HighWatermark() != 1 || told == 0 || p.Err() == nil {
			t.Errorf("high watermark %d, told %d times, partition %v", p.Log().HighWatermark(), told, p.Err())
		}
		if n := g.syncs.Load(); n != 1 {
			t.Errorf("%d syncs, want the one that failed", n)
		}
	})
}

// TestWhatARecoveryFoundIsSyncedBeforeItIsServed: the records of a killed
// broker are in the page cache, and perhaps nowhere else.
func TestWhatARecoveryFoundIsSyncedBeforeItIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memfs.New()
		n := newNode(t, disk)
		p := n.topic("orders")
		produce(t, p, 5) // the topic does not sync them
		after := &node{t: t, disk: disk.Crash(memfs.KeepAll()), image: n.image}
		var synced atomic.Bool
		after.disk = faultfs.Wrap(after.disk, func(op faultfs.Op) faultfs.Fault {
			if op.Kind == faultfs.Sync && strings.HasSuffix(op.Name, "orders-0/00000000000000000000.log") {
				synced.Store(true)
				// The sync may begin before anybody can find the partition.
				if p := after.m.Get(kafka.TopicPartition{Topic: "orders"}); p != nil && p.Log().HighWatermark() != 0 {
					t.Errorf("high watermark %d before the sync, want 0", p.Log().HighWatermark())
				}
			}
			return faultfs.Fault{}
		})
		d := metadata.NewDelta(after.image)
		must(t, d.Apply(setting("orders", "flush.messages", "1")))
		after.image = d.Finish(after.image.End+1, 1, 0)
		after.load([]string{"/data"})
		must(t, after.m.ApplyImage(after.image))
		synctest.Wait()
		if hw := after.get("orders").Log().HighWatermark(); hw != 5 || !synced.Load() {
			t.Errorf("high watermark %d, synced %v; want 5", hw, synced.Load())
		}
	})
}

// A roll flushes within the append when too many flushes run, and the append
// holds the partition's role; meanwhile somebody wants to change that.
func TestNewsOfTheDiskWithinAnAppendDoNotWaitForAChangeOfTheRole(t *testing.T) {
	p := newNode(t, memfs.New()).topic("orders")
	p.roleMu.RLock() // an append
	deleted := make(chan struct{})
	go func() {
		p.markDeleted()
		close(deleted)
	}()
	for p.roleMu.TryRLock() { // until the deletion waits for the append
		p.roleMu.RUnlock()
		runtime.Gosched()
	}
	p.synced() // within the append
	if !p.missed.Load() {
		t.Error("the news is forgotten")
	}
	p.roleMu.RUnlock()
	<-deleted
	if p.missed.Load() {
		t.Error("what came meanwhile was not made up for")
	}
}
