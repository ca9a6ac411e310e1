//go:build unix && !linux

package vfs

import (
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// osFile without Linux's calls: no reservation, no map, no descriptor for
// sendfile. The callers have another way for each of these.
type osFile struct {
	file *os.File
}

// OpenFile implements FS.
func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	info, err := os.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: &NotRegularError{Mode: info.Mode().Type()}}
	}
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &osFile{file: f}, nil
}

// WritevAt implements File by one write a buffer.
func (f *osFile) WritevAt(bufs [][]byte, off int64) (int64, error) {
	var done int64
	for _, b := range bufs {
		n, err := f.file.WriteAt(b, off+done)
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// Reserve implements File.
func (f *osFile) Reserve(int64, int64) error {
	return &fs.PathError{Op: "reserve", Path: f.file.Name(), Err: ErrUnsupported}
}

// SyncData implements File.
func (f *osFile) SyncData() error { return f.file.Sync() }

// Map implements File.
func (f *osFile) Map(int, MapMode) (Map, error) {
	return nil, &fs.PathError{Op: "mmap", Path: f.file.Name(), Err: ErrUnsupported}
}

// SetModTime implements File.
func (f *osFile) SetModTime(ms int64) error {
	t := time.UnixMilli(ms)
	return os.Chtimes(f.file.Name(), t, t)
}

// Fd implements File.
func (f *osFile) Fd() (uintptr, bool) { return 0, false }

// Lock implements FS by the POSIX record lock that Apache Kafka takes.
func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	whole := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart}
	err = syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &whole)
	if err == syscall.EAGAIN || err == syscall.EACCES {
		err = ErrLocked
	}
	if err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

// Usage implements FS.
func (osFS) Usage(name string) (total, free int64, err error) {
	return 0, 0, &fs.PathError{Op: "statfs", Path: name, Err: ErrUnsupported}
}
