package segment

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// told collects what a segment says of its files.
type told struct {
	rebuilt []Rebuilt
	damage  []BadRange
	faults  int
	errs    []error
}

func (w *told) options() Options {
	o := options()
	o.IndexInterval = 200
	o.OnRebuilt = func(r Rebuilt) { w.rebuilt = append(w.rebuilt, r) }
	o.OnDamage = func(_ string, d BadRange) { w.damage = append(w.damage, d) }
	o.OnRebuildError = func(err error) { w.errs = append(w.errs, err) }
	o.OnFault = func(string, int64, bool, error) { w.faults++ }
	return o
}

// sealed makes a closed segment of n batches of two records each in a directory
// of a disk, and returns the batches.
func sealed(t *testing.T, fsys vfs.FS, dir string, n int) []*batch {
	t.Helper()
	check(t, fsys.MkdirAll(dir, 0o755))
	o := new(told).options()
	o.Create = true
	s, err := Open(fsys, dir, base, o)
	check(t, err)
	var list []*batch
	next := base
	for i := range n {
		ts := kafka.Timestamp(1000 + 10*i)
		if i%7 == 3 {
			ts -= 55 // some come late
		}
		b := newBatch(t, next, 20, ts, ts+1)
		check(t, s.Append(b.last, b.bytes))
		list = append(list, b)
		next = b.last + 1
	}
	check(t, s.Close())
	return list
}

