package repair

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// survey is what a .log is made of: batches that can be kept, and the bytes
// between and behind them that cannot.
type survey struct {
	kept    []span
	batches int          // kept
	next    kafka.Offset // behind the last batch kept
	bad     []hole
}

// hole is a range of bytes that is no batch, or none that fits where it is.
type hole struct {
	span
	first, last kafka.Offset // that are lost with it; last < first: none
	open        bool         // how far the offsets went is not known
	whole       bool         // a batch with a right checksum, or one that may be
}

// lostOffsets are the first and last offset that go; ok is false when none do.
func (s *survey) lostOffsets() (first, last kafka.Offset, open, ok bool) {
	for _, h := range s.bad {
		if h.last < h.first && !h.open {
			continue
		}
		if !ok {
			first = h.first
		}
		last, open, ok = h.last, h.open, true
	}
	return first, last, open, ok
}

// tail reports whether nothing is kept behind the first hole.
func (s *survey) tail() bool {
	return len(s.bad) == 1 && (len(s.kept) == 0 || s.kept[len(s.kept)-1].to <= s.bad[0].from)
}

// surveyor walks over one .log.
type surveyor struct {
	f     vfs.File
	size  int64
	upper kafka.Offset // offsets are below it: the next segment's base
	base  kafka.Offset
	buf   []byte
	old   bool // a message of an old format was seen: look for those too
}

// magicAt is where every format has its number.
const magicAt = 16

// survey looks at every batch of a segment. upper is the base of the segment
// behind it, or math.MaxInt64.
func surveyLog(f vfs.File, base, upper kafka.Offset) (survey, error) {
	var s survey
	size, err := f.Size()
	if err != nil {
		return s, err
	}
	w := &surveyor{f: f, size: size, base: base, upper: upper, buf: make([]byte, 256<<10)}
	s.next = base
	for pos := int64(0); pos < size; {
		h, ok, err := w.fits(pos, s.next)
		if err != nil {
			return s, err
		}
		if ok {
			end := pos + int64(h.Size)
			if n := len(s.kept); n > 0 && s.kept[n-1].to == pos {
				s.kept[n-1].to = end
			} else {
				s.kept = append(s.kept, span{pos, end})
			}
			s.batches++
			s.settle(h.BaseOffset)
			pos, s.next = end, h.NextOffset()
			continue
		}
		hole, err := w.hole(pos, s.next)
		if err != nil {
			return s, err
		}
		if n := len(s.bad); n > 0 && s.bad[n-1].to == pos {
			s.bad[n-1].to, s.bad[n-1].whole = hole.to, s.bad[n-1].whole || hole.whole
			s.bad[n-1].last, s.bad[n-1].open = max(s.bad[n-1].last, hole.last), s.bad[n-1].open || hole.open
		} else {
			s.bad = append(s.bad, hole)
		}
		pos = hole.to
	}
	if n := len(s.bad); n > 0 && upper != math.MaxInt64 && s.bad[n-1].to == size {
		s.settle(upper)
	}
	return s, nil
}

// settle says which offset comes behind the last hole.
func (s *survey) settle(next kafka.Offset) {
	if n := len(s.bad); n > 0 && s.bad[n-1].first == s.next {
		s.bad[n-1].last, s.bad[n-1].open = next-1, false
	}
}

// fits reports whether a whole batch with a right checksum starts at pos and can
// follow a batch that ended before offset next.
func (w *surveyor) fits(pos int64, next kafka.Offset) (record.Header, bool, error) {
	h, ok, err := w.right(pos)
	if err != nil || !ok || h.BaseOffset < next || h.LastOffset < h.BaseOffset || h.LastOffset >= w.upper || h.LastOffset-w.base > math.MaxInt32 {
		return h, false, err
	}
	if h.BaseOffset == next || h.Magic < record.MagicV2 {
		return h, true, nil
	}
	// The checksum does not cover the base offset. When the batch behind it goes
	// on from the one before it, it is this one that does not fit.
	after, ok, err := w.right(pos + int64(h.Size))
	return h, err == nil && (!ok || after.BaseOffset < next || after.BaseOffset >= h.BaseOffset), err
}

