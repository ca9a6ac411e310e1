package verify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"sort"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// Entry sizes in bytes.
const (
	offsetEntry = 8
	timeEntry   = 12
)

// readIndex reads an index file. ok is false when it is not there or cannot be read.
func (p *partition) readIndex(path string, missing Code, needed bool) (data []byte, ok bool) {
	data, err := vfs.ReadFile(p.fs, path)
	switch {
	case err == nil:
		return data, true
	case errors.Is(err, vfs.ErrTooLarge):
		code := CodeIndexSize
		if missing == CodeTimeMissing {
			code = CodeTimeSize
		}
		p.add(Error, code, path, -1, "%v", err)
	case !errors.Is(err, fs.ErrNotExist):
		p.add(Error, CodeUnreadable, path, -1, "%v", reason(err))
	case needed:
		p.add(Warning, missing, path, -1, "missing; a start makes it anew")
	}
	return nil, false
}

// offsetIndex checks that the entries rise and point at their batches. What is
// zero to the end of the file is the part that was preallocated.
func (p *partition) offsetIndex(base kafka.Offset, places []place, recovered bool) {
	path := join(p.dir, segment.Name(base, segment.IndexExt))
	data, ok := p.readIndex(path, CodeIndexMissing, len(places) > 0 && p.data.formatted)
	if !ok {
		return
	}
	severity := softened(recovered)
	if len(data)%offsetEntry != 0 {
		p.add(severity, CodeIndexSize, path, int64(len(data)/offsetEntry*offsetEntry), "%d bytes are no whole number of entries of %d", len(data), offsetEntry)
		data = data[:len(data)/offsetEntry*offsetEntry]
	}
	before := base - 1
	beforeAt := int64(-1)
	for i := 0; i < len(data); i += offsetEntry {
		e := data[i : i+offsetEntry]
		offset := base + kafka.Offset(int32(binary.BigEndian.Uint32(e)))
		at := int64(int32(binary.BigEndian.Uint32(e[4:])))
		if zero(e) {
			if !zero(data[i:]) {
				p.add(severity, CodeIndexOrder, path, int64(i), "zeros between entries")
			}
			return
		}
		if offset <= before || at <= beforeAt {
			p.add(severity, CodeIndexOrder, path, int64(i), "offset %d at position %d after offset %d at position %d", offset, at, before, beforeAt)
		}
		before, beforeAt = offset, at
		p.offsetEntry(path, int64(i), offset, at, places, severity)
	}
}

func (p *partition) offsetEntry(path string, entry int64, offset kafka.Offset, at int64, places []place, severity Severity) {
	i := sort.Search(len(places), func(i int) bool { return places[i].position >= at })
	switch {
	case i == len(places) || places[i].position != at:
		p.add(severity, CodeIndexPosition, path, entry, "offset %d: no batch starts at position %d", offset, at)
	case places[i].last == offset:
	case places[i].last < offset && hasLast(places[i:], offset):
		p.add(Warning, CodeIndexInner, path, entry, "offset %d: the batch at position %d ends at offset %d (followers up to Kafka 3.8 wrote such entries)", offset, at, places[i].last)
	default:
		p.add(severity, CodeIndexPosition, path, entry, "offset %d: the batch at position %d ends at offset %d", offset, at, places[i].last)
	}
}

// hasLast reports whether a batch ends at the offset.
func hasLast(places []place, offset kafka.Offset) bool {
	_, ok := findLast(places, offset)
	return ok
}

func findLast(places []place, offset kafka.Offset) (place, bool) {
	i := sort.Search(len(places), func(i int) bool { return places[i].last >= offset })
	if i == len(places) || places[i].last != offset {
		return place{}, false
	}
	return places[i], true
}

// timeIndex checks that the entries rise and have the timestamps of their batches.
func (p *partition) timeIndex(base kafka.Offset, places []place, recovered, active bool) {
	path := join(p.dir, segment.Name(base, segment.TimeIndexExt))
	data, ok := p.readIndex(path, CodeTimeMissing, len(places) > 0 && p.data.formatted)
	if !ok {
		return
	}
	severity := softened(recovered)
	if len(data)%timeEntry != 0 {
		p.add(severity, CodeTimeSize, path, int64(len(data)/timeEntry*timeEntry), "%d bytes are no whole number of entries of %d", len(data), timeEntry)
		data = data[:len(data)/timeEntry*timeEntry]
	}
	before, beforeOffset := kafka.Timestamp(-1<<63), base-1
	defer func() {
		if !active && !p.damaged {
			p.largest(path, before, places)
		}
	}()
	for i := 0; i < len(data); i += timeEntry {
		e := data[i : i+timeEntry]
		ts := kafka.Timestamp(binary.BigEndian.Uint64(e))
		offset := base + kafka.Offset(int32(binary.BigEndian.Uint32(e[8:])))
		if zero(e) {
			if !zero(data[i:]) {
				p.add(severity, CodeTimeOrder, path, int64(i), "zeros between entries")
			}
			return
		}
		if ts <= before || offset < beforeOffset {
			p.add(severity, CodeTimeOrder, path, int64(i), "timestamp %d at offset %d after timestamp %d at offset %d", ts, offset, before, beforeOffset)
		}
		before, beforeOffset = ts, offset
		batch, found := findLast(places, offset)
		switch {
		case !found:
			p.add(severity, CodeTimeOffset, path, int64(i), "timestamp %d: no batch ends at offset %d", ts, offset)
		case batch.maxTime != ts:
			p.add(severity, CodeTimestamp, path, int64(i), "timestamp %d, but the batch that ends at offset %d has %d", ts, offset, batch.maxTime)
		}
	}
}

// largest compares the last entry with the batches: a segment that is rolled gets
// one for its largest timestamp, by which its age is told.
func (p *partition) largest(path string, last kafka.Timestamp, places []place) {
	most := kafka.NoTimestamp
	for i := range places {
		most = max(most, places[i].maxTime)
	}
	if most > last && most >= 0 {
		p.add(Warning, CodeTimestamp, path, -1, "no entry for the largest timestamp of the segment, %d; a start makes the index anew at its first use", most)
	}
}

// zero reports whether all bytes are zero. The tail of a preallocated index
// has ten million of them, so it compares page by page.
func zero(b []byte) bool {
	var page [4096]byte
	for len(b) > 0 {
		n := min(len(b), len(page))
		if !bytes.Equal(b[:n], page[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}
