package memfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
)

func create(t testing.TB, disk vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := disk.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t testing.TB, f vfs.File, off int64, s string) {
	t.Helper()
	if _, err := f.WriteAt([]byte(s), off); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// content returns what a file holds, or the error of opening it.
func content(disk vfs.FS, name string) string {
	b, err := vfs.ReadFile(disk, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestCrash(t *testing.T) {
	tests := []struct {
		name     string
		do       func(t *testing.T, disk *FS)
		file     string
		dropped  string // content after a crash that keeps nothing
		keptAll  string
		everSeen []string // further contents that random crashes may show
	}{
		{"a file without a synced name is lost", func(t *testing.T, disk *FS) {
			f := create(t, disk, "f")
			write(t, f, 0, "abc")
			must(t, f.Sync())
		}, "f", "none", "abc", nil},
		{"a name without synced bytes leads to an empty file", func(t *testing.T, disk *FS) {
			f := create(t, disk, "f")
			write(t, f, 0, "abc")
			must(t, disk.SyncDir("/"))
		}, "f", "", "abc", []string{"\x00", "\x00\x00", "\x00\x00\x00", "a", "ab"}},
		{"synced bytes and name survive", func(t *testing.T, disk *FS) {
			f := create(t, disk, "f")
			write(t, f, 0, "abc")
			must(t, f.SyncData(), disk.SyncDir("."))
			write(t, f, 1, "X")
		}, "f", "abc", "aXc", nil},
		{"bytes cut off come back with the old length", func(t *testing.T, disk *FS) {
			f := create(t, disk, "f")
			write(t, f, 0, "abcdef")
			must(t, f.Sync(), disk.SyncDir("/"), f.Truncate(2))
		}, "f", "abcdef", "ab", []string{"ab\x00\x00\x00\x00"}},
		{"a rename is done or not", func(t *testing.T, disk *FS) {
			for _, name := range []string{"f", "f.tmp"} {
				f := create(t, disk, name)
				write(t, f, 0, name)
				must(t, f.Sync())
			}
			must(t, disk.SyncDir("/"), disk.Rename("f.tmp", "f"))
		}, "f", "f", "f.tmp", nil},
		{"an unlinked file may be back whole", func(t *testing.T, disk *FS) {
			f := create(t, disk, "f")
			write(t, f, 0, "abc")
			must(t, f.Sync(), disk.SyncDir("/"), disk.Remove("f"))
		}, "f", "abc", "none", nil},
		{"a failed sync leaves bytes that no later sync saves", func(t *testing.T, disk *FS) {
			f := create(t, disk, "f")
			write(t, f, 0, "abc")
			must(t, f.Sync(), disk.SyncDir("/"))
			write(t, f, 0, "xyz")
			f.(interface{ LoseDirty() }).LoseDirty()
			must(t, f.Sync())
			if got := content(disk, "f"); got != "xyz" {
				t.Errorf("current view = %q", got)
			}
		}, "f", "abc", "abc", nil},
		{"stores through a map are bytes like others", func(t *testing.T, disk *FS) {
			f := create(t, disk, "f")
			must(t, f.Truncate(3), f.Sync(), disk.SyncDir("/"))
			m, err := f.Map(3, vfs.MapReadWrite)
			must(t, err)
			copy(m.Bytes(), "abc")
			must(t, m.Flush(0, 2))
		}, "f", "ab\x00", "abc", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := New()
			tt.do(t, disk)
			if got := content(disk.Crash(DropAll()), tt.file); got != tt.dropped {
				t.Errorf("keeping nothing: %q, want %q", got, tt.dropped)
			}
			if got := content(disk.Crash(KeepAll()), tt.file); got != tt.keptAll {
				t.Errorf("keeping all: %q, want %q", got, tt.keptAll)
			}
			legal := map[string]bool{tt.dropped: true, tt.keptAll: true}
			for _, s := range tt.everSeen {
				legal[s] = true
			}
			for seed := range uint64(200) {
				if got := content(disk.Crash(Random(0.5, seed)), tt.file); !legal[got] {
					t.Fatalf("seed %d: %q", seed, got)
				}
			}
		})
	}
}

func TestRenameAcrossDirectoriesNeverLosesBothNames(t *testing.T) {
	disk := New()
	must(t, disk.MkdirAll("a", 0o755), disk.MkdirAll("b", 0o755))
	f := create(t, disk, "a/f")
	write(t, f, 0, "abc")
	must(t, f.Sync(), disk.SyncDir("a"), disk.SyncDir("b"), disk.SyncDir("/"))
	must(t, disk.Rename("a/f", "b/f"))
	both := 0
	for seed := range uint64(100) {
		after := disk.Crash(Random(0.5, seed))
		old, renamed := content(after, "a/f"), content(after, "b/f")
		if old != "abc" && renamed != "abc" {
			t.Fatalf("seed %d: a/f %s, b/f %s", seed, old, renamed)
		}
		if old == renamed {
			both++
		}
	}
	if both == 0 {
		t.Error("no crash showed both names")
	}
	must(t, disk.SyncDir("a"))
	if after := disk.Crash(DropAll()); content(after, "b/f") != "abc" {
		t.Error("the old name went durably and the new one is not there")
	}
}

func TestSameSeedGivesTheSameCrash(t *testing.T) {
	disk := New()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 40 {
		f := create(t, disk, fmt.Sprintf("f%d", i))
		write(t, f, random.Int64N(9000), "some bytes")
	}
	dump := func(d *FS) string {
		var out bytes.Buffer
		list, err := d.ReadDir("/")
		must(t, err)
		for _, e := range list {
			fmt.Fprintf(&out, "%s=%q\n", e.Name(), content(d, e.Name()))
		}
		return out.String()
	}
	first := dump(disk.Crash(Random(0.5, 99)))
	if second := dump(disk.Crash(Random(0.5, 99))); first != second {
		t.Error("two crashes with one seed differ")
	}
	if other := dump(disk.Crash(Random(0.5, 100))); first == other {
		t.Error("another seed gave the same crash")
	}
}

// Random operations on a memory disk and on a plain slice, with crashes that
// keep everything in between: same bytes, also through maps.
func TestFileAgainstASlice(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 3))
		disk := New()
		f := create(t, disk, "f")
		must(t, disk.SyncDir("/"))
		var model []byte
		var mapped vfs.Map
		for range 300 {
			off := random.IntN(20000)
			switch op := random.IntN(8); {
			case op < 3:
				b := bytes.Repeat([]byte{byte(random.Uint32())}, random.IntN(9000))
				if len(b) > 0 {
					model = append(model, make([]byte, max(0, off+len(b)-len(model)))...)
				}
				copy(model[min(off, len(model)):], b)
				write(t, f, int64(off), string(b))
			case op == 3 && mapped == nil:
				model = append(model[:min(off, len(model))], make([]byte, max(0, off-len(model)))...)
				must(t, f.Truncate(int64(off)))
			case op == 4 && mapped == nil && len(model) > 0:
				m, err := f.Map(len(model), vfs.MapReadWrite)
				must(t, err)
				mapped = m
			case op == 5 && mapped != nil:
				at := random.IntN(len(mapped.Bytes()))
				mapped.Bytes()[at], model[at] = 7, 7
			case op == 6 && mapped != nil:
				must(t, mapped.Flush(0, len(mapped.Bytes())), mapped.Unmap())
				mapped = nil
			case op == 7:
				must(t, f.Sync())
			}
			if got := content(disk, "f"); got != string(model) {
				t.Fatalf("seed %d: file and model differ", seed)
			}
			if got := content(disk.Crash(KeepAll()), "f"); got != string(model) {
				t.Fatalf("seed %d: file after a crash that keeps all and model differ", seed)
			}
		}
		must(t, f.Sync())
		if got := content(disk.Crash(DropAll()), "f"); got != string(model) {
			t.Fatalf("seed %d: file after sync and crash and model differ", seed)
		}
	}
}

