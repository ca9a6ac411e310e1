// Package vfs is the only way to the disk. The engine sees files through the
// FS, File and Map interfaces; underneath is the operating system (OS), a
// memory disk that can crash (memfs), one that fails on demand (faultfs) or a
// recorder of operations (tracefs).
//
// Before it on the path: nothing. After it: every package that owns bytes on
// disk (checkpoint, index, record's readers, segment, producer, logdir).
package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Errors that callers branch on. They are returned wrapped in *fs.PathError.
var (
	// ErrLocked is returned by Lock when another process holds the file.
	ErrLocked = errors.New("locked by another process")
	// ErrNotRegular is wrapped by NotRegularError.
	ErrNotRegular = errors.New("not a regular file")
	// ErrUnsupported is returned by Reserve and Map where the file system or
	// platform cannot do it; the caller has another way.
	ErrUnsupported = errors.ErrUnsupported
	// ErrTooLarge is returned by ReadFile for a file that no sound directory holds:
	// a sparse one of a TiB takes no block, and reading it would take all memory.
	ErrTooLarge = errors.New("the file is too large to be read whole")
)

// NotRegularError is returned by OpenFile for a directory, link, FIFO, socket or
// device where a file is expected.
type NotRegularError struct{ Mode fs.FileMode } // its type bits

func (e *NotRegularError) Error() string {
	kind := "a device"
	switch {
	case e.Mode&fs.ModeDir != 0:
		kind = "a directory"
	case e.Mode&fs.ModeSymlink != 0:
		kind = "a symbolic link"
	case e.Mode&fs.ModeNamedPipe != 0:
		kind = "a FIFO"
	case e.Mode&fs.ModeSocket != 0:
		kind = "a socket"
	}
	return ErrNotRegular.Error() + " but " + kind
}

// Unwrap returns ErrNotRegular.
func (e *NotRegularError) Unwrap() error { return ErrNotRegular }

// FS is one disk. Names are slash-separated paths as the operating system
// takes them. All methods may be called by several goroutines at once.
type FS interface {
	// OpenFile opens name with the flags of package os (O_RDWR, O_CREATE, ...).
	// O_APPEND is not used: every write names its position. What is no regular file
	// is not opened, nor a symbolic link followed in the last element: ErrNotRegular.
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	// Rename replaces newname atomically. It is durable after SyncDir.
	Rename(oldname, newname string) error
	// Remove unlinks a file or an empty directory.
	Remove(name string) error
	// Mkdir makes one directory; MkdirAll also its parents, and accepts an
	// existing directory.
	Mkdir(name string, perm fs.FileMode) error
	MkdirAll(name string, perm fs.FileMode) error
	// ReadDir lists a directory sorted by name.
	ReadDir(name string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in a directory durable (fsync of the directory).
	SyncDir(name string) error
	// Lock creates name if needed and takes an exclusive lock that ends with
	// the process or with Close. It fails with ErrLocked at once when taken.
	Lock(name string) (io.Closer, error)
	// Usage reports the size of the file system that holds name and the bytes
	// an unprivileged process may still write.
	Usage(name string) (total, free int64, err error)
}

// File is an open file. Every read and write names its position. ReadAt and
// WriteAt continue after short transfers and EINTR.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Name is the name it was opened with.
	Name() string
	// WritevAt writes the buffers one after the other at off (pwritev) and
	// returns the bytes written, all of them unless err is set.
	WritevAt(bufs [][]byte, off int64) (int64, error)
	// Size is the length of the file in bytes.
	Size() (int64, error)
	// Truncate sets the length; a longer file is filled with a hole.
	Truncate(size int64) error
	// Reserve allocates blocks for [off, off+n) and leaves the length as it is
	// (fallocate KEEP_SIZE). ErrUnsupported where that cannot be done;
	// a full disk is ENOSPC.
	Reserve(off, n int64) error
	// Sync makes data and all metadata durable; SyncData data and the length
	// (fdatasync). After an error the file must not be trusted (faults O15).
	Sync() error
	SyncData() error
	// Map maps the first size bytes, shared with the file. The file must be at
	// least that long while the map lives.
	Map(size int, mode MapMode) (Map, error)
	// Fd is the descriptor for sendfile; ok is false where there is none
	// (memory disk) and the bytes must be copied. The caller keeps the File
	// open as long as it uses the number.
	Fd() (fd uintptr, ok bool)
	// SetModTime sets the modification time in milliseconds since 1970.
	SetModTime(ms int64) error
	io.Closer
}

// MapMode says whether stores through a map reach the file.
type MapMode int

// The two modes of a Map.
const (
	MapRead MapMode = iota
	MapReadWrite
)

// Map is a mapping of the start of a file. Touching a byte of it can fault
// when the disk fails or has no block for it: loads and stores run under
// debug.SetPanicOnFault (see Guard), and stores only below what was reserved.
type Map interface {
	// Bytes is the mapped memory; invalid after Unmap.
	Bytes() []byte
	// Flush makes bytes [from, to) durable (msync of the pages they lie in).
	Flush(from, to int) error
	// AdviseRandom turns read-ahead off, so that one fault reads one page.
	AdviseRandom() error
	// Unmap ends the mapping. A second call does nothing.
	Unmap() error
}

// Region is a range of a file on its way to a socket or a reader: no record
// byte has been read yet. Release, when not nil, gives back the reference that
// keeps the file from being deleted or truncated; it is called exactly once.
type Region struct {
	File    File
	Offset  int64 // first byte
	Length  int64 // bytes
	Release func()
}

// maxWhole bounds what ReadFile reads: the largest files read whole are segments
// of the metadata log.
const maxWhole = 1 << 30

// ReadFile returns the whole content of a file of at most 1 GiB; ErrTooLarge beyond.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, 0, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxWhole {
		return nil, fmt.Errorf("%s: %d bytes: %w", name, size, ErrTooLarge)
	}
	buf := make([]byte, size)
	n, err := f.ReadAt(buf, 0)
	if errors.Is(err, io.EOF) {
		err = nil // it became shorter while it was read
	}
	return buf[:n], err
}
