package replica

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func TestAppendCommitsAtOnceOnASingleReplica(t *testing.T) {
	_, p := newTopicNode(t)
	for _, acks := range []int16{0, 1, -1} {
		before := p.Log().EndOffset()
		info, err := p.Append(batch(t, 3, 10), AppendOptions{Acks: acks})
		must(t, err)
		if info.FirstOffset != before || info.LastOffset != before+2 || !info.Committed || info.Wake {
			t.Errorf("acks %d: %+v", acks, info)
		}
		if hw := p.Log().HighWatermark(); hw != before+3 {
			t.Errorf("acks %d: high watermark %d, want %d", acks, hw, before+3)
		}
	}
	if got := fetch(t, p, readOptions(0, commitlog.HighWatermark)); got.Region.Length == 0 || got.HighWatermark != 9 {
		t.Errorf("Read = %+v", got)
	}
}

func TestEpochChecks(t *testing.T) {
	n, p := newTopicNode(t)
	must(t, n.apply(leaderRecord("orders", 1))) // epoch 1
	tests := []struct {
		name    string
		current kafka.LeaderEpoch
		want    error
	}{
		{"none given", kafka.NoLeaderEpoch, nil},
		{"the current one", 1, nil},
		{"an older one", 0, ErrFencedEpoch},
		{"a newer one", 2, ErrUnknownEpoch},
	}
	for _, tt := range tests {
		o := readOptions(0, commitlog.HighWatermark)
		o.CurrentEpoch = tt.current
		_, readErr := p.Read(o)
		_, leadErr := p.Lead(tt.current)
		if !errors.Is(readErr, tt.want) || !errors.Is(leadErr, tt.want) || !errors.Is(p.CheckEpoch(tt.current), tt.want) {
			t.Errorf("%s: Read = %v, Lead = %v, want %v", tt.name, readErr, leadErr, tt.want)
		}
	}
}

func TestLeadershipComesAndGoes(t *testing.T) {
	n, p := newTopicNode(t)
	produce(t, p, 2)
	must(t, n.apply(leaderRecord("orders", kafka.NoBroker))) // epoch 1, nobody
	if _, err := p.Append(batch(t, 1, 10), AppendOptions{}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Append without a leader = %v, want ErrNotLeader", err)
	}
	if _, err := p.Read(readOptions(0, commitlog.HighWatermark)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Read without a leader = %v, want ErrNotLeader", err)
	}
	if p.Leading() || p.Err() != nil {
		t.Errorf("Leading = %v, Err = %v", p.Leading(), p.Err())
	}
	must(t, n.apply(leaderRecord("orders", 1))) // epoch 2, back
	produce(t, p, 1)
	epoch, start, _ := p.Log().EarliestEpoch()
	latest, _ := p.Log().LatestEpoch()
	if epoch != 0 || start != 0 || latest != 2 || p.LeaderEpoch() != 2 || p.Role().EpochStart != 2 {
		t.Errorf("epochs: earliest %d at %d, latest %d, role %+v", epoch, start, latest, p.Role())
	}
	if e, end := p.Log().EndOffsetForEpoch(0); e != 0 || end != 2 {
		t.Errorf("EndOffsetForEpoch(0) = %d, %d, want 0, 2", e, end)
	}
}

// A leader's epoch is in its file before the first record of it is answered
// (faults O12).
func TestEpochIsDurableBeforeItsFirstRecord(t *testing.T) {
	disk := memfs.New()
	n := newNode(t, disk)
	p := n.topic("orders")
	must(t, n.apply(leaderRecord("orders", 1)))
	produce(t, p, 1)
	after := disk.Crash(memfs.DropAll())
	if got, err := vfs.ReadFile(after, "/data/orders-0/leader-epoch-checkpoint"); string(got) != "0\n1\n1 0\n" {
		t.Errorf("leader-epoch-checkpoint after a crash = %q, %v", got, err)
	}
}