func TestShorteningUnderALiveMapIsABug(t *testing.T) {
	disk := New()
	f := create(t, disk, "f")
	must(t, f.Truncate(10))
	m, err := f.Map(10, vfs.MapRead)
	must(t, err)
	defer func() {
		if recover() == nil {
			t.Error("Truncate under a live map did not panic")
		}
		must(t, m.Unmap(), f.Truncate(5))
	}()
	_ = f.Truncate(5)
}

func TestFullDisk(t *testing.T) {
	disk := New()
	disk.SetLimit(3 * pageSize)
	f := create(t, disk, "f")
	must(t, f.Reserve(0, 2*pageSize))
	n, err := f.WriteAt(make([]byte, 4*pageSize), 0)
	if n != 3*pageSize || !vfs.IsFull(err) {
		t.Errorf("WriteAt = %d, %v, want three pages and a full disk", n, err)
	}
	if err := f.Reserve(3*pageSize, 1); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Reserve = %v, want ENOSPC", err)
	}
	if _, free, _ := disk.Usage("/"); free != 0 {
		t.Errorf("free = %d, want 0", free)
	}
	must(t, f.Truncate(pageSize))
	if _, free, _ := disk.Usage("/"); free != 2*pageSize {
		t.Errorf("free after Truncate = %d, want two pages", free)
	}
	must(t, disk.Remove("f"))
	if _, free, _ := disk.Usage("/"); free != 3*pageSize {
		t.Errorf("free after Remove = %d, want three pages", free)
	}
}

