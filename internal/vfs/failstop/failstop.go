// Package failstop wraps a disk so that nothing in a directory is changed any
// more once a sync in it has failed (faults O15).
//
// After a failed sync the kernel may have dropped what it could not write and
// have marked it clean. What the directory holds on the disk is not known then,
// a second sync that succeeds proves nothing, and each further write makes it
// worse. Who meets the error takes the directory offline; but work that is under
// way elsewhere does not know of it yet, and is stopped here.
//
// Before it on the path: the real disk, as package vfs gives it. After it:
// logdir, and all that it opens.
package failstop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/varvelog/varve/internal/vfs"
)

// ErrStopped is returned for a change in a directory that has failed. It does
// not wrap the cause: a sync that failed for lack of room is no full disk.
var ErrStopped = errors.New("nothing is written to a directory after an error of its disk")

// Root is a directory that fails as a whole.
type Root struct {
	Path string
	// Failed is nil while all is well. Its owner may set it, too.
	Failed *atomic.Pointer[error]

	clean string // Path
}

// FS is a disk with such directories. It implements vfs.FS. What lies in none
// of them passes through.
type FS struct {
	vfs.FS
	roots    []Root
	onFailed func(path string, err error)
}

var _ vfs.FS = (*FS)(nil)

// Wrap returns the disk; onFailed is told about the first failed sync in each
// root, on a goroutine of its own, and may be nil.
func Wrap(under vfs.FS, roots []Root, onFailed func(path string, err error)) *FS {
	cleaned := make([]Root, len(roots))
	for i, r := range roots {
		cleaned[i] = Root{r.Path, r.Failed, filepath.Clean(r.Path)}
	}
	return &FS{under, cleaned, onFailed}
}

// root is the innermost one that holds name; nil when none does.
func (m *FS) root(name string) *Root {
	name = filepath.Clean(name)
	var found *Root
	for i := range m.roots {
		r := &m.roots[i]
		in := name == r.clean || strings.HasPrefix(name, r.clean) && (name[len(r.clean)] == filepath.Separator || strings.HasSuffix(r.clean, string(filepath.Separator)))
		if in && (found == nil || len(r.clean) > len(found.clean)) {
			found = r
		}
	}
	return found
}

// check refuses a change.
func (r *Root) check(op, name string) error {
	if r == nil {
		return nil
	}
	if p := r.Failed.Load(); p != nil {
		return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("%w: %s", ErrStopped, (*p).Error())}
	}
	return nil
}

// synced looks at the error of a sync.
func (m *FS) synced(r *Root, err error) error {
	if r == nil || !vfs.IsSync(err) || errors.Is(err, fs.ErrNotExist) {
		return err // a directory that is gone is no failed sync
	}
	failed := err // not the parameter, which would then be allocated at each sync
	if r.Failed.CompareAndSwap(nil, &failed) && m.onFailed != nil {
		go m.onFailed(r.Path, failed)
	}
	return err
}

func (m *FS) check(op string, names ...string) error {
	for _, name := range names {
		if err := m.root(name).check(op, name); err != nil {
			return err
		}
	}
	return nil
}

// OpenFile implements vfs.FS.
func (m *FS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	r := m.root(name)
	if flag&(os.O_CREATE|os.O_TRUNC) != 0 {
		if err := r.check("create", name); err != nil {
			return nil, err
		}
	}
	f, err := m.FS.OpenFile(name, flag, perm)
	if err != nil || r == nil {
		return f, err
	}
	return &file{f, m, r}, nil
}

// Rename implements vfs.FS.
func (m *FS) Rename(oldname, newname string) error {
	if err := m.check("rename", oldname, newname); err != nil {
		return err
	}
	return m.FS.Rename(oldname, newname)
}

// Remove implements vfs.FS.
func (m *FS) Remove(name string) error {
	if err := m.check("remove", name); err != nil {
		return err
	}
	return m.FS.Remove(name)
}

// Mkdir implements vfs.FS.
func (m *FS) Mkdir(name string, perm fs.FileMode) error {
	if err := m.check("mkdir", name); err != nil {
		return err
	}
	return m.FS.Mkdir(name, perm)
}

// MkdirAll implements vfs.FS.
func (m *FS) MkdirAll(name string, perm fs.FileMode) error {
	if err := m.check("mkdir", name); err != nil {
		return err
	}
	return m.FS.MkdirAll(name, perm)
}

// SyncDir implements vfs.FS.
func (m *FS) SyncDir(name string) error {
	r := m.root(name)
	if err := r.check("syncdir", name); err != nil {
		return err
	}
	err := m.FS.SyncDir(name)
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		return err // it was not opened, and so not synced
	}
	return m.synced(r, err)
}

// file is a file in a root.
type file struct {
	vfs.File
	fs   *FS
	root *Root
}

// ReadCold implements vfs.ColdReader.
func (f *file) ReadCold(p []byte, off int64) (int, error) { return vfs.ReadCold(f.File, p, off) }

// WriteAt implements vfs.File.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if err := f.root.check("write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

// WritevAt implements vfs.File.
func (f *file) WritevAt(bufs [][]byte, off int64) (int64, error) {
	if err := f.root.check("write", f.Name()); err != nil {
		return 0, err
	}
	return f.File.WritevAt(bufs, off)
}

// Truncate implements vfs.File.
func (f *file) Truncate(size int64) error {
	if err := f.root.check("truncate", f.Name()); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

// Reserve implements vfs.File.
func (f *file) Reserve(off, n int64) error {
	if err := f.root.check("reserve", f.Name()); err != nil {
		return err
	}
	return f.File.Reserve(off, n)
}

// SetModTime implements vfs.File.
func (f *file) SetModTime(ms int64) error {
	if err := f.root.check("futimes", f.Name()); err != nil {
		return err
	}
	return f.File.SetModTime(ms)
}

// Sync implements vfs.File.
func (f *file) Sync() error {
	if err := f.root.check("sync", f.Name()); err != nil {
		return err
	}
	return f.fs.synced(f.root, f.File.Sync())
}

// SyncData implements vfs.File.
func (f *file) SyncData() error {
	if err := f.root.check("fdatasync", f.Name()); err != nil {
		return err
	}
	return f.fs.synced(f.root, f.File.SyncData())
}

// Map implements vfs.File.
func (f *file) Map(size int, mode vfs.MapMode) (vfs.Map, error) {
	m, err := f.File.Map(size, mode)
	if err != nil {
		return nil, err
	}
	return &mapping{m, f}, nil
}

// mapping is a map of a file in a root.
type mapping struct {
	vfs.Map
	file *file
}

// Flush implements vfs.Map.
func (m *mapping) Flush(from, to int) error {
	if err := m.file.root.check("msync", m.file.Name()); err != nil {
		return err
	}
	return m.file.fs.synced(m.file.root, m.Map.Flush(from, to))
}
