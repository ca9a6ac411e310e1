package repair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
)

// cutSuffix ends the name of everything that is kept of what was dropped or
// replaced. Kafka ignores such names in a partition directory and beside them.
const cutSuffix = commitlog.CutSuffix

// Apply makes a plan and does it, under the lock of every data directory it is
// about. It returns the plan that was done and what a last check finds. A run
// that was stopped is continued by the next one.
func Apply(ctx context.Context, o Options) (Plan, verify.Result, error) {
	var result verify.Result
	locks, err := lock(o)
	defer func() { unlock(o.FS, locks) }()
	if err != nil {
		return Plan{}, result, err
	}
	plan, err := Make(ctx, o)
	if err != nil {
		return plan, result, err
	}
	for i := range plan.Steps {
		if err := ctx.Err(); err != nil {
			return plan, result, err
		}
		s := &plan.Steps[i]
		if err := s.apply(o.FS); err != nil {
			return plan, result, fmt.Errorf("%s %s: %w", s.Kind, s.File, err)
		}
		if o.Done != nil {
			o.Done(s)
		}
	}
	result, err = verify.Check(ctx, verify.Options{FS: o.FS, Paths: o.Paths, Node: o.Node, Parallel: o.Parallel, Progress: o.Progress})
	return plan, result, err
}

// heldLock is the lock of a data directory. One that nobody had left behind is
// removed again, as a clean stop does.
type heldLock struct {
	path  string
	fresh bool
	io.Closer
}

// lock takes the locks of the data directories that the paths are in. What is
// no data directory cannot be in use by a broker.
func lock(o Options) ([]heldLock, error) {
	p := &planner{o: o, view: newView(o.FS)}
	var held []heldLock
	seen := map[string]bool{}
	for _, path := range o.Paths {
		dir := filepath.Clean(path)
		if _, ok := livePartition(dir); ok && !p.formatted(dir) {
			dir = filepath.Join(dir, "..")
		}
		if seen[dir] || !p.formatted(dir) {
			continue
		}
		seen[dir] = true
		name := filepath.Join(dir, checkpoint.LockFile)
		_, err := o.FS.Stat(name)
		fresh := errors.Is(err, fs.ErrNotExist)
		l, err := o.FS.Lock(name)
		if errors.Is(err, vfs.ErrLocked) {
			return held, fmt.Errorf("%w: %w", ErrInUse, err)
		}
		if err != nil {
			return held, err
		}
		held = append(held, heldLock{name, fresh, l})
	}
	return held, nil
}

func unlock(fsys vfs.FS, held []heldLock) {
	for _, l := range held {
		if l.fresh {
			_ = fsys.Remove(l.path) // an empty file that is left means nothing
		}
		_ = l.Close() // the lock goes with the descriptor, whatever close says
	}
}

// apply does one step. Whatever it drops or replaces is durable under another
// name before the file is touched.
func (s *Step) apply(fsys vfs.FS) error {
	switch {
	case s.Kind == Truncate:
		return s.truncate(fsys)
	case s.spans != nil:
		return s.replaceLog(fsys)
	case s.Kind == MoveAside:
		return moveAside(fsys, s.File)
	}
	if err := syncAll(fsys, s.syncs); err != nil {
		return err
	}
	if err := keep(fsys, s.File, 0); err != nil {
		return err
	}
	return checkpoint.WriteFile(fsys, s.File, s.data)
}

