package index

import (
	"errors"
	"io/fs"
	"math"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func newOffset(t testing.TB, entries ...Position) *OffsetIndex {
	t.Helper()
	x := NewOffset(options(memfs.New(), 1000*8))
	t.Cleanup(func() { check(t, x.Close()) })
	for _, p := range entries {
		check(t, x.Append(p.Offset, p.Byte))
	}
	return x
}

func TestOffsetIndexLookup(t *testing.T) {
	// Base 100, entries at 110, 120 and 130: gaps of ten, so each side of an
	// entry can be asked for.
	three := []Position{{110, 4096}, {120, 8192}, {130, 12288}}
	tests := []struct {
		name    string
		entries []Position
		target  kafka.Offset
		want    Position
	}{
		{"empty index starts at the base", nil, 100, Position{100, 0}},
		{"before the base", three, 5, Position{100, 0}},
		{"before the first entry", three, 109, Position{100, 0}},
		{"exactly on an entry", three, 120, Position{120, 8192}},
		{"one before an entry", three, 119, Position{110, 4096}},
		{"past the last entry", three, 1 << 40, Position{130, 12288}},
		{"the largest offset there is", three, math.MaxInt64, Position{130, 12288}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := newOffset(t, tt.entries...)
			if got, err := x.Lookup(tt.target); got != tt.want || err != nil {
				t.Errorf("Lookup(%d) = %+v, %v, want %+v", tt.target, got, err, tt.want)
			}
		})
	}
}

func TestOffsetIndexUpperBound(t *testing.T) {
	three := []Position{{110, 4096}, {120, 8192}, {130, 12288}}
	tests := []struct {
		name    string
		entries []Position
		from    Position
		size    int32
		want    Position
		ok      bool
	}{
		{"empty index has none", nil, Position{100, 0}, 10, Position{}, false},
		{"the first entry behind the range", three, Position{110, 4096}, 1, Position{120, 8192}, true},
		{"an entry where the range ends", three, Position{110, 4096}, 4096, Position{120, 8192}, true},
		{"an exact match that the search meets", three, Position{120, 8192}, 0, Position{120, 8192}, true},
		{"an exact match that the search only narrows down to is passed over, as in Kafka", three, Position{110, 4096}, 0, Position{120, 8192}, true},
		{"a range past the last entry", three, Position{110, 4096}, 9000, Position{}, false},
		{"a sum that wraps in 32 bits finds the first entry", three, Position{110, 4096}, math.MaxInt32, Position{110, 4096}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			x := newOffset(t, tt.entries...)
			if got, ok, err := x.UpperBound(tt.from, tt.size); got != tt.want || ok != tt.ok || err != nil {
				t.Errorf("UpperBound(%+v, %d) = %+v, %v, %v, want %+v, %v", tt.from, tt.size, got, ok, err, tt.want, tt.ok)
			}
		})
	}
}

func TestOffsetIndexRefusesAnOffsetThatOverflows(t *testing.T) {
	x := newOffset(t)
	if err := x.Append(100+math.MaxInt32+1, 0); !errors.Is(err, ErrOverflow) {
		t.Errorf("Append beyond 2^31-1: %v, want ErrOverflow", err)
	}
	if err := x.Append(100+math.MaxInt32, 0); err != nil {
		t.Errorf("Append of the last offset that fits: %v", err)
	}
}

func TestNewFilesHaveKafkasSizes(t *testing.T) {
	fsys := memfs.New()
	offsets := NewOffset(Options{FS: fsys, Path: "/o", MaxBytes: 10 << 20})
	times := NewTime(Options{FS: fsys, Path: "/t", MaxBytes: 10 << 20})
	if _, err := fsys.Stat("/o"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there before the first use: %v", err)
	}
	for _, tt := range []struct {
		x interface {
			Len() (int, error)
			Close() error
		}
		path string
		want int64
	}{{offsets, "/o", 10485760}, {times, "/t", 10485756}} {
		if n, err := tt.x.Len(); n != 0 || err != nil {
			t.Errorf("%s: Len() = %d, %v, want 0", tt.path, n, err)
		}
		info, err := fsys.Stat(tt.path)
		check(t, err)
		if info.Size() != tt.want {
			t.Errorf("%s has %d bytes, want %d", tt.path, info.Size(), tt.want)
		}
		check(t, tt.x.Close())
	}
}

