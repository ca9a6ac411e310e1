package segment

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

func blocks(t *testing.T, name string) int64 {
	t.Helper()
	var st syscall.Stat_t
	check(t, syscall.Stat(name, &st))
	return st.Blocks * 512
}

// TestBlocksAreReservedAheadAndGivenBack is for the real disk.
func TestBlocksAreReservedAheadAndGivenBack(t *testing.T) {
	at := t.TempDir()
	o := options()
	o.Create = true
	s, err := Open(vfs.OS(), at, 0, o)
	check(t, err)
	closed(t, s)
	log := filepath.Join(at, Name(0, LogExt))
	next := kafka.Offset(0)
	fillTo := func(size int64) {
		for s.Size() < size {
			b := newBatch(t, next, 16<<10, 1)
			check(t, s.Append(b.last, b.bytes))
			next++
		}
	}
	fillTo(1 << 19)
	if n := blocks(t, log); n > 1<<20 {
		t.Errorf("%d bytes are allocated after half a MiB of appends", n)
	}
	fillTo(1 << 20)
	if n := blocks(t, log); n < reserveStep {
		t.Errorf("%d bytes are allocated after the first MiB, want a step ahead", n)
	}
	if info, err := vfs.OS().Stat(log); err != nil || info.Size() != s.Size() {
		t.Errorf("the file has %d bytes, want %d", info.Size(), s.Size())
	}
	fillTo(12 << 20)
	if n := blocks(t, log); n < s.Size()+reserveStep/2 {
		t.Errorf("%d bytes are allocated with %d written, want half a step ahead", n, s.Size())
	}
	check(t, s.Seal())
	if n := blocks(t, log); n > s.Size()+64<<10 {
		t.Errorf("%d bytes are allocated after the seal with %d written", n, s.Size())
	}
}

func benchSegment(b *testing.B, batchBytes int) (*Segment, *batch) {
	o := options()
	o.Create, o.MaxIndexBytes = true, 10<<20
	s, err := Open(vfs.OS(), b.TempDir(), 0, o)
	check(b, err)
	b.Cleanup(func() { check(b, s.Close()) })
	return s, newBatch(b, 0, batchBytes-80, 1)
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 1 << 20} {
		b.Run(kib(size), func(b *testing.B) {
			s, one := benchSegment(b, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			next := kafka.Offset(0)
			for b.Loop() {
				if s.Size() > 256<<20 {
					_, err := s.TruncateTo(0, 1)
					check(b, err)
					next = 0
				}
				stamp(one.bytes, next)
				check(b, s.Append(next, one.bytes))
				next++
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	s, one := benchSegment(b, 1<<10)
	next := kafka.Offset(0)
	for s.Size() < 64<<20 {
		stamp(one.bytes, next)
		check(b, s.Append(next, one.bytes))
		next++
	}
	read := func(b *testing.B, at kafka.Offset) {
		info, ok, err := s.Read(at, ReadOptions{MaxBytes: 1 << 20, Limit: math.MaxInt64})
		if !ok || err != nil {
			b.Fatal(ok, err)
		}
		info.Region.Release()
	}
	b.Run("middle", func(b *testing.B) {
		b.ReportAllocs()
		for i := kafka.Offset(0); b.Loop(); i++ {
			read(b, i*7919%next)
		}
	})
	b.Run("tail", func(b *testing.B) {
		for range 5 {
			stamp(one.bytes, next)
			check(b, s.Append(next, one.bytes))
			next++
		}
		b.ReportAllocs()
		for b.Loop() {
			read(b, next-1)
		}
	})
}

func kib(n int) string {
	if n >= 1<<20 {
		return "1MiB"
	}
	return map[int]string{1 << 10: "1KiB", 16 << 10: "16KiB"}[n]
}

func TestAnIndexOfATerabyteIsNotRead(t *testing.T) {
	at := t.TempDir()
	o := options()
	o.Create = true
	s, err := Open(vfs.OS(), at, 0, o)
	check(t, err)
	closed(t, s)
	b := newBatch(t, 0, 100, 1)
	check(t, s.Append(b.last, b.bytes))
	check(t, s.Seal())
	check(t, s.SanityCheck())
	for _, ext := range []string{IndexExt, TimeIndexExt} {
		path := filepath.Join(at, Name(0, ext))
		info, err := os.Stat(path)
		check(t, err)
		if err := os.Truncate(path, 1<<40); err != nil {
			t.Fatalf("make %s a file of 1 TiB, which a sparse file may be on ext4, XFS and btrfs: %v", path, err)
		}
		if err := s.SanityCheck(); !errors.Is(err, index.ErrCorrupt) {
			t.Errorf("%s: %v, want it to be taken for corrupt", ext, err)
		}
		check(t, os.Truncate(path, info.Size()))
	}
}