func TestDivergingEpoch(t *testing.T) {
	n, p := newTopicNode(t)
	produce(t, p, 3) // epoch 0: [0, 3)
	must(t, n.apply(leaderRecord("orders", 1)), n.apply(leaderRecord("orders", 1)))
	produce(t, p, 3) // epoch 2: [3, 6)
	tests := []struct {
		name      string
		last      kafka.LeaderEpoch
		offset    kafka.Offset
		diverging bool
		epoch     kafka.LeaderEpoch
		end       kafka.Offset
		outside   bool
	}{
		{"the log of the leader", 2, 6, false, 0, 0, false},
		{"an older part of it", 0, 3, false, 0, 0, false},
		{"records of an epoch that were cut here", 0, 5, true, 0, 3, false},
		{"an epoch that the leader never had", 1, 4, true, 0, 3, false},
		{"an epoch from the future", 7, 4, false, 0, 0, true},
	}
	for _, tt := range tests {
		o := readOptions(tt.offset, commitlog.HighWatermark)
		o.LastFetchedEpoch = tt.last
		info, err := p.Read(o)
		if info.Region.Release != nil {
			info.Region.Release()
		}
		if tt.outside != errors.Is(err, commitlog.ErrOffsetOutOfRange) || !tt.outside && err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if info.Diverging != tt.diverging || tt.diverging && (info.DivergingEpoch != tt.epoch || info.DivergingEnd != tt.end || info.HighWatermark != 6) {
			t.Errorf("%s: %+v", tt.name, info)
		}
	}
}

func TestMinInsyncReplicas(t *testing.T) {
	n := newNode(t, memfs.New())
	p := n.topic("alone", setting("alone", "min.insync.replicas", "2"))
	if info := produce(t, p, 1); !info.Committed {
		t.Error("min.insync.replicas above the number of replicas blocks acks=all")
	}

	two := partitionRecord("pair", 0)
	two.Replicas, two.ISR = []kafka.BrokerID{1, 2}, []kafka.BrokerID{1}
	must(t, n.apply(setting("pair", "min.insync.replicas", "2"), smallIndexes("pair"), topicRecord("pair"), two))
	p = n.get("pair")
	if _, err := p.Append(batch(t, 1, 10), AppendOptions{Acks: -1}); !errors.Is(err, ErrNotEnoughReplicas) {
		t.Errorf("acks=all with one of two in sync = %v, want ErrNotEnoughReplicas", err)
	}
	info, err := p.Append(batch(t, 1, 10), AppendOptions{Acks: 1})
	must(t, err)
	if info.Committed || p.Log().HighWatermark() != 0 {
		t.Errorf("acks=1 below min.insync.replicas was committed: %+v", info)
	}
	must(t, n.apply(setting("pair", "min.insync.replicas", "1")))
	if info := produce(t, p, 1); !info.Committed || p.Log().HighWatermark() != 2 {
		t.Errorf("after the setting changed: %+v, high watermark %d", info, p.Log().HighWatermark())
	}
}

func TestDeleteRecords(t *testing.T) {
	_, p := newTopicNode(t)
	produce(t, p, 5)
	if got, err := p.DeleteRecords(2); got != 2 || err != nil {
		t.Errorf("DeleteRecords(2) = %d, %v", got, err)
	}
	if got, err := p.DeleteRecords(-1); got != 5 || err != nil {
		t.Errorf("DeleteRecords(-1) = %d, %v", got, err)
	}
	if _, err := p.DeleteRecords(6); !errors.Is(err, commitlog.ErrOffsetOutOfRange) {
		t.Errorf("DeleteRecords(6) = %v, want ErrOffsetOutOfRange", err)
	}
}

func TestOfflineDirectory(t *testing.T) {
	disk := memfs.New()
	broken := false
	var mu sync.Mutex
	n := newNode(t, faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		if broken && op.Kind == faultfs.Write {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	}))
	p, q := n.topic("orders"), n.topic("users")
	produce(t, p, 1)
	waiter := NewWaiter()
	waiter.Arm(1)
	var w Watch
	q.Watch(&w, waiter, WatchOptions{Bound: commitlog.HighWatermark, Mark: fetch(t, q, readOptions(0, commitlog.HighWatermark)).Mark})
	mu.Lock()
	broken = true
	mu.Unlock()
	if _, err := p.Append(batch(t, 1, 10), AppendOptions{}); !errors.Is(err, commitlog.ErrStorage) {
		t.Errorf("Append to a broken disk = %v, want ErrStorage", err)
	}
	<-waiter.C() // the other partition of the directory is woken
	if _, err := q.Append(batch(t, 1, 10), AppendOptions{}); !errors.Is(err, ErrStorage) {
		t.Errorf("Append to another partition = %v, want ErrStorage", err)
	}
	if _, err := q.Read(readOptions(0, commitlog.HighWatermark)); !errors.Is(err, ErrStorage) {
		t.Errorf("Read = %v, want ErrStorage", err)
	}
}

