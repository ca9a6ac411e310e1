package vfs_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/failstop"
	"github.com/varvelog/varve/internal/vfs/memfs"
	"github.com/varvelog/varve/internal/vfs/slowfs"
)

// coldFS counts the cold reads that reach the disk.
type coldFS struct {
	vfs.FS
	reads *atomic.Int32
}

func (c coldFS) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	return coldFile{f, c.reads}, err
}

type coldFile struct {
	vfs.File
	reads *atomic.Int32
}

func (f coldFile) ReadCold(p []byte, off int64) (int, error) {
	f.reads.Add(1)
	return f.ReadAt(p, off)
}

func TestColdReadsReachTheDiskThroughWhatIsInFrontOfIt(t *testing.T) {
	var reads atomic.Int32
	var failed atomic.Pointer[error]
	dir := "/d"
	under := slowfs.Wrap(coldFS{memfs.New(), &reads}, slowfs.Options{Slow: time.Hour, OnSlow: func(string, string, time.Duration) {}})
	disk := failstop.Wrap(under, []failstop.Root{{Path: dir, Failed: &failed}}, nil)
	if err := disk.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := disk.OpenFile(filepath.Join(dir, "f"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := []byte("cold")
	if _, err := f.WriteAt(want, 0); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := vfs.ReadCold(f, got, 0); err != nil || !bytes.Equal(got, want) || reads.Load() != 1 {
		t.Errorf("ReadCold = %q, %v, with %d cold reads of the disk; want %q and 1", got, err, reads.Load(), want)
	}
}
