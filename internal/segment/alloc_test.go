//go:build !race

package segment

// The race detector makes pools forget what they hold, so allocations are
// counted without it.

import (
	"math"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func TestAppendsAndReadsDoNotAllocate(t *testing.T) {
	o := options()
	o.Create, o.MaxIndexBytes = true, 10<<20
	s, err := Open(vfs.OS(), t.TempDir(), 0, o)
	check(t, err)
	closed(t, s)
	one, two := newBatch(t, 0, 3000, 1), newBatch(t, 0, 3000, 1)
	next := kafka.Offset(0)
	expect := func(name string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	expect("Append of one batch", func() {
		stamp(one.bytes, next)
		check(t, s.Append(next, one.bytes))
		next++
	})
	expect("Append of two buffers", func() {
		stamp(one.bytes, next)
		stamp(two.bytes, next+1)
		check(t, s.Append(next+1, one.bytes, two.bytes))
		next += 2
	})
	read := func(at kafka.Offset, o ReadOptions) func() {
		return func() {
			info, ok, err := s.Read(at, o)
			if !ok || err != nil || info.Region.Length == 0 {
				t.Fatalf("Read(%d) = %+v, %v, %v", at, info, ok, err)
			}
			info.Region.Release()
		}
	}
	all := ReadOptions{MaxBytes: 1 << 20, Limit: math.MaxInt64, MinOneBatch: true}
	expect("Read in the middle", read(1000, all))
	stamp(one.bytes, next)
	check(t, s.Append(next, one.bytes))
	stamp(one.bytes, next+1)
	check(t, s.Append(next+1, one.bytes))
	expect("Read at the tail", read(next+1, all))
	hinted := all
	hinted.Hint, hinted.Known = s.Size()-int64(len(one.bytes)), true
	expect("Read where a hint says", read(next+1, hinted))
	expect("ShouldRoll", func() {
		if roll, err := s.ShouldRoll(RollParams{Bytes: 10, LastOffset: next, SegmentBytes: 1 << 30, SegmentMs: 1 << 40}); roll || err != nil {
			t.Fatal(roll, err)
		}
	})
	check(t, s.Seal())
	expect("Read of a sealed segment", read(1000, all))
}

// TestTailReadsTouchNoFile: the ring knows where the last batches start.
func TestTailReadsTouchNoFile(t *testing.T) {
	disk, reads := countReads()
	s := create(t, disk, options())
	closed(t, s)
	list := fill(t, s, 3)
	all := ReadOptions{MaxBytes: 1 << 20, Limit: math.MaxInt64}
	read := func(at kafka.Offset) int {
		before := *reads
		info, ok, err := s.Read(at, all)
		if !ok || err != nil {
			t.Fatalf("Read(%d) = %v, %v", at, ok, err)
		}
		info.Region.Release()
		return *reads - before
	}
	if n := read(list[2].first); n != 1 {
		t.Errorf("the first read made %d file reads, want 1 of headers", n)
	}
	next := list[2].last + 1
	for range 600 {
		b := newBatch(t, next, 10, 1, 2)
		check(t, s.Append(b.last, b.bytes))
		next = b.last + 1
	}
	for _, at := range []kafka.Offset{next - 1, next - 2, next - 3, next - 500} {
		if n := read(at); n != 0 {
			t.Errorf("Read(%d) with the end at %d made %d file reads", at, next, n)
		}
	}
	if n := read(next - 700); n != 1 {
		t.Errorf("Read of an older batch made %d file reads, want 1", n)
	}
	check(t, s.Seal())
	read(next - 700) // the first use checks the index
	if n := read(next - 700); n != 2 {
		t.Errorf("Read of a sealed segment made %d file reads, want 2", n)
	}
}

// TestLookupsOfLargeBatchesReadHeadersAlone: what lies between the headers of
// batches above the index interval is not read to find one of them.
func TestLookupsOfLargeBatchesReadHeadersAlone(t *testing.T) {
	var read int64
	s := create(t, faultfs.Wrap(memfs.New(), func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Read {
			read += op.Length
		}
		return faultfs.Fault{}
	}), options())
	closed(t, s)
	for i := range kafka.Offset(20) {
		check(t, s.Append(base+2*i+1, newBatch(t, base+2*i, 8<<10, 1, 2).bytes))
	}
	if _, ok, err := s.Locate(base + 10); !ok || err != nil || read != 2*record.HeaderSize {
		t.Errorf("Locate = %v, %v, after reading %d bytes, want two headers", ok, err, read)
	}
}