func syncFile(fsys vfs.FS, path string) error {
	f, err := fsys.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// truncate cuts a .log and keeps what was behind the cut.
func (s *Step) truncate(fsys vfs.FS) error {
	if err := keep(fsys, s.File, s.To); err != nil {
		return err
	}
	f, err := fsys.OpenFile(s.File, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err = f.Truncate(s.To); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// replaceLog puts a .log together of its good batches and keeps the old one.
// The indexes go first: without them a start rebuilds, with wrong ones it
// would look in wrong places.
func (s *Step) replaceLog(fsys vfs.FS) error {
	if err := keep(fsys, s.File, 0); err != nil {
		return err
	}
	tmp := s.File + ".tmp"
	err := copyTo(fsys, s.File, s.spans, tmp)
	n, _ := segment.ParseName(filepath.Base(s.File))
	dir := filepath.Dir(s.File)
	for _, ext := range []string{segment.IndexExt, segment.TimeIndexExt, segment.TxnIndexExt} {
		if err == nil {
			err = moveAside(fsys, filepath.Join(dir, segment.Name(n.Base, ext)))
		}
	}
	if err == nil {
		err = fsys.Rename(tmp, s.File)
	}
	if err == nil {
		err = fsys.SyncDir(dir)
	}
	return err
}

// moveAside renames a file; one that is not there was moved before.
func moveAside(fsys vfs.FS, path string) error {
	if _, err := fsys.Stat(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for i := 0; ; i++ {
		name := numbered(path, i)
		if _, err := fsys.Stat(name); errors.Is(err, fs.ErrNotExist) {
			if err := fsys.Rename(path, name); err != nil {
				return err
			}
			return fsys.SyncDir(filepath.Dir(path))
		} else if err != nil {
			return err
		}
	}
}

func numbered(path string, i int) string {
	if i == 0 {
		return path + cutSuffix
	}
	return fmt.Sprintf("%s%s.%d", path, cutSuffix, i)
}

// largestCopy bounds the small files that are copied: one that is longer is sparse
// or foreign, and is renamed.
const largestCopy = 1 << 30

// keep copies a file from a byte on to a name beside it, unless that has been
// done already. A file that is not there has nothing to keep.
func keep(fsys vfs.FS, path string, from int64) error {
	f, err := fsys.OpenFile(path, 0, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, vfs.ErrNotRegular) {
		return moveAside(fsys, path)
	}
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if size <= from {
		return nil
	}
	if from == 0 && size > largestCopy && filepath.Ext(path) != segment.LogExt {
		return moveAside(fsys, path) // a start makes it anew should this end here
	}
	part := []span{{from, size}}
	for i := 0; ; i++ {
		name := numbered(path, i)
		same, err := holds(fsys, name, path, part)
		if errors.Is(err, fs.ErrNotExist) {
			tmp := name + ".tmp"
			if err := copyTo(fsys, path, part, tmp); err != nil {
				return err
			}
			if err := fsys.Rename(tmp, name); err != nil {
				return err
			}
			return fsys.SyncDir(filepath.Dir(path))
		}
		if err != nil {
			return err
		}
		if same {
			return fsys.SyncDir(filepath.Dir(path)) // an earlier run may have stopped just before
		}
	}
}

// holds reports whether a file is a copy of parts of another.
func holds(fsys vfs.FS, name, of string, parts []span) (bool, error) {
	f, err := fsys.OpenFile(name, 0, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil || size != sizeOf(parts) {
		return false, err
	}
	from, err := fsys.OpenFile(of, 0, 0)
	if err != nil {
		return false, err
	}
	defer from.Close()
	same := true
	err = eachPiece(&spliced{File: from, spans: parts}, func(b []byte, at int64) error {
		other := make([]byte, len(b))
		if n, err := f.ReadAt(other, at); n < len(other) {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		same = same && bytes.Equal(b, other)
		return nil
	})
	return same, err
}

// copyTo writes parts of a file to another, synced. Zeros, which a preallocated
// index is full of, stay holes.
func copyTo(fsys vfs.FS, of string, parts []span, name string) error {
	from, err := fsys.OpenFile(of, 0, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	err = eachPiece(&spliced{File: from, spans: parts}, func(b []byte, at int64) error {
		if !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
			return nil
		}
		_, err := out.WriteAt(b, at)
		return err
	})
	if err == nil {
		err = out.Truncate(sizeOf(parts))
	}
	if err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

func eachPiece(f *spliced, visit func(b []byte, at int64) error) error {
	buf := make([]byte, 256<<10)
	size := sizeOf(f.spans)
	for at := int64(0); at < size; at += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), size-at)]
		if n, err := f.ReadAt(b, at); n < len(b) {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		if err := visit(b, at); err != nil {
			return err
		}
	}
	return nil
}
