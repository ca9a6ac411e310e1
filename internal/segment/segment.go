// Package segment is one .log file of a partition with its three indexes: it
// appends batches and their index entries in Kafka's order, finds the bytes that
// answer a read, and recovers what a crash left (Kafka's LogSegment).
//
// Before it on the path: commitlog, which orders segments into a log and is the
// only writer of each. After it: index, record for the framing, and the disk.
package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/invariant"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// Errors that callers branch on.
var (
	// ErrClosed is returned once the segment was closed or deleted.
	ErrClosed = errors.New("segment is closed")
	// ErrTooLong is returned for an append that would make the file longer than 2^31-1 bytes.
	ErrTooLong = errors.New("segment would be longer than 2^31-1 bytes")
	// ErrOverflow is returned, as *index.OverflowError, for an offset beyond the base + 2^31-1.
	ErrOverflow = index.ErrOverflow
	// ErrIndexFull is returned, with nothing written, for an append of several
	// batches whose index entries have no room. The log rolls and tries again.
	ErrIndexFull = index.ErrFull
)

// Options go with Open. IndexInterval and MaxIndexBytes are the topic's at that
// time: a segment keeps them while it is open.
type Options struct {
	IndexInterval int64           // index.interval.bytes
	MaxIndexBytes int             // segment.index.bytes
	Now           kafka.Timestamp // when the segment is opened; a roll by time counts from it
	RollJitterMs  int64           // what a roll by time comes earlier
	Suffix        string          // appended to every file name; empty for a live segment
	// Create makes a new .log file. It must not exist yet.
	Create bool
	// Preallocate reserves this many bytes when the file is created; 0 reserves
	// none then. The length of the file stays the bytes written.
	Preallocate int64
	// SegmentBytes is segment.bytes: blocks are not reserved past it.
	SegmentBytes int64
	// ReadOnly writes nothing: for tools that look at a directory.
	ReadOnly bool
	// Files bounds how many sealed segments have their files open. Nil: no bound.
	Files *Files
	// OnError is told about a close or an unlinking that failed after the last
	// reader had gone, when its owner no longer waits. May be nil.
	OnError func(error)
	// OnDamage is told once about each part of the .log that turns out to be
	// damaged, OnRebuilt about each index that was made anew for it was wrong. An
	// error of the disk on that way goes to OnRebuildError, a page of a mapped index
	// that cannot be read or written to OnFault. All may be nil.
	OnDamage       func(path string, d BadRange)
	OnRebuilt      func(Rebuilt)
	OnRebuildError func(error)
	OnFault        func(path string, page int64, write bool, err error)
	// Clock measures how long a rebuild takes; nil: that is not said.
	Clock func() time.Time
}

