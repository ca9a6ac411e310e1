package vfs

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// osFS is the disk of the operating system.
type osFS struct{}

// OS returns the real disk.
func OS() FS { return osFS{} }

// Following returns the real disk for tools that open what their user names: a
// symbolic link there is meant to be followed.
func Following() FS { return followFS{OS()} }

type followFS struct{ FS }

// OpenFile implements FS.
func (f followFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	return f.FS.OpenFile(name, flag, perm)
}

func (osFS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) Mkdir(name string, perm fs.FileMode) error { return os.Mkdir(name, perm) }

func (osFS) MkdirAll(name string, perm fs.FileMode) error { return os.MkdirAll(name, perm) }

func (osFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

func (osFS) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }

// SyncDir opens the directory anew: a descriptor kept for it would be one more
// for each partition.
func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	err = d.Sync()
	if closeErr := d.Close(); err == nil {
		err = closeErr
	}
	return err
}

// SameDirectory reports whether two looks at a path met the same directory of
// the real disk; known is false for other disks, which cannot be unmounted. A
// path that leads elsewhere than before was moved or unmounted under its user.
func SameDirectory(a, b fs.FileInfo) (same, known bool) {
	_, ok := a.Sys().(*syscall.Stat_t)
	if !ok {
		return false, false
	}
	return os.SameFile(a, b), true
}

// Device is the number of the file system that a file of the real disk lies on;
// ok is false for files of other disks.
func Device(info fs.FileInfo) (number uint64, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(st.Dev), true
}

func (f *osFile) Name() string { return f.file.Name() }

func (f *osFile) ReadAt(p []byte, off int64) (int, error) { return f.file.ReadAt(p, off) }

func (f *osFile) WriteAt(p []byte, off int64) (int, error) { return f.file.WriteAt(p, off) }

func (f *osFile) Size() (int64, error) {
	info, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Truncate(size int64) error { return f.file.Truncate(size) }

func (f *osFile) Sync() error { return f.file.Sync() }

func (f *osFile) Close() error { return f.file.Close() }