func TestPartitionThatCannotBeOpened(t *testing.T) {
	disk := memfs.New()
	n := newNode(t, disk)
	// Its directory holds the id of another known topic, so it is refused.
	must(t, n.apply(topicRecord("users"), smallIndexes("users"), partitionRecord("users", 0)))
	must(t, n.dirs.Close(1))
	must(t, disk.Rename("/data/users-0", "/data/orders-0"))
	d := metadata.NewDelta(n.image)
	must(t, d.Apply(topicRecord("orders")), d.Apply(partitionRecord("orders", 0)))
	n.image = d.Finish(n.image.End+1, 1, 0)

	again := &node{t: t, disk: disk, image: n.image}
	again.load([]string{"/data"})
	if err := again.m.ApplyImage(again.image); err == nil {
		t.Error("ApplyImage told nothing of the partition")
	}
	p := again.get("orders")
	if p.Log() != nil || !errors.Is(p.Err(), ErrStorage) || p.Leading() {
		t.Errorf("Err = %v, log %v", p.Err(), p.Log())
	}
	if _, err := p.Append(batch(t, 1, 10), AppendOptions{}); !errors.Is(err, ErrStorage) {
		t.Errorf("Append = %v, want ErrStorage", err)
	}
	if _, err := p.Read(readOptions(0, commitlog.HighWatermark)); !errors.Is(err, ErrStorage) {
		t.Errorf("Read = %v, want ErrStorage", err)
	}
	p.Wake()
	p.WakeAll()
	produce(t, again.get("users"), 1) // made anew, and served
	if _, err := disk.Stat("/data/orders-0/partition.metadata"); errors.Is(err, os.ErrNotExist) {
		t.Error("the refused directory was touched")
	}
}

func TestCoordinatorLog(t *testing.T) {
	n, p := newTopicNode(t)
	log, err := p.CoordinatorLog()
	must(t, err)
	moved := 0
	stop := log.Watch(func() { moved++ })
	for want := kafka.Offset(0); want < 3; want++ {
		if got, err := log.Append(batch(t, 1, 10)); got != want || err != nil {
			t.Fatalf("Append = %d, %v, want %d", got, err, want)
		}
	}
	stop()
	if _, err := log.Append(batch(t, 1, 10)); err != nil || moved != 3 {
		t.Errorf("the watch was told %d times, want 3; %v", moved, err)
	}
	one := len(batch(t, 1, 10))
	all, err := log.Read(0, 1<<20, nil)
	if err != nil || len(all) != 4*one {
		t.Errorf("Read = %d bytes, %v, want %d", len(all), err, 4*one)
	}
	buf := make([]byte, 0, 4*one)
	some, err := log.Read(1, 1, buf)
	if err != nil || len(some) != one || cmp.Diff(some, all[one:2*one]) != "" || &some[0] != &buf[:1][0] {
		t.Errorf("Read of one = %d bytes, %v", len(some), err)
	}
	if none, err := log.Read(4, 1<<20, nil); err != nil || len(none) != 0 {
		t.Errorf("Read at the end = %d bytes, %v", len(none), err)
	}
	must(t, n.apply(leaderRecord("orders", 1)))
	if _, err := log.Append(batch(t, 1, 10)); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Append for an earlier leadership = %v, want ErrNotLeader", err)
	}
}

// Appenders of one epoch and a change of leaders: every batch carries the epoch
// in which its offset lies.
func TestAppendsBesideLeaderChanges(t *testing.T) {
	n, p := newTopicNode(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			b := batch(t, 1, 10)
			for {
				select {
				case <-stop:
					return
				default:
				}
				record.Batch(b).SetBaseOffset(0)
				info, err := p.Append(b, AppendOptions{Acks: 1})
				if err != nil {
					t.Error(err)
					return
				}
				if epoch, ok := p.Log().EpochForOffset(info.LastOffset); !ok || epoch != info.LeaderEpoch {
					t.Errorf("offset %d was written in epoch %d, the epochs say %d", info.LastOffset, info.LeaderEpoch, epoch)
					return
				}
			}
		})
	}
	for range 30 {
		must(t, n.apply(leaderRecord("orders", 1)))
	}
	close(stop)
	wg.Wait()
}
