package failstop

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestNothingIsChangedAfterAFailedSync fails each kind of sync once and tries
// every change afterwards, in the directory and beside it.
func TestNothingIsChangedAfterAFailedSync(t *testing.T) {
	type open struct {
		fs  *FS
		f   vfs.File
		m   vfs.Map
		dir string
	}
	syncs := map[string]func(o open) error{
		"sync":      func(o open) error { return o.f.Sync() },
		"fdatasync": func(o open) error { return o.f.SyncData() },
		"msync":     func(o open) error { return o.m.Flush(0, 10) },
		"directory": func(o open) error { return o.fs.SyncDir(o.dir) },
	}
	changes := map[string]func(o open) error{
		"write":    func(o open) error { _, err := o.f.WriteAt([]byte("x"), 0); return err },
		"writev":   func(o open) error { _, err := o.f.WritevAt([][]byte{{1}, {2}}, 0); return err },
		"truncate": func(o open) error { return o.f.Truncate(20) },
		"reserve":  func(o open) error { return o.f.Reserve(0, 4096) },
		"modtime":  func(o open) error { return o.f.SetModTime(1) },
		"create": func(o open) error {
			f, err := o.fs.OpenFile(o.dir+"/new", os.O_RDWR|os.O_CREATE, 0o644)
			if err == nil {
				err = f.Close()
			}
			return err
		},
		"rename": func(o open) error { return o.fs.Rename(o.dir+"/other", o.dir+"/moved") },
		"mkdir":  func(o open) error { return o.fs.Mkdir(o.dir+"/made", 0o755) },
		"remove": func(o open) error { return o.fs.Remove(o.dir + "/gone") },
	}
	for name, sync := range syncs {
		t.Run(name, func(t *testing.T) {
			disk := memfs.New()
			fail := false
			faults := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
				if fail {
					return faultfs.Fault{Err: syscall.ENOSPC} // whatever its number is
				}
				return faultfs.Fault{}
			})
			var failedA, failedB atomic.Pointer[error]
			told := make(chan string, 2)
			fsys := Wrap(faults, []Root{{Path: "/d/a/", Failed: &failedA}, {Path: "/d/ab", Failed: &failedB}}, func(path string, err error) {
				if !errors.Is(err, syscall.ENOSPC) {
					t.Errorf("told of %v", err)
				}
				told <- path
			})
			at := func(dir string) open {
				must(t, disk.MkdirAll(dir, 0o755))
				for _, n := range []string{"f", "other", "gone"} {
					f, err := disk.OpenFile(dir+"/"+n, os.O_RDWR|os.O_CREATE, 0o644)
					must(t, err, f.Truncate(10), f.Close())
				}
				f, err := fsys.OpenFile(dir+"/f", os.O_RDWR, 0)
				must(t, err)
				m, err := f.Map(10, vfs.MapReadWrite)
				must(t, err)
				return open{fsys, f, m, dir}
			}
			a, b := at("/d/a"), at("/d/ab")
			must(t, sync(a))
			fail = true
			if err := sync(a); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrStopped) {
				t.Fatalf("the failed sync: %v", err)
			}
			fail = false
			if path := <-told; path != "/d/a/" {
				t.Errorf("told of %s, want /d/a/", path)
			}
			for what, again := range syncs {
				if err := again(a); !errors.Is(err, ErrStopped) || vfs.IsFull(err) {
					t.Errorf("%s again: %v, want ErrStopped", what, err)
				}
				if err := again(b); err != nil {
					t.Errorf("%s in another directory: %v", what, err)
				}
			}
			for what, change := range changes {
				if err := change(a); !errors.Is(err, ErrStopped) || vfs.IsFull(err) {
					t.Errorf("%s: %v, want ErrStopped", what, err)
				}
				if err := change(b); err != nil {
					t.Errorf("%s in another directory: %v", what, err)
				}
			}
			if _, err := a.f.ReadAt(make([]byte, 5), 0); err != nil {
				t.Errorf("read: %v", err)
			}
			if len(told) != 0 {
				t.Error("told twice")
			}
		})
	}
}

func TestADirectoryThatIsGoneIsNoFailedSync(t *testing.T) {
	var failed atomic.Pointer[error]
	fsys := Wrap(memfs.New(), []Root{{Path: "/d", Failed: &failed}}, nil)
	if err := fsys.SyncDir("/d/gone"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("SyncDir = %v, want ErrNotExist", err)
	}
	if failed.Load() != nil {
		t.Error("the directory has failed")
	}
}
