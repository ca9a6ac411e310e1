package index

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// Entries calls visit for entry after entry, from the first on, reading the file
// in order, until visit returns false. A sealed index is checked with it.
func (x *OffsetIndex) Entries(visit func(i int, p Position) bool) error {
	var b [timeEntrySize]byte
	return x.each(func(i int, entry []byte) bool {
		copy(b[:], entry)
		return visit(i, x.position(&b))
	})
}

// Entries calls visit for entry after entry, see OffsetIndex.Entries.
func (x *TimeIndex) Entries(visit func(i int, p TimePosition) bool) error {
	var b [timeEntrySize]byte
	return x.each(func(i int, entry []byte) bool {
		copy(b[:], entry)
		return visit(i, x.position(&b))
	})
}

func (x *mapped) each(visit func(i int, entry []byte) bool) error {
	v, err := x.acquire()
	if err != nil {
		return err
	}
	defer v.release()
	chunk := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(chunk)
	end := v.count.Load() * int64(x.entry)
	for at := int64(0); at < end; {
		b := chunk[:min(x.whole(chunkSize), end-at)]
		if err := v.read(b, at); err != nil {
			return err
		}
		for i := 0; i < len(b); i += x.entry {
			if !visit(int((at+int64(i))/int64(x.entry)), b[i:i+x.entry]) {
				return nil
			}
		}
		at += int64(len(b))
	}
	return nil
}

// Check says what is wrong with the entries of an index whose segment has a .log
// of size bytes, by themselves: they must rise strictly, and positions with them
// and stay within the .log. Empty: nothing is. An error is one of the disk.
func (x *OffsetIndex) Check(size int64) (problem string, err error) {
	if problem, err = x.checkLength(); err != nil || problem != "" {
		return problem, err
	}
	before := Position{Offset: x.base - 1, Byte: -1}
	err = x.Entries(func(i int, p Position) bool {
		switch {
		case p.Offset <= before.Offset:
			problem = fmt.Sprintf("entry %d has offset %d after %d", i, p.Offset, before.Offset)
		case p.Byte <= before.Byte:
			problem = fmt.Sprintf("entry %d has position %d after %d", i, p.Byte, before.Byte)
		case p.Byte >= size:
			problem = fmt.Sprintf("entry %d has position %d in a log of %d bytes", i, p.Byte, size)
		}
		before = p
		return problem == ""
	})
	return problem, err
}

// Check says what is wrong with the entries by themselves: timestamps must rise
// strictly, and offsets not fall. Empty: nothing is. An error is one of the disk.
func (x *TimeIndex) Check() (problem string, err error) {
	if problem, err = x.checkLength(); err != nil || problem != "" {
		return problem, err
	}
	before := TimePosition{Timestamp: kafka.NoTimestamp, Offset: x.base}
	err = x.Entries(func(i int, p TimePosition) bool {
		switch {
		case p.Timestamp <= before.Timestamp:
			problem = fmt.Sprintf("entry %d has timestamp %d after %d", i, p.Timestamp, before.Timestamp)
		case p.Offset < before.Offset:
			problem = fmt.Sprintf("entry %d has offset %d after %d", i, p.Offset, before.Offset)
		}
		before = p
		return problem == ""
	})
	return problem, err
}

// checkLength compares the file with what was known of it when it was opened: it
// may have been cut under the running process.
func (x *mapped) checkLength() (problem string, err error) {
	v, err := x.acquire()
	if err != nil {
		return "", err
	}
	defer v.release()
	if v.heap {
		return "", nil
	}
	size, err := v.file.Size()
	if err != nil {
		return "", err
	}
	switch count := v.count.Load(); {
	case size%int64(x.entry) != 0:
		problem = fmt.Sprintf("length %d is not a multiple of %d", size, x.entry)
	case size < count*int64(x.entry):
		problem = fmt.Sprintf("length %d is less than that of its %d entries", size, count)
	}
	return problem, nil
}

// OffsetEntry appends the bytes of an entry to b.
func OffsetEntry(b []byte, base kafka.Offset, p Position) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(int32(p.Offset-base)))
	return binary.BigEndian.AppendUint32(b, uint32(p.Byte))
}

// TimeEntry appends the bytes of an entry to b.
func TimeEntry(b []byte, base kafka.Offset, p TimePosition) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(p.Timestamp))
	return binary.BigEndian.AppendUint32(b, uint32(int32(p.Offset-base)))
}

// TemporarySuffix is what the name of a rebuilt index ends in until it is complete.
const TemporarySuffix = ".tmp"

// Stage writes entries to a file beside a sealed index, durably, for Publish to
// put in its place.
func (x *mapped) Stage(entries []byte) error { return stage(x.fs, x.Path(), entries) }

func stage(fsys vfs.FS, path string, entries []byte) error {
	path += TemporarySuffix
	f, err := fsys.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		_, err = f.WriteAt(entries, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, ignoreMissing(fsys.Remove(path)))
	}
	return nil
}

// Publish puts the staged file in the place of the index and waits until nobody
// reads the old one. The caller makes the rename durable, and sees to it that the
// segment is not written to meanwhile.
func (x *mapped) Publish() error {
	x.flushMu.Lock()
	defer x.flushMu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	tmp := x.path + TemporarySuffix
	if x.closed {
		return errors.Join(ErrClosed, ignoreMissing(x.fs.Remove(tmp)))
	}
	file, err := x.fs.OpenFile(tmp, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	size, err := file.Size()
	if err == nil {
		err = x.fs.Rename(tmp, x.path)
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	old, m := x.cur.Load(), x.m
	x.m, x.kept, x.keptCount = nil, nil, 0
	x.opened, x.reservedTo = true, 0
	x.length.Store(size)
	x.flushed.Store(size)
	x.lengthOwed.Store(false)
	x.blank.Store(false)
	x.cur.Store(newView(file, nil, size/int64(x.entry), nil))
	return discardView(old, m)
}

// PublishHeap has lookups read entries from memory, for a disk that the rebuilt
// index could not be written to. The file stays as it is.
func (x *mapped) PublishHeap(entries []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.openLocked(); err != nil {
		return err
	}
	old, m := x.cur.Load(), x.m
	v := newView(old.file, nil, int64(len(entries)/x.entry), nil)
	v.data, v.heap = entries, true
	x.m = nil
	x.cur.Store(v)
	old.release()
	<-old.gone
	if m != nil {
		return m.Unmap()
	}
	return nil
}

// discardView ends a view that was replaced, with its file.
func discardView(old *view, m vfs.Map) error {
	if old == nil {
		return nil
	}
	old.release()
	<-old.gone
	var err error
	if m != nil {
		err = m.Unmap()
	}
	return errors.Join(err, old.file.Close())
}

// read fills b from the entries' bytes at at.
func (v *view) read(b []byte, at int64) error {
	if v.heap {
		copy(b, v.data[at:])
		return nil
	}
	return readFull(v.file, b, at)
}

// IsShort reports that an index file ended before its entries did: it was cut
// under the running process.
func IsShort(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }

// InMemory reports that lookups are answered from memory, see PublishHeap.
func (x *mapped) InMemory() bool {
	v := x.cur.Load()
	return v != nil && v.heap
}
