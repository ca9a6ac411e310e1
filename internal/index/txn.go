package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// TxnEntrySize is the size of an entry of a transaction index.
const TxnEntrySize = 34

// TxnIndex lists the aborted transactions whose marker lies in a segment, in
// the order of their markers (Kafka's TransactionIndex). It is a plain file of
// 34-byte entries that exists only once there is one.
//
// It is opened at the first use. The segment's owner is the only writer; scans
// may run beside it.
type TxnIndex struct {
	fs       vfs.FS
	base     kafka.Offset
	readOnly bool

	mu     sync.RWMutex // writing takes it exclusively, scanning shares it
	path   string
	file   vfs.File // nil while there is no file, or before the first use
	opened bool     // whether the file was looked for
	closed bool
	size   int64 // where the next entry goes
	dirty  bool  // written since the last sync
	last   kafka.Offset
	hasOne bool // last is set: an entry was appended since the file was opened

	staging bool   // between Rebuild and Publish
	staged  []byte // the entries of then
}

// AbortedTxn is one entry: the transaction of a producer whose first record is
// at FirstOffset and whose abort marker is at LastOffset. LastStable is the last
// stable offset once the transaction was complete.
type AbortedTxn struct {
	ProducerID  kafka.ProducerID
	FirstOffset kafka.Offset
	LastOffset  kafka.Offset
	LastStable  kafka.Offset
}

// VersionError is an entry of a format that is not version 0. It is no damage:
// a newer release wrote it.
type VersionError struct {
	Path    string
	Version int16
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("index %s: entry version %d is not supported, want 0", e.Path, e.Version)
}

// AppendTo appends the 34 bytes of the entry to dst.
func (a AbortedTxn) AppendTo(dst []byte) []byte {
	dst = append(dst, 0, 0)
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.ProducerID))
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.FirstOffset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(a.LastOffset))
	return binary.BigEndian.AppendUint64(dst, uint64(a.LastStable))
}

// parseTxn decodes an entry of TxnEntrySize bytes.
func parseTxn(b []byte) (a AbortedTxn, version int16) {
	return AbortedTxn{
		ProducerID:  kafka.ProducerID(binary.BigEndian.Uint64(b[2:])),
		FirstOffset: kafka.Offset(binary.BigEndian.Uint64(b[10:])),
		LastOffset:  kafka.Offset(binary.BigEndian.Uint64(b[18:])),
		LastStable:  kafka.Offset(binary.BigEndian.Uint64(b[26:])),
	}, int16(binary.BigEndian.Uint16(b))
}

// NewTxn returns the transaction index in the file o.Path, which need not exist.
func NewTxn(o Options) *TxnIndex {
	return &TxnIndex{fs: o.FS, base: o.Base, path: o.Path, readOnly: o.ReadOnly}
}

// openLocked looks for the file once. It leaves x.file nil when there is none.
func (x *TxnIndex) openLocked(create bool) error {
	if x.closed {
		return fmt.Errorf("index %s: %w", x.path, ErrClosed)
	}
	if x.file != nil || x.opened && !create {
		return nil
	}
	flag := os.O_RDWR
	if x.readOnly {
		flag = os.O_RDONLY
	} else if create {
		flag |= os.O_CREATE
	}
	file, err := x.fs.OpenFile(x.path, flag, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		x.opened = true
		return nil
	}
	if err != nil {
		return err
	}
	size, err := file.Size()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	x.file, x.size, x.opened = file, size, true
	return nil
}

// Append adds an entry, whose last offset must be above that of the entry
// appended before through this handle (*OrderError).
func (x *TxnIndex) Append(a AbortedTxn) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.hasOne && a.LastOffset <= x.last {
		return &OrderError{Field: "offset", Got: int64(a.LastOffset), Last: int64(x.last)}
	}
	if x.staging {
		x.staged = a.AppendTo(x.staged)
		x.last, x.hasOne = a.LastOffset, true
		return nil
	}
	if err := x.openLocked(true); err != nil {
		return err
	}
	var buf [TxnEntrySize]byte
	if _, err := x.file.WriteAt(a.AppendTo(buf[:0]), x.size); err != nil {
		// A part of an entry would shift all later ones.
		return errors.Join(fmt.Errorf("transaction index entry: %w", err), x.file.Truncate(x.size))
	}
	x.size += TxnEntrySize
	x.last, x.hasOne, x.dirty = a.LastOffset, true, true
	return nil
}

