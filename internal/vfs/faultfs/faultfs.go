// Package faultfs wraps a disk and makes chosen operations fail: an error at the
// n-th matching call or at each, a short write, a flipped bit, or any code of
// the test's own before the operation runs.
//
// Before it on the path: any vfs.FS, usually a memory disk. After it: tests that
// take every error branch of a storage package.
package faultfs

import (
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/varvelog/varve/internal/vfs"
)

// Kind names an operation as the tests write it.
type Kind string

// The operations of vfs.FS, vfs.File and vfs.Map that can fail.
const (
	Open     Kind = "open" // without O_CREATE
	Create   Kind = "create"
	Rename   Kind = "rename"
	Remove   Kind = "remove"
	Mkdir    Kind = "mkdir"
	ReadDir  Kind = "readdir"
	Stat     Kind = "stat"
	SyncDir  Kind = "syncdir"
	Lock     Kind = "lock"
	Usage    Kind = "usage"
	Read     Kind = "read"
	Write    Kind = "write"
	Size     Kind = "size"
	Truncate Kind = "truncate"
	Reserve  Kind = "reserve"
	Sync     Kind = "sync" // fsync and fdatasync
	Map      Kind = "map"
	Flush    Kind = "flush" // msync
	Unmap    Kind = "unmap"
	ModTime  Kind = "modtime"
	Close    Kind = "close"
)

// Changes reports whether the operation can alter what is on the disk.
func (k Kind) Changes() bool {
	switch k {
	case Create, Rename, Remove, Mkdir, SyncDir, Write, Truncate, Reserve, Sync, Flush, ModTime:
		return true
	}
	return false
}

// Op is an operation about to run.
type Op struct {
	Kind   Kind
	Name   string // the file's name; the old name of a rename
	New    string // the new name of a rename
	Offset int64  // of a read, write or flush
	Length int64  // bytes asked for; the new size of a truncate
	// Data is what a write is about to write; it is the caller's.
	Data [][]byte
}

// Fault is what becomes of an operation. The zero value lets it run.
type Fault struct {
	// Err fails the operation. The wrapper puts it into an *fs.PathError. An Err
	// for a sync also makes the memory disk treat the dirty pages as clean.
	Err error
	// Done is how many bytes of a failing write reach the file first.
	Done int64
	// FlipBit flips the lowest bit of the first byte that a read returns.
	FlipBit bool
}

// Inject decides about each operation, in the order they come. It runs without
// a lock of this package and may look at the disk below; it may be called by
// several goroutines at once.
type Inject func(Op) Fault

// Match selects operations. A nil Match selects those that change the disk.
type Match func(Op) bool

// Counter counts matching operations and fails some of them. It is an Inject
// by its method Inject.
type Counter struct {
	// From is the first operation to fail, counted from 1; 0 fails none.
	From int
	// Times is how many in a row fail; 0 means all from there.
	Times int
	Match Match
	Fault Fault

	mu   sync.Mutex
	seen int
}

// Inject implements the function type of that name.
func (c *Counter) Inject(op Op) Fault {
	if c.Match == nil && !op.Kind.Changes() || c.Match != nil && !c.Match(op) {
		return Fault{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen++
	if c.From == 0 || c.seen < c.From || c.Times > 0 && c.seen >= c.From+c.Times {
		return Fault{}
	}
	return c.Fault
}

// Seen returns how many operations matched so far.
func (c *Counter) Seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen
}

// FS is a disk whose operations can fail. It implements vfs.FS.
type FS struct {
	under  vfs.FS
	inject Inject
}

var _ vfs.FS = (*FS)(nil)

// Wrap returns a disk that asks inject before each operation on under.
func Wrap(under vfs.FS, inject Inject) *FS { return &FS{under: under, inject: inject} }

func (m *FS) check(op Op) error {
	if err := m.inject(op).Err; err != nil {
		return &fs.PathError{Op: string(op.Kind), Path: op.Name, Err: err}
	}
	return nil
}

// OpenFile implements vfs.FS.
func (m *FS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	kind := Open
	if flag&os.O_CREATE != 0 {
		kind = Create
	}
	if err := m.check(Op{Kind: kind, Name: name}); err != nil {
		return nil, err
	}
	f, err := m.under.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &file{fs: m, File: f}, nil
}

// Rename implements vfs.FS.
func (m *FS) Rename(oldname, newname string) error {
	if err := m.check(Op{Kind: Rename, Name: oldname, New: newname}); err != nil {
		return err
	}
	return m.under.Rename(oldname, newname)
}

// Remove implements vfs.FS.
func (m *FS) Remove(name string) error {
	if err := m.check(Op{Kind: Remove, Name: name}); err != nil {
		return err
	}
	return m.under.Remove(name)
}

// Mkdir implements vfs.FS.
func (m *FS) Mkdir(name string, perm fs.FileMode) error {
	if err := m.check(Op{Kind: Mkdir, Name: name}); err != nil {
		return err
	}
	return m.under.Mkdir(name, perm)
}

// MkdirAll implements vfs.FS.
func (m *FS) MkdirAll(name string, perm fs.FileMode) error {
	if err := m.check(Op{Kind: Mkdir, Name: name}); err != nil {
		return err
	}
	return m.under.MkdirAll(name, perm)
}

// ReadDir implements vfs.FS.
func (m *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := m.check(Op{Kind: ReadDir, Name: name}); err != nil {
		return nil, err
	}
	return m.under.ReadDir(name)
}

// Stat implements vfs.FS.
func (m *FS) Stat(name string) (fs.FileInfo, error) {
	if err := m.check(Op{Kind: Stat, Name: name}); err != nil {
		return nil, err
	}
	return m.under.Stat(name)
}

// SyncDir implements vfs.FS.
func (m *FS) SyncDir(name string) error {
	if err := m.check(Op{Kind: SyncDir, Name: name}); err != nil {
		return err
	}
	return m.under.SyncDir(name)
}

// Lock implements vfs.FS.
func (m *FS) Lock(name string) (io.Closer, error) {
	if err := m.check(Op{Kind: Lock, Name: name}); err != nil {
		return nil, err
	}
	return m.under.Lock(name)
}

// Usage implements vfs.FS.
func (m *FS) Usage(name string) (total, free int64, err error) {
	if err := m.check(Op{Kind: Usage, Name: name}); err != nil {
		return 0, 0, err
	}
	return m.under.Usage(name)
}
