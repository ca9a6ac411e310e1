package repair

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// errReadOnly ends every attempt to change the disk through a view.
var errReadOnly = errors.New("the plan only reads")

// span is the bytes [from, to) of a file.
type span struct{ from, to int64 }

func sizeOf(spans []span) int64 {
	n := int64(0)
	for _, s := range spans {
		n += s.to - s.from
	}
	return n
}

// compose takes spans of a file that is itself made of outer, and returns them
// as spans of the file below.
func compose(outer, inner []span) []span {
	out := []span{}
	for _, in := range inner {
		at := int64(0) // of outer's first byte in the middle file
		for _, o := range outer {
			n := o.to - o.from
			from, to := max(in.from, at), min(in.to, at+n)
			if from < to {
				out = append(out, span{o.from + from - at, o.from + to - at})
			}
			at += n
		}
	}
	return out
}

// view is the disk as it will be when the steps planned so far are done. It
// changes nothing: what a plan says is looked at before a byte is written.
type view struct {
	vfs.FS           // the disk; only read
	mem    *memfs.FS // files with new content
	over   map[string]*override
	dirs   map[string]bool // made in mem
}

// override is what becomes of one file.
type override struct {
	gone  bool
	spans []span // of the file on disk; nil when the content is in mem
}

func newView(fsys vfs.FS) *view {
	return &view{FS: fsys, mem: memfs.New(), over: map[string]*override{}, dirs: map[string]bool{}}
}

// remove takes a file away.
func (v *view) remove(path string) { v.over[path] = &override{gone: true} }

// aside takes a file away and shows that it is kept.
func (v *view) aside(path string) {
	v.remove(path)
	v.kept(path)
}

// kept shows the name under which bytes of a file will be kept; what they are
// nobody asks.
func (v *view) kept(path string) {
	name := path + cutSuffix
	if _, err := v.Stat(name); err != nil {
		_, _ = v.write(name, func(fsys vfs.FS) error { return checkpoint.WriteFile(fsys, name, nil) }) // the memory disk has room
	}
}

// splice makes a file of parts of what it is now.
func (v *view) splice(path string, spans []span) []span {
	if o := v.over[path]; o != nil && o.spans != nil {
		spans = compose(o.spans, spans)
	}
	v.over[path] = &override{spans: append([]span{}, spans...)}
	v.kept(path)
	return spans
}

// write lets make produce the content of a file on the memory disk.
func (v *view) write(path string, make func(fsys vfs.FS) error) ([]byte, error) {
	dir := filepath.Dir(path)
	if !v.dirs[dir] {
		if err := v.mem.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		v.dirs[dir] = true
	}
	if err := make(v.mem); err != nil {
		return nil, err
	}
	v.over[path] = &override{}
	return vfs.ReadFile(v.mem, path)
}

// OpenFile opens for reading.
func (v *view) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if flag != 0 {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errReadOnly}
	}
	switch o := v.over[name]; {
	case o == nil:
		return v.FS.OpenFile(name, 0, perm)
	case o.gone:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case o.spans == nil:
		return v.mem.OpenFile(name, 0, perm)
	default:
		f, err := v.FS.OpenFile(name, 0, perm)
		if err != nil {
			return nil, err
		}
		return &spliced{File: f, spans: o.spans}, nil
	}
}

// Stat describes a file as it will be.
func (v *view) Stat(name string) (fs.FileInfo, error) {
	switch o := v.over[name]; {
	case o == nil:
		return v.FS.Stat(name)
	case o.gone:
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	case o.spans == nil:
		return v.mem.Stat(name)
	default:
		return info{filepath.Base(name), sizeOf(o.spans)}, nil
	}
}

// ReadDir lists a directory as it will be.
func (v *view) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := v.FS.ReadDir(name)
	if err != nil {
		return nil, err
	}
	out := slices.DeleteFunc(slices.Clone(entries), func(e fs.DirEntry) bool {
		return v.over[filepath.Join(name, e.Name())] != nil
	})
	for path, o := range v.over {
		if o.gone || filepath.Dir(path) != filepath.Clean(name) {
			continue
		}
		i, err := v.Stat(path)
		if err != nil {
			return nil, err
		}
		out = append(out, fs.FileInfoToDirEntry(info{filepath.Base(path), i.Size()}))
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

func refused(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: errReadOnly} }

// Rename is refused, as is every other change.
func (v *view) Rename(name, _ string) error { return refused("rename", name) }

// Remove is refused.
func (v *view) Remove(name string) error { return refused("remove", name) }

// Mkdir is refused.
func (v *view) Mkdir(name string, _ fs.FileMode) error { return refused("mkdir", name) }

// MkdirAll is refused.
func (v *view) MkdirAll(name string, _ fs.FileMode) error { return refused("mkdir", name) }

// SyncDir is refused.
func (v *view) SyncDir(name string) error { return refused("sync", name) }

// Lock is refused.
func (v *view) Lock(name string) (io.Closer, error) { return nil, refused("lock", name) }

type info struct {
	name string
	size int64
}

func (i info) Name() string     { return i.name }
func (i info) Size() int64      { return i.size }
func (info) Mode() fs.FileMode  { return 0o644 }
func (info) ModTime() time.Time { return time.Time{} }
func (info) IsDir() bool        { return false }
func (info) Sys() any           { return nil }

// spliced is a file made of parts of another.
type spliced struct {
	vfs.File
	spans []span
}

// ReadAt reads through the parts.
func (s *spliced) ReadAt(p []byte, off int64) (int, error) {
	n, at := 0, int64(0)
	for _, part := range s.spans {
		size := part.to - part.from
		if off+int64(n) < at+size && n < len(p) {
			from := off + int64(n) - at
			want := min(int64(len(p)-n), size-from)
			got, err := s.File.ReadAt(p[n:n+int(want)], part.from+from)
			n += got
			if int64(got) < want {
				return n, errors.Join(err, io.ErrUnexpectedEOF)
			}
		}
		at += size
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Size is the sum of the parts.
func (s *spliced) Size() (int64, error) { return sizeOf(s.spans), nil }

// WriteAt is refused, as is every other change.
func (s *spliced) WriteAt([]byte, int64) (int, error) { return 0, refused("write", s.Name()) }

// WritevAt is refused.
func (s *spliced) WritevAt([][]byte, int64) (int64, error) { return 0, refused("write", s.Name()) }

// Truncate is refused.
func (s *spliced) Truncate(int64) error { return refused("truncate", s.Name()) }

// Map is refused: its bytes do not lie one after the other.
func (s *spliced) Map(int, vfs.MapMode) (vfs.Map, error) { return nil, vfs.ErrUnsupported }

// bench is where the indexes of a segment are built anew: the .log comes from a
// view, the indexes are files of a memory disk.
type bench struct {
	*memfs.FS
	view *view
}

func (b *bench) onView(name string) bool { return strings.HasSuffix(name, segment.LogExt) }

// OpenFile opens a .log for reading, anything else on the memory disk.
func (b *bench) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	if b.onView(name) {
		return b.view.OpenFile(name, 0, perm)
	}
	return b.FS.OpenFile(name, flag, perm)
}

// Stat describes a file of either disk.
func (b *bench) Stat(name string) (fs.FileInfo, error) {
	if b.onView(name) {
		return b.view.Stat(name)
	}
	return b.FS.Stat(name)
}