// reopened opens the segment as one of those that are not written to.
func reopened(t *testing.T, fsys vfs.FS, dir string, w *told) *Segment {
	t.Helper()
	s, err := Open(fsys, dir, base, w.options())
	check(t, err)
	t.Cleanup(func() {
		if err := s.Abandon(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// wantLookups looks for every offset and every time, but not in batches that skip names.
func wantLookups(t *testing.T, s *Segment, list []*batch, skip func(*batch) bool) {
	t.Helper()
	pos := int64(0)
	for _, b := range list {
		if skip == nil || !skip(b) {
			for o := b.first; o <= b.last; o++ {
				if at, ok, err := s.Locate(o); err != nil || !ok || at.Byte != pos {
					t.Fatalf("Locate(%d) = %+v, %v, %v; want byte %d", o, at, ok, err, pos)
				}
			}
		}
		pos += int64(len(b.bytes))
	}
	if skip != nil {
		return
	}
	for ts := kafka.Timestamp(900); ts < 1000+10*kafka.Timestamp(len(list))+5; ts += 3 {
		want := kafka.NoOffset
		for _, b := range list {
			for i, have := range b.times {
				if have >= ts && want == kafka.NoOffset {
					want = b.first + kafka.Offset(i)
				}
			}
		}
		check(t, s.VetTimes())
		m, ok, err := s.FindByTimestamp(ts, base, nil)
		if err != nil || ok != (want >= 0) || ok && m.Offset != want {
			t.Fatalf("FindByTimestamp(%d) = %+v, %v, %v; want offset %d", ts, m, ok, err, want)
		}
	}
}

func TestABadIndexOfASealedSegmentIsRebuiltAtItsFirstUse(t *testing.T) {
	damages := []struct {
		name string
		do   func(b []byte, entry int) []byte
	}{
		{"half an entry at the end", func(b []byte, _ int) []byte { return append(b, 1, 2, 3) }},
		{"an entry cut in two", func(b []byte, _ int) []byte { return b[:len(b)-1] }},
		{"zeros behind the entries", func(b []byte, entry int) []byte { return append(b, make([]byte, 40*entry)...) }},
		{"a zero entry between others", func(b []byte, entry int) []byte { clear(b[2*entry : 3*entry]); return b }},
		{"all zeros", func(b []byte, _ int) []byte { clear(b); return b }},
		{"noise", func(b []byte, _ int) []byte {
			for i := range b {
				b[i] = byte(i*7 + 129)
			}
			return b
		}},
		{"two entries that changed places", func(b []byte, entry int) []byte {
			return bytes.Join([][]byte{b[:entry], b[2*entry : 3*entry], b[entry : 2*entry], b[3*entry:]}, nil)
		}},
		{"an entry twice", func(b []byte, entry int) []byte { return append(b[:3*entry:3*entry], b[2*entry:]...) }},
		{"a last entry behind the end", func(b []byte, entry int) []byte {
			return append(b, bytes.Repeat([]byte{0x7f}, entry)...)
		}},
		{"the last entry is another's", func(b []byte, _ int) []byte { b[len(b)-1] ^= 4; return b }},
	}
	for _, disk := range []string{"real", "memory"} {
		for ext, entry := range map[string]int{IndexExt: 8, TimeIndexExt: 12} {
			for _, d := range damages {
				t.Run(disk+" "+ext+" with "+d.name, func(t *testing.T) {
					fsys, dir := vfs.FS(memfs.New()), dir
					if disk == "real" {
						fsys, dir = vfs.OS(), filepath.Join(t.TempDir(), "t-0")
					}
					list := sealed(t, fsys, dir, 60)
					path := filepath.Join(dir, Name(base, ext))
					good, err := vfs.ReadFile(fsys, path)
					check(t, err)
					replaceFile(t, fsys, path, d.do(bytes.Clone(good), entry))

					var w told
					s := reopened(t, fsys, dir, &w)
					wantLookups(t, s, list, nil)
					if len(w.rebuilt) != 1 || w.rebuilt[0].Path != path || w.rebuilt[0].Entries != len(good)/entry || w.rebuilt[0].Reason == "" || w.rebuilt[0].InMemory {
						t.Errorf("told of %+v, want one rebuild of %s with %d entries", w.rebuilt, path, len(good)/entry)
					}
					if now, err := vfs.ReadFile(fsys, path); err != nil || !bytes.Equal(now, good) {
						t.Errorf("the rebuilt index is\n%x, %v; the one before the damage was\n%x", now, err, good)
					}
					if _, err := fsys.Stat(path + index.TemporarySuffix); err == nil {
						t.Error("a temporary file is left")
					}
				})
			}
		}
	}
}

// Many first uses at once, and a segment that goes meanwhile: each lookup is right
// or says that the segment is closed, and the index is made anew once.
func TestManyReadersMeetABadIndexAtOnce(t *testing.T) {
	for round := range 20 {
		disk := memfs.New()
		list := sealed(t, disk, dir, 60)
		path := filepath.Join(dir, Name(base, IndexExt))
		replaceFile(t, disk, path, bytes.Repeat([]byte{9, 1}, 100))
		var rebuilt atomic.Int32
		o := new(told).options()
		o.OnRebuilt = func(Rebuilt) { rebuilt.Add(1) }
		s, err := Open(disk, dir, base, o)
		check(t, err)
		var readers sync.WaitGroup
		for r := range 8 {
			readers.Go(func() {
				for i := range list {
					b := list[(i*7+r)%len(list)]
					at, ok, err := s.Locate(b.first)
					if errors.Is(err, ErrClosed) || errors.Is(err, index.ErrClosed) {
						return
					}
					if err != nil || !ok || at.Size != int64(len(b.bytes)) {
						t.Errorf("Locate(%d) = %+v, %v, %v", b.first, at, ok, err)
					}
				}
			})
		}
		if round%2 == 1 {
			check(t, s.Retire())
		}
		readers.Wait()
		if n := rebuilt.Load(); n > 1 || n == 0 && round%2 == 0 {
			t.Errorf("told of %d rebuilds", n)
		}
		if round%2 == 0 {
			check(t, s.Close())
		}
	}
}

func replaceFile(t *testing.T, fsys vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fsys.OpenFile(path, os.O_RDWR, 0)
	check(t, err)
	check(t, f.Truncate(0))
	_, err = f.WriteAt(b, 0)
	check(t, errors.Join(err, f.Close()))
}

// Every bit of both indexes, and every length: each lookup as before.
func TestNoSingleDamageOfAnIndexChangesALookup(t *testing.T) {
	disk := memfs.New()
	list := sealed(t, disk, dir, 24)
	for _, ext := range []string{IndexExt, TimeIndexExt} {
		path := filepath.Join(dir, Name(base, ext))
		good, err := vfs.ReadFile(disk, path)
		check(t, err)
		try := func(what string, b []byte) {
			copied := disk.Crash(memfs.KeepAll())
			replaceFile(t, copied, path, b)
			s := reopened(t, copied, dir, new(told))
			defer func() {
				if t.Failed() {
					t.Logf("%s, %s", ext, what)
				}
			}()
			wantLookups(t, s, list, nil)
		}
		for bit := range 8 * len(good) {
			b := bytes.Clone(good)
			b[bit/8] ^= 1 << (bit % 8)
			try(fmt.Sprintf("bit %d", bit), b)
		}
		for n := range len(good) {
			try(fmt.Sprintf("cut to %d bytes", n), bytes.Clone(good[:n]))
		}
	}
}

func TestAnIndexIsRebuiltInMemoryOnAFullDisk(t *testing.T) {
	full := false
	disk := memfs.New()
	fsys := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if full && (op.Kind == faultfs.Write || op.Kind == faultfs.Create) {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	})
	list := sealed(t, fsys, dir, 60)
	path := filepath.Join(dir, Name(base, IndexExt))
	replaceFile(t, fsys, path, []byte{1, 2, 3})
	full = true
	var w told
	s := reopened(t, fsys, dir, &w)
	wantLookups(t, s, list, nil)
	if len(w.rebuilt) != 1 || !w.rebuilt[0].InMemory || len(w.errs) != 0 {
		t.Errorf("told of %+v and %v, want one rebuild in memory", w.rebuilt, w.errs)
	}
	if now, err := vfs.ReadFile(fsys, path); err != nil || len(now) != 3 {
		t.Errorf("the file is %x, %v; want it as it was", now, err)
	}
}

// F8: the files of a running log are cut, filled with noise or removed under it,
// on the real disk. No lookup is wrong, no append fails, nothing dies, and the
// indexes are right again once the segment is sealed and used.
func TestIndexFilesChangedUnderARunningSegment(t *testing.T) {
	changes := map[string]func(t *testing.T, path string){
		"cut to nothing":  func(t *testing.T, path string) { check(t, os.Truncate(path, 0)) },
		"cut in an entry": func(t *testing.T, path string) { check(t, os.Truncate(path, 13)) },
		"noise": func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			check(t, err)
			_, err = f.WriteAt(bytes.Repeat([]byte{0x11, 0x80, 3}, 40), 0)
			check(t, errors.Join(err, f.Close()))
		},
		"removed": func(t *testing.T, path string) { check(t, os.RemoveAll(path)) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "t-0")
			check(t, os.Mkdir(dir, 0o755))
			var w told
			o := w.options()
			o.Create = true
			s, err := Open(vfs.OS(), dir, base, o)
			check(t, err)
			var list []*batch
			next, more := base, 0
			grow := func(n int) {
				for range n {
					ts := kafka.Timestamp(1000 + 10*more)
					b := newBatch(t, next, 20, ts, ts+1)
					check(t, s.Append(b.last, b.bytes))
					list = append(list, b)
					next, more = b.last+1, more+1
				}
			}
			grow(40)
			wantLookups(t, s, list, nil)
			for _, ext := range []string{IndexExt, TimeIndexExt} {
				change(t, filepath.Join(dir, Name(base, ext)))
			}
			wantLookups(t, s, list, nil)
			grow(40)
			wantLookups(t, s, list, nil)
			check(t, s.Seal())
			check(t, s.Flush())
			wantLookups(t, s, list, nil)
			for _, ext := range []string{IndexExt, TimeIndexExt} {
				change(t, filepath.Join(dir, Name(base, ext)))
			}
			wantLookups(t, s, list, nil)
			e, err := s.Examine(s, ExamineOptions{Upper: next})
			check(t, err)
			if name != "removed" { // the open file is right still
				s.Mend(&e)
				if e, err = s.Examine(s, ExamineOptions{Upper: next}); err != nil || e.OffsetIndex != "" || e.TimeIndex != "" {
					t.Errorf("after mending: %+v, %v", e, err)
				}
			}
			check(t, s.Close())
			if len(w.errs) > 0 {
				t.Errorf("errors: %v", w.errs)
			}
			if name == "cut to nothing" && (w.faults == 0 || w.faults > 6) {
				t.Errorf("told of %d faults of mapped pages, want one a map", w.faults)
			}
			again := reopened(t, vfs.OS(), dir, new(told))
			wantLookups(t, again, list, nil)
		})
	}
}

