package dump

import (
	"encoding/binary"
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// Entry sizes of the two indexes.
const (
	offsetEntry = 8  // offset relative to the base, position
	timeEntry   = 12 // timestamp, offset relative to the base
)

// indexFile is an index as Kafka opens it to read: every slot of the file
// counts, those of a zero tail too; bytes behind the last whole slot do not.
type indexFile struct {
	name string // as Kafka prints it
	base int64
	size int64 // of the file
	data []byte
	each int // bytes of an entry
}

func (t *Tool) readIndex(name, printed string, each int) (*indexFile, error) {
	base, err := segmentBase(name)
	if err != nil {
		return nil, err
	}
	data, err := vfs.ReadFile(t.FS, t.absolute(name))
	if err != nil {
		return nil, javaIOError(name, err)
	}
	x := &indexFile{name: printed, base: base, size: int64(len(data)), each: each}
	x.data = data[:len(data)/each*each]
	return x, nil
}

func (x *indexFile) count() int { return len(x.data) / x.each }

// position is entry i of an offset index.
func (x *indexFile) position(i int) (offset, position int64) {
	e := x.data[i*offsetEntry:]
	return x.base + int64(int32(binary.BigEndian.Uint32(e))), int64(int32(binary.BigEndian.Uint32(e[4:])))
}

// timestamp is entry i of a time index.
func (x *indexFile) timestamp(i int) (ts, offset int64) {
	e := x.data[i*timeEntry:]
	return int64(binary.BigEndian.Uint64(e)), x.base + int64(int32(binary.BigEndian.Uint32(e[8:])))
}

// lookup is OffsetIndex.lookup over all slots: binary search for the last slot
// whose offset is not above target, first in the last 8192 bytes ("warm
// section"). Over a zero tail it is not a search of sorted keys, and it must
// go wrong in the same way.
func (x *indexFile) lookup(target int64) (position int64) {
	n := x.count()
	if n == 0 {
		return 0
	}
	slot := -1
	if firstHot := max(0, n-1-8192/offsetEntry); x.offsetAt(firstHot) < target {
		slot = x.search(target, firstHot, n-1)
	} else if x.offsetAt(0) <= target {
		slot = x.search(target, 0, firstHot)
	}
	if slot < 0 {
		return 0
	}
	_, position = x.position(slot)
	return position
}

func (x *indexFile) offsetAt(i int) int64 {
	offset, _ := x.position(i)
	return offset
}

func (x *indexFile) search(target int64, lo, hi int) int {
	for lo < hi {
		mid := (lo + hi + 1) >> 1
		switch found := x.offsetAt(mid); {
		case found > target:
			hi = mid - 1
		case found < target:
			lo = mid
		default:
			return mid
		}
	}
	return lo
}

// sanity is OffsetIndex.sanityCheck.
func (x *indexFile) sanity() error {
	const class = "org.apache.kafka.storage.internals.log.CorruptIndexException"
	if n := x.count(); n > 0 {
		if last := x.offsetAt(n - 1); last < x.base {
			return &javaError{class, fmt.Sprintf("Corrupt index found, index file %s has non-zero size but the last offset is %d which is less than the base offset %d", x.name, last, x.base)}
		}
	}
	if x.size%offsetEntry != 0 {
		return &javaError{class, fmt.Sprintf("Index file %s is corrupt, found %d bytes which is neither positive nor a multiple of %d", x.name, x.size, offsetEntry)}
	}
	return nil
}

// timeSanity is TimeIndex.sanityCheck.
func (x *indexFile) timeSanity() error {
	const class = "org.apache.kafka.storage.internals.log.CorruptIndexException"
	if n := x.count(); n > 0 {
		first, _ := x.timestamp(0)
		ts, offset := x.timestamp(n - 1)
		if ts < first {
			return &javaError{class, fmt.Sprintf("Corrupt time index found, time index file (%s) has non-zero size but the last timestamp is %d which is less than the first timestamp %d", x.name, ts, first)}
		}
		if offset < x.base {
			return &javaError{class, fmt.Sprintf("Corrupt time index found, time index file (%s) has non-zero size but the last offset is %d which is less than the first offset %d", x.name, offset, x.base)}
		}
	}
	if x.size%timeEntry != 0 {
		return &javaError{class, fmt.Sprintf("Time index file %s is corrupt, found %d bytes which is neither positive nor a multiple of %d", x.name, x.size, timeEntry)}
	}
	return nil
}

// offsetIndex prints an .index and compares it with its log.
func (t *Tool) offsetIndex(name string) error {
	log, size, err := t.open(t.sibling(name, ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	x, err := t.readIndex(name, t.absolute(name), offsetEntry)
	if err != nil {
		return err
	}
	switch {
	case x.count() == 0:
		fmt.Fprintf(t.out, "%s is empty.\n", name)
		return nil
	case t.opts.sanityOnly:
		if err := x.sanity(); err != nil {
			return err
		}
		fmt.Fprintf(t.out, "%s passed sanity check.\n", name)
		return nil
	}
	s := record.NewScanner(log, 0, 0, record.HeaderSize)
	for i := range x.count() {
		offset, position := x.position(i)
		if offset == x.base && i > 0 {
			return nil // the zero tail that a crash leaves
		}
		last, err := t.lastOffsetAt(s, log, size, position)
		if err != nil {
			return err
		}
		if last != offset {
			t.indexMismatch.add(t.absolute(name), pair{offset, last})
		}
		if !t.opts.verifyOnly {
			fmt.Fprintf(t.out, "offset: %d position: %d\n", offset, position)
		}
	}
	return nil
}

// lastOffsetAt is the last offset of the batch at a position of the log.
func (t *Tool) lastOffsetAt(s *record.Scanner, log vfs.File, size, position int64) (int64, error) {
	if err := checkSlice(log, size, position); err != nil {
		return 0, err
	}
	s.Reset(log, position, min(size, position+int64(t.opts.maxMessageSize)))
	if !s.Next() {
		if s.Err() != nil {
			return 0, scanError(log.Name(), s.Err())
		}
		return 0, &javaError{"java.util.NoSuchElementException", ""}
	}
	return int64(s.Header().LastOffset), nil
}

// checkSlice is the check of FileRecords.slice.
func checkSlice(log vfs.File, size, position int64) error {
	const class = "java.lang.IllegalArgumentException"
	desc := fmt.Sprintf("FileRecords(size=%d, file=%s, start=0, end=2147483647)", size, log.Name())
	if position < 0 {
		return &javaError{class, fmt.Sprintf("Invalid position: %d in read from %s", position, desc)}
	}
	if position > size {
		return &javaError{class, fmt.Sprintf("Slice from position %d exceeds end position of %s", position, desc)}
	}
	return nil
}

// timeIndex prints a .timeindex and compares it with its log, which it finds
// its way in by the .index.
func (t *Tool) timeIndex(name string) error {
	log, size, err := t.open(t.sibling(name, ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	offsets, err := t.readIndex(t.sibling(name, ".index"), "", offsetEntry)
	if err != nil {
		return err
	}
	x, err := t.readIndex(name, t.absolute(name), timeEntry)
	if err != nil {
		return err
	}
	if t.opts.sanityOnly {
		if err := x.timeSanity(); err != nil {
			return err
		}
		fmt.Fprintf(t.out, "%s passed sanity check.\n", name)
		return nil
	}
	c := timeCheck{tool: t, log: log, size: size, path: t.absolute(name), previous: -1}
	for i := range x.count() {
		ts, offset := x.timestamp(i)
		if offset == x.base && i > 0 {
			return nil // the zero tail that a crash leaves
		}
		if err := c.check(ts, offset, offsets.lookup(offset)); err != nil {
			return err
		}
		if !t.opts.verifyOnly {
			fmt.Fprintf(t.out, "timestamp: %d offset: %d\n", ts, offset)
		}
		c.previous = ts
	}
	return nil
}

// timeCheck compares the entries of one time index with the log.
type timeCheck struct {
	tool     *Tool
	log      vfs.File
	size     int64
	path     string
	previous int64 // timestamp of the entry before

	scanned bool
	batches []batchPlace // of the whole log, once one scan has been made
	it      record.Iterator
	dec     record.Decompressor
}

type batchPlace struct {
	position int64
	size     int
	last     kafka.Offset
}

func (c *timeCheck) check(ts, offset, from int64) error {
	t := c.tool
	if err := checkSlice(c.log, c.size, from); err != nil {
		return err
	}
	batches, err := c.from(from)
	if err != nil {
		return err
	}
	for _, b := range batches {
		if int64(b.last) < offset {
			continue
		}
		if int64(b.last) != offset {
			t.offsetNotFound.add(c.path, pair{offset, int64(b.last)})
			return nil
		}
		most, err := c.maxTimestamp(b)
		if err != nil {
			return err
		}
		if most != ts {
			t.timeMismatch.add(c.path, pair{ts, most})
		}
		if c.previous >= ts {
			t.timeOrder.add(c.path, pair{ts, c.previous})
		}
		return nil
	}
	t.offsetNotFound.add(c.path, pair{offset, -1})
	return nil
}

// from lists the batches from a position of the log on.
func (c *timeCheck) from(position int64) ([]batchPlace, error) {
	if !c.scanned {
		batches, err := c.scan(0)
		if err != nil {
			return nil, err
		}
		c.batches, c.scanned = batches, true
	}
	for i, b := range c.batches {
		if b.position == position {
			return c.batches[i:], nil
		}
	}
	return c.scan(position) // not the start of a batch
}

func (c *timeCheck) scan(from int64) ([]batchPlace, error) {
	var batches []batchPlace
	s := record.NewScanner(c.log, from, c.size, record.HeaderSize)
	for s.Next() {
		h := s.Header()
		batches = append(batches, batchPlace{s.Position(), h.Size, h.LastOffset})
	}
	if s.Err() != nil {
		return nil, scanError(c.log.Name(), s.Err())
	}
	return batches, nil
}

// maxTimestamp is the largest record timestamp of a batch, at least -1.
func (c *timeCheck) maxTimestamp(b batchPlace) (int64, error) {
	buf := make([]byte, b.size)
	if _, err := c.log.ReadAt(buf, b.position); err != nil {
		return 0, javaIOError(c.log.Name(), err)
	}
	if err := c.it.Reset(buf, &c.dec); err != nil {
		return 0, recordError(err)
	}
	most := int64(-1)
	for c.it.Next() {
		most = max(most, int64(c.it.Record().Timestamp))
	}
	return most, recordError(c.it.Err())
}
