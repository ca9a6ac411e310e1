// Package index holds the three indexes of a segment. The offset and the time
// index are sparse arrays of fixed entries in preallocated files, written and
// read through a map while their segment is active and read by pread once it
// is sealed; the transaction index is a short plain file. All of them can be
// rebuilt from the .log file.
//
// Before it on the path: segment, which decides when an entry is due. After it:
// the disk.
package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/internal/invariant"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

const (
	// reserveStep is how far ahead of the writer blocks are reserved: 8,192
	// offset entries, which stand for 32 MiB of log at the default interval.
	reserveStep = 64 << 10
	// pageSize is what one page fault or one pread of a lookup brings in.
	pageSize = 4096
)

// Options say which file an index is and how long it may become.
type Options struct {
	FS   vfs.FS
	Path string
	Base kafka.Offset // of the segment; entries hold offsets relative to it
	// MaxBytes is segment.index.bytes: the length of the file while its segment
	// is active, rounded down to whole entries. The transaction index has no limit.
	MaxBytes int
	// ReadOnly never creates, sizes or writes the file. A file that is not
	// there is fs.ErrNotExist at the first use.
	ReadOnly bool
	// OnFault is told about a mapped page that could not be read or, when write,
	// written; the entries on it are read or written by system calls then. May be nil.
	OnFault func(path string, page int64, write bool, err error)
}

// mapped is what the offset and the time index have in common: a file of
// entries of one size, sorted by a key, of which the first count are valid.
//
// It holds only a path until its first use (Kafka's LazyIndex), so that opening
// thousands of segments opens and maps nothing. The segment's owner is the only
// writer. Readers run beside it without a lock: they take a reference on the
// current view, which fixes the memory and the count that they may use. Whoever
// wants to shorten the file, unmap it or overwrite entries first publishes a
// view without them and waits until the last reader of the old view has gone.
// So no memory is touched past the end of a file or after its unmapping, and no
// reader sees an entry change.
//
// Stores go through the map, into blocks that were reserved before: a store
// into a hole on a full disk would fault. Where blocks cannot be reserved, or
// are copied on write and fault all the same, entries are written by pwrite and
// the map is for reading only.
type mapped struct {
	fs       vfs.FS
	base     kafka.Offset
	entry    int // bytes of an entry: 8 or 12
	perPage  int // entries that one fence key stands for
	maxBytes int64
	readOnly bool
	onFault  func(path string, page int64, write bool, err error)

	cur atomic.Pointer[view] // nil before the first use and after Close

	mu     sync.Mutex // opening, closing, renaming and replacing the view
	path   string     // guarded by mu
	closed bool       // guarded by mu
	opened bool       // once at least; guarded by mu
	m      vfs.Map    // guarded by mu; nil unless mapped
	// The fence of a file that Cool closed, and the entries it is of; guarded by mu.
	kept      *[]int64
	keptCount int64

	fenceMu sync.Mutex // one builder of a fence at a time
	flushMu sync.Mutex // one flush at a time, and none while entries are cut; taken before mu

	// The writer's own.
	length     atomic.Int64 // of the file; stored by the writer only
	reservedTo int64        // blocks below it exist, from the writer's position on
	pwrite     bool         // entries are written by pwrite
	unmappable bool         // the file cannot be mapped; it is read by pread
	scratch    [timeEntrySize]byte

	flushed    atomic.Int64 // entry bytes below it are durable
	lengthOwed atomic.Bool  // the length changed since the last sync
	blank      atomic.Bool  // made here, at its full length, and never had an entry
}

// view is what a reader may use: everything in it stays valid and unchanged
// until the reader gives its reference back.
type view struct {
	file  vfs.File
	m     vfs.Map      // for Flush; nil when the file is read by pread
	data  []byte       // the map's memory, or nil
	heap  bool         // data is memory of this process, and not the file's
	count atomic.Int64 // entries readers may see; bytes past them are never touched
	// fence holds the key of the first entry of each page; nil until it is
	// built. The slice may be longer than the pages of count.
	fence atomic.Pointer[[]int64]
	refs  atomic.Int64 // one for being current, one for each reader
	told  atomic.Bool  // a fault of its memory was reported
	gone  chan struct{}
}

func newView(file vfs.File, m vfs.Map, count int64, fence *[]int64) *view {
	v := &view{file: file, m: m, gone: make(chan struct{})}
	if m != nil {
		v.data = m.Bytes()
	}
	v.count.Store(count)
	v.fence.Store(fence)
	v.refs.Store(1)
	return v
}

