package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// CutSuffix ends the name of a file in which recovery set aside batches that
// are right but cannot be reached, because the log ends before them. Kafka
// ignores such names in a partition directory.
const CutSuffix = ".cut"

// errWhole ends a search for a whole batch.
var errWhole = errors.New("whole batch found")

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
		ld.l.event("index-rebuilt", s.Offsets().Path(), "the indexes do not fit the log")
		return false, nil
	}
	c := chain{next: s.BaseOffset(), epoch: kafka.NoLeaderEpoch}
	next := s.BaseOffset()
	first := true
	end, err := s.Scan(entry.Byte, s.Size(), func(h *record.Header, b []byte, pos int64) error {
		if err := record.Check(b); err != nil {
			return err
		}
		if !c.accept(h) || first && entry.Byte > 0 && h.LastOffset > entry.Offset {
			return &record.CorruptError{Base: h.BaseOffset, Position: pos, Reason: "batch does not follow from the one before it"}
		}
		first = false
		next = h.LastOffset + 1
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
		return false, nil
	}
	ld.tailNext = next
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

// beforeCut keeps what recovery is about to cut off when there are whole batches
// behind the damage: the bytes are copied to `<base>.log.cut` first. When that
// is not possible nothing is cut and the log is not opened.
func (ld *loader) beforeCut(s *segment.Segment, next kafka.Offset, from, to int64) error {
	l := ld.l
	f, err := l.fs.OpenFile(s.Path(), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	found, err := record.WholeBatchBehind(f, from, to, next)
	if err != nil || !found {
		return err
	}
	name, err := ld.cutName(s.BaseOffset(), to-from)
	if err != nil {
		return err
	}
	if err := copyRange(l.fs, f, from, to, l.path(name)); err != nil {
		return fmt.Errorf("set aside what lies behind byte %d: %w", from, err)
	}
	l.event("set-aside", l.path(name), fmt.Sprintf("%d bytes with whole batches behind the end of the log at byte %d", to-from, from))
	return l.fs.SyncDir(l.Dir())
}

// dropAfterCut takes the segments behind a cut out of the log, from the last to
// the first: those that hold whole batches are set aside as `<base>.log.cut`,
// the others deleted. Each is durably gone before the next one goes, so that a
// crash leaves no hole.
func (ld *loader) dropAfterCut(later []*segment.Segment) error {
	l := ld.l
	for _, s := range slices.Backward(later) {
		ld.segs = ld.segs[:len(ld.segs)-1]
		whole, err := holdsWholeBatch(s)
		if err != nil {
			return err
		}
		if whole {
			err = ld.setAside(s)
		} else {
			err = ld.discard([]*segment.Segment{s})
		}
		if err != nil {
			return err
		}
		if err := l.fs.SyncDir(l.Dir()); err != nil {
			return err
		}
	}
	return nil
}

// setAside renames a segment's log and removes the rest of it.
func (ld *loader) setAside(s *segment.Segment) error {
	l := ld.l
	name, err := ld.cutName(s.BaseOffset(), s.Size())
	if err != nil {
		return err
	}
	log := s.Path()
	if err := s.Abandon(); err != nil {
		return err
	}
	if err := l.fs.Rename(log, l.path(name)); err != nil {
		return err
	}
	if err := segment.RemoveFiles(l.fs, l.Dir(), s.BaseOffset(), ""); err != nil {
		return err
	}
	if err := l.producers.DropSnapshot(s.BaseOffset()); err != nil {
		return err
	}
	l.event("set-aside", l.path(name), fmt.Sprintf("segment of %d bytes behind the end of the log", s.Size()))
	return nil
}

// cutName is a name for bytes that are set aside. A file of the same size is
// what a recovery that was itself killed had written, and is written again.
func (ld *loader) cutName(base kafka.Offset, size int64) (string, error) {
	for i := 0; ; i++ {
		name := segment.Name(base, segment.LogExt) + CutSuffix
		if i > 0 {
			name = fmt.Sprintf("%s.%d", name, i)
		}
		info, err := ld.l.fs.Stat(ld.l.path(name))
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == size {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
}

func holdsWholeBatch(s *segment.Segment) (bool, error) {
	_, err := s.Scan(0, s.Size(), func(_ *record.Header, b []byte, _ int64) error {
		if record.Check(b) == nil {
			return errWhole
		}
		return nil
	})
	if errors.Is(err, errWhole) {
		return true, nil
	}
	if errors.Is(err, record.ErrCorrupt) {
		return s.Size() > 0, nil // not known: kept
	}
	return false, err
}

func copyRange(fsys vfs.FS, from vfs.File, at, to int64, name string) error {
	tmp := name + ".tmp"
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
