package segment

import (
	"errors"
	"io"
	"slices"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// BadRange is a part of a .log that cannot be served: a batch whose checksum or
// place in the order of offsets is wrong, or bytes that are no batch.
type BadRange struct {
	Position, End int64 // bytes of the .log
	// The offsets [First, Next) are lost to readers: from behind the good batch
	// before to the next good one.
	First, Next kafka.Offset
	Reason      string // the noun that is wrong
	Found, Want int64
}

func (d *BadRange) err() error {
	return &record.CorruptError{Base: d.First, Position: d.Position, Reason: d.Reason, Found: d.Found, Want: d.Want}
}

// Damaged lists what is known to be damaged, by position. It must not be changed.
func (s *Segment) Damaged() []BadRange {
	if p := s.damage.Load(); p != nil {
		return *p
	}
	return nil
}

// SetDamage replaces what is known to be damaged by what a pass over the whole
// segment found, and tells Options.OnDamage what is new in it.
func (s *Segment) SetDamage(found []BadRange) {
	s.damageMu.Lock()
	known := s.Damaged()
	if len(found) == 0 {
		s.damage.Store(nil)
	} else {
		s.damage.Store(&found)
	}
	s.damageMu.Unlock()
	for _, d := range found {
		if !slices.ContainsFunc(known, func(k BadRange) bool { return k.Position == d.Position }) {
			s.tell(d)
		}
	}
}

// noteDamage adds what a read met; false when it is known.
func (s *Segment) noteDamage(d BadRange) bool {
	s.damageMu.Lock()
	known := s.Damaged()
	i, there := slices.BinarySearchFunc(known, d.Position, func(k BadRange, pos int64) int { return int(min(max(k.Position-pos, -1), 1)) })
	if !there {
		list := slices.Insert(slices.Clone(known), i, d)
		s.damage.Store(&list)
	}
	s.damageMu.Unlock()
	if !there {
		s.tell(d)
	}
	return !there
}

// forgetDamage drops what lies at or behind byte pos, which is being cut off.
func (s *Segment) forgetDamage(pos int64) {
	s.damageMu.Lock()
	defer s.damageMu.Unlock()
	if known := s.Damaged(); len(known) > 0 {
		kept := slices.DeleteFunc(slices.Clone(known), func(d BadRange) bool { return d.Position >= pos })
		s.damage.Store(&kept)
	}
}

func (s *Segment) tell(d BadRange) {
	if s.opts.OnDamage != nil {
		s.opts.OnDamage(s.Path(), d)
	}
}

// damagedAt is the damage that an offset is lost to, or that starts at or holds byte pos.
func damagedAt(list []BadRange, offset kafka.Offset, pos int64) *BadRange {
	for i := range list {
		d := &list[i]
		if offset >= d.First && offset < d.Next || pos >= d.Position && pos < d.End {
			return d
		}
	}
	return nil
}

// behind is where a walk goes on that has come to byte pos: there, or at the end
// of the damage that it lies in.
func behind(list []BadRange, pos int64) int64 {
	for i := range list {
		if pos >= list[i].Position && pos < list[i].End {
			pos = list[i].End
		}
	}
	return pos
}

// meet looks at what ended a walk that had come to offset first: how far the
// damage reaches is found by the chain of batches, or from the index. It returns
// false when it is none, or is known already.
func (s *Segment) meet(f vfs.File, err error, first kafka.Offset) bool {
	var corrupt *record.CorruptError
	if !errors.As(err, &corrupt) {
		return false
	}
	r := newReader(f, s.size.Load(), nil)
	defer r.giveBack()
	d := BadRange{Position: corrupt.Position, First: first, Next: s.base + maxRelative + 1, Reason: corrupt.Reason, Found: corrupt.Found, Want: corrupt.Want}
	var next *record.Header
	if d.End, next = s.endOfDamage(r, d.Position, first); next != nil {
		d.Next = next.BaseOffset
	}
	return s.noteDamage(d)
}

// endOfDamage finds the next good batch behind the damage at pos, whose offsets
// are expected to begin at first: where the chain of lengths leads, or where the
// next entry of the offset index points, but only to a batch with a right
// checksum. Without one the damage reaches to the end of the .log, and next is nil.
// Bytes are not searched for something that looks like a batch: the value of a
// record may.
func (s *Segment) endOfDamage(r *reader, pos int64, first kafka.Offset) (end int64, next *record.Header) {
	if length, err := r.bytes(pos, min(record.LogOverhead, r.size-pos)); err == nil && len(length) == record.LogOverhead {
		end := pos + int64(record.Batch(length).Size())
		if end == r.size && record.Batch(length).Size() > record.LogOverhead {
			return end, nil
		}
		if end > pos && end < r.size {
			if h := s.goodAt(r, end, first); h != nil {
				return end, h
			}
		}
	}
	for from := pos + 1; ; {
		entry, ok, err := s.offsets.UpperBound(index.Position{Byte: from}, 0)
		if err != nil || !ok || entry.Byte < from || entry.Byte >= r.size {
			return r.size, nil
		}
		if h := s.goodAt(r, entry.Byte, first); h != nil {
			return entry.Byte, h
		}
		from = entry.Byte + 1
	}
}

// goodAt returns a copy of the header of the batch at pos when that has a right
// checksum and an offset from first on.
func (s *Segment) goodAt(r *reader, pos int64, first kafka.Offset) *record.Header {
	h, err := r.header(pos)
	if err != nil {
		return nil
	}
	copied := *h
	if copied.BaseOffset < first || copied.LastOffset < copied.BaseOffset || copied.LastOffset-s.base > maxRelative || checkMagic(&copied, pos) != nil || r.check(&copied, pos) != nil {
		return nil
	}
	return &copied
}

// checkMagic refuses formats that do not exist; the checksum does not cover the magic.
func checkMagic(h *record.Header, pos int64) error {
	if h.Magic >= 0 && h.Magic <= record.MagicV2 {
		return nil
	}
	return &record.CorruptError{Base: h.BaseOffset, Position: pos, Reason: "magic", Found: int64(h.Magic), Want: record.MagicV2}
}

// over is a file that is read through another reader.
type over struct {
	vfs.File
	r io.ReaderAt
}

func (o over) ReadAt(p []byte, off int64) (int, error) { return o.r.ReadAt(p, off) }

// Examination is what Examine found.
type Examination struct {
	Damaged []BadRange
	Batches int64
	// OffsetIndex and TimeIndex say how the index contradicts the .log; empty when it does not.
	OffsetIndex, TimeIndex string
}

// Examine goes through the whole of a sealed segment: framing, checksums, the
// order of offsets and leader epochs, and whether the indexes agree with it. The
// .log is read through r, from front to back, each byte once as long as nothing is
// wrong. upper is the base of the following segment. It changes nothing; an error
// is one of the disk, or of r.
func (s *Segment) Examine(r io.ReaderAt, upper kafka.Offset) (Examination, error) {
	var e Examination
	h, f, err := s.use()
	if err != nil {
		return e, err
	}
	h.release() // r holds the segment for each read: who waits for readers does not wait for all of this
	entries, err := s.comparison()
	if err != nil {
		return e, err
	}
	x := examiner{s: s, upper: upper, good: func(h *record.Header, pos int64) { e.Batches++; entries.batch(h, pos) }}
	if err := x.run(over{f, r}); err != nil {
		return e, err
	}
	e.Damaged = x.damaged
	e.OffsetIndex, e.TimeIndex = entries.end(x.damaged)
	return e, nil
}

// examiner judges batch after batch. What the checksum does not cover, the base
// offset and the leader epoch, is judged by the batches around: so each is held
// back until the one behind it is there.
type examiner struct {
	s     *Segment
	upper kafka.Offset
	good  func(h *record.Header, pos int64)

	damaged []BadRange
	next    kafka.Offset      // after the last good batch
	epoch   kafka.LeaderEpoch // of it
	held    record.Header     // a batch whose own place is not certain yet
	heldAt  int64
	holds   bool
	open    int // damages from this one on do not know their Next yet
}

func (x *examiner) run(f vfs.File) error {
	r := newReader(f, x.s.size.Load(), nil)
	defer r.giveBack()
	x.next, x.epoch = x.s.base, kafka.NoLeaderEpoch
	for pos := int64(0); pos < r.size; {
		h, err := r.header(pos)
		if err == nil {
			copied := *h
			if err = checkMagic(&copied, pos); err == nil {
				err = r.check(&copied, pos)
			}
			if err == nil {
				x.batch(&copied, pos)
				pos += int64(copied.Size)
				continue
			}
		}
		var corrupt *record.CorruptError
		if !errors.As(err, &corrupt) {
			return err
		}
		end, _ := x.s.endOfDamage(r, pos, x.expected())
		x.settle()
		x.damage(BadRange{Position: pos, End: end, Reason: corrupt.Reason, Found: corrupt.Found, Want: corrupt.Want})
		pos = end
	}
	x.settle()
	x.reach(x.upper)
	return nil
}

// expected is the lowest offset that the next batch may have.
func (x *examiner) expected() kafka.Offset {
	if x.holds {
		return x.held.NextOffset()
	}
	return x.next
}

// batch takes one whose checksum is right.
func (x *examiner) batch(h *record.Header, pos int64) {
	at := BadRange{Position: pos, End: pos + int64(h.Size)}
	if x.holds {
		held := BadRange{Position: x.heldAt, End: x.heldAt + int64(x.held.Size)}
		switch {
		case h.BaseOffset < x.held.NextOffset() && x.held.BaseOffset > x.next && h.BaseOffset >= x.next:
			// The one before begins too late for what is behind it: its own offset is wrong.
			x.holds = false
			held.Reason, held.Found, held.Want = "base offset", int64(x.held.BaseOffset), int64(x.next)
			x.damage(held)
		case h.LeaderEpoch >= 0 && h.LeaderEpoch < x.held.LeaderEpoch && h.LeaderEpoch >= x.epoch && x.held.LeaderEpoch > x.epoch:
			x.holds = false
			held.Reason, held.Found, held.Want = "leader epoch", int64(x.held.LeaderEpoch), int64(h.LeaderEpoch)
			x.damage(held)
		}
		x.settle()
	}
	switch {
	case h.BaseOffset < x.next:
		at.Reason, at.Found, at.Want = "base offset", int64(h.BaseOffset), int64(x.next)
	case h.LastOffset < h.BaseOffset, h.LastOffset >= x.upper, h.LastOffset-x.s.base > maxRelative:
		at.Reason, at.Found, at.Want = "last offset", int64(h.LastOffset), int64(x.upper-1)
	case h.Magic >= record.MagicV2 && (h.LeaderEpoch < kafka.NoLeaderEpoch || h.LeaderEpoch >= 0 && h.LeaderEpoch < x.epoch):
		at.Reason, at.Found, at.Want = "leader epoch", int64(h.LeaderEpoch), int64(x.epoch)
	default:
		x.held, x.heldAt, x.holds = *h, pos, true
		return
	}
	x.damage(at)
}

// settle takes the batch that was held back for good.
func (x *examiner) settle() {
	if !x.holds {
		return
	}
	x.holds = false
	x.reach(x.held.BaseOffset)
	x.next = x.held.NextOffset()
	if x.held.Magic >= record.MagicV2 {
		x.epoch = max(x.epoch, x.held.LeaderEpoch)
	}
	x.good(&x.held, x.heldAt)
}

func (x *examiner) damage(d BadRange) {
	d.First = x.next
	x.damaged = append(x.damaged, d)
}

// reach tells the damages since the last good batch where the next one begins.
func (x *examiner) reach(next kafka.Offset) {
	for ; x.open < len(x.damaged); x.open++ {
		x.damaged[x.open].Next = next
	}
}