func (v *view) acquire() bool {
	for {
		n := v.refs.Load()
		if n == 0 {
			return false
		}
		if v.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (v *view) release() {
	if n := v.refs.Add(-1); n == 0 {
		close(v.gone)
	} else if n < 0 {
		invariant.Violated("index view released %d times too often", -n)
	}
}

func (x *mapped) setup(o Options, entry int) {
	x.fs, x.path, x.base, x.readOnly, x.onFault = o.FS, o.Path, o.Base, o.ReadOnly, o.OnFault
	x.entry, x.perPage = entry, pageSize/entry
	x.maxBytes = x.whole(int64(o.MaxBytes))
}

func (x *mapped) whole(bytes int64) int64 { return bytes - bytes%int64(x.entry) }

// acquire returns the current view with a reference on it, opening the file at
// the first use.
func (x *mapped) acquire() (*view, error) {
	for {
		if v := x.cur.Load(); v != nil {
			if v.acquire() {
				return v, nil
			}
			continue // it was just replaced
		}
		if err := x.open(); err != nil {
			return nil, err
		}
	}
}

// open opens the file, or creates it at its full length.
func (x *mapped) open() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.openLocked()
}

func (x *mapped) openLocked() error {
	if x.closed {
		return fmt.Errorf("index %s: %w", x.path, ErrClosed)
	}
	if x.cur.Load() != nil {
		return nil
	}
	flag := os.O_RDWR
	if x.readOnly {
		flag = os.O_RDONLY
	}
	file, err := x.fs.OpenFile(x.path, flag, 0)
	if errors.Is(err, fs.ErrNotExist) && !x.readOnly {
		return x.createLocked()
	}
	if err != nil {
		return err
	}
	size, err := file.Size()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	count := size / int64(x.entry)
	fence := x.kept
	if count != x.keptCount {
		fence = nil
	}
	x.kept = nil
	x.length.Store(size)
	if !x.opened {
		// What was there before this process is durable, or is about to be rebuilt.
		x.flushed.Store(count * int64(x.entry))
		x.opened = true
	}
	x.reservedTo = 0
	x.cur.Store(newView(file, nil, count, fence))
	return nil
}

func (x *mapped) createLocked() error {
	if x.maxBytes < int64(x.entry) {
		return fmt.Errorf("index %s: %d bytes are less than one entry", x.path, x.maxBytes)
	}
	file, err := x.fs.OpenFile(x.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if err := file.Truncate(x.maxBytes); err != nil {
		// Empty it would be taken for a sealed index at the next open.
		return errors.Join(err, file.Close(), x.fs.Remove(x.path))
	}
	x.opened = true
	x.length.Store(x.maxBytes)
	x.lengthOwed.Store(true)
	x.blank.Store(true)
	fence := []int64(nil)
	x.cur.Store(newView(file, nil, 0, &fence))
	return nil
}

// replaceLocked publishes a view of count entries on memory m and waits for the
// readers of the one before.
func (x *mapped) replaceLocked(count int64, m vfs.Map) {
	old := x.cur.Load()
	v := newView(old.file, m, count, old.fence.Load())
	if old.heap && count > 0 {
		v.data, v.heap = old.data, true
	}
	x.cur.Store(v)
	old.release()
	<-old.gone
}

// mapLocked maps the whole file for the writer and for lookups.
func (x *mapped) mapLocked() {
	v := x.cur.Load()
	mode := vfs.MapReadWrite
	if x.pwrite {
		mode = vfs.MapRead
	}
	m, err := v.file.Map(int(x.length.Load()), mode)
	if err != nil {
		// Out of map slots, or a file system without maps: the same entries can
		// be written and read by system calls.
		x.unmappable, x.pwrite = true, true
		return
	}
	// Advice can only be refused where it would have no effect.
	_ = m.AdviseRandom()
	x.m = m
	x.replaceLocked(v.count.Load(), m)
}

// unmapLocked leaves a view that is read by pread.
func (x *mapped) unmapLocked() error {
	if x.m == nil {
		return nil
	}
	x.replaceLocked(x.cur.Load().count.Load(), nil)
	m := x.m
	x.m = nil
	return m.Unmap()
}

// prepare is Prepare, with spare slots kept free at the end.
func (x *mapped) prepare(n, spare int) error {
	v := x.cur.Load()
	if v == nil {
		if err := x.open(); err != nil {
			return err
		}
		v = x.cur.Load()
	}
	if x.readOnly {
		return fmt.Errorf("index of base %d: opened for reading only", x.base)
	}
	if v.heap {
		return fmt.Errorf("index of base %d: rebuilt in memory, and not on the disk", x.base)
	}
	end := (v.count.Load() + int64(n)) * int64(x.entry)
	if end > x.length.Load()-int64(spare*x.entry) {
		return ErrFull
	}
	if v.fence.Load() == nil {
		if err := x.buildFence(v); err != nil {
			return err
		}
	}
	if v.data == nil && !x.unmappable {
		x.mu.Lock()
		x.mapLocked()
		x.mu.Unlock()
	}
	if x.pwrite || end <= x.reservedTo {
		return nil
	}
	return x.reserve(v.count.Load()*int64(x.entry), end)
}

// reserve allocates blocks for the bytes [from, to) in whole steps.
func (x *mapped) reserve(from, to int64) error {
	from = max(from-from%reserveStep, x.reservedTo-x.reservedTo%reserveStep)
	end := (to + reserveStep - 1) / reserveStep * reserveStep
	// Not past the last page of the file: those blocks would never be used.
	end = min(end, (x.length.Load()+pageSize-1)/pageSize*pageSize)
	err := x.cur.Load().file.Reserve(from, end-from)
	if errors.Is(err, vfs.ErrUnsupported) {
		return x.fallBack()
	}
	if err != nil {
		return fmt.Errorf("index: reserve blocks: %w", err)
	}
	x.reservedTo = end
	return nil
}

// fallBack goes on with pwrite and a map that is only read.
func (x *mapped) fallBack() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pwrite = true
	if x.m == nil {
		return nil
	}
	if err := x.unmapLocked(); err != nil {
		return err
	}
	x.mapLocked()
	return nil
}

// append stores the first x.entry bytes of x.scratch as the next entry and
// publishes it. Its key must not be below that of the entry before.
func (x *mapped) append(key int64) error {
	if err := x.prepare(1, 0); err != nil {
		return err
	}
	x.blank.Store(false)
	v := x.cur.Load()
	slot := v.count.Load()
	at := slot * int64(x.entry)
	if !x.pwrite {
		entry := v.data[at : at+int64(x.entry)]
		if err := vfs.Guard(func() { copy(entry, x.scratch[:]) }); err != nil {
			// No block for a page that is copied on write, or the file was
			// shortened behind our back: let a system call say which.
			x.fault(v, at, true, err)
			if err := x.fallBack(); err != nil {
				return err
			}
			v = x.cur.Load()
		}
	}
	if x.pwrite {
		if _, err := v.file.WriteAt(x.scratch[:x.entry], at); err != nil {
			return fmt.Errorf("index entry %d: %w", slot, err)
		}
	}
	if slot%int64(x.perPage) == 0 {
		v.addFence(int(slot/int64(x.perPage)), key)
	}
	v.count.Store(slot + 1)
	return nil
}

// truncateEntries makes n the number of entries. The file and its stale bytes
// behind them stay as they are.
func (x *mapped) truncateEntries(n int64) error {
	if err := x.open(); err != nil {
		return err
	}
	x.flushMu.Lock()
	defer x.flushMu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	if v := x.cur.Load(); n < v.count.Load() {
		x.replaceLocked(n, x.m)
		x.flushed.Store(min(x.flushed.Load(), n*int64(x.entry)))
	}
	return nil
}

// Reset drops all entries and gives the file its full length again.
func (x *mapped) Reset() error {
	if err := x.truncateEntries(0); err != nil {
		return err
	}
	return x.Resize()
}

// Resize gives the file its full length, as that of an active segment has. Entries
// that a larger segment.index.bytes had let in stay; the index is full then.
func (x *mapped) Resize() error {
	if err := x.open(); err != nil {
		return err
	}
	return x.resize(max(x.maxBytes, x.cur.Load().count.Load()*int64(x.entry)))
}

// Trim cuts the file to its entries, as that of a sealed segment is. It is read
// by pread from then on: a sealed segment costs no map.
func (x *mapped) Trim() error {
	if err := x.open(); err != nil {
		return err
	}
	return x.resize(x.cur.Load().count.Load() * int64(x.entry))
}

// resize never shortens the file under a live map: it unmaps first, and lets
// the next append map anew.
func (x *mapped) resize(length int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.openLocked(); err != nil {
		return err
	}
	if length == x.length.Load() {
		return nil
	}
	v := x.cur.Load()
	if length < v.count.Load()*int64(x.entry) {
		invariant.Violated("index %s cut to %d bytes below its %d entries", x.path, length, v.count.Load())
	}
	if err := x.unmapLocked(); err != nil {
		return err
	}
	if err := v.file.Truncate(length); err != nil {
		return err
	}
	x.length.Store(length)
	x.blank.Store(false)
	x.reservedTo = 0
	x.lengthOwed.Store(true)
	return nil
}

// Flush makes the entries durable: only the pages written since the last flush,
// and the length of the file when it changed. It may run beside the writer.
func (x *mapped) Flush() error {
	x.flushMu.Lock()
	defer x.flushMu.Unlock()
	if x.readOnly || x.cur.Load() == nil && !x.owesFlush() {
		return nil // never used, or nothing of ours is in it
	}
	v, err := x.acquire()
	if errors.Is(err, ErrClosed) {
		return nil
	}
	if err != nil {
		return err
	}
	defer v.release()
	from, to := x.flushed.Load(), v.count.Load()*int64(x.entry)
	switch {
	case to == 0 && x.blank.Load():
		return nil // of an active segment, which a crash makes anew in any case
	case x.lengthOwed.Load():
		x.lengthOwed.Store(false)
		if err := v.file.Sync(); err != nil {
			return err
		}
	case from >= to:
		return nil
	case v.m != nil:
		if err := v.m.Flush(int(from), int(to)); err != nil {
			return err
		}
	default:
		if err := v.file.SyncData(); err != nil {
			return err
		}
	}
	x.flushed.Store(to)
	return nil
}

// owesFlush says whether a file that Cool closed holds something not durable.
func (x *mapped) owesFlush() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lengthOwed.Load() || x.flushed.Load() < x.keptCount*int64(x.entry)
}

