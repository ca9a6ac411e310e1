package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// CutSuffix ends the name of a file in which recovery set aside batches that
// are right but cannot be reached, because the log ends before them. Kafka
// ignores such names in a partition directory. Other files that are set aside have
// it behind their names, too.
const CutSuffix = ".cut"

// tailIsWhole checks the end of a log that was closed cleanly: from the last
// index entry on every batch must have a right checksum and follow from the one
// before, up to the last byte. Kafka believes the clean marker instead, keeps
// the damaged end and appends behind it, where no reader gets. An index that
// does not fit its log is not believed either.
func (ld *loader) tailIsWhole() (bool, error) {
	if len(ld.segs) == 0 {
		return true, nil
	}
	s := ld.segs[len(ld.segs)-1]
	entry, ok, err := tailEntry(s)
	if err != nil {
		return false, err
	}
	if !ok {
		ld.unfit = true
		return false, nil
	}
	c := segment.NewChain(s.BaseOffset())
	first, from := true, s.BaseOffset()
	end, err := s.Scan(entry.Byte, s.Size(), func(h *record.Header, b []byte, pos int64) error {
		if first && h.BaseOffset > from && h.BaseOffset <= entry.Offset {
			from = h.BaseOffset
		}
		if err := record.Check(b); err != nil {
			return err
		}
		if !c.Follows(h) || first && entry.Byte > 0 && h.LastOffset > entry.Offset {
			return &record.CorruptError{Base: h.BaseOffset, Position: pos, Reason: "batch does not follow from the one before it"}
		}
		first = false
		c.Take(h)
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, record.ErrCorrupt):
		return false, err
	case err != nil || end < s.Size():
		detail := fmt.Sprintf("%d bytes behind byte %d are not whole batches", s.Size()-end, end)
		if err != nil {
			detail += ": " + err.Error()
		}
		ld.l.event("tail-damaged", s.Path(), detail)
		// What lies before the part that was looked at is not doubted.
		ld.keep = min(ld.keep, from)
		return false, nil
	}
	ld.tailNext = c.Next
	return true, nil
}

// tailEntry is the last entry of the offset index, if both indexes can be right.
func tailEntry(s *segment.Segment) (last index.Position, ok bool, err error) {
	n, err := s.Offsets().Len()
	if err != nil {
		return last, false, err
	}
	times, err := s.Times().Len()
	if err != nil {
		return last, false, err
	}
	if s.Size() == 0 {
		return index.Position{Offset: s.BaseOffset()}, n == 0 && times == 0, nil
	}
	if last, err = s.Offsets().Last(); err != nil {
		return last, false, err
	}
	if n > 1 {
		first, err := s.Offsets().Entry(0)
		if err != nil || first.Offset >= last.Offset || first.Byte >= last.Byte {
			return last, false, err
		}
	}
	if n > 0 && (last.Byte < 0 || last.Byte >= s.Size() || last.Offset < s.BaseOffset()) {
		return last, false, nil
	}
	if times > 0 {
		end, err := s.Times().Last()
		if err != nil || end.Offset < s.BaseOffset() || end.Timestamp < 0 {
			return last, false, err
		}
		if times > 1 {
			first, err := s.Times().Entry(0)
			if err != nil || first.Timestamp >= end.Timestamp {
				return last, false, err
			}
		}
	}
	return last, true, nil
}

// aside is what a cut kept.
type aside struct {
	files       []string // names
	batches     int      // whole ones with a right checksum
	first, last kafka.Offset
	bytes       int64 // that left the log
}

func (a *aside) add(file string, b batchCount, bytes int64) {
	a.bytes += bytes
	if file == "" {
		return
	}
	a.files = append(a.files, file)
	if b.n > 0 && a.batches == 0 {
		a.first, a.last = b.first, b.last
	}
	if b.n > 0 {
		a.first, a.last = min(a.first, b.first), max(a.last, b.last)
	}
	a.batches += b.n
}

// tailCut tells where the log ends now, and what of that which lay behind is kept.
// Whole batches among it may have been acknowledged, and nobody is served them any
// more: that is an error, whatever the cause.
func (ld *loader) tailCut(s *segment.Segment, from, to int64, end kafka.Offset, reason error, a *aside) {
	attrs := []any{"from", from, "to", to, "bytes", a.bytes, "offset", end, "kept", strings.Join(a.files, " ")}
	level, message := slog.LevelWarn, "cut torn end of log"
	if a.batches > 0 {
		level = slog.LevelError
		message = fmt.Sprintf("cut the log at damage; %d whole batches, offsets %d..%d, set aside in %s", a.batches, a.first, a.last, strings.Join(a.files, " "))
		attrs = append(attrs, "keptBatches", a.batches, "keptFirstOffset", a.first, "keptLastOffset", a.last)
	}
	if reason != nil {
		attrs = append(attrs, "reason", reason.Error())
	}
	ld.l.report(level, "tail-cut", message, s.Path(), attrs...)
}