func TestAPreallocatedFileCountsEverySlot(t *testing.T) {
	fsys := memfs.New()
	x := NewOffset(options(fsys, 100*8))
	check(t, x.Append(101, 1))
	check(t, x.Close()) // without a trim, as a crash leaves it
	x = NewOffset(options(fsys, 100*8))
	defer x.Close()
	if n, err := x.Len(); n != 100 || err != nil {
		t.Errorf("Len() = %d, %v, want 100", n, err)
	}
	check(t, x.SanityCheck()) // Kafka's check passes zeros
}

func TestSanityCheck(t *testing.T) {
	tests := []struct {
		name    string
		content []byte
		time    bool
		corrupt bool
	}{
		{"an empty file is sound", nil, false, false},
		{"zeros are sound", make([]byte, 80), false, false},
		{"a length that is not whole entries", make([]byte, 81), false, true},
		{"a last offset below the base", []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, false, true},
		{"time: zeros are sound", make([]byte, 120), true, false},
		{"time: a length that is not whole entries", make([]byte, 121), true, true},
		{"time: a last offset below the base", []byte{0, 0, 0, 0, 0, 0, 0, 9, 0xff, 0, 0, 0}, true, true},
		{"time: a last timestamp before the first", []byte{0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1}, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys := memfs.New()
			writeFile(t, fsys, path, tt.content)
			var err error
			if tt.time {
				err = NewTime(options(fsys, 1200)).SanityCheck()
			} else {
				err = NewOffset(options(fsys, 800)).SanityCheck()
			}
			if errors.Is(err, ErrCorrupt) != tt.corrupt || !tt.corrupt && err != nil {
				t.Errorf("SanityCheck() = %v, want corrupt %v", err, tt.corrupt)
			}
		})
	}
}

func TestReadOnlyLeavesTheDiskAlone(t *testing.T) {
	fsys := memfs.New()
	o := options(fsys, 800)
	o.ReadOnly = true
	if _, err := NewOffset(o).Len(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Len() of a missing file: %v, want fs.ErrNotExist", err)
	}
	writeFile(t, fsys, path, []byte{0, 0, 0, 5, 0, 0, 1, 0})
	x := NewOffset(o)
	defer x.Close()
	if p, err := x.Lookup(200); p != (Position{105, 256}) || err != nil {
		t.Errorf("Lookup(200) = %+v, %v, want {105 256}", p, err)
	}
	if err := x.Append(300, 1); err == nil {
		t.Error("Append to an index opened for reading: no error")
	}
}

func TestUseAfterCloseIsAnError(t *testing.T) {
	x := newOffset(t, Position{110, 1})
	check(t, x.Close())
	check(t, x.Close())
	if _, err := x.Lookup(110); !errors.Is(err, ErrClosed) {
		t.Errorf("Lookup after Close: %v, want ErrClosed", err)
	}
	if err := x.Append(120, 2); !errors.Is(err, ErrClosed) {
		t.Errorf("Append after Close: %v, want ErrClosed", err)
	}
	if err := x.Flush(); err != nil {
		t.Errorf("Flush after Close: %v", err)
	}
}

func TestRenameAndDelete(t *testing.T) {
	fsys := memfs.New()
	x := NewOffset(options(fsys, 800))
	check(t, x.Rename("/a")) // not there yet: only the path changes
	check(t, x.Append(110, 7))
	check(t, x.Rename("/a.deleted"))
	if p, err := x.Lookup(110); p.Byte != 7 || err != nil {
		t.Errorf("Lookup after Rename = %+v, %v", p, err)
	}
	if _, err := fsys.Stat("/a.deleted"); err != nil {
		t.Error(err)
	}
	check(t, x.Delete())
	check(t, x.Delete())
	if _, err := fsys.Stat("/a.deleted"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Delete: %v, want fs.ErrNotExist", err)
	}
}
