package verify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// hole judges offsets that are missing between the segment before and the one at
// base. Above the recovery point a start ends the log there. Below it, it refuses
// the partition when other files of the missing .log are there; without them it
// may be a gap that compaction, or a repair, has left.
func (p *partition) hole(path string, base kafka.Offset) {
	point, start := p.data.recoveryPoint[p.job.partition], p.data.logStart[p.job.partition]
	if base <= start {
		return // left to be deleted
	}
	i, _ := slices.BinarySearch(p.bases, base)
	before := p.bases[i-1]
	named, accepted := kafka.NoOffset, false
	for _, name := range p.sorted(func(string) bool { return true }) {
		whole, _, cut := strings.Cut(name, commitlog.CutSuffix)
		n, ok := segment.ParseName(whole)
		switch {
		case !ok || n.Base < before || n.Base >= base:
		case cut:
			accepted = true
		case n.Suffix == "" && n.Ext != segment.LogExt && n.Ext != segment.SnapshotExt && n.Base >= p.end && !slices.Contains(p.bases, n.Base):
			named = n.Base
		}
	}
	severity, why := Warning, "compaction may have left them out"
	again := p.data.formatted && p.suffix == "" && p.unclean() && base > point && !p.compacted() // a start goes through here
	switch topics := p.data.topics; {
	case again && max(p.end, start) >= point:
		if named != kafka.NoOffset {
			p.noteMissing(named)
		}
		severity, why = Error, fmt.Sprintf("the recovery point is %d, a start ends the log here and sets aside what follows; varve repair can keep it", point)
	case again && named == kafka.NoOffset:
		severity, why = Error, "a broker does not serve the partition"
	case named != kafka.NoOffset && !p.compacted():
		p.noteMissing(named)
		severity, why = Error, "a broker does not serve the partition"
		path = join(p.dir, segment.Name(named, segment.LogExt))
	case accepted:
		severity, why = Note, "a repair has accepted that, or recovery said so"
	case p.compacted():
		return
	case topics != nil && !p.txns.gaps && topics.has(topics.byName[p.job.partition.Topic]):
		severity, why = Error, "the topic is not compacted"
	case !p.data.formatted:
		severity = Note
	}
	p.add(severity, CodeHole, path, -1, "offsets %d to %d are in no segment: %s", p.end, base-1, why)
}

func (p *partition) noteMissing(base kafka.Offset) {
	if p.missing == nil {
		p.missing = map[kafka.Offset]bool{}
	}
	p.missing[base] = true
}

// compacted reports whether gaps between segments are what compaction leaves.
func (p *partition) compacted() bool {
	_, cleaned := p.data.cleaned[p.job.partition]
	return cleaned || p.data.topics != nil && p.data.topics.compacts(p.job.partition.Topic)
}

// nextGood searches for the next batch with a right checksum that can follow what
// came before, and returns -1 when there is none.
func (p *partition) nextGood(f vfs.File, from, size int64, base kafka.Offset) (int64, kafka.Offset) {
	const magicAt = 16
	upper := kafka.Offset(math.MaxInt64)
	if i, _ := slices.BinarySearch(p.bases, base+1); i < len(p.bases) {
		upper = p.bases[i]
	}
	size = min(size, max(from, math.MaxInt32)) // no log of Kafka's reaches beyond
	buf := make([]byte, 64<<10)
	budget := 4*(size-from) + 64<<20 // bytes that only look like batches cost no more than this
	for at := from; size-at > record.HeaderSize; {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) || n <= magicAt {
			return -1, 0
		}
		for i := magicAt; i < n; i++ {
			skip := bytes.IndexByte(buf[i:n], record.MagicV2)
			if skip < 0 {
				break
			}
			i += skip
			first := kafka.Offset(binary.BigEndian.Uint64(buf[i-magicAt:]))
			if first < p.end || first >= upper || first-base > math.MaxInt32 {
				continue
			}
			pos := at + int64(i-magicAt)
			good, read := goodBatch(f, pos, size)
			if good {
				return pos, first
			}
			if budget -= read; budget < 0 {
				return -1, 0
			}
		}
		if at+int64(n) >= size {
			break
		}
		at += int64(n) - magicAt
	}
	return -1, 0
}

