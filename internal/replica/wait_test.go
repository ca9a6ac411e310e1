package replica

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func woken(w *Waiter) bool {
	select {
	case <-w.C():
		return true
	default:
		return false
	}
}

// long polls p from its end for need bytes.
func poll(t testing.TB, p *Partition, w *Watch, waiter *Waiter, need int64) {
	t.Helper()
	info := fetch(t, p, readOptions(p.Log().EndOffset(), commitlog.HighWatermark))
	waiter.Arm(need)
	p.Watch(w, waiter, WatchOptions{Bound: commitlog.HighWatermark, Offset: info.HighWatermark, Mark: info.Mark})
}

func TestWakeWhenEnoughBytesCame(t *testing.T) {
	_, p := newTopicNode(t)
	size := int64(len(batch(t, 1, 10)))
	var w Watch
	waiter := NewWaiter()
	poll(t, p, &w, waiter, 2*size)
	if info := produce(t, p, 1); !info.Wake {
		t.Error("Append does not tell that somebody waits")
	}
	if woken(waiter) {
		t.Error("woken by Append itself, before the answer is written")
	}
	p.Wake()
	p.Wake()
	if woken(waiter) {
		t.Error("woken by half of the bytes, counted twice")
	}
	produce(t, p, 1)
	p.Wake()
	if !woken(waiter) {
		t.Error("not woken by all of the bytes")
	}
	waiter.Disarm()
	p.Unwatch(&w)
	p.Unwatch(&w)
	if info := produce(t, p, 1); info.Wake {
		t.Error("Append tells of a watch that is gone")
	}
}

func TestWhatCameBetweenReadAndWatchIsNotMissed(t *testing.T) {
	_, p := newTopicNode(t)
	info := fetch(t, p, readOptions(0, commitlog.HighWatermark))
	produce(t, p, 1)
	p.Wake()
	waiter := NewWaiter()
	waiter.Arm(1)
	var w Watch
	p.Watch(&w, waiter, WatchOptions{Bound: commitlog.HighWatermark, Offset: 0, Mark: info.Mark})
	if !woken(waiter) {
		t.Error("not woken by an append before Watch")
	}
	p.Unwatch(&w)
}

// A fetch that found something, but less than its min.bytes, is not woken again
// by what it found.
func TestWhatWasReadIsNoNews(t *testing.T) {
	_, p := newTopicNode(t)
	produce(t, p, 1)
	for _, bound := range []commitlog.Bound{commitlog.HighWatermark, commitlog.LastStable, commitlog.LogEnd} {
		info := fetch(t, p, readOptions(0, bound))
		waiter := NewWaiter()
		waiter.Arm(1)
		var w Watch
		p.Watch(&w, waiter, WatchOptions{Bound: bound, Offset: 0, Mark: info.Mark})
		p.Wake()
		if woken(waiter) {
			t.Errorf("bound %d: woken without an append", bound)
		}
		p.Unwatch(&w)
	}
}

func TestMaxBytesOfAPartitionIsAllItCanGive(t *testing.T) {
	_, p := newTopicNode(t)
	waiter := NewWaiter()
	waiter.Arm(100)
	var w Watch
	p.Watch(&w, waiter, WatchOptions{Bound: commitlog.HighWatermark, MaxBytes: 60, Mark: fetch(t, p, readOptions(0, commitlog.HighWatermark)).Mark})
	for range 3 {
		produce(t, p, 5)
		p.Wake()
	}
	if woken(waiter) {
		t.Error("60 bytes of one partition made 100")
	}
	p.Unwatch(&w)
}

func TestRollCompletesAFetch(t *testing.T) {
	n := newNode(t, memfs.New())
	p := n.topic("orders", setting("orders", "internal.segment.bytes", "200"))
	produce(t, p, 1)
	var w Watch
	waiter := NewWaiter()
	poll(t, p, &w, waiter, 1<<20)
	if info := produce(t, p, 5); !info.Rolled {
		t.Fatalf("the append did not roll: %+v", info)
	}
	p.Wake()
	if !woken(waiter) {
		t.Error("not woken by a roll")
	}
	p.Unwatch(&w)
}

func TestEverybodyIsWokenWhenThePartitionChanges(t *testing.T) {
	tests := []struct {
		name   string
		change metadata.Record
	}{
		{"a new leader epoch", leaderRecord("orders", 1)},
		{"no leader", leaderRecord("orders", kafka.NoBroker)},
		{"deleted", &metadata.RemoveTopicRecord{TopicID: topicID("orders")}},
	}
	for _, tt := range tests {
		n, p := newTopicNode(t)
		var watches [3]Watch
		var waiters [3]*Waiter
		for i := range watches {
			waiters[i] = NewWaiter()
			poll(t, p, &watches[i], waiters[i], 1<<20)
		}
		must(t, n.apply(tt.change))
		for i := range watches {
			if !woken(waiters[i]) {
				t.Errorf("%s: waiter %d was not woken", tt.name, i)
			}
			p.Unwatch(&watches[i])
		}
	}
}

