package segment

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// sealedSegments makes n sealed segments of 20 batches each, 100 offsets apart.
func sealedSegments(t *testing.T, n int, o Options) []*Segment {
	t.Helper()
	disk := memfs.New()
	check(t, disk.MkdirAll(dir, 0o755))
	var open atomic.Int64 // files open now
	fsys := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		switch op.Kind {
		case faultfs.Open:
			if _, err := disk.Stat(op.Name); err == nil {
				open.Add(1)
			}
		case faultfs.Create:
			open.Add(1)
		case faultfs.Close:
			open.Add(-1)
		}
		return faultfs.Fault{}
	})
	t.Cleanup(func() {
		if n := open.Load(); n != 0 {
			t.Errorf("%d files are open at the end", n)
		}
	})
	var list []*Segment
	for i := range n {
		create := o
		create.Create = true
		s, err := Open(fsys, dir, kafka.Offset(100*i), create)
		check(t, err)
		for k := range 20 {
			b := newBatch(t, s.base+kafka.Offset(2*k), 300, kafka.Timestamp(i), kafka.Timestamp(k))
			check(t, s.Append(b.last, b.bytes))
		}
		check(t, s.AppendTxn(index.AbortedTxn{FirstOffset: s.base, LastOffset: s.base + 1, LastStable: s.base}))
		check(t, errors.Join(s.Seal(), s.Flush()))
		list = append(list, s)
		if o.Files != nil {
			if limit := int64(4*o.Files.limit + 4); open.Load() > limit {
				t.Errorf("%d files are open after %d segments, want %d at most", open.Load(), i+1, limit)
			}
		}
	}
	return list
}

func TestFilesOfUnusedSegmentsAreClosed(t *testing.T) {
	o := options()
	o.Files = NewFiles(5)
	list := sealedSegments(t, 40, o)
	dec := &record.Decompressor{}
	for range 300 {
		s := list[rand.IntN(len(list))]
		at := s.base + kafka.Offset(rand.IntN(40))
		info, ok, err := s.Read(at, ReadOptions{MaxBytes: 1 << 20, Limit: math.MaxInt64})
		if !ok || err != nil {
			t.Fatalf("Read(%d) = %v, %v", at, ok, err)
		}
		if b := readRegion(t, info.Region); record.Batch(b).LastOffset() < at {
			t.Errorf("Read(%d) starts with a batch that ends at %d", at, record.Batch(b).LastOffset())
		}
		if _, ok, err := s.FindByTimestamp(3, s.base, dec); !ok || err != nil {
			t.Errorf("FindByTimestamp = %v, %v", ok, err)
		}
		if txns, _, err := s.CollectAborted(nil, s.base, s.base+40); len(txns) != 1 || err != nil {
			t.Errorf("CollectAborted = %v, %v", txns, err)
		}
	}
	if n := len(o.Files.open); n > 5 {
		t.Errorf("%d segments are open, want 5 at most", n)
	}
	for _, s := range list {
		check(t, s.Close())
	}
	if n := len(o.Files.open); n != 0 {
		t.Errorf("%d closed segments are still counted", n)
	}
}

func TestARegionOutlivesTheClosingOfItsFile(t *testing.T) {
	o := options()
	o.Files = NewFiles(1)
	list := sealedSegments(t, 3, o)
	info, _, err := list[0].Read(0, ReadOptions{MaxBytes: 1 << 20, Limit: math.MaxInt64})
	check(t, err)
	for range 3 { // twice unused, so that it is closed
		for _, s := range list[1:] {
			_, _, err := s.Locate(s.base)
			check(t, err)
		}
	}
	if list[0].listed.Load() {
		t.Error("the segment was not chosen to be closed")
	}
	if b := readRegion(t, info.Region); int64(len(b)) != list[0].Size() {
		t.Errorf("the region held %d bytes, want %d", len(b), list[0].Size())
	}
	for _, s := range list {
		check(t, s.Close())
	}
}

func TestAClosedFileIsStillFlushed(t *testing.T) {
	o := options()
	o.Files = NewFiles(1)
	disk := memfs.New()
	syncs := map[string]int{}
	fsys := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Sync || op.Kind == faultfs.Flush {
			syncs[op.Name[strings.LastIndexByte(op.Name, '.'):]]++
		}
		return faultfs.Fault{}
	})
	s := create(t, fsys, o)
	fill(t, s, 10)
	check(t, s.AppendTxn(index.AbortedTxn{LastOffset: base}))
	check(t, s.Seal())
	s.cool()
	if _, ok, err := s.Locate(base); !ok || err != nil {
		t.Fatalf("Locate in a segment whose files were closed = %v, %v", ok, err)
	}
	s.cool()
	check(t, s.Flush())
	for _, ext := range []string{LogExt, IndexExt, TimeIndexExt, TxnIndexExt} {
		if syncs[ext] != 1 {
			t.Errorf("%s was synced %d times, want once", ext, syncs[ext])
		}
	}
	check(t, s.Close())
}

