package sim

import (
	"io/fs"
	"strings"

	"github.com/varvelog/varve/internal/vfs"
)

// planted is a disk with a bug: some syncs are not done, and answered as if they
// were. A row that does not find it proves nothing.
type planted struct {
	vfs.FS
	dirs  func(name string) bool // syncs of directories that are swallowed
	files func(name string) bool // and of files
}

// noDirSync swallows every sync of a directory.
func noDirSync(fsys vfs.FS) vfs.FS {
	return &planted{FS: fsys, dirs: func(string) bool { return true }}
}

// noLogSync swallows the syncs of .log files: what is acknowledged is not durable.
func noLogSync(fsys vfs.FS) vfs.FS {
	return &planted{FS: fsys, files: func(name string) bool { return strings.HasSuffix(name, ".log") }}
}

// noSmallSync swallows the syncs of files that replace others.
func noSmallSync(fsys vfs.FS) vfs.FS {
	return &planted{FS: fsys, files: func(name string) bool { return strings.HasSuffix(name, ".tmp") }}
}

// SyncDir implements vfs.FS.
func (p *planted) SyncDir(name string) error {
	if p.dirs != nil && p.dirs(name) {
		return nil
	}
	return p.FS.SyncDir(name)
}

// OpenFile implements vfs.FS.
func (p *planted) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := p.FS.OpenFile(name, flag, perm)
	if err != nil || p.files == nil || !p.files(name) {
		return f, err
	}
	return &unsynced{f}, nil
}

// unsynced is a file whose syncs do nothing.
type unsynced struct{ vfs.File }

// Sync implements vfs.File.
func (*unsynced) Sync() error { return nil }

// SyncData implements vfs.File.
func (*unsynced) SyncData() error { return nil }

// retrySync tries a failed sync again, and believes the second answer: the kernel
// has dropped the pages and calls them clean.
func retrySync(fsys vfs.FS) vfs.FS { return &retrying{fsys} }

type retrying struct{ vfs.FS }

// SyncDir implements vfs.FS.
func (r *retrying) SyncDir(name string) error {
	if err := r.FS.SyncDir(name); err == nil {
		return nil
	}
	return r.FS.SyncDir(name)
}

// OpenFile implements vfs.FS.
func (r *retrying) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := r.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &retryingFile{f}, nil
}

type retryingFile struct{ vfs.File }

// Sync implements vfs.File.
func (f *retryingFile) Sync() error {
	if err := f.File.Sync(); err == nil {
		return nil
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *retryingFile) SyncData() error { return f.Sync() }