// Segment is one .log file and its indexes. Its files are opened at their first
// use, so that a log of thousands of segments opens only those that are read.
//
// The owner (commitlog, under the mutex of its log) is the only writer: Append,
// ShouldRoll, Seal, TruncateTo, Recover and Close are its. Reads, time lookups
// and Flush run beside it without a lock, on what Append published.
type Segment struct {
	fs   vfs.FS
	base kafka.Offset
	opts Options

	offsets *index.OffsetIndex
	times   *index.TimeIndex
	txns    *index.TxnIndex

	// size is the end of the last whole batch. Readers see no byte behind it.
	size atomic.Int64
	// hold is what readers keep the segment by; nil once it was closed or deleted.
	hold atomic.Pointer[hold]
	// ring remembers where the last batches start; nil until a reader asked.
	ring atomic.Pointer[ring]
	// active says that the segment is written to: its indexes have their full
	// length, and it is not closed for want of use. Stored by the writer.
	active atomic.Bool
	// unsynced says that the .log changed since the last sync of it, unflushed
	// that it or an index did since the last Flush. While one of them holds the
	// files stay open: an error of the disk is told to descriptors that were open
	// when it happened.
	unsynced, unflushed atomic.Bool

	flushMu sync.Mutex // one Flush at a time; taken before syncMu
	syncMu  sync.Mutex // one sync of the .log at a time

	// files bounds how many sealed segments are open; nil without a bound.
	files *Files
	// listed says that files knows of this segment as an open one, used that it
	// was used since files last looked.
	listed, used atomic.Bool
	// coolMu is held while the segment is closed for want of use, and while its
	// owner makes it active or lets it go.
	coolMu sync.Mutex

	// What is known to be wrong with the .log, and of the indexes.
	damage    atomic.Pointer[[]BadRange]
	damageMu  sync.Mutex // one change of damage at a time
	offsetVet vetting
	timeVet   vetting
	txnGate   atomic.Pointer[txnGate] // nil: nothing is known to be wrong with the transaction index

	mu     sync.Mutex // opening the .log, renaming and closing
	dir    string     // guarded by mu
	suffix string     // guarded by mu
	// retired says that another segment may get the names of the files; guarded by mu.
	retired bool

	maxMu sync.Mutex // the largest timestamp, which retention and lookups read
	max   index.TimePosition
	// maxKnown is false until the time index was asked; guarded by maxMu.
	maxKnown bool

	// The writer's own.
	sinceEntry   int64 // bytes appended since the last index entry
	created      kafka.Timestamp
	rolling      kafka.Timestamp // of the first batch; -1 while unknown
	broken       error           // a failed write that could not be cut back
	reserved     int64           // blocks of the .log exist below it
	reserveStart int64           // length at open, from which the first MiB counts
	noReserve    bool
	vec          [][]byte
}

// logFile lets an interface be stored atomically.
type logFile struct{ vfs.File }

// hold counts the readers of a segment: one for its owner, one for each region
// on its way to a socket. When the owner lets go, the last one out runs then.
//
// The .log is open from its first use on for as long as the hold lives: its
// readers share the descriptor, and nobody closes it under them.
type hold struct {
	refs    atomic.Int64
	log     atomic.Pointer[logFile]
	release func() // bound once, so that handing out a region allocates nothing
	gone    chan struct{}
	then    func() error // set before the owner's reference is dropped; may be nil
}

func newHold(onError func(error)) *hold {
	h := &hold{gone: make(chan struct{})}
	h.refs.Store(1)
	h.release = func() {
		if _, err := h.drop(); err != nil && onError != nil {
			onError(err)
		}
	}
	return h
}

