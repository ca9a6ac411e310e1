package faultfs

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// script does every kind of operation once and returns the first error.
func script(disk vfs.FS) error {
	f, err := disk.OpenFile("/f", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	steps := []func() error{
		func() error { _, err := f.WriteAt([]byte("abc"), 0); return err },
		func() error { _, err := f.WritevAt([][]byte{[]byte("d"), []byte("ef")}, 3); return err },
		func() error { _, err := f.ReadAt(make([]byte, 3), 0); return err },
		func() error { _, err := f.Size(); return err },
		func() error { return f.Reserve(0, 10) },
		func() error { return f.Truncate(6) },
		func() error { return f.SetModTime(1) },
		f.SyncData,
		f.Sync,
		func() error {
			m, err := f.Map(6, vfs.MapReadWrite)
			if err != nil {
				return err
			}
			return errors.Join(m.Flush(0, 6), m.Unmap())
		},
		func() error { return disk.Mkdir("/d", 0o755) },
		func() error { return disk.MkdirAll("/d/e", 0o755) },
		func() error { return disk.Rename("/f", "/g") },
		func() error { return disk.SyncDir("/") },
		func() error { _, err := disk.ReadDir("/"); return err },
		func() error { _, err := disk.Stat("/g"); return err },
		func() error { return disk.Remove("/g") },
		func() error { _, err := disk.Lock("/.lock"); return err },
		func() error { _, _, err := disk.Usage("/"); return err },
		f.Close,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func everything(Op) bool { return true }

func TestEachOperationCanFail(t *testing.T) {
	count := &Counter{Match: everything}
	if err := script(Wrap(memfs.New(), count.Inject)); err != nil {
		t.Fatalf("without a fault: %v", err)
	}
	if count.Seen() < 20 {
		t.Fatalf("%d operations seen", count.Seen())
	}
	for n := 1; n < count.Seen(); n++ { // the last one is the deferred second close
		c := &Counter{Match: everything, From: n, Times: 1, Fault: Fault{Err: syscall.EIO}}
		err := script(Wrap(memfs.New(), c.Inject))
		var path *fs.PathError
		if !errors.Is(err, syscall.EIO) || !errors.As(err, &path) {
			t.Errorf("operation %d: %v, want EIO in a PathError", n, err)
		}
	}
}

func TestCounter(t *testing.T) {
	writes := func(op Op) bool { return op.Kind == Write && strings.HasSuffix(op.Name, ".log") }
	tests := []struct {
		name    string
		counter *Counter
		want    string // one letter a write: o ok, x failed
	}{
		{"no fault", &Counter{Match: writes}, "oooo"},
		{"the second", &Counter{Match: writes, From: 2, Times: 1}, "oxoo"},
		{"from the third on", &Counter{Match: writes, From: 3}, "ooxx"},
		{"another file", &Counter{Match: func(op Op) bool { return op.Name == "/b.index" }, From: 1}, "oooo"},
		{"operations that change the disk, the create among them", &Counter{From: 2, Times: 2}, "xxoo"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.counter.Fault.Err = syscall.ENOSPC
			f, err := Wrap(memfs.New(), tt.counter.Inject).OpenFile("/a.log", os.O_RDWR|os.O_CREATE, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for range 4 {
				if _, err := f.WriteAt([]byte("x"), 0); err != nil {
					got.WriteByte('x')
				} else {
					got.WriteByte('o')
				}
			}
			if got.String() != tt.want {
				t.Errorf("writes went %s, want %s", got.String(), tt.want)
			}
		})
	}
}

func TestShortWriteLeavesItsFirstBytes(t *testing.T) {
	disk := memfs.New()
	c := &Counter{Match: func(op Op) bool { return op.Kind == Write }, From: 1, Times: 1, Fault: Fault{Err: syscall.ENOSPC, Done: 4}}
	f, err := Wrap(disk, c.Inject).OpenFile("/f", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.WritevAt([][]byte{[]byte("abc"), []byte("def")}, 0)
	if n != 4 || !vfs.IsFull(err) {
		t.Errorf("WritevAt = %d, %v, want 4 and a full disk", n, err)
	}
	if got, _ := vfs.ReadFile(disk, "/f"); string(got) != "abcd" {
		t.Errorf("file holds %q", got)
	}
}

func TestFailedSyncIsNotMadeGoodByTheNext(t *testing.T) {
	disk := memfs.New()
	c := &Counter{Match: func(op Op) bool { return op.Kind == Sync }, From: 1, Times: 1, Fault: Fault{Err: syscall.EIO}}
	f, err := Wrap(disk, c.Inject).OpenFile("/f", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("abc"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Sync = %v, want EIO", err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := disk.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	if got, _ := vfs.ReadFile(disk.Crash(memfs.DropAll()), "/f"); string(got) == "abc" {
		t.Error("the second sync made durable what the first had lost")
	}
}

func TestFlippedBit(t *testing.T) {
	inject := func(op Op) Fault { return Fault{FlipBit: op.Kind == Read} }
	f, err := Wrap(memfs.New(), inject).OpenFile("/f", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("a"), 0); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, 0); err != nil || b[0] != 'a'^1 {
		t.Errorf("ReadAt = %q, %v", b, err)
	}
	if _, ok := f.Fd(); ok {
		t.Error("a descriptor would let reads pass by")
	}
}
