package index

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func writeFile(t testing.TB, fsys vfs.FS, name string, content []byte) {
	t.Helper()
	f, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	check(t, err)
	if len(content) > 0 {
		_, err = f.WriteAt(content, 0)
		check(t, err)
	}
	check(t, f.Close())
}

// fill appends n entries of which entry i is (base+1+i, i).
func fill(t testing.TB, x *OffsetIndex, n int) {
	t.Helper()
	for i := range n {
		check(t, x.Append(x.base+1+kafka.Offset(i), int64(i)))
	}
}

func TestBothWaysToStoreGiveTheSameFile(t *testing.T) {
	content := func(fail faultfs.Kind, err error) []byte {
		disk := memfs.New()
		x := NewOffset(options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
			if op.Kind == fail {
				return faultfs.Fault{Err: err}
			}
			return faultfs.Fault{}
		}), 20000*8))
		fill(t, x, 9000)
		for i := range 9000 {
			if p, err := x.Lookup(101 + kafka.Offset(i)); err != nil || p.Byte != int64(i) {
				t.Fatalf("Lookup(%d) = %+v, %v", 101+i, p, err)
			}
		}
		check(t, x.Flush())
		check(t, x.Close())
		b, err := vfs.ReadFile(disk.Crash(memfs.DropAll()), path)
		if fail != "" && err != nil {
			// The name is not durable without a sync of the directory.
			b, err = vfs.ReadFile(disk, path)
		}
		if err != nil {
			b, err = vfs.ReadFile(disk, path)
		}
		check(t, err)
		return b
	}
	want := content("", nil)
	if got := content(faultfs.Reserve, vfs.ErrUnsupported); string(got) != string(want) {
		t.Error("without reservation of blocks the file differs")
	}
	if got := content(faultfs.Map, syscall.ENOMEM); string(got) != string(want) {
		t.Error("without maps the file differs")
	}
}

func TestAFullDiskIsAnErrorAndNothingIsStored(t *testing.T) {
	disk := memfs.New()
	x := NewOffset(options(disk, 20000*8))
	defer x.Close()
	fill(t, x, 100)
	disk.SetLimit(16 << 12) // 64 KiB: exactly what is reserved
	for i := 100; i < 8192; i++ {
		check(t, x.Append(101+kafka.Offset(i), int64(i)))
	}
	err := x.Append(10000, 1)
	if !vfs.IsFull(err) {
		t.Fatalf("Append on a full disk: %v, want ENOSPC", err)
	}
	if err := x.Prepare(1); !vfs.IsFull(err) {
		t.Errorf("Prepare on a full disk: %v, want ENOSPC", err)
	}
	if n, _ := x.Len(); n != 8192 {
		t.Errorf("Len() = %d after the refused append, want 8192", n)
	}
	disk.SetLimit(1 << 20)
	check(t, x.Append(10000, 1))
	if p, err := x.Lookup(10000); p.Byte != 1 || err != nil {
		t.Errorf("Lookup(10000) = %+v, %v once there is room", p, err)
	}
}

func TestBlocksAreReservedBeforeTheStoreAndInSteps(t *testing.T) {
	var reserved []int64
	disk := faultfs.Wrap(memfs.New(), func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Reserve {
			reserved = append(reserved, op.Offset, op.Length)
		}
		return faultfs.Fault{}
	})
	x := NewTime(options(disk, 10<<20))
	defer x.Close()
	for i := range 11000 { // entry 5461 crosses the end of the first step
		check(t, x.MaybeAppend(kafka.Timestamp(i), 100, false))
	}
	want := []int64{0, 64 << 10, 64 << 10, 64 << 10, 128 << 10, 64 << 10}
	if len(reserved) != len(want) {
		t.Fatalf("reserved %v, want %v", reserved, want)
	}
	for i := range want {
		if reserved[i] != want[i] {
			t.Fatalf("reserved %v, want %v", reserved, want)
		}
	}
}

func TestFlushSyncsOnlyWhatIsDirty(t *testing.T) {
	type flushed struct{ from, n int64 }
	var got []flushed
	disk := faultfs.Wrap(memfs.New(), func(op faultfs.Op) faultfs.Fault {
		switch op.Kind {
		case faultfs.Flush:
			got = append(got, flushed{op.Offset, op.Length})
		case faultfs.Sync:
			got = append(got, flushed{-1, 0})
		}
		return faultfs.Fault{}
	})
	x := NewOffset(options(disk, 10<<20))
	defer x.Close()
	check(t, x.Flush()) // not used yet
	fill(t, x, 2)
	check(t, x.Flush()) // the length is new
	check(t, x.Flush()) // nothing changed
	check(t, x.Append(1000, 1))
	check(t, x.Append(1001, 1))
	check(t, x.Flush())
	check(t, x.TruncateEntries(1))
	check(t, x.Append(1002, 1))
	check(t, x.Flush())
	want := []flushed{{-1, 0}, {16, 16}, {8, 8}}
	if len(got) != len(want) {
		t.Fatalf("synced %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("sync %d is %v, want %v", i, got[i], want[i])
		}
	}
}

func TestFlushedEntriesSurviveAPowerCut(t *testing.T) {
	disk := memfs.New()
	x := NewOffset(options(disk, 10000*8))
	fill(t, x, 600)
	check(t, x.Flush())
	check(t, disk.SyncDir("/"))
	check(t, x.Append(5000, 5000))
	check(t, x.Trim())
	check(t, x.Flush())
	y := NewOffset(options(disk.Crash(memfs.DropAll()), 10000*8))
	defer y.Close()
	if n, err := y.Len(); n != 601 || err != nil {
		t.Fatalf("Len() = %d, %v, want 601", n, err)
	}
	if p, err := y.Last(); p != (Position{5000, 5000}) || err != nil {
		t.Errorf("Last() = %+v, %v", p, err)
	}
	check(t, x.Close())
}

