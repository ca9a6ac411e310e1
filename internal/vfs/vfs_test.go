package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func create(t testing.TB, name string) File {
	t.Helper()
	f, err := OS().OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestWritevAt(t *testing.T) {
	many := make([][]byte, 0, 3000) // more than the kernel takes in one call
	var joined []byte
	for i := range 3000 {
		b := bytes.Repeat([]byte{byte(i)}, i%7)
		many = append(many, b)
		joined = append(joined, b...)
	}
	tests := []struct {
		name string
		bufs [][]byte
		want []byte
	}{
		{"no buffers", nil, nil},
		{"one buffer", [][]byte{[]byte("abc")}, []byte("abc")},
		{"empty buffers between others", [][]byte{nil, []byte("ab"), {}, []byte("c"), nil}, []byte("abc")},
		{"more buffers than one call takes", many, joined},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := create(t, filepath.Join(t.TempDir(), "f"))
			n, err := f.WritevAt(tt.bufs, 5)
			if err != nil || n != int64(len(tt.want)) {
				t.Fatalf("WritevAt = %d, %v, want %d", n, err, len(tt.want))
			}
			got, err := ReadFile(OS(), f.Name())
			if err != nil {
				t.Fatal(err)
			}
			if len(tt.want) > 0 && !bytes.Equal(got[5:], tt.want) {
				t.Errorf("file holds other bytes than were written")
			}
		})
	}
}

func TestWritevAtOnAReadOnlyFileNamesThePath(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	create(t, name)
	f, err := OS().OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err = f.WritevAt([][]byte{[]byte("a"), []byte("b")}, 0)
	var path *fs.PathError
	if !errors.As(err, &path) || path.Path != name || !errors.Is(err, syscall.EBADF) {
		t.Errorf("WritevAt = %v, want EBADF in a PathError of %s", err, name)
	}
}

func TestReserveKeepsTheLength(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "f"))
	err := f.Reserve(0, 64<<10)
	if errors.Is(err, ErrUnsupported) {
		t.Logf("this file system cannot reserve: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	if size, err := f.Size(); size != 0 || err != nil {
		t.Errorf("Size = %d, %v, want 0", size, err)
	}
}

func TestMapSharesBytesWithTheFile(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "f"))
	if err := f.Truncate(10000); err != nil {
		t.Fatal(err)
	}
	m, err := f.Map(10000, MapReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	copy(m.Bytes()[5000:], "stored")
	got := make([]byte, 6)
	if _, err := f.ReadAt(got, 5000); err != nil || string(got) != "stored" {
		t.Errorf("ReadAt = %q, %v", got, err)
	}
	if _, err := f.WriteAt([]byte("written"), 9000); err != nil {
		t.Fatal(err)
	}
	if got := m.Bytes()[9000:9007]; string(got) != "written" {
		t.Errorf("map holds %q", got)
	}
	for _, call := range []error{m.AdviseRandom(), m.Flush(5000, 5006), m.Flush(0, 10000), m.Flush(3, 3), m.Unmap(), m.Unmap()} {
		if call != nil {
			t.Error(call)
		}
	}
}

func TestMapOfNothing(t *testing.T) {
	m, err := create(t, filepath.Join(t.TempDir(), "f")).Map(0, MapRead)
	if err != nil || len(m.Bytes()) != 0 {
		t.Fatalf("Map(0) = %v, %v", m, err)
	}
	for _, call := range []error{m.AdviseRandom(), m.Flush(0, 0), m.Unmap()} {
		if call != nil {
			t.Error(call)
		}
	}
}

// The access faults because the file was shortened under the map; a full disk
// faults the same way.
func TestGuardTurnsAFaultIntoAnError(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "f"))
	if err := f.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	m, err := f.Map(8192, MapReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := Guard(func() { m.Bytes()[5000] = 1 }); !errors.Is(err, ErrMapFault) {
		t.Errorf("store = %v, want ErrMapFault", err)
	}
	var sum byte
	if err := Guard(func() { sum += m.Bytes()[0] }); !errors.Is(err, ErrMapFault) {
		t.Errorf("load = %v, want ErrMapFault", err)
	}
	if err := Guard(func() { sum++ }); err != nil {
		t.Errorf("Guard without a fault = %v", err)
	}
}

func TestGuardLetsOtherPanicsThrough(t *testing.T) {
	for _, bug := range []func(){
		func() { panic("a bug") },
		func() { var p *int; *p = 1 },
		func() { var s []int; s[len(os.Args)] = 1 },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic of a bug was swallowed")
				}
			}()
			_ = Guard(bug)
		}()
	}
}

