package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// Seal is what happens to the active segment at a roll: the time index gets its
// final entry, the indexes are cut to their entries, and the blocks reserved
// ahead of the .log are given back. It makes nothing durable: Flush does.
func (s *Segment) Seal() error {
	s.unflushed.Store(true) // before others may close the files
	if err := s.trimIndexes(); err != nil {
		return err
	}
	return s.giveBackBlocks()
}

func (s *Segment) giveBackBlocks() error {
	if s.reserved <= s.size.Load() {
		return nil
	}
	h, f, err := s.use() // it is sealed already: others may close it for want of use
	if err != nil {
		return err
	}
	defer h.release()
	s.reserved = 0
	err = f.Truncate(s.size.Load())
	s.changed()
	return err
}

// changed notes that the .log is not durable as it is now.
func (s *Segment) changed() {
	s.unflushed.Store(true)
	s.unsynced.Store(true)
}

// SyncData makes the .log durable as far as it was written before the call
// (fdatasync), and leaves the indexes, which a recovery makes anew. It may run
// beside Append. With alone it syncs although nothing has changed. After an
// error the data directory must not be trusted.
func (s *Segment) SyncData(alone bool) error {
	// One sync at a time: who finds nothing to sync must not return before the
	// sync of the one that took it on has ended.
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if !alone && !s.unsynced.Load() {
		return nil
	}
	h, f, err := s.use()
	if errors.Is(err, ErrClosed) {
		return nil // deleted, or closed, which flushes
	}
	if err != nil {
		return err
	}
	defer h.release()
	s.unsynced.Store(false) // before: what is written beside this is for the next one
	if err := f.SyncData(); err != nil {
		s.unsynced.Store(true) // whoever comes next must not take it for durable
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

// Flush makes the segment durable: first the .log, then the indexes, as far as
// they changed. It may run beside Append. After an error the data directory must not be trusted.
func (s *Segment) Flush() error {
	h, ok := s.take()
	if !ok {
		return nil // deleted, or closed, which flushes
	}
	defer h.release()
	s.flushMu.Lock()
	s.unflushed.Store(false) // before: what is written beside this is for the next one
	err := s.flushFiles()
	if err != nil {
		s.unflushed.Store(true)
	}
	s.flushMu.Unlock()
	s.files.shrink(nil) // it may be closed from now on
	return err
}

func (s *Segment) flushFiles() error {
	if err := s.SyncData(false); err != nil {
		return err
	}
	for _, flush := range []func() error{s.offsets.Flush, s.times.Flush, s.txns.Flush} {
		if err := flush(); err != nil {
			return fmt.Errorf("flush index: %w", err)
		}
	}
	return nil
}

// Close is the clean end of the segment: it is sealed if it was written to,
// flushed if anything was not yet, and closed when the last region that is being
// sent has gone. A second call does nothing.
func (s *Segment) Close() error {
	if s.hold.Load() == nil {
		return nil
	}
	var err error
	sealed := s.active.Load() && !s.opts.ReadOnly
	if sealed {
		err = s.Seal()
	}
	if err == nil && (sealed || s.unflushed.Load()) {
		err = s.Flush()
	}
	return errors.Join(err, s.Abandon())
}

// Abandon closes the files as they are and writes nothing more: for a data
// directory that must not be touched again, and for the -delete and -stray ones.
func (s *Segment) Abandon() error { return s.letGo(s.closeFiles) }

// Retire takes a segment out of use whose place a rewritten one has taken. Its
// regions that are being sent stay readable, and its files stay until Delete; but
// nothing opens them any more: the next rewrite gives their names to other files.
func (s *Segment) Retire() error {
	s.mu.Lock()
	s.retired = true
	s.mu.Unlock()
	return s.letGo(s.closeFiles)
}

// Delete closes the segment and unlinks its files, at once or when the last
// region that is being sent has gone.
func (s *Segment) Delete() error {
	s.mu.Lock()
	retired := s.retired
	s.mu.Unlock()
	if retired {
		return s.unlink()
	}
	return s.letGo(func() error { return errors.Join(s.closeFiles(), s.unlink()) })
}

// letGo drops the owner's reference; the last reader out, or the owner itself,
// runs then. A second call does nothing.
func (s *Segment) letGo(then func() error) error {
	s.coolMu.Lock()
	h := s.hold.Swap(nil)
	s.coolMu.Unlock()
	if h == nil {
		return nil
	}
	if s.files != nil {
		s.files.forget(s)
	}
	h.then = then
	_, err := h.drop()
	return err
}

// closeFiles closes the indexes; the .log is closed with the last hold.
func (s *Segment) closeFiles() error {
	return errors.Join(s.offsets.Close(), s.times.Close(), s.txns.Close())
}

func (s *Segment) unlink() error {
	return errors.Join(removeIfThere(s.fs, s.Path()), s.offsets.Delete(), s.times.Delete(), s.txns.Delete())
}

// RemoveFiles unlinks the files of a segment that is not open; those that are
// missing are passed over.
func RemoveFiles(fsys vfs.FS, dir string, base kafka.Offset, suffix string) error {
	var err error
	for _, ext := range []string{LogExt, IndexExt, TimeIndexExt, TxnIndexExt} {
		err = errors.Join(err, removeIfThere(fsys, filepath.Join(dir, Name(base, ext)+suffix)))
	}
	return err
}

// ChangeSuffix renames the four files: ("", DeletedSuffix) marks a segment as
// deleted, (CleanedSuffix, SwapSuffix) and (SwapSuffix, "") bring a rewritten one
// in. Open files and regions being sent stay valid.
func (s *Segment) ChangeSuffix(to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.pathLocked(LogExt)
	s.suffix = to
	return errors.Join(
		s.fs.Rename(old, s.pathLocked(LogExt)),
		s.offsets.Rename(s.pathLocked(IndexExt)),
		s.times.Rename(s.pathLocked(TimeIndexExt)),
		s.txns.Rename(s.pathLocked(TxnIndexExt)),
	)
}

// SetDir tells where the files are now that their directory was renamed.
func (s *Segment) SetDir(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dir = dir
	s.offsets.SetPath(s.pathLocked(IndexExt))
	s.times.SetPath(s.pathLocked(TimeIndexExt))
	s.txns.SetPath(s.pathLocked(TxnIndexExt))
}

// SanityCheck is what Kafka checks of a segment that it loads after a clean
// stop: there is an .index, and the transaction index is not corrupt. The error
// is index.ErrCorrupt when the segment must be recovered. A missing time index
// is made, empty.
func (s *Segment) SanityCheck() error {
	s.touch()
	exists, err := s.IndexFileExists()
	if err != nil {
		return err
	}
	if !exists {
		return &index.CorruptError{Path: s.offsets.Path(), Reason: "the file is missing"}
	}
	for _, path := range []string{s.offsets.Path(), s.times.Path()} {
		if err := s.indexSizeIsSane(path); err != nil {
			return err
		}
	}
	return s.txns.SanityCheck()
}

// indexSizeIsSane refuses an index that is longer than Kafka can make one: a
// lookup would read terabytes of nothing.
func (s *Segment) indexSizeIsSane(path string) error {
	info, err := s.fs.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.Size() > math.MaxInt32 {
		return &index.CorruptError{Path: path, Reason: fmt.Sprintf("%d bytes are more than an index can have", info.Size())}
	}
	return err
}

func removeIfThere(fsys vfs.FS, path string) error {
	if err := fsys.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