func (h *hold) take() bool {
	for {
		n := h.refs.Load()
		if n == 0 {
			return false
		}
		if h.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// drop gives a reference back. The last one out runs h.then and gets its error.
func (h *hold) drop() (last bool, err error) {
	n := h.refs.Add(-1)
	if n < 0 {
		invariant.Violated("segment released %d times too often", -n)
	}
	if n > 0 {
		return false, nil
	}
	if h.then != nil {
		err = h.then()
	}
	if f := h.log.Load(); f != nil {
		err = errors.Join(f.Close(), err)
	}
	close(h.gone)
	return true, err
}

// Open opens the segment of a directory that starts at base, or makes it.
func Open(fsys vfs.FS, dir string, base kafka.Offset, o Options) (*Segment, error) {
	s := &Segment{fs: fsys, base: base, opts: o, dir: dir, suffix: o.Suffix, created: o.Now, rolling: kafka.NoTimestamp, files: o.Files}
	at := func(ext string) index.Options {
		return index.Options{FS: fsys, Path: s.pathLocked(ext), Base: base, MaxBytes: o.MaxIndexBytes, ReadOnly: o.ReadOnly, OnFault: o.OnFault}
	}
	s.offsets = index.NewOffset(at(IndexExt))
	s.times = index.NewTime(at(TimeIndexExt))
	s.txns = index.NewTxn(at(TxnIndexExt))
	s.hold.Store(newHold(o.OnError))
	if o.Create {
		if err := s.create(); err != nil {
			return nil, err
		}
		return s, nil
	}
	info, err := fsys.Stat(s.pathLocked(LogExt))
	if err != nil {
		return nil, err
	}
	if info.Size() > math.MaxInt32 {
		return nil, fmt.Errorf("%s: %w", s.pathLocked(LogExt), ErrTooLong)
	}
	s.size.Store(info.Size())
	s.reserveStart = info.Size()
	return s, nil
}

func (s *Segment) create() error {
	file, err := s.fs.OpenFile(s.Path(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if s.opts.Preallocate > 0 {
		err := file.Reserve(0, s.opts.Preallocate)
		if err != nil && !errors.Is(err, vfs.ErrUnsupported) {
			return errors.Join(err, file.Close(), s.fs.Remove(s.Path()))
		}
		s.reserved = s.opts.Preallocate
	}
	s.activate()
	s.hold.Load().log.Store(&logFile{file})
	return nil
}

// file returns the open .log to the segment's owner, while the segment is active.
func (s *Segment) file() (vfs.File, error) {
	h := s.hold.Load()
	if h == nil {
		return nil, ErrClosed
	}
	return s.open(h)
}

// use holds the segment and returns its open .log; the caller drops the hold.
func (s *Segment) use() (*hold, vfs.File, error) {
	h, ok := s.take()
	if !ok {
		return nil, nil, ErrClosed
	}
	f, err := s.open(h)
	if err != nil {
		h.release()
		return nil, nil, err
	}
	return h, f, nil
}

// open opens the .log under a hold that the caller has a reference on.
func (s *Segment) open(h *hold) (vfs.File, error) {
	if f := h.log.Load(); f != nil {
		return f.File, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := h.log.Load(); f != nil {
		return f.File, nil
	}
	if s.retired {
		return nil, ErrClosed
	}
	flag := os.O_RDWR
	if s.opts.ReadOnly {
		flag = os.O_RDONLY
	}
	f, err := s.fs.OpenFile(s.pathLocked(LogExt), flag, 0)
	if err != nil {
		return nil, err
	}
	h.log.Store(&logFile{f})
	return f, nil
}

func (s *Segment) pathLocked(ext string) string {
	return filepath.Join(s.dir, Name(s.base, ext)+s.suffix)
}

// BaseOffset is the offset that the segment's files are named after.
func (s *Segment) BaseOffset() kafka.Offset { return s.base }

// Size is the length of the .log in bytes, up to the last whole append.
func (s *Segment) Size() int64 { return s.size.Load() }

// Path is where the .log is now.
func (s *Segment) Path() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pathLocked(LogExt)
}

// Created is when the segment was opened, or emptied by a truncation.
func (s *Segment) Created() kafka.Timestamp { return s.created }

// Offsets, Times and Txns are the segment's indexes, for tools and tests.
func (s *Segment) Offsets() *index.OffsetIndex { return s.offsets }

// Times is the time index.
func (s *Segment) Times() *index.TimeIndex { return s.times }

// Txns is the index of aborted transactions.
func (s *Segment) Txns() *index.TxnIndex { return s.txns }

// Acquire keeps the files of the segment as they are until release is called,
// exactly once. ok is false when the segment was closed or deleted: the caller
// looks at the list of segments again.
func (s *Segment) Acquire() (release func(), ok bool) {
	h, ok := s.take()
	if !ok {
		return nil, false
	}
	return h.release, true
}

func (s *Segment) take() (*hold, bool) {
	s.touch()
	for {
		h := s.hold.Load()
		if h == nil {
			return nil, false
		}
		if h.take() {
			return h, true
		}
	}
}

// waitForReaders lets new readers take a new hold, of the same open file, and
// waits until those of the old one have gone. The .log must be open.
func (s *Segment) waitForReaders() {
	old := s.hold.Load()
	if old == nil {
		return
	}
	next := newHold(s.opts.OnError)
	next.log.Store(old.log.Swap(nil))
	s.hold.Store(next)
	_, _ = old.drop() // nothing is to be done at the end of this hold
	<-old.gone
}

// IndexFileExists reports whether the .index is there; a segment without one is recovered.
func (s *Segment) IndexFileExists() (bool, error) {
	_, err := s.fs.Stat(s.offsets.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