func TestGuardAllocatesNothing(t *testing.T) {
	data := make([]byte, 100)
	at := 7
	if n := testing.AllocsPerRun(100, func() { _ = Guard(func() { data[at]++ }) }); n != 0 {
		t.Errorf("Guard allocates %v times", n)
	}
}

func TestReadWriteAllocateNothing(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "f"))
	b := make([]byte, 512)
	two := [][]byte{b, b}
	if n := testing.AllocsPerRun(100, func() {
		_, err1 := f.WriteAt(b, 0)
		_, err2 := f.WritevAt(two, 512)
		_, err3 := f.ReadAt(b, 100)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
	}); n != 0 {
		t.Errorf("a write, a vector write and a read allocate %v times", n)
	}
}

// The lock has to exclude Apache Kafka, which takes a POSIX record lock from
// another process; TestLockHelper is that process.
func TestLockExcludesAnotherProcess(t *testing.T) {
	name := filepath.Join(t.TempDir(), ".lock")
	held, err := OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OS().Lock(name); !errors.Is(err, ErrLocked) {
		t.Errorf("second Lock = %v, want ErrLocked", err)
	}
	if out := lockElsewhere(t, name); out != "locked by another" {
		t.Errorf("record lock of another process: %q", out)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if out := lockElsewhere(t, name); out != "free" {
		t.Errorf("record lock after Close: %q", out)
	}
	again, err := OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func lockElsewhere(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockHelper$")
	cmd.Env = append(os.Environ(), "VFS_LOCK_HELPER="+name)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	result, _, _ := bytes.Cut(out, []byte("\n"))
	return string(result)
}

func TestLockHelper(t *testing.T) {
	name := os.Getenv("VFS_LOCK_HELPER")
	if name == "" {
		return // not started by TestLockExcludesAnotherProcess
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	switch err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock); err {
	case nil:
		os.Stdout.WriteString("free\n")
	case syscall.EAGAIN, syscall.EACCES:
		os.Stdout.WriteString("locked by another\n")
	default:
		t.Fatal(err)
	}
}

func TestDirectories(t *testing.T) {
	root := t.TempDir()
	disk := OS()
	if err := disk.MkdirAll(filepath.Join(root, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := disk.Mkdir(filepath.Join(root, "a"), 0o755); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Mkdir of an existing directory = %v", err)
	}
	name := filepath.Join(root, "a", "f")
	f := create(t, name)
	if err := f.SetModTime(1700000000123); err != nil {
		t.Fatal(err)
	}
	if err := disk.Rename(name, name+".deleted"); err != nil {
		t.Fatal(err)
	}
	info, err := disk.Stat(name + ".deleted")
	if err != nil || !info.ModTime().Equal(time.UnixMilli(1700000000123)) {
		t.Errorf("Stat = %v, %v", info, err)
	}
	list, err := disk.ReadDir(filepath.Join(root, "a"))
	if err != nil || len(list) != 2 || list[0].Name() != "b" || list[1].Name() != "f.deleted" {
		t.Errorf("ReadDir = %v, %v", list, err)
	}
	if err := disk.SyncDir(filepath.Join(root, "a")); err != nil {
		t.Error(err)
	}
	if err := disk.SyncDir(filepath.Join(root, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("SyncDir of a missing directory = %v", err)
	}
	total, free, err := disk.Usage(root)
	if err != nil || total <= 0 || free < 0 || free > total {
		t.Errorf("Usage = %d, %d, %v", total, free, err)
	}
}

func TestIsFull(t *testing.T) {
	tests := []struct {
		err  error
		want bool
	}{
		{&fs.PathError{Op: "write", Err: syscall.ENOSPC}, true},
		{&fs.PathError{Op: "write", Err: syscall.EDQUOT}, true},
		{syscall.EFBIG, true},
		{&fs.PathError{Op: "write", Err: syscall.EIO}, false},
		{&fs.PathError{Op: "sync", Err: syscall.ENOSPC}, false},
		{fmt.Errorf("flush: %w", &fs.PathError{Op: "msync", Err: syscall.EDQUOT}), false},
		{nil, false},
	}
	for _, tt := range tests {
		if got := IsFull(tt.err); got != tt.want {
			t.Errorf("IsFull(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

// A clean stop unlinks the lock file while it holds the lock. Whoever opened
// the old file meanwhile must not take its lock for that of the name.
func TestLockHasOneOwnerThoughTheFileGoes(t *testing.T) {
	name := filepath.Join(t.TempDir(), ".lock")
	var owners, taken atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for taken.Load() < 200 {
				l, err := OS().Lock(name)
				if errors.Is(err, ErrLocked) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if n := owners.Add(1); n != 1 {
					t.Errorf("%d owners at a time", n)
				}
				taken.Add(1)
				owners.Add(-1)
				if err := errors.Join(OS().Remove(name), l.Close()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