func TestSegmentsAreClosedBesideTheirReaders(t *testing.T) {
	o := options()
	o.Files = NewFiles(2)
	list := sealedSegments(t, 8, o)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				s := list[rand.IntN(len(list))]
				at := s.base + kafka.Offset(rand.IntN(40))
				info, ok, err := s.Read(at, ReadOptions{MaxBytes: 500, Limit: math.MaxInt64, MinOneBatch: true})
				if !ok || err != nil {
					t.Errorf("Read(%d) = %v, %v", at, ok, err)
					return
				}
				b := make([]byte, record.HeaderSize)
				if _, err := info.Region.File.ReadAt(b, info.Region.Offset); err != nil {
					t.Error(err)
				}
				info.Region.Release()
			}
		})
	}
	wg.Wait()
	for _, s := range list {
		wg.Go(func() {
			if _, _, err := s.Locate(s.base); err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
		check(t, s.Delete())
	}
	wg.Wait()
}

// A roll seals the active segment while others are read: from the moment it is
// sealed they may have its files closed, and the seal goes on with them.
func TestASealedSegmentMayBeClosedBeforeItsBlocksAreGivenBack(t *testing.T) {
	var others []*Segment
	sealing := false
	fsys := faultfs.Wrap(memfs.New(), func(op faultfs.Op) faultfs.Fault {
		if sealing && op.Kind == faultfs.Truncate && strings.HasSuffix(op.Name, Name(base, LogExt)) {
			for range 2 {
				for _, s := range others {
					s.cool()
					_, _, err := s.Locate(s.base)
					check(t, err)
				}
			}
		}
		return faultfs.Fault{}
	})
	o := options()
	o.Files, o.Preallocate = NewFiles(1), 1<<20
	s := create(t, fsys, o)
	closed(t, s)
	fill(t, s, 4)
	for i := range 3 {
		other, err := Open(fsys, dir, base+kafka.Offset(1000*(i+1)), Options{IndexInterval: 4096, MaxIndexBytes: 1 << 16, Create: true, Files: o.Files})
		check(t, err)
		closed(t, other)
		check(t, other.Seal())
		others = append(others, other)
	}
	sealing = true
	check(t, s.Seal())
}

// TestASegmentIsNotClosedBeforeItIsDurable: a descriptor that is opened after
// the kernel failed to write pages back need not be told of it.
func TestASegmentIsNotClosedBeforeItIsDurable(t *testing.T) {
	disk := memfs.New()
	check(t, disk.MkdirAll(dir, 0o755))
	syncs := map[string]int{}
	closed := map[string]bool{}
	fsys := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		switch op.Kind {
		case faultfs.Close:
			closed[op.Name] = true
		case faultfs.Sync:
			if closed[op.Name] {
				t.Errorf("%s was closed before it was synced", op.Name)
			}
			syncs[op.Name]++
		}
		return faultfs.Fault{}
	})
	o := options()
	o.Files = NewFiles(1)
	var list []*Segment
	for i := range 5 {
		create := o
		create.Create = true
		s, err := Open(fsys, dir, kafka.Offset(100*i), create)
		check(t, err)
		b := newBatch(t, s.base, 300, 1, 1)
		check(t, errors.Join(s.Append(b.last, b.bytes), s.Seal()))
		list = append(list, s)
	}
	for range 3 {
		for _, s := range list {
			_, _, err := s.Locate(s.base)
			check(t, err)
		}
	}
	for _, s := range list {
		check(t, s.Flush())
		if syncs[s.Path()] != 1 {
			t.Errorf("%s was synced %d times, want once", s.Path(), syncs[s.Path()])
		}
	}
	if n := len(o.Files.open); n != 1 {
		t.Errorf("%d segments are open once they are durable, want 1", n)
	}
	for _, s := range list {
		check(t, s.Close())
	}
}

// TestARecoveryOfManySegmentsKeepsFewOpen: what it made is not durable.
func TestARecoveryOfManySegmentsKeepsFewOpen(t *testing.T) {
	o := options()
	o.Files = NewFiles(3)
	list := sealedSegments(t, 20, o)
	for _, s := range list {
		_, err := s.Recover(nil)
		check(t, err)
		if n := len(o.Files.open); n > 4 {
			t.Fatalf("%d segments are open, want 3 or 4", n)
		}
	}
	for _, s := range list {
		check(t, s.Close())
	}
}
