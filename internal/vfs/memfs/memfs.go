// Package memfs is a memory disk that can lose power. It keeps two views of
// every file and directory: what a process sees now, and what the last sync made
// durable. Crash builds the disk that a machine could find after a power cut:
// the durable view plus any chosen part of what was not synced.
//
// It is as weak as POSIX allows: syncing a file does not keep its name, a page
// may be written back and its neighbour not, a size may survive without the bytes,
// a rename is done or not but never half. What it does not model: two versions of
// one unsynced page (only the last can survive), a store through a map into a hole of
// a full disk, and a limit of descriptors.
//
// Before it on the path: package vfs. After it: tests of every storage package.
package memfs

import (
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sort"
	"sync"
	"syscall"
	"time"

	"github.com/varvelog/varve/internal/vfs"
)

// FS is one memory disk. It implements vfs.FS. Names are cleaned paths; the root
// "/" and "." are the same directory.
type FS struct {
	mu    sync.Mutex
	root  *dir
	locks map[string]bool
	used  int64 // pages with a block; guarded by mu
	limit int64 // pages there are; 0 means no limit
	now   func() time.Time

	handles map[*handle]struct{}  // that are open; guarded by mu
	mapped  map[*mapping]struct{} // that are not unmapped; guarded by mu
}

var _ vfs.FS = (*FS)(nil)

// New returns an empty disk without a size limit, whose root is durable.
func New() *FS {
	return &FS{
		root: newDir(), locks: map[string]bool{}, now: time.Now,
		handles: map[*handle]struct{}{}, mapped: map[*mapping]struct{}{},
	}
}

// InUse lists what was not given back: the names of open files, as they were
// opened, of live maps and of locks. After a stop, and after an open that failed,
// there must be nothing.
func (m *FS) InUse() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []string
	for h := range m.handles {
		list = append(list, "open "+h.name)
	}
	for p := range m.mapped {
		list = append(list, "map of "+p.handle.name)
	}
	for name := range m.locks {
		list = append(list, "lock on "+name)
	}
	slices.Sort(list)
	return list
}

// SetNow replaces the clock of modification times.
func (m *FS) SetNow(now func() time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = now
}

// SetLimit bounds the disk to size bytes, in whole pages of 4 KiB; writes and
// reservations past it fail with ENOSPC. 0 lifts the bound.
func (m *FS) SetLimit(size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = size / pageSize
}

// node is a file or a directory; names lead to nodes.
type node interface{ isNode() }

// dir is a directory. ops are the changes of names since the last SyncDir, in
// order: what a crash may keep or lose one by one.
type dir struct {
	entries map[string]node
	durable map[string]node
	ops     []*nameOp
}

func (*dir) isNode()  {}
func (*file) isNode() {}

func newDir() *dir {
	return &dir{entries: map[string]node{}, durable: map[string]node{}}
}

// nameOp is one change of a directory: a name set (create, mkdir, the new name of
// a rename) or removed (unlink, the old name of a rename).
type nameOp struct {
	kind    string // of Loss.Kind
	name    string
	set     node    // nil when the name goes
	oldName string  // rename within the directory: this name goes with it
	twin    *nameOp // rename across directories: the old name goes only if twin is kept
	dir     *dir
	kept    bool // durable already
}

// locate returns the parent directory of name and its last element.
func (m *FS) locate(op, name string) (*dir, string, error) {
	clean := path.Clean("/" + name)
	parent, base := path.Split(clean)
	d, err := m.walk(parent)
	if err != nil {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: err}
	}
	return d, base, nil
}

func (m *FS) walk(name string) (*dir, error) {
	d := m.root
	for len(name) > 0 {
		var elem string
		elem, name = cut(name)
		if elem == "" {
			continue
		}
		switch n := d.entries[elem].(type) {
		case *dir:
			d = n
		case *file:
			return nil, syscall.ENOTDIR
		default:
			return nil, fs.ErrNotExist
		}
	}
	return d, nil
}

func cut(name string) (elem, rest string) {
	for i := range len(name) {
		if name[i] == '/' {
			return name[:i], name[i+1:]
		}
	}
	return name, ""
}

// OpenFile implements vfs.FS.
func (m *FS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.locate("open", name)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (vfs.File, error) { return nil, &fs.PathError{Op: "open", Path: name, Err: err} }
	writable := flag&(os.O_WRONLY|os.O_RDWR) != 0
	switch n := d.entries[base].(type) {
	case *file:
		if flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0 {
			return fail(fs.ErrExist)
		}
		h := m.opened(n, name, writable)
		if flag&os.O_TRUNC != 0 {
			n.truncate(m, 0)
			n.modified = m.now()
		}
		return h, nil
	case *dir:
		return fail(&vfs.NotRegularError{Mode: fs.ModeDir})
	}
	if base == "" {
		return fail(&vfs.NotRegularError{Mode: fs.ModeDir})
	}
	if flag&os.O_CREATE == 0 {
		return fail(fs.ErrNotExist)
	}
	f := &file{perm: perm.Perm(), modified: m.now()}
	d.record(&nameOp{kind: "create", name: base, set: f})
	return m.opened(f, name, writable), nil
}

func (m *FS) opened(f *file, name string, writable bool) *handle {
	h := &handle{fs: m, file: f, name: name, writable: writable}
	m.handles[h] = struct{}{}
	return h
}

// record makes a change of names visible and notes it for a crash.
func (d *dir) record(op *nameOp) {
	op.dir = d
	d.ops = append(d.ops, op)
	op.apply(d.entries)
}