// goodBatch reports whether a whole batch with a right checksum starts at pos, and
// how many bytes it has read to know.
func goodBatch(f vfs.File, pos, size int64) (good bool, read int64) {
	var b [record.HeaderSize]byte
	if n, _ := f.ReadAt(b[:], pos); n < len(b) {
		return false, 0
	}
	h, err := record.ParseHeader(b[:])
	if err != nil || h.Magic != record.MagicV2 || pos+int64(h.Size) > size || h.LastOffset < h.BaseOffset {
		return false, int64(len(b))
	}
	whole := make([]byte, h.Size)
	n, _ := f.ReadAt(whole, pos)
	return n == len(whole) && record.Check(whole) == nil, int64(n)
}

// strangers names what Kafka does not know in a partition directory. A .log under
// a name that is none of a segment holds records that nobody serves.
func (p *partition) strangers() {
	for _, name := range p.sorted(func(string) bool { return true }) {
		n, ok := segment.ParseName(name)
		path := join(p.dir, name)
		switch {
		case ok && n.String() == name, ofPartition(name):
		case strings.Contains(name, commitlog.CutSuffix):
			p.add(Note, CodeKept, path, -1, "set aside by recovery or a repair; nothing reads it%s", p.kept(path, name))
		case strings.HasSuffix(name, ".tmp"):
			p.add(Note, CodeLeftover, path, -1, "of a file that was being replaced; the one without the suffix counts")
		case filepath.Ext(name) == segment.LogExt:
			p.add(Error, CodeUnknown, path, -1, "not the name of a segment, 20 digits: nobody serves what is in it, and Kafka does not start with it")
		default:
			p.add(Note, CodeUnknown, path, -1, "of no use to Kafka")
		}
	}
}

// kept says which records are in a .log that was set aside.
func (p *partition) kept(path, name string) string {
	if whole, _, _ := strings.Cut(name, commitlog.CutSuffix); filepath.Ext(whole) != segment.LogExt {
		return ""
	}
	f, err := p.fs.OpenFile(path, 0, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return ""
	}
	batches, first, last := 0, kafka.Offset(math.MaxInt64), kafka.NoOffset
	for from := int64(0); from < size; {
		at, found, err := record.FindWholeBatch(f, from, size, 0, math.MaxInt64)
		if err != nil || !found {
			break
		}
		s := record.NewScanner(f, at, size, readBuffer)
		for s.Next() {
			if b, err := s.Batch(); err != nil || record.Check(b) != nil {
				break
			}
			h := s.Header()
			batches, first, last = batches+1, min(first, h.BaseOffset), max(last, h.LastOffset)
			from = s.Position() + int64(h.Size)
		}
		from = max(from, at+1)
	}
	if batches == 0 {
		return ""
	}
	return fmt.Sprintf(". %s with offsets in %d..%d: what the log has not is out of service, and a broker removes the file after varve.cut.retention",
		plural(batches, "whole batch"), first, last)
}

// missingSnapshot misses the producers of a log that was closed cleanly. Kafka
// takes it for a log without any, and forgets what it knew against duplicates.
func (p *partition) missingSnapshot() {
	if !p.producers || !p.data.formatted || p.unclean() || p.suffix != "" || p.job.partition.Topic == kafka.ClusterMetadataTopic {
		return
	}
	for name := range p.files {
		if n, ok := segment.ParseName(name); ok && n.Suffix == "" && n.Ext == segment.SnapshotExt {
			return
		}
	}
	p.add(Warning, CodeNoSnapshot, join(p.dir, segment.Name(p.end, segment.SnapshotExt)), -1,
		"missing: Kafka forgets the producers of the partition; a start of varve reads them from the log")
}

// rootEntry names what is no file or directory of Kafka's in the root of a data
// directory.
func (p *planner) rootEntry(path, name string, regular bool) {
	_, suffix, partition := parseDir(name)
	switch {
	case partition && suffix == "" && !strings.Contains(name, "."):
		p.add(Error, CodeUnreadable, path, -1, "has the name of a partition and is no directory")
	case checkpointName(name) || name == checkpoint.MetaFile || name == checkpoint.LockFile: // looked at where it is read
	case strings.Contains(name, commitlog.CutSuffix):
		p.add(Note, CodeKept, path, -1, "set aside by recovery or a repair; nothing reads it")
	case strings.HasSuffix(name, ".tmp"):
		p.add(Note, CodeLeftover, path, -1, "of a file that was being replaced; the one without the suffix counts")
	case !regular:
		p.add(Note, CodeUnknown, path, -1, "neither a file nor a directory: it is left alone")
	default:
		p.add(Note, CodeUnknown, path, -1, "of no use to Kafka")
	}
}
