package verify

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// place is where a batch is, for the comparison with the indexes.
type place struct {
	position int64
	last     kafka.Offset
	maxTime  kafka.Timestamp
}

// lastBatch is the batch before the one under way. A base offset is in no
// checksum: when the batch behind it goes on from the one before, it is the one
// that is wrong, and not all that follow.
type lastBatch struct {
	file     string
	position int64
	first    kafka.Offset
	before   kafka.Offset // end of the log without it
}

// unlike is the first batch of another leader epoch than the checkpoint gives it,
// and how many there are: one line, because a wrong file is wrong for all of them.
type unlike struct {
	path        string
	position    int64
	found, want kafka.LeaderEpoch
	batches     int
}

// segment checks a .log and its indexes.
func (p *partition) segment(base kafka.Offset, active bool) {
	p.segments++
	path := join(p.dir, segment.Name(base, segment.LogExt))
	f, err := p.fs.OpenFile(path, 0, 0)
	if err != nil {
		p.broken, p.txns.gaps = true, true // or deleted by the broker that is at work here
		p.add(Error, CodeUnreadable, path, -1, "%v", reason(err))
		return
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		p.add(Error, CodeUnreadable, path, -1, "%v", reason(err))
		return
	}
	p.bytes += size
	if p.end > base && p.end != 1<<63-1 {
		p.add(Error, CodeRange, path, -1, "starts at offset %d, the segment before ends at %d", base, p.end)
	}
	if p.only == "" && base > p.bases[0] && base > p.end && !p.broken {
		p.hole(path, base)
	}
	p.end = max(p.end, base)
	places := p.log(path, f, size, base, active)
	recovered := p.recovered(p.end, active)
	p.offsetIndex(base, places, recovered)
	p.timeIndex(base, places, recovered, active)
	p.txnIndex(base, recovered)
}

// log checks every batch of a log and returns where they are. Behind bytes that
// are no batch it goes on with the next one whose checksum is right.
func (p *partition) log(path string, f vfs.File, size int64, base kafka.Offset, active bool) []place {
	var places []place
	p.broken, p.damaged = false, false
	for from := int64(0); from >= 0; {
		places = p.run(path, f, from, size, base, places)
		from = p.damage(path, f, size, base, active)
	}
	return places
}

// run checks batches that follow one another without a break.
func (p *partition) run(path string, f vfs.File, from, size int64, base kafka.Offset, places []place) []place {
	s := p.scanner
	s.Reset(f, from, size)
	for s.Next() {
		h := s.Header()
		p.header(path, s.Position(), h, base)
		p.content(path, s)
		if h.Magic >= record.MagicV2 && len(places) > 0 && (h.BaseOffset != p.end || h.Count != h.LastOffsetDelta+1) {
			p.txns.gaps = true
		}
		p.producers = p.producers || h.HasProducerID() && h.LastOffset >= p.data.logStart[p.job.partition]
		p.leaders = p.leaders || h.Magic >= record.MagicV2 && h.LeaderEpoch >= 0
		places = append(places, place{s.Position(), h.LastOffset, h.MaxTimestamp})
		p.end = max(p.end, h.LastOffset+1)
	}
	return places
}

// damage names what ended a run, and returns where the next good batch is; -1
// when there is none.
func (p *partition) damage(path string, f vfs.File, size int64, base kafka.Offset, active bool) int64 {
	s := p.scanner
	end := s.ValidEnd()
	if s.Err() == nil && end == size {
		return -1
	}
	p.damaged = true
	var corrupt *record.CorruptError
	if s.Err() != nil && !errors.As(s.Err(), &corrupt) {
		p.broken = true
		p.add(Error, CodeUnreadable, path, end, "%v", reason(s.Err()))
		return -1
	}
	severity := softened(active && p.recovered(p.end, active))
	if p.allZero(f, end, size) {
		p.broken = true
		p.add(severity, CodeTail, path, end, "%d zero bytes behind the last batch", size-end)
		return -1
	}
	what := "a batch that is not whole"
	if corrupt != nil {
		what = fmt.Sprintf("%s %d", corrupt.Reason, corrupt.Found)
	}
	if at, first := p.nextGood(f, end+1, size, base); at >= 0 {
		p.txns.gaps = true
		p.add(Error, CodeFraming, path, end, "%d bytes that are no batch: %s; good ones follow from offset %d at byte %d on", at-end, what, first, at)
		return at
	}
	p.broken = true
	if corrupt != nil {
		p.add(severity, CodeFraming, path, end, "%d bytes that are no batch: %s", size-end, what)
	} else {
		p.add(severity, CodeTail, path, end, "%d bytes of %s", size-end, what)
	}
	return -1
}

