package index

import (
	"cmp"
	"encoding/binary"

	"github.com/varvelog/varve/internal/kafka"
)

const offsetEntrySize = 8

// OffsetIndex finds where in a .log file to start looking for an offset. It is
// sparse: at most one entry for every index.interval.bytes of log (4096 by
// default). An entry is 8 bytes, big-endian: the offset relative to the base of
// the segment, and the byte of the .log file (Kafka's OffsetIndex).
//
// The segment's owner is the only writer; lookups run beside it without a lock.
type OffsetIndex struct {
	mapped
	last      int64 // relative offset of the last entry; the writer's own
	lastKnown bool
}

// Position ties an offset to a byte of the .log file: the last offset of a
// batch and the byte at which that batch starts, as Kafka's LogSegment has it.
type Position struct {
	Offset kafka.Offset
	Byte   int64
}

// NewOffset returns the offset index in the file o.Path. The file is opened, or
// created at its full length, at the first use.
func NewOffset(o Options) *OffsetIndex {
	x := &OffsetIndex{}
	x.setup(o, offsetEntrySize)
	return x
}

// Append adds an entry. offset must be above that of the last entry
// (*OrderError) and within 2^31-1 of the base (*OverflowError); a full index
// is ErrFull.
func (x *OffsetIndex) Append(offset kafka.Offset, pos int64) error {
	full, err := x.IsFull()
	if err != nil {
		return err
	}
	if full {
		return ErrFull
	}
	if err := x.loadLast(); err != nil {
		return err
	}
	if x.lastKnown && offset <= x.base+kafka.Offset(x.last) {
		return &OrderError{Field: "offset", Got: int64(offset), Last: int64(x.base) + x.last}
	}
	rel, err := Relative(x.base, offset)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint32(x.scratch[:], uint32(rel))
	binary.BigEndian.PutUint32(x.scratch[4:], uint32(pos))
	if err := x.append(int64(rel)); err != nil {
		return err
	}
	x.last, x.lastKnown = int64(rel), true
	return nil
}

// Prepare makes sure that n more entries can be stored: there is room in the
// file, and there are blocks on the disk. A full disk is an error here, before
// anything is written, and not a fault later. It returns ErrFull when the file
// has no room.
func (x *OffsetIndex) Prepare(n int) error { return x.prepare(n, 0) }

// loadLast reads the last entry after the file was opened or cut. lastKnown
// stays false when there is none.
func (x *OffsetIndex) loadLast() error {
	if x.lastKnown {
		return nil
	}
	v, err := x.acquire()
	if err != nil {
		return err
	}
	defer v.release()
	n := v.count.Load()
	if n == 0 {
		return nil
	}
	var b [timeEntrySize]byte
	if err := x.entryAt(v, n-1, &b); err != nil {
		return err
	}
	x.last, x.lastKnown = x.key(b[:]), true
	return nil
}

// Lookup returns the last entry at or before target. When every entry lies
// after target it returns the start of the segment, so the caller can always
// scan forward from the answer.
func (x *OffsetIndex) Lookup(target kafka.Offset) (Position, error) {
	at, _, err := x.LookupSpan(target)
	return at, err
}

// LookupSpan is Lookup, and the bytes of the .log from the answer to the entry
// after it: the batch that holds target starts within them, the end included. -1
// when the index does not know: there is no later entry, or it is in another page.
func (x *OffsetIndex) LookupSpan(target kafka.Offset) (at Position, span int64, err error) {
	v, err := x.acquire()
	if err != nil {
		return Position{}, -1, err
	}
	defer v.release()
	var p pair
	i, err := x.floor(v, int64(target-x.base), &p)
	if err != nil {
		return Position{}, -1, err
	}
	if i < 0 {
		return Position{Offset: x.base}, -1, nil
	}
	at, span = x.position(&p.entry), -1
	if p.hasNext {
		span = x.position(&p.next).Byte - at.Byte
	}
	return at, span, nil
}

func (x *OffsetIndex) position(b *[timeEntrySize]byte) Position {
	return Position{
		Offset: x.base + kafka.Offset(x.key(b[:])),
		Byte:   int64(int32(binary.BigEndian.Uint32(b[4:]))),
	}
}