func TestNames(t *testing.T) {
	disk := New()
	must(t, disk.MkdirAll("/data/a-0", 0o755))
	create(t, disk, "/data/a-0/f")
	tests := []struct {
		name string
		err  error
		want error
	}{
		{"open of a missing file", openErr(disk, "/data/g", 0), fs.ErrNotExist},
		{"open in a missing directory", openErr(disk, "/none/g", os.O_CREATE), fs.ErrNotExist},
		{"open of a directory", openErr(disk, "/data", os.O_RDWR), vfs.ErrNotRegular},
		{"exclusive create of an existing file", openErr(disk, "/data/a-0/f", os.O_CREATE|os.O_EXCL), fs.ErrExist},
		{"a file as a directory", openErr(disk, "/data/a-0/f/g", os.O_CREATE), syscall.ENOTDIR},
		{"mkdir of an existing name", disk.Mkdir("/data/a-0", 0o755), fs.ErrExist},
		{"remove of a full directory", disk.Remove("/data/a-0"), syscall.ENOTEMPTY},
		{"remove of a missing file", disk.Remove("/data/x"), fs.ErrNotExist},
		{"rename of a missing file", disk.Rename("/data/x", "/data/y"), fs.ErrNotExist},
		{"rename onto a full directory", renameOnto(disk), syscall.ENOTEMPTY},
		{"write without permission to", writeReadOnly(disk), syscall.EBADF},
	}
	for _, tt := range tests {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, tt.err, tt.want)
		}
	}
	must(t, disk.Rename("/data/a-0", "/data/a-0.x-delete"))
	if _, err := disk.Stat("data/a-0.x-delete/f"); err != nil {
		t.Error(err)
	}
}

func openErr(disk *FS, name string, flag int) error {
	_, err := disk.OpenFile(name, flag, 0o644)
	return err
}

func renameOnto(disk *FS) error {
	if err := disk.Mkdir("/data/b-0", 0o755); err != nil {
		return err
	}
	return disk.Rename("/data/b-0", "/data/a-0")
}

func writeReadOnly(disk *FS) error {
	f, err := disk.OpenFile("/data/a-0/f", os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("x"), 0)
	return err
}

func TestLock(t *testing.T) {
	disk := New()
	held, err := disk.Lock("/.lock")
	must(t, err)
	if _, err := disk.Lock(".lock"); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("second Lock = %v, want ErrLocked", err)
	}
	if _, err := disk.Crash(KeepAll()).Lock("/.lock"); err != nil {
		t.Errorf("Lock after a crash = %v", err)
	}
	must(t, held.Close(), held.Close())
	if _, err := disk.Lock("/.lock"); err != nil {
		t.Errorf("Lock after Close = %v", err)
	}
}