// While one reader makes a bad index anew, the others wait for it: each would read
// the whole .log for itself. The one whose lookup comes after it is served by it.
func TestReadersWaitForTheIndexThatIsMadeAnew(t *testing.T) {
	for _, ext := range []string{IndexExt, TimeIndexExt} {
		for _, fails := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) { readersWait(t, ext, fails) })
		}
	}
}

func readersWait(t *testing.T, ext string, fails bool) {
	var held atomic.Bool
	var read, rebuilds atomic.Int64
	entered, leave := make(chan struct{}), make(chan struct{})
	disk := memfs.New()
	fsys := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		switch {
		case op.Kind == faultfs.Create && filepath.Ext(op.Name) == index.TemporarySuffix && rebuilds.Add(1) == 1:
			held.Store(true)
			entered <- struct{}{}
			<-leave
			held.Store(false)
			if fails {
				return faultfs.Fault{Err: syscall.EIO}
			}
		case op.Kind == faultfs.Read && filepath.Ext(op.Name) == LogExt && held.Load():
			read.Add(1)
		}
		return faultfs.Fault{}
	})
	list := sealed(t, disk, dir, 601)
	replaceFile(t, disk, filepath.Join(dir, Name(base, ext)), bytes.Repeat([]byte{9, 1}, 102))
	var w told
	s := reopened(t, fsys, dir, &w)
	last := list[len(list)-1]
	var readers sync.WaitGroup
	lookup := func() {
		readers.Go(func() {
			if at, ok, err := s.Locate(last.first); err != nil || !ok || at.Size != int64(len(last.bytes)) {
				t.Errorf("Locate = %+v, %v, %v", at, ok, err)
			}
			if m, ok, err := s.FindByTimestamp(last.times[0], base, nil); err != nil || !ok || m.Offset != last.first {
				t.Errorf("FindByTimestamp = %+v, %v, %v", m, ok, err)
			}
		})
	}
	lookup()
	<-entered
	for range 8 {
		lookup()
	}
	synctest.Wait()
	if n := read.Load(); ext == IndexExt && n != 0 || n > 8*3 { // where the offset index is right it finds the batch
		t.Errorf("%s, fails %v: %d reads of the .log while the index was made anew", ext, fails, n)
	}
	close(leave)
	readers.Wait()
	if !fails && len(w.rebuilt) != 1 || fails && len(w.errs) != 1 {
		t.Errorf("%s, fails %v: told of %+v and %v", ext, fails, w.rebuilt, w.errs)
	}
	wantLookups(t, s, list, nil)
	if len(w.rebuilt) != 1 {
		t.Errorf("%s, fails %v: told of %+v", ext, fails, w.rebuilt)
	}
}
