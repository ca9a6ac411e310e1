package replica

import (
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// The real disk: a memory disk allocates pages of its own.
func diskNode(t testing.TB) (*node, *Partition) {
	n := newNode(t, vfs.OS(), filepath.Join(t.TempDir(), "data"))
	return n, n.topic("orders")
}

func TestHotPathsAllocateNothing(t *testing.T) {
	n, p := diskNode(t)
	b := batch(t, 10, 100)
	var w Watch
	waiter := NewWaiter()
	var aborted [8]commitlog.AbortedTxn
	var hint commitlog.Hint
	next := kafka.Offset(0)
	name, id := []byte("orders"), topicID("orders")
	paths := []struct {
		name string
		run  func()
	}{
		{"lookup by name", func() {
			if n.m.TopicBytes(name).Partition(0) != p {
				t.Fatal("not found")
			}
		}},
		{"lookup by id", func() {
			if n.m.GetByID(id, 0) != p {
				t.Fatal("not found")
			}
		}},
		{"append, read at the tail, watch and wake", func() {
			record.Batch(b).SetBaseOffset(0)
			info, err := p.Append(b, AppendOptions{Acks: -1})
			if err != nil {
				t.Fatal(err)
			}
			if info.Wake {
				p.Wake()
			}
			waiter.Disarm()
			p.Unwatch(&w)
			o := readOptions(next, commitlog.HighWatermark)
			o.Aborted, o.AbortedBuf, o.Hint = true, aborted[:0], hint
			read, err := p.Read(o)
			if err != nil {
				t.Fatal(err)
			}
			if read.Region.Release != nil {
				read.Region.Release()
			}
			next, hint = info.LastOffset+1, read.Next
			waiter.Arm(1)
			p.Watch(&w, waiter, WatchOptions{Bound: commitlog.HighWatermark, Offset: next, Mark: read.Mark})
			for waiter.Next() != nil {
			}
		}},
	}
	for _, path := range paths {
		if allocs := testing.AllocsPerRun(200, path.run); allocs != 0 {
			t.Errorf("%s allocates %v times, want 0", path.name, allocs)
		}
	}
	p.Unwatch(&w)
}

func BenchmarkAppend(b *testing.B) {
	_, p := diskNode(b)
	data := batch(b, 16, 1000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		record.Batch(data).SetBaseOffset(0)
		if _, err := p.Append(data, AppendOptions{Acks: 1}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWakeOneOf100(b *testing.B) {
	_, p := diskNode(b)
	produce(b, p, 1)
	watches := make([]Watch, 100)
	for i := range watches {
		poll(b, p, &watches[i], NewWaiter(), 1<<40)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Wake()
	}
}
