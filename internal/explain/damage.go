package explain

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// DamageError says that what was asked for lies in damaged bytes of a .log.
type DamageError struct {
	What     string // was asked for
	File     string
	Position int64 // where the damage starts
	End      int64 // where the next good batch is; the size of the file when there is none
	Reason   string
}

// Error says where to look.
func (e *DamageError) Error() string {
	return fmt.Sprintf("%s lies in damaged bytes: %s, bytes %d to %d: %s; a fetch there gets CORRUPT_MESSAGE. Run varve verify", e.What, e.File, e.Position, e.End, e.Reason)
}

// damage shows bytes that a walk passes over.
func (w *walk) damage(d *DamageError) {
	s := none(DamageStep)
	s.File, s.Position, s.Bytes = d.File, d.Position, d.End-d.Position
	w.step(s, "bytes %d to %d are no good batch: %s; a fetch of the offsets in it gets CORRUPT_MESSAGE, the walk goes on behind it", d.Position, d.End, d.Reason)
}

// past scans the headers of a segment from a byte on, and goes on behind damage:
// where the length of the damaged batch leads, or else where the next entry of the
// offset index points, but only at a batch with a right checksum, as a broker does.
// met, when not nil, is told of each such place.
func (w *walk) past(base kafka.Offset, from int64, visit func(s *record.Scanner) bool, met func(d *DamageError)) error {
	path := w.path(base, segment.LogExt)
	f, err := w.o.FS.OpenFile(path, 0, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	for {
		s := record.NewScanner(f, from, size, record.HeaderSize)
		for s.Next() {
			if !visit(s) {
				return nil
			}
		}
		var corrupt *record.CorruptError
		switch err := s.Err(); {
		case err != nil && !errors.As(err, &corrupt):
			return err
		case err == nil && s.ValidEnd() == size:
			return nil
		}
		d := &DamageError{File: path, Position: s.ValidEnd(), Reason: "a batch that is not whole"}
		if corrupt != nil {
			d.Reason = fmt.Sprintf("%s %d", corrupt.Reason, corrupt.Found)
		}
		from = w.behind(f, base, d.Position, size)
		d.End = from
		if met != nil {
			met(d)
		}
		if from >= size {
			return nil
		}
	}
}

// behind is where the next good batch after the damage at a byte starts; the size
// when there is none.
func (w *walk) behind(f vfs.File, base kafka.Offset, at, size int64) int64 {
	var length [record.LogOverhead]byte
	if n, _ := f.ReadAt(length[:], at); n == len(length) {
		if next := at + int64(record.Batch(length[:]).Size()); next > at && next < size && good(f, next, size) {
			return next
		}
	}
	data, err := vfs.ReadFile(w.o.FS, w.path(base, segment.IndexExt))
	if err != nil {
		return size
	}
	for ; len(data) >= offsetEntry; data = data[offsetEntry:] {
		if next := int64(int32(binary.BigEndian.Uint32(data[4:]))); next > at && next < size && good(f, next, size) {
			return next
		}
	}
	return size
}

// headerAt reads the header of a batch that ends inside the file.
func headerAt(f vfs.File, at, size int64) (h record.Header, ok bool) {
	var b [record.HeaderSize]byte
	n, _ := f.ReadAt(b[:], at)
	h, err := record.ParseHeader(b[:n])
	return h, err == nil && h.Magic >= 0 && h.Magic <= record.MagicV2 && at+int64(h.Size) <= size
}

// good reports whether a whole batch with a right checksum is there.
func good(f vfs.File, at, size int64) bool {
	h, ok := headerAt(f, at, size)
	if !ok {
		return false
	}
	b := make([]byte, h.Size)
	n, _ := f.ReadAt(b, at)
	return n == len(b) && record.Check(b) == nil
}

// doubt says why an entry of the offset index cannot be right; "" when it can.
func (w *walk) doubt(base, key kafka.Offset, at int64, target kafka.Offset) (string, error) {
	if key > target {
		return fmt.Sprintf("it is above offset %d, so the entries do not rise", target), nil
	}
	f, err := w.o.FS.OpenFile(w.path(base, segment.LogExt), 0, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return "", err
	}
	if at < 0 || at >= size {
		return fmt.Sprintf("byte %d is not in it, it has %d", at, size), nil
	}
	h, ok := headerAt(f, at, size)
	if !ok {
		return fmt.Sprintf("no batch starts at byte %d", at), nil
	}
	if h.BaseOffset < base || h.LastOffset > key {
		return fmt.Sprintf("the batch at byte %d has the offsets %d to %d", at, h.BaseOffset, h.LastOffset), nil
	}
	return "", nil
}

// doubtTime says why an entry of the time index cannot be right; "" when it can.
func (w *walk) doubtTime(base kafka.Offset, key kafka.Timestamp, offset kafka.Offset) (why string, err error) {
	if key > w.o.Timestamp {
		return fmt.Sprintf("it is above timestamp %d, so the entries do not rise", w.o.Timestamp), nil
	}
	why = fmt.Sprintf("no batch ends at offset %d", offset)
	err = w.past(base, 0, func(s *record.Scanner) bool {
		h := s.Header()
		switch {
		case h.LastOffset < offset:
			return true
		case h.LastOffset == offset && h.MaxTimestamp == key:
			why = ""
		case h.LastOffset == offset:
			why = fmt.Sprintf("the batch that ends at offset %d has the timestamp %d", offset, h.MaxTimestamp)
		}
		return false
	}, nil)
	return why, err
}

// check compares the checksum of the batch that was found.
func (w *walk) check(base kafka.Offset, at int64, h *record.Header) error {
	file := w.path(base, segment.LogExt)
	f, err := w.o.FS.OpenFile(file, 0, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, h.Size)
	if n, err := f.ReadAt(b, at); n < len(b) {
		return err
	}
	var corrupt *record.CorruptError
	if err := record.Check(b); errors.As(err, &corrupt) {
		d := &DamageError{
			What: fmt.Sprintf("the batch with the offsets %d to %d", h.BaseOffset, h.LastOffset), File: file, Position: at, End: at + int64(h.Size),
			Reason: fmt.Sprintf("%s %d, computed %d", corrupt.Reason, corrupt.Found, corrupt.Want),
		}
		w.damage(d)
		return d
	}
	return nil
}