// UpperBound returns the first entry at or behind byte from.Byte + size of the
// .log file, and false when there is none (fetchUpperBoundOffset). The sum is
// one of 32 bits, as in Kafka.
func (x *OffsetIndex) UpperBound(from Position, size int32) (Position, bool, error) {
	v, err := x.acquire()
	if err != nil {
		return Position{}, false, err
	}
	defer v.release()
	target := int32(from.Byte) + size
	var b [timeEntrySize]byte
	_, upper, err := x.bounds(v.count.Load(), func(i int64) (int, error) {
		err := x.entryAt(v, i, &b)
		return cmp.Compare(int32(binary.BigEndian.Uint32(b[4:])), target), err
	})
	if err != nil || upper < 0 {
		return Position{}, false, err
	}
	if err := x.entryAt(v, upper, &b); err != nil {
		return Position{}, false, err
	}
	return x.position(&b), true, nil
}

// Entry returns entry i, which must be within [0, Len).
func (x *OffsetIndex) Entry(i int) (Position, error) {
	v, err := x.acquire()
	if err != nil {
		return Position{}, err
	}
	defer v.release()
	var b [timeEntrySize]byte
	if err := x.entryAt(v, int64(i), &b); err != nil {
		return Position{}, err
	}
	return x.position(&b), nil
}

// LastOffset is the offset of the last entry, or the base when there is none.
func (x *OffsetIndex) LastOffset() (kafka.Offset, error) {
	p, err := x.Last()
	return p.Offset, err
}

// Last is the last entry, or the start of the segment when there is none.
func (x *OffsetIndex) Last() (Position, error) {
	v, err := x.acquire()
	if err != nil {
		return Position{}, err
	}
	defer v.release()
	n := v.count.Load()
	if n == 0 {
		return Position{Offset: x.base}, nil
	}
	var b [timeEntrySize]byte
	if err := x.entryAt(v, n-1, &b); err != nil {
		return Position{}, err
	}
	return x.position(&b), nil
}

// IsFull reports whether no entry fits any more.
func (x *OffsetIndex) IsFull() (bool, error) { return x.full(0) }

// TruncateTo drops the entries at and after offset. The file keeps its length.
func (x *OffsetIndex) TruncateTo(offset kafka.Offset) error {
	v, err := x.acquire()
	if err != nil {
		return err
	}
	var b [timeEntrySize]byte
	keep, err := x.keepBelow(v.count.Load(), func(i int64) (int, error) {
		err := x.entryAt(v, i, &b)
		return cmp.Compare(x.base+kafka.Offset(x.key(b[:])), offset), err
	})
	v.release()
	if err != nil {
		return err
	}
	return x.TruncateEntries(int(keep))
}

// keepBelow is how many entries a truncation leaves: none when the first lies
// after the target, those before an exact match, else those up to the floor.
func (x *mapped) keepBelow(n int64, compare func(i int64) (int, error)) (int64, error) {
	lower, _, err := x.bounds(n, compare)
	if err != nil || lower < 0 {
		return 0, err
	}
	c, err := compare(lower)
	if err != nil {
		return 0, err
	}
	if c == 0 {
		return lower, nil
	}
	return lower + 1, nil
}

// TruncateEntries leaves the first n entries. The file keeps its length.
func (x *OffsetIndex) TruncateEntries(n int) error {
	x.lastKnown = false
	return x.truncateEntries(int64(n))
}

// Truncate drops all entries; the length of the file stays.
func (x *OffsetIndex) Truncate() error { return x.TruncateEntries(0) }

// Reset drops all entries and gives the file its full length again.
func (x *OffsetIndex) Reset() error {
	x.lastKnown = false
	return x.mapped.Reset()
}

// SanityCheck is Kafka's cheap test of a file it has just opened: it finds a
// length that is not whole entries and a last offset below the base, and passes
// a file of zeros.
func (x *OffsetIndex) SanityCheck() error {
	length, err := x.Length()
	if err != nil {
		return err
	}
	last, err := x.LastOffset()
	if err != nil {
		return err
	}
	return x.sane(length, last)
}
