//go:build !race

package index

// The race detector makes pools forget what they hold, so allocations are
// counted without it.

import (
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

func TestLookupsAndAppendsDoNotAllocate(t *testing.T) {
	x := NewOffset(osOptions(t, 10<<20))
	defer x.Close()
	y := NewTime(Options{FS: vfs.OS(), Path: filepath.Join(t.TempDir(), "t"), Base: 100, MaxBytes: 10 << 20})
	defer y.Close()
	fill(t, x, 10000)
	for i := range 10000 {
		check(t, y.MaybeAppend(kafka.Timestamp(i), 100, false))
	}
	next, ts := kafka.Offset(20000), kafka.Timestamp(20000)
	expect := func(name string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(1000, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	expect("offset Append", func() { next++; check(t, x.Append(next, 1)) })
	expect("time MaybeAppend", func() { ts++; check(t, y.MaybeAppend(ts, 200, false)) })
	mapped := func(how string) {
		expect(how+" offset Lookup", func() {
			if p, _ := x.Lookup(5000); p.Byte != 4899 {
				t.Fatal(p)
			}
		})
		expect(how+" offset Lookup at the tail", func() { x.Lookup(next) })
		expect(how+" time Lookup", func() {
			if p, _ := y.Lookup(5000); p.Timestamp != 5000 {
				t.Fatal(p)
			}
		})
		expect(how+" UpperBound", func() { x.UpperBound(Position{200, 99}, 1000) })
	}
	mapped("mapped")
	check(t, x.Trim())
	check(t, y.Trim())
	mapped("sealed")
}