// Close unmaps and closes the file once its last reader has gone; the length
// stays as it is. A second call does nothing.
func (x *mapped) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	v := x.cur.Swap(nil)
	if v == nil {
		return nil
	}
	v.release()
	<-v.gone
	var err error
	if x.m != nil {
		err = x.m.Unmap()
		x.m = nil
	}
	return errors.Join(err, v.file.Close())
}

// Delete closes the index and unlinks its file, which may be missing.
func (x *mapped) Delete() error {
	err := x.Close()
	return errors.Join(err, ignoreMissing(x.fs.Remove(x.Path())))
}

// Rename moves the file to a new path. Without a file only the path changes.
// The path is the new one even when the move failed, as in Kafka.
func (x *mapped) Rename(path string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.path
	x.path = path
	err := x.fs.Rename(old, path)
	if x.cur.Load() == nil {
		err = ignoreMissing(err)
	}
	return err
}

// SetPath tells where the file is now that its directory was renamed.
func (x *mapped) SetPath(path string) {
	x.mu.Lock()
	x.path = path
	x.mu.Unlock()
}

// Path is where the file is.
func (x *mapped) Path() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.path
}

// Len is the number of entries. The file that a crash left preallocated counts
// every zero slot as one, until it is rebuilt.
func (x *mapped) Len() (int, error) {
	v, err := x.acquire()
	if err != nil {
		return 0, err
	}
	defer v.release()
	return int(v.count.Load()), nil
}

// Length is the size of the file in bytes, which an unused index reads from the disk.
func (x *mapped) Length() (int64, error) {
	v, err := x.acquire()
	if err != nil {
		return 0, err
	}
	v.release()
	return x.length.Load(), nil
}

func (x *mapped) full(spare int) (bool, error) {
	n, err := x.Len()
	return int64(n) >= x.length.Load()/int64(x.entry)-int64(spare), err
}

// fault tells about the first page of a map that cannot be accessed. The name is
// the one that the file was opened with: who takes a lock for the one that it has
// now would wait for a writer that waits for readers.
func (x *mapped) fault(v *view, at int64, write bool, err error) {
	if x.onFault != nil && !v.told.Swap(true) {
		x.onFault(v.file.Name(), at/pageSize, write, err)
	}
}

// key decodes what the entries at b are sorted by.
func (x *mapped) key(b []byte) int64 {
	if x.entry == offsetEntrySize {
		return int64(int32(binary.BigEndian.Uint32(b)))
	}
	return int64(binary.BigEndian.Uint64(b))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
