package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/varvelog/varve/internal/vfs"
)

// Close is the clean end of a log: everything is flushed, a producer snapshot
// at the end offset is left, indexes are cut to their entries and the files
// closed. The recovery point is then the end offset. A second call does nothing.
// A log that is offline is closed without another write, and Close returns why
// it is: it was not closed cleanly.
func (l *Log) Close() error {
	if l.closed.Load() {
		return nil
	}
	if failed := l.Failure(); failed != nil {
		return errors.Join(failed, l.Abandon())
	}
	err := l.closeClean()
	switch {
	case vfs.IsFull(err):
		err = &fullError{fmt.Errorf("%s: close: %w", l.partition, err)} // the disk is well, and the next start recovers
	case err != nil:
		err = l.fail("close", err)
	}
	return errors.Join(err, l.Abandon())
}

func (l *Log) closeClean() error {
	l.mu.Lock()
	err := l.segments.Load().active().Seal()
	end := l.end.get()
	l.unlock()
	if err != nil {
		return err
	}
	if err := l.flush(end+1, end, false); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.unlock()
	if l.epochOwed {
		// Without room it stays owed: the next load finds out the same.
		if err := l.replaceEpochs(); err != nil && !vfs.IsFull(err) {
			return err
		}
	}
	if err := l.snapshot(l.producers); err != nil {
		return err
	}
	for _, s := range l.segments.Load().segs {
		if err := s.Close(); err != nil {
			return err
		}
	}
	return l.fs.SyncDir(l.Dir())
}

// Abandon closes the files as they are and writes nothing: for a directory that
// is offline, and for tests of a crash.
func (l *Log) Abandon() error {
	l.mu.Lock()
	defer l.unlock()
	l.closed.Store(true)
	l.synced.wake()
	var err error
	for _, s := range l.segments.Load().segs {
		err = errors.Join(err, s.Abandon())
	}
	return err
}

// Delete closes the log and removes its directory with everything in it.
// Regions that are being sent stay readable.
func (l *Log) Delete() error {
	defer l.excludeFlushes()() // one under way would miss its files, and take that for a failing disk
	err := l.Abandon()
	dir := l.Dir()
	entries, lerr := l.fs.ReadDir(dir)
	if errors.Is(lerr, fs.ErrNotExist) {
		return err
	}
	err = errors.Join(err, lerr)
	for _, e := range entries {
		if rerr := l.fs.Remove(filepath.Join(dir, e.Name())); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	if err != nil {
		return err
	}
	return errors.Join(l.fs.Remove(dir), l.fs.SyncDir(filepath.Dir(dir)))
}

// Rename moves the log to another directory, as deletion and moves between data
// directories do. Appends and reads go on; what is written beside them is waited
// for: it would miss its files, and take that for a failing disk.
func (l *Log) Rename(dir string) error {
	defer l.excludeFlushes()()
	l.mu.Lock()
	defer l.unlock()
	l.epochMu.Lock()
	defer l.epochMu.Unlock()
	if l.closed.Load() {
		return ErrClosed
	}
	old := l.Dir()
	if old == dir {
		return nil
	}
	if err := l.fs.Rename(old, dir); err != nil {
		return l.writeErrorLocked("rename", err)
	}
	l.dir.Store(&dir)
	l.producers.SetDir(dir)
	for _, s := range l.segments.Load().segs {
		s.SetDir(dir)
	}
	if err := l.fs.SyncDir(filepath.Dir(dir)); err != nil {
		return l.fail("rename", err)
	}
	return nil
}

// TakeProducerSnapshot writes the producer state at the end offset, as the
// schedule of the metadata log and tests do.
func (l *Log) TakeProducerSnapshot() error {
	l.mu.Lock()
	defer l.unlock()
	_, err := l.producers.TakeSnapshot(true)
	return l.writeErrorLocked("producer snapshot", err)
}