func TestWatchOfADeletedPartitionIsWokenAtOnce(t *testing.T) {
	n, p := newTopicNode(t)
	mark := fetch(t, p, readOptions(0, commitlog.HighWatermark)).Mark
	must(t, n.apply(&metadata.RemoveTopicRecord{TopicID: topicID("orders")}))
	var w Watch
	waiter := NewWaiter()
	waiter.Arm(1 << 20)
	p.Watch(&w, waiter, WatchOptions{Bound: commitlog.HighWatermark, Mark: mark})
	if !woken(waiter) {
		t.Error("not woken")
	}
	p.Unwatch(&w)
}

// A session's watches stay from fetch to fetch and tell where there is news.
func TestNewsOfASession(t *testing.T) {
	n := newNode(t, memfs.New())
	must(t, n.apply(topicRecord("orders"), smallIndexes("orders"),
		partitionRecord("orders", 0), partitionRecord("orders", 1), partitionRecord("orders", 2), partitionRecord("orders", 3)))
	waiter := NewWaiter()
	watches := make([]Watch, 4)
	for i := range watches {
		p := n.m.GetByID(topicID("orders"), int32(i))
		watches[i].Owner = i
		mark := fetch(t, p, readOptions(0, commitlog.HighWatermark)).Mark
		p.Watch(&watches[i], waiter, WatchOptions{Bound: commitlog.HighWatermark, Mark: mark})
	}
	for _, i := range []int32{2, 0, 2} { // nobody waits now
		p := n.m.GetByID(topicID("orders"), i)
		produce(t, p, 1)
		p.Wake()
	}
	got := map[any]bool{}
	for w := waiter.Next(); w != nil; w = waiter.Next() {
		if got[w.Owner] {
			t.Errorf("partition %v told twice", w.Owner)
		}
		got[w.Owner] = true
	}
	if len(got) != 2 || !got[0] || !got[2] {
		t.Errorf("news of %v, want 0 and 2", got)
	}
	if woken(waiter) {
		t.Error("a waiter that was not armed was woken")
	}
	waiter.Arm(1)
	p := n.m.GetByID(topicID("orders"), 3)
	produce(t, p, 1)
	p.Wake()
	if !woken(waiter) {
		t.Error("not woken")
	}
	p.Unwatch(&watches[3])
	if w := waiter.Next(); w != nil {
		t.Errorf("news of a watch that is gone: %v", w.Owner)
	}
}

func TestAcksAllWaitsForTheHighWatermark(t *testing.T) {
	n := newNode(t, memfs.New())
	pair := partitionRecord("pair", 0)
	pair.Replicas, pair.ISR = []kafka.BrokerID{1, 2}, []kafka.BrokerID{1, 2}
	must(t, n.apply(smallIndexes("pair"), topicRecord("pair"), pair))
	p := n.get("pair")
	info, err := p.Append(batch(t, 2, 10), AppendOptions{Acks: -1})
	must(t, err)
	if info.Committed {
		t.Fatal("committed without the other replica")
	}
	waiter := NewWaiter()
	waiter.Arm(0)
	var w Watch
	p.Watch(&w, waiter, WatchOptions{Bound: commitlog.HighWatermark, Offset: info.LastOffset})
	if woken(waiter) {
		t.Error("woken before it is committed")
	}
	shrunk := &metadata.PartitionChangeRecord{
		TopicID: topicID("pair"), Leader: metadata.LeaderUnchanged, LeaderRecoveryState: metadata.RecoveryUnchanged, ISR: []kafka.BrokerID{1},
	}
	must(t, n.apply(shrunk))
	if !woken(waiter) || p.Log().HighWatermark() != 2 {
		t.Errorf("not woken when the other replica left the set; high watermark %d", p.Log().HighWatermark())
	}
	p.Unwatch(&w)
}

// Producers and long polls at random: every record is delivered, and no poll
// sleeps while there is something to read.
func TestNoWakeUpIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, p := newTopicNode(t)
		const total = 400
		var wg sync.WaitGroup
		for c := range 6 {
			wg.Go(func() {
				bound := []commitlog.Bound{commitlog.HighWatermark, commitlog.LastStable, commitlog.LogEnd}[c%3]
				var w Watch
				waiter := NewWaiter()
				next := kafka.Offset(0)
				for next < total {
					info := fetch(t, p, readOptions(next, bound))
					if info.Region.Length > 0 {
						next = p.bound(bound)
						continue
					}
					waiter.Arm(1)
					p.Watch(&w, waiter, WatchOptions{Bound: bound, Offset: next, Mark: info.Mark})
					select {
					case <-waiter.C():
					case <-time.After(time.Hour):
						t.Errorf("consumer %d sleeps at offset %d, the log ends at %d", c, next, p.Log().EndOffset())
						next = total
					}
					waiter.Disarm()
					p.Unwatch(&w)
				}
			})
		}
		for producer := range uint64(4) {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, producer))
				for range total / 4 {
					if random.IntN(3) == 0 {
						time.Sleep(time.Duration(random.IntN(1000)))
					}
					info := produce(t, p, 1)
					if info.Wake {
						p.Wake()
					}
				}
			})
		}
		wg.Wait()
	})
}