// Each calls f for each whole entry in order until it returns false. at is the
// byte at which the entry starts. A torn entry at the end is passed over.
func (x *TxnIndex) Each(f func(at int64, a AbortedTxn) bool) error {
	if err := x.open(); err != nil {
		return err
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.eachLocked(f)
}

// open takes the lock exclusively only for the first use.
func (x *TxnIndex) open() error {
	x.mu.RLock()
	done := x.opened && !x.closed
	x.mu.RUnlock()
	if done {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.openLocked(false)
}

func (x *TxnIndex) eachLocked(f func(at int64, a AbortedTxn) bool) error {
	if x.closed {
		return fmt.Errorf("index %s: %w", x.path, ErrClosed)
	}
	if x.file == nil {
		return nil
	}
	const batch = pageSize / TxnEntrySize * TxnEntrySize
	page := pages.Get().(*[pageSize]byte)
	defer pages.Put(page)
	for at := int64(0); x.size-at >= TxnEntrySize; {
		n := min(batch, (x.size-at)/TxnEntrySize*TxnEntrySize)
		if err := readFull(x.file, page[:n], at); err != nil {
			return err
		}
		for i := int64(0); i < n; i += TxnEntrySize {
			a, version := parseTxn(page[i:])
			if version != 0 {
				return &VersionError{x.path, version}
			}
			if !f(at+i, a) {
				return nil
			}
		}
		at += n
	}
	return nil
}

// Collect appends to dst the transactions that a reader of the offsets
// [from, bound) must know of: those that end at or after from and begin before
// bound. complete is false when the next segment may hold more of them.
func (x *TxnIndex) Collect(dst []AbortedTxn, from, bound kafka.Offset) (list []AbortedTxn, complete bool, err error) {
	err = x.Each(func(_ int64, a AbortedTxn) bool {
		if a.LastOffset >= from && a.FirstOffset < bound {
			dst = append(dst, a)
		}
		complete = a.LastStable >= bound
		return !complete
	})
	return dst, complete, err
}

// TruncateTo cuts the file at the first entry whose last offset is at or after offset.
func (x *TxnIndex) TruncateTo(offset kafka.Offset) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.openLocked(false); err != nil || x.file == nil {
		return err
	}
	cut, last, kept := int64(-1), kafka.Offset(0), false
	err := x.eachLocked(func(at int64, a AbortedTxn) bool {
		if a.LastOffset >= offset {
			cut = at
			return false
		}
		last, kept = a.LastOffset, true
		return true
	})
	if err != nil || cut < 0 {
		return err
	}
	if err := x.file.Truncate(cut); err != nil {
		return err
	}
	x.size, x.dirty = cut, true
	x.last, x.hasOne = last, kept
	return nil
}

// Rebuild begins the index anew. Until Publish the entries that are appended are
// only gathered, and the file stays as it is: a segment that is believed to be on
// the disk is not recovered twice, and with an index that was emptied and not
// filled again what was aborted would be served.
func (x *TxnIndex) Rebuild() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.staging, x.staged, x.hasOne = true, nil, false
}

// Publish puts the entries since Rebuild in the place of those of the file, as a
// whole. A file that has them already is left alone, and none is made for none.
// replaced says that the directory must be synced.
func (x *TxnIndex) Publish() (replaced bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.openLocked(false); err != nil {
		return false, err
	}
	entries := x.staged
	x.staging, x.staged = false, nil
	if x.file == nil && len(entries) == 0 {
		return false, nil
	}
	if same, err := x.holdsLocked(entries); err != nil || same {
		x.dirty = x.dirty || same // whoever wrote it may not have synced it
		return false, err
	}
	if err := stage(x.fs, x.path, entries); err != nil {
		return false, err
	}
	if err := x.fs.Rename(x.path+TemporarySuffix, x.path); err != nil {
		return false, errors.Join(err, ignoreMissing(x.fs.Remove(x.path+TemporarySuffix)))
	}
	old := x.file
	x.file, x.opened, x.dirty = nil, false, false
	if old != nil {
		err = old.Close()
	}
	return true, errors.Join(err, x.openLocked(false))
}

// holdsLocked compares the content of the file.
func (x *TxnIndex) holdsLocked(entries []byte) (bool, error) {
	if x.file == nil || x.size != int64(len(entries)) {
		return false, nil
	}
	held := make([]byte, len(entries))
	if err := readFull(x.file, held, 0); err != nil {
		return false, err
	}
	return bytes.Equal(held, entries), nil
}

// SanityCheck finds an entry that ends below the base or not above the one before
// it, that begins behind its end, or that is cut (*CorruptError), for which the
// segment is recovered, and one of an unknown version (*VersionError). It ends at
// the first: a file may be sparse and long.
func (x *TxnIndex) SanityCheck() error {
	var bad error
	path := x.Path() // not within Each, which holds the lock: a writer that waits for it would come first
	corrupt := func(format string, args ...any) { bad = &CorruptError{path, fmt.Sprintf(format, args...)} }
	before := x.base - 1
	err := x.Each(func(at int64, a AbortedTxn) bool {
		switch {
		case a.LastOffset < x.base:
			corrupt("entry at byte %d: last offset %d is below the base offset %d", at, a.LastOffset, x.base)
		case a.LastOffset <= before:
			corrupt("entry at byte %d: last offset %d is not above the one before, %d", at, a.LastOffset, before)
		case a.FirstOffset > a.LastOffset:
			corrupt("entry at byte %d: offsets %d to %d", at, a.FirstOffset, a.LastOffset)
		}
		before = a.LastOffset
		return bad == nil
	})
	if bad == nil && err == nil {
		x.mu.Lock()
		size := x.size
		x.mu.Unlock()
		if size%TxnEntrySize != 0 {
			corrupt("%d bytes are no whole number of entries of %d", size, TxnEntrySize)
		}
	}
	return errors.Join(bad, err)
}

// Flush makes the entries durable.
func (x *TxnIndex) Flush() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.dirty || x.closed {
		return nil
	}
	if err := x.openLocked(false); err != nil || x.file == nil {
		return err
	}
	x.dirty = false
	return x.file.Sync()
}

// Close closes the file. A second call does nothing.
func (x *TxnIndex) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	if x.file == nil {
		return nil
	}
	err := x.file.Close()
	x.file = nil
	return err
}

// Delete closes the index and unlinks its file, which may be missing.
func (x *TxnIndex) Delete() error {
	err := x.Close()
	return errors.Join(err, ignoreMissing(x.fs.Remove(x.Path())))
}

// Rename moves the file, which may be missing, to a new path.
func (x *TxnIndex) Rename(path string) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.path
	x.path = path
	return ignoreMissing(x.fs.Rename(old, path))
}

// SetPath tells where the file is now that its directory was renamed.
func (x *TxnIndex) SetPath(path string) {
	x.mu.Lock()
	x.path = path
	x.mu.Unlock()
}

// Path is where the file is, or would be.
func (x *TxnIndex) Path() string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.path
}