// header checks what the header of a batch says by itself and after the ones before.
func (p *partition) header(path string, position int64, h *record.Header, base kafka.Offset) {
	if h.Magic < 0 || h.Magic > record.MagicV2 {
		p.add(Error, CodeMagic, path, position, "batch format %d", h.Magic)
	}
	if l := &p.last; l.file == path && h.BaseOffset < p.end && h.BaseOffset >= l.before && l.first > l.before {
		p.add(Error, CodeOffsets, path, l.position, "offsets from %d on, but the batch behind it goes on from %d with %d", l.first, l.before, h.BaseOffset)
		p.end = l.before
	}
	p.last = lastBatch{path, position, h.BaseOffset, p.end}
	if h.BaseOffset < p.end && h.LastOffset < p.end || h.Magic >= record.MagicV2 && h.BaseOffset < p.end {
		p.add(Error, CodeOffsets, path, position, "offsets %d to %d, want at least %d", h.BaseOffset, h.LastOffset, p.end)
	}
	if h.LastOffset-base > 1<<31-1 {
		p.add(Error, CodeRange, path, position, "offset %d is too far from the segment's base %d", h.LastOffset, base)
	}
	if h.Magic < record.MagicV2 {
		return
	}
	if h.LastOffsetDelta < 0 || h.Count < 0 || int64(h.Count) > int64(h.LastOffsetDelta)+1 {
		p.add(Error, CodeCount, path, position, "%d records in offsets %d to %d", h.Count, h.BaseOffset, h.LastOffset)
	}
	if h.LeaderEpoch < p.lastEpoch {
		p.add(Warning, CodeEpochBatch, path, position, "leader epoch %d after %d", h.LeaderEpoch, p.lastEpoch)
	}
	p.lastEpoch = max(p.lastEpoch, h.LeaderEpoch)
	if want, ok := p.epochAt(h.BaseOffset); ok && want != h.LeaderEpoch {
		if p.unlike.batches == 0 {
			p.unlike = unlike{path: path, position: position, found: h.LeaderEpoch, want: want}
		}
		p.unlike.batches++
	}
}

// content checks the checksum of a batch and, when asked, its records.
func (p *partition) content(path string, s *record.Scanner) {
	if p.o.Fast {
		return
	}
	h, position := s.Header(), s.Position()
	b, err := s.Batch()
	if err != nil {
		p.add(Error, CodeUnreadable, path, position, "%v", reason(err))
		return
	}
	if err := record.Check(b); err != nil {
		p.txns.gaps = true // what it says of transactions is not known
		var corrupt *record.CorruptError
		if errors.As(err, &corrupt) {
			p.add(Error, CodeChecksum, path, position, "offsets %d to %d, %d bytes: %s %d, computed %d",
				h.BaseOffset, h.LastOffset, h.Size, corrupt.Reason, corrupt.Found, corrupt.Want)
		}
		return
	}
	if p.o.Deep {
		p.records(path, position, h, b)
	}
	if p.job.partition.Topic == kafka.ClusterMetadataTopic && !h.IsControl() {
		p.metadataRecords(path, position, b)
	}
	if h.IsTransactional() {
		p.transaction(h, b)
	}
}

// records parses every record of a batch.
func (p *partition) records(path string, position int64, h *record.Header, b []byte) {
	err := p.it.Reset(b, &p.dec)
	next, most, n := kafka.Offset(-1), kafka.NoTimestamp, 0
	if h.Magic >= record.MagicV2 {
		next = h.BaseOffset
	}
	for err == nil && p.it.Next() {
		r := p.it.Record()
		if r.Offset < next || r.Offset > h.LastOffset { // accepted from clients as they are
			p.add(Warning, CodeRecords, path, position, "record %d has offset %d, want %d to %d", n, r.Offset, next, h.LastOffset)
		}
		if !r.Valid {
			p.add(Error, CodeChecksum, path, position, "checksum of message %d with offset %d", n, r.Offset)
		}
		next, most = r.Offset+1, max(most, r.Timestamp)
		n++
	}
	if err == nil {
		err = p.it.Err()
	}
	switch {
	case err != nil:
		p.add(Error, CodeRecords, path, position, "offsets %d to %d: %v", h.BaseOffset, h.LastOffset, err)
	case n > 0 && h.Magic >= record.MagicV2 && most != h.MaxTimestamp:
		p.add(Warning, CodeMaxTimestamp, path, position, "maximum timestamp %d, but %d in the records", h.MaxTimestamp, most)
	}
}