// osOptions are those of an index on the real disk.
func osOptions(t testing.TB, maxBytes int) Options {
	t.Helper()
	return Options{FS: vfs.OS(), Path: filepath.Join(t.TempDir(), "00000000000000000100.index"), Base: 100, MaxBytes: maxBytes}
}

// TestAFileShortenedUnderTheMapIsNoCrash: somebody cuts the file of a running
// broker. A load from the map faults then, and is answered by the file; a store
// faults and is written to the file.
func TestAFileShortenedUnderTheMapIsNoCrash(t *testing.T) {
	o := osOptions(t, 10<<20)
	x := NewOffset(o)
	defer x.Close()
	fill(t, x, 2000)
	check(t, os.Truncate(o.Path, 4096))
	if p, err := x.Lookup(300); err != nil || p.Byte != 199 {
		t.Errorf("Lookup in the part that is left = %+v, %v", p, err)
	}
	if _, err := x.Lookup(2000); err == nil {
		t.Error("Lookup in the part that is gone: no error")
	}
	check(t, x.Append(5000, 77))
	if p, err := x.Last(); err != nil || p != (Position{5000, 77}) {
		t.Errorf("Last() = %+v, %v after an append", p, err)
	}
}

func TestAColdIndexIsReadByOneRead(t *testing.T) {
	var reads int
	disk := memfs.New()
	x := NewOffset(options(disk, 10<<20))
	fill(t, x, 20000)
	check(t, x.Trim())
	check(t, x.Close())
	x = NewOffset(options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Read {
			reads++
		}
		if op.Kind == faultfs.Map {
			t.Error("a sealed index was mapped")
		}
		return faultfs.Fault{}
	}), 10<<20))
	defer x.Close()
	lookup := func(i int) {
		if p, err := x.Lookup(101 + kafka.Offset(i)); err != nil || p.Byte != int64(i) {
			t.Fatalf("Lookup(%d) = %+v, %v", 101+i, p, err)
		}
	}
	lookup(12345) // builds the fence, 160 KB in one read, and reads its page
	if reads != 2 {
		t.Errorf("the first lookup made %d reads, want 2", reads)
	}
	reads = 0
	for range 100 {
		lookup(rand.IntN(20000))
	}
	if reads != 100 {
		t.Errorf("100 lookups made %d reads, want one each", reads)
	}
}

// TestReadersRunBesideTheWriter is for the race detector: lookups during
// appends, truncations, seals, flushes and the close.
func TestReadersRunBesideTheWriter(t *testing.T) {
	for _, disk := range []struct {
		name string
		o    Options
	}{{"real disk", osOptions(t, 4096*8)}, {"memory disk", options(memfs.New(), 4096*8)}} {
		t.Run(disk.name, func(t *testing.T) {
			x := NewOffset(disk.o)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						target := 100 + kafka.Offset(rand.IntN(5000))
						p, err := x.Lookup(target)
						if errors.Is(err, ErrClosed) {
							return
						}
						// Entry i is (101+i, i) whatever happens.
						if err != nil || p.Offset > target || p.Offset > 100 && p.Byte != int64(p.Offset-101) {
							t.Errorf("Lookup(%d) = %+v, %v", target, p, err)
							return
						}
					}
				})
			}
			for round := range 60 {
				n, err := x.Len()
				check(t, err)
				for i := n; i < min(n+700, 4000); i++ {
					check(t, x.Append(101+kafka.Offset(i), int64(i)))
				}
				switch round % 5 {
				case 1:
					check(t, x.TruncateTo(101+kafka.Offset(n/2)))
				case 2:
					check(t, x.Flush())
				case 3:
					check(t, x.Trim())
					check(t, x.Resize())
				}
			}
			check(t, x.Close())
			close(stop)
			wg.Wait()
		})
	}
}

func TestManyGoroutinesOpenAnIndexOnce(t *testing.T) {
	opens := &faultfs.Counter{Match: func(op faultfs.Op) bool { return op.Kind == faultfs.Open }}
	disk := memfs.New()
	writeFile(t, disk, path, binary.BigEndian.AppendUint64(nil, 5<<32|9))
	x := NewOffset(options(faultfs.Wrap(disk, opens.Inject), 800))
	defer x.Close()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if p, err := x.Lookup(105); p != (Position{105, 9}) || err != nil {
				t.Errorf("Lookup(105) = %+v, %v", p, err)
			}
		})
	}
	wg.Wait()
	if n := opens.Seen(); n != 1 {
		t.Errorf("opened %d times", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	x := NewOffset(osOptions(b, 10<<20))
	defer x.Close()
	n := 10 << 20 / 8
	for i := range n {
		check(b, x.Append(101+kafka.Offset(i), int64(i)))
	}
	targets := make([]kafka.Offset, 1<<12)
	for _, where := range []string{"tail", "uniform"} {
		for i := range targets {
			if targets[i] = 101 + kafka.Offset(rand.IntN(n)); where == "tail" {
				targets[i] = 101 + kafka.Offset(n-1-rand.IntN(1000))
			}
		}
		b.Run(where, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				x.Lookup(targets[i&(len(targets)-1)])
				i++
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	x := NewOffset(osOptions(b, 10<<20))
	defer x.Close()
	next := kafka.Offset(101)
	b.ReportAllocs()
	for b.Loop() {
		if err := x.Append(next, 1); err != nil {
			check(b, x.Truncate())
		}
		next++
		if next > 1<<30 {
			next = 101
			check(b, x.Truncate())
		}
	}
}