func (op *nameOp) apply(entries map[string]node) {
	if op.set == nil {
		delete(entries, op.name)
		return
	}
	if op.oldName != "" {
		delete(entries, op.oldName)
	}
	entries[op.name] = op.set
}

// Rename implements vfs.FS.
func (m *FS) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	fail := func(err error) error {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	}
	from, oldBase, err := m.locate("rename", oldname)
	if err != nil {
		return fail(err)
	}
	to, newBase, err := m.locate("rename", newname)
	if err != nil {
		return fail(err)
	}
	moved, ok := from.entries[oldBase]
	if !ok {
		return fail(fs.ErrNotExist)
	}
	if err := replaceable(moved, to.entries[newBase]); err != nil {
		return fail(err)
	}
	if from == to {
		if oldBase != newBase {
			to.record(&nameOp{kind: "rename", name: newBase, set: moved, oldName: oldBase})
		}
		return nil
	}
	added := &nameOp{kind: "rename", name: newBase, set: moved}
	to.record(added)
	from.record(&nameOp{kind: "rename", name: oldBase, twin: added})
	return nil
}

// replaceable says whether a rename of moved may take the place of target.
func replaceable(moved, target node) error {
	movedDir, isDir := moved.(*dir)
	switch t := target.(type) {
	case *dir:
		if !isDir {
			return syscall.EISDIR
		}
		if t != movedDir && len(t.entries) > 0 {
			return syscall.ENOTEMPTY
		}
	case *file:
		if isDir {
			return syscall.ENOTDIR
		}
	}
	return nil
}

// Remove implements vfs.FS. An open file lives on without a name.
func (m *FS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.locate("remove", name)
	if err != nil {
		return err
	}
	n, ok := d.entries[base]
	if !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	switch n := n.(type) {
	case *dir:
		if len(n.entries) > 0 {
			return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
		}
	case *file:
		n.unlinked(m)
	}
	d.record(&nameOp{kind: "unlink", name: base})
	return nil
}

// Mkdir implements vfs.FS.
func (m *FS) Mkdir(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mkdir(name)
}

func (m *FS) mkdir(name string) error {
	d, base, err := m.locate("mkdir", name)
	if err != nil {
		return err
	}
	if _, ok := d.entries[base]; ok || base == "" {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	d.record(&nameOp{kind: "mkdir", name: base, set: newDir()})
	return nil
}

// MkdirAll implements vfs.FS.
func (m *FS) MkdirAll(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	clean := path.Clean("/" + name)
	for i := 1; i <= len(clean); i++ {
		if i < len(clean) && clean[i] != '/' {
			continue
		}
		if _, err := m.walk(clean[:i]); err == nil {
			continue
		}
		if err := m.mkdir(clean[:i]); err != nil {
			return err
		}
	}
	return nil
}

// ReadDir implements vfs.FS.
func (m *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.walk(path.Clean("/" + name))
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	list := make([]fs.DirEntry, 0, len(d.entries))
	for base, n := range d.entries {
		list = append(list, fs.FileInfoToDirEntry(m.info(base, n)))
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name() < list[j].Name() })
	return list, nil
}

// Stat implements vfs.FS.
func (m *FS) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, base, err := m.locate("stat", name)
	if err != nil {
		return nil, err
	}
	if base == "" {
		return m.info("/", m.root), nil
	}
	n, ok := d.entries[base]
	if !ok {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	}
	return m.info(base, n), nil
}

// SyncDir implements vfs.FS.
func (m *FS) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, err := m.walk(path.Clean("/" + name))
	if err != nil {
		return &fs.PathError{Op: "sync", Path: name, Err: err}
	}
	for _, op := range d.ops {
		op.makeDurable()
		if op.twin != nil {
			op.twin.makeDurable() // the old name is about to go: never both
		}
	}
	d.ops = nil
	return nil
}

func (op *nameOp) makeDurable() {
	if !op.kept {
		op.kept = true
		op.apply(op.dir.durable)
	}
}

// Lock implements vfs.FS.
func (m *FS) Lock(name string) (io.Closer, error) {
	f, err := m.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	f.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	clean := path.Clean("/" + name)
	if m.locks[clean] {
		return nil, &fs.PathError{Op: "lock", Path: name, Err: vfs.ErrLocked}
	}
	m.locks[clean] = true
	return &lock{fs: m, name: clean}, nil
}

type lock struct {
	fs   *FS
	name string
}

// Close gives the lock back; a second call does nothing.
func (l *lock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	if l.name != "" {
		delete(l.fs.locks, l.name)
		l.name = ""
	}
	return nil
}

// Usage implements vfs.FS. A disk without a limit is 1 TiB.
func (m *FS) Usage(string) (total, free int64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	limit := m.limit
	if limit == 0 {
		limit = 1 << 40 / pageSize
	}
	return limit * pageSize, max(0, limit-m.used) * pageSize, nil
}

type info struct {
	name     string
	size     int64
	mode     fs.FileMode
	modified time.Time
}

func (m *FS) info(name string, n node) fs.FileInfo {
	if f, ok := n.(*file); ok {
		return &info{name: name, size: f.size, mode: f.perm, modified: f.modified}
	}
	return &info{name: name, mode: fs.ModeDir | 0o755}
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) Mode() fs.FileMode  { return i.mode }
func (i *info) ModTime() time.Time { return i.modified }
func (i *info) IsDir() bool        { return i.mode.IsDir() }
func (i *info) Sys() any           { return nil }