// right reads the header at pos and compares the checksum.
func (w *surveyor) right(pos int64) (h record.Header, ok bool, err error) {
	var b [record.HeaderSize]byte
	n, err := w.f.ReadAt(b[:min(int64(len(b)), max(0, w.size-pos))], pos)
	if err != nil && !errors.Is(err, io.EOF) {
		return h, false, err
	}
	if h, err = record.ParseHeader(b[:n]); err != nil || h.Magic < 0 || h.Magic > record.MagicV2 || pos+int64(h.Size) > w.size {
		return h, false, nil // not a batch, which is an answer
	}
	if h.Magic < record.MagicV2 {
		whole := make([]byte, h.Size)
		if _, err := w.f.ReadAt(whole, pos); err != nil {
			return h, false, err
		}
		w.old = w.old || record.Check(whole) == nil
		return h, record.Check(whole) == nil, nil
	}
	const covered = 21 // the checksum is of everything from the attributes on
	crc, table := uint32(0), crc32.MakeTable(crc32.Castagnoli)
	for at := int64(covered); at < int64(h.Size); {
		piece := w.buf[:min(int64(len(w.buf)), int64(h.Size)-at)]
		if n, err := w.f.ReadAt(piece, pos+at); n < len(piece) {
			return h, false, errors.Join(err, io.ErrUnexpectedEOF)
		}
		crc = crc32.Update(crc, table, piece)
		at += int64(len(piece))
	}
	return h, crc == h.CRC, nil
}

// hole finds where what starts at pos ends: behind one damaged batch when its
// length leads to the next one or to the end, else where the next good batch is.
func (w *surveyor) hole(pos int64, next kafka.Offset) (hole, error) {
	out := hole{span: span{pos, w.size}, first: next, last: next - 1}
	h, right, err := w.right(pos)
	if err != nil {
		return out, err
	}
	out.whole = right
	if h.Size > 0 {
		out.open = true // records, of offsets from next on
		if !right && h.BaseOffset == next && h.LastOffset >= next && h.LastOffset-w.base <= math.MaxInt32 {
			out.last, out.open = h.LastOffset, false
		}
		if right && h.LastOffset < next {
			out.open = false // they are there twice
		}
		end := pos + int64(h.Size)
		if end == w.size {
			return out, nil
		}
		if end < w.size {
			_, ok, err := w.right(end) // whether it fits too is asked there
			if err != nil || ok || right {
				out.to = end
				return out, err
			}
		}
	} else if !w.zeros(pos) {
		out.open = true
	}
	out.to, err = w.search(pos+1, next)
	return out, err
}

// zeros reports whether there is nothing but zeros from pos to the end.
func (w *surveyor) zeros(pos int64) bool {
	for pos < w.size {
		n, _ := w.f.ReadAt(w.buf[:min(int64(len(w.buf)), w.size-pos)], pos)
		if n == 0 || len(bytes.TrimLeft(w.buf[:n], "\x00")) > 0 {
			return false
		}
		pos += int64(n)
	}
	return true
}

// search returns where the next good batch starts, or the end.
func (w *surveyor) search(from int64, next kafka.Offset) (int64, error) {
	buf := make([]byte, 64<<10)
	for at := from; w.size-at > magicAt; {
		n, err := w.f.ReadAt(buf[:min(int64(len(buf)), w.size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := magicAt; i < n; i++ {
			if !w.old {
				skip := bytes.IndexByte(buf[i:n], record.MagicV2)
				if skip < 0 {
					break
				}
				i += skip
			}
			b := buf[i-magicAt : n]
			base := kafka.Offset(binary.BigEndian.Uint64(b))
			if b[magicAt] > record.MagicV2 || base < next || base >= w.upper || base-w.base > math.MaxInt32 {
				continue
			}
			pos := at + int64(i-magicAt)
			if _, ok, err := w.fits(pos, next); err != nil || ok {
				return pos, err
			}
		}
		if at+int64(n) >= w.size {
			break
		}
		at += int64(n) - magicAt
	}
	return w.size, nil
}