// beforeCut keeps what recovery is about to cut off when there are whole batches
// behind the damage, or when it lies below the recovery point and is more than a
// batch that was cut short: the bytes are copied to `<base>.log.cut` first. When
// that is not possible nothing is cut and the log is not opened.
func (ld *loader) beforeCut(s *segment.Segment, c segment.Cut) (aside, error) {
	l, a := ld.l, aside{}
	f, err := l.fs.OpenFile(s.Path(), os.O_RDONLY, 0)
	if err != nil {
		return a, err
	}
	defer f.Close()
	found, err := countBatches(f, c.From, c.To, c.Next)
	if err != nil {
		return a, err
	}
	keep := found.n > 0
	if !keep && c.Next < ld.reached && (c.Reason == nil || c.Reason.Reason != segment.PartialBatch) {
		keep, err = hasContent(f, c.From, c.To)
		if err != nil {
			return a, err
		}
	}
	if !keep {
		a.add("", found, c.To-c.From)
		return a, nil
	}
	name, err := ld.cutName(s.BaseOffset(), f, c.From, c.To)
	if err != nil {
		return a, err
	}
	if err := copyRange(l.fs, f, c.From, c.To, l.path(name)); err != nil {
		return a, fmt.Errorf("set aside what lies behind byte %d: %w", c.From, err)
	}
	a.add(name, found, c.To-c.From)
	return a, l.fs.SyncDir(l.Dir())
}

// dropAfterCut takes the segments behind a cut out of the log, from the last to
// the first: those that hold whole batches are set aside as `<base>.log.cut`,
// the others deleted. Each is durably gone before the next one goes, so that a
// crash leaves no hole.
func (ld *loader) dropAfterCut(later []*segment.Segment, a *aside) error {
	l := ld.l
	for _, s := range slices.Backward(later) {
		f, err := l.fs.OpenFile(s.Path(), os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		found, err := countBatches(f, 0, s.Size(), s.BaseOffset())
		var name string
		if err == nil && found.n > 0 {
			name, err = ld.cutName(s.BaseOffset(), f, 0, s.Size())
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		a.add(name, found, s.Size())
		if name != "" {
			err = ld.setAside(s, name)
		} else {
			err = ld.discard([]*segment.Segment{s})
		}
		if err != nil {
			return err
		}
		ld.segs = ld.segs[:len(ld.segs)-1] // until here it is closed with the others when this fails
		if err := l.fs.SyncDir(l.Dir()); err != nil {
			return err
		}
	}
	return nil
}

// setAside renames a segment's log and removes the rest of it. The file's time
// becomes now: from then on it is kept for CutRetention.
func (ld *loader) setAside(s *segment.Segment, name string) error {
	l := ld.l
	log := s.Path()
	f, err := l.fs.OpenFile(log, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.SetModTime(int64(l.now())), f.Sync(), f.Close(), s.Abandon()); err != nil {
		return err
	}
	if err := l.fs.Rename(log, l.path(name)); err != nil {
		return err
	}
	if err := segment.RemoveFiles(l.fs, l.Dir(), s.BaseOffset(), ""); err != nil {
		return err
	}
	return l.producers.DropSnapshot(s.BaseOffset())
}

// cutName is a name for bytes that are set aside. A file with the same content
// is what a recovery that was itself killed had written, and is written again.
func (ld *loader) cutName(base kafka.Offset, f vfs.File, from, to int64) (string, error) {
	for i := 0; ; i++ {
		name := segment.Name(base, segment.LogExt) + CutSuffix
		if i > 0 {
			name = fmt.Sprintf("%s.%d", name, i)
		}
		same, err := sameContent(ld.l.fs, ld.l.path(name), f, from, to)
		if errors.Is(err, fs.ErrNotExist) || err == nil && same {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
}

// sameContent compares a file with a part of another one.
func sameContent(fsys vfs.FS, name string, of vfs.File, from, to int64) (bool, error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil || size != to-from {
		return false, err
	}
	a, b := make([]byte, min(size, copyChunk)), make([]byte, min(size, copyChunk))
	for at := int64(0); at < size; at += int64(len(a)) {
		n := min(int64(len(a)), size-at)
		if _, err := f.ReadAt(a[:n], at); err != nil {
			return false, err
		}
		if _, err := of.ReadAt(b[:n], from+at); err != nil {
			return false, err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return false, nil
		}
	}
	return true, nil
}

const copyChunk = 256 << 10

// hasContent reports whether there is anything but zeros.
func hasContent(f vfs.File, from, to int64) (bool, error) {
	buf := make([]byte, min(copyChunk, to-from))
	for at := from; at < to; at += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), to-at)]
		if _, err := f.ReadAt(b, at); err != nil {
			return false, err
		}
		if len(bytes.Trim(b, "\x00")) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// batchCount is whole batches with right checksums.
type batchCount struct {
	n           int
	first, last kafka.Offset
}

// countBatches counts the whole batches in a part of a file, wherever they
// start, whose offsets are at or above next and rise.
func countBatches(f vfs.File, from, to int64, next kafka.Offset) (c batchCount, err error) {
	const span = 1 << 40 // further above the end of a log an offset is chance
	for from < to {
		at, found, err := record.FindWholeBatch(f, from, to, next, next+span)
		if err != nil || !found {
			return c, err
		}
		sc := record.NewScanner(f, at, to, copyChunk)
		for sc.Next() {
			b, err := sc.Batch()
			if err != nil {
				return c, err
			}
			h := sc.Header()
			if h.BaseOffset < next || h.LastOffset < h.BaseOffset || record.Check(b) != nil {
				break
			}
			if c.n == 0 {
				c.first = h.BaseOffset
			}
			c.n, c.last, next, from = c.n+1, h.LastOffset, h.NextOffset(), sc.ValidEnd()
		}
		from = max(from, at+1)
		if err := sc.Err(); err != nil && !errors.Is(err, record.ErrCorrupt) {
			return c, err
		}
	}
	return c, nil
}

func copyRange(fsys vfs.FS, from vfs.File, at, to int64, name string) error {
	tmp := name + temporarySuffix
	out, err := fsys.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(out, 0), io.NewSectionReader(from, at, to-at))
	if err == nil {
		err = out.Sync()
	}
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(err, fsys.Remove(tmp))
	}
	return nil
}
