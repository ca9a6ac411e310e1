package index

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
)

const timeEntrySize = 12

// TimeIndex finds the offset from which on records are later than a timestamp.
// An entry is 12 bytes, big-endian: the largest timestamp of the segment so far,
// and the last offset of the batch that reached it first, relative to the base
// (Kafka's TimeIndex). Timestamps rise strictly from entry to entry.
//
// The segment's owner is the only writer; lookups run beside it without a lock.
type TimeIndex struct {
	mapped
	last      TimePosition // the last entry; the writer's own
	lastKnown bool
}

// TimePosition ties a timestamp to an offset: no record up to that offset is
// later than the timestamp.
type TimePosition struct {
	Timestamp kafka.Timestamp
	Offset    kafka.Offset
}

// NewTime returns the time index in the file o.Path. The file is opened, or
// created at its full length, at the first use.
func NewTime(o Options) *TimeIndex {
	x := &TimeIndex{}
	x.setup(o, timeEntrySize)
	return x
}

// MaybeAppend adds an entry when ts is later than that of the last entry; an
// equal one is passed over. An earlier timestamp or a smaller offset than the
// last entry's is an *OrderError. One slot of the file is kept free for the
// entry that a roll or a close adds: they set skipFull to use it.
func (x *TimeIndex) MaybeAppend(ts kafka.Timestamp, offset kafka.Offset, skipFull bool) error {
	if !skipFull {
		full, err := x.IsFull()
		if err != nil {
			return err
		}
		if full {
			return ErrFull
		}
	}
	if err := x.loadLast(); err != nil {
		return err
	}
	n, err := x.Len()
	if err != nil {
		return err
	}
	if n > 0 {
		if offset < x.last.Offset {
			return &OrderError{Field: "offset", Got: int64(offset), Last: int64(x.last.Offset)}
		}
		if ts < x.last.Timestamp {
			return &OrderError{Field: "timestamp", Got: int64(ts), Last: int64(x.last.Timestamp)}
		}
	}
	if ts <= x.last.Timestamp {
		return nil
	}
	rel, err := Relative(x.base, offset)
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint64(x.scratch[:], uint64(ts))
	binary.BigEndian.PutUint32(x.scratch[8:], uint32(rel))
	if err := x.append(int64(ts)); err != nil {
		return err
	}
	x.last = TimePosition{ts, offset}
	return nil
}

// loadLast reads the last entry after the file was opened or cut.
func (x *TimeIndex) loadLast() error {
	if x.lastKnown {
		return nil
	}
	last, err := x.Last()
	if err != nil {
		return err
	}
	x.last, x.lastKnown = last, true
	return nil
}

// Newest is Last for the writer, who remembers it: an entry that was added does
// not depend on what the file has become.
func (x *TimeIndex) Newest() (TimePosition, error) {
	err := x.loadLast()
	return x.last, err
}

// Prepare makes sure that n more entries can be stored, and the final one after
// them: see OffsetIndex.Prepare.
func (x *TimeIndex) Prepare(n int) error { return x.prepare(n, 1) }

// Last is the last entry, or timestamp -1 at the base when there is none.
func (x *TimeIndex) Last() (TimePosition, error) {
	v, err := x.acquire()
	if err != nil {
		return TimePosition{}, err
	}
	defer v.release()
	n := v.count.Load()
	if n == 0 {
		return TimePosition{kafka.NoTimestamp, x.base}, nil
	}
	var b [timeEntrySize]byte
	if err := x.entryAt(v, n-1, &b); err != nil {
		return TimePosition{}, err
	}
	return x.position(&b), nil
}

func (x *TimeIndex) position(b *[timeEntrySize]byte) TimePosition {
	return TimePosition{
		Timestamp: kafka.Timestamp(x.key(b[:])),
		Offset:    x.offset(b),
	}
}

func (x *TimeIndex) offset(b *[timeEntrySize]byte) kafka.Offset {
	return x.base + kafka.Offset(int32(binary.BigEndian.Uint32(b[8:])))
}

// Lookup returns the last entry that is not later than ts, or timestamp -1 at
// the base when there is none.
func (x *TimeIndex) Lookup(ts kafka.Timestamp) (TimePosition, error) {
	v, err := x.acquire()
	if err != nil {
		return TimePosition{}, err
	}
	defer v.release()
	var p pair
	i, err := x.floor(v, int64(ts), &p)
	if err != nil {
		return TimePosition{}, err
	}
	if i < 0 {
		return TimePosition{kafka.NoTimestamp, x.base}, nil
	}
	return x.position(&p.entry), nil
}

// Entry returns entry i, which must be within [0, Len).
func (x *TimeIndex) Entry(i int) (TimePosition, error) {
	v, err := x.acquire()
	if err != nil {
		return TimePosition{}, err
	}
	defer v.release()
	var b [timeEntrySize]byte
	if err := x.entryAt(v, int64(i), &b); err != nil {
		return TimePosition{}, err
	}
	return x.position(&b), nil
}

// IsFull reports whether only the slot for the final entry is left.
func (x *TimeIndex) IsFull() (bool, error) { return x.full(1) }

// TruncateTo drops the entries whose offset is at or after the given one. The
// file keeps its length.
func (x *TimeIndex) TruncateTo(offset kafka.Offset) error {
	v, err := x.acquire()
	if err != nil {
		return err
	}
	var b [timeEntrySize]byte
	keep, err := x.keepBelow(v.count.Load(), func(i int64) (int, error) {
		err := x.entryAt(v, i, &b)
		return cmp.Compare(x.offset(&b), offset), err
	})
	v.release()
	if err != nil {
		return err
	}
	return x.TruncateEntries(int(keep))
}

// TruncateEntries leaves the first n entries. The file keeps its length.
func (x *TimeIndex) TruncateEntries(n int) error {
	x.lastKnown = false
	return x.truncateEntries(int64(n))
}

// Truncate drops all entries; the length of the file stays.
func (x *TimeIndex) Truncate() error { return x.TruncateEntries(0) }

// Reset drops all entries and gives the file its full length again.
func (x *TimeIndex) Reset() error {
	x.lastKnown = false
	return x.mapped.Reset()
}

// SanityCheck is Kafka's cheap test of a file it has just opened: a length that
// is not whole entries, a last timestamp before the first, a last offset below
// the base.
func (x *TimeIndex) SanityCheck() error {
	length, err := x.Length()
	if err != nil {
		return err
	}
	last, err := x.Last()
	if err != nil {
		return err
	}
	if n, _ := x.Len(); n > 0 {
		first, err := x.Entry(0)
		if err != nil {
			return err
		}
		if last.Timestamp < first.Timestamp {
			return &CorruptError{x.Path(), fmt.Sprintf("last timestamp %d is before the first, %d", last.Timestamp, first.Timestamp)}
		}
	}
	return x.sane(length, last.Offset)
}

// sane are the checks that both indexes have in common.
func (x *mapped) sane(length int64, last kafka.Offset) error {
	if last < x.base {
		return &CorruptError{x.Path(), fmt.Sprintf("last offset %d is below the base offset %d", last, x.base)}
	}
	if length%int64(x.entry) != 0 {
		return &CorruptError{x.Path(), fmt.Sprintf("length %d is not a multiple of %d", length, x.entry)}
	}
	return nil
}
