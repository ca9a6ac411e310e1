package segment

import (
	"errors"
	"io"
	"slices"

	"github.com/varvelog/varve/internal/checkpoint"
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

// boundDamage ends the damage that reaches to byte pos, where a batch begins that
// was appended since, with offset next.
func (s *Segment) boundDamage(pos int64, next kafka.Offset) {
	s.damageMu.Lock()
	defer s.damageMu.Unlock()
	known := s.Damaged()
	if i := slices.IndexFunc(known, func(d BadRange) bool { return d.End == pos && d.Next > next && next >= d.First }); i >= 0 {
		list := slices.Clone(known)
		list[i].Next = next
		s.damage.Store(&list)
	}
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
	added := s.noteDamage(d)
	// An append beside this either has seen the damage, or its bytes are seen here.
	if size := s.size.Load(); added && next == nil && d.End == r.size && size > d.End {
		behind := newReader(f, size, nil)
		defer behind.giveBack()
		if h := s.goodAt(behind, d.End, first); h != nil {
			s.boundDamage(d.End, h.BaseOffset)
		}
	}
	return added
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
	// OffsetIndex, TimeIndex and TxnIndex say how the index contradicts the .log;
	// empty when it does not.
	OffsetIndex, TimeIndex, TxnIndex string
	// EpochCache says how the leader epochs of the log contradict the batches, which
	// have those of Epochs.
	EpochCache string
	Epochs     []checkpoint.Epoch
}

// ExamineOptions are what the log knows of a segment.
type ExamineOptions struct {
	Upper kafka.Offset // base of the following segment
	// EpochAt is the leader epoch of an offset by the log's checkpoint; ok is false
	// for one that it says nothing of. Nil: not compared. Nor is what ends below Start.
	EpochAt func(kafka.Offset) (epoch kafka.LeaderEpoch, ok bool)
	Start   kafka.Offset
	Open    OpenTxns // at the base
}

// Examine goes through the whole of a sealed segment: framing, checksums, the
// order of offsets and leader epochs, and whether the indexes agree with it. The
// .log is read through r, from front to back, each byte once as long as nothing is
// wrong. It changes nothing; an error is one of the disk, or of r.
func (s *Segment) Examine(r io.ReaderAt, o ExamineOptions) (Examination, error) {
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
	aborted, problem, err := s.txnEntries()
	if err != nil {
		return e, err
	}
	e.TxnIndex = problem
	txns := newTxnComparison(s.base, o.Open)
	x := examiner{s: s, upper: o.Upper, epochs: epochComparison{at: o.EpochAt, start: o.Start}}
	x.good = func(b *goodBatch) {
		e.Batches++
		entries.batch(&b.Header, b.pos)
		txns.batch(&b.Header, b.kind)
		x.epochs.batch(b)
	}
	if err := x.run(over{f, r}); err != nil {
		return e, err
	}
	e.Damaged = x.damaged
	e.OffsetIndex, e.TimeIndex = entries.end(x.damaged)
	if e.TxnIndex == "" {
		e.TxnIndex = txns.problem(aborted, x.damaged)
	}
	e.EpochCache, e.Epochs = x.epochs.problem, x.epochs.found
	return e, nil
}

// goodBatch is a batch whose checksum is right.
type goodBatch struct {
	record.Header
	pos  int64
	kind record.ControlType // of a control batch
	want kafka.LeaderEpoch  // by the log's checkpoint
	odd  bool               // its leader epoch is another one
}

// examiner judges batch after batch. What the checksum does not cover, the base
// offset and the leader epoch, is judged by the batches around: so each is held
// back until the one behind it is there.
type examiner struct {
	s      *Segment
	upper  kafka.Offset
	epochs epochComparison
	good   func(b *goodBatch)

	damaged []BadRange
	next    kafka.Offset      // after the last good batch
	epoch   kafka.LeaderEpoch // of it
	held    goodBatch         // a batch whose own place is not certain yet
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
			b := goodBatch{Header: *h, pos: pos}
			if err = checkMagic(&b.Header, pos); err == nil {
				err = r.check(&b.Header, pos)
			}
			if err == nil && b.Magic >= record.MagicV2 && b.IsControl() {
				b.kind, err = controlType(r, &b.Header, pos)
			}
			if err == nil {
				x.epochs.look(&b)
				x.batch(&b)
				pos += int64(b.Size)
				continue
			}
		}
		var corrupt *record.CorruptError
		if !errors.As(err, &corrupt) {
			return err
		}
		end, _ := x.s.endOfDamage(r, pos, x.expected())
		x.settle(nil)
		x.damage(BadRange{Position: pos, End: end, Reason: corrupt.Reason, Found: corrupt.Found, Want: corrupt.Want})
		pos = end
	}
	x.settle(nil)
	x.reach(x.upper)
	return nil
}

// controlType is what a control batch with a right checksum says; one that
// compaction has emptied, or that is not understood, says nothing.
func controlType(r *reader, h *record.Header, pos int64) (record.ControlType, error) {
	b, err := r.bytes(pos, int64(h.Size))
	if err != nil {
		return record.UnknownControl, err
	}
	var it record.Iterator
	if it.Reset(b, nil) != nil || !it.Next() {
		return record.UnknownControl, nil
	}
	kind, err := record.ParseControl(it.Record().Key)
	if err != nil {
		return record.UnknownControl, nil
	}
	return kind, nil
}

// expected is the lowest offset that the next batch may have.
func (x *examiner) expected() kafka.Offset {
	if x.holds {
		return x.held.NextOffset()
	}
	return x.next
}

// batch takes one whose checksum is right.
func (x *examiner) batch(b *goodBatch) {
	if x.holds {
		h := &x.held
		held := BadRange{Position: h.pos, End: h.pos + int64(h.Size)}
		switch {
		case b.BaseOffset < h.NextOffset() && h.BaseOffset > x.next && b.BaseOffset >= x.next:
			// The one before begins too late for what is behind it: its own offset is wrong.
			x.holds = false
			held.Reason, held.Found, held.Want = "base offset", int64(h.BaseOffset), int64(x.next)
			x.damage(held)
		case b.LeaderEpoch >= 0 && b.LeaderEpoch < h.LeaderEpoch && b.LeaderEpoch >= x.epoch && h.LeaderEpoch > x.epoch && (h.odd || !b.odd):
			x.holds = false
			held.Reason, held.Found, held.Want = "leader epoch", int64(h.LeaderEpoch), int64(b.LeaderEpoch)
			x.damage(held)
		}
		x.settle(b)
	}
	at := BadRange{Position: b.pos, End: b.pos + int64(b.Size)}
	switch {
	case b.BaseOffset < x.next:
		at.Reason, at.Found, at.Want = "base offset", int64(b.BaseOffset), int64(x.next)
	case b.LastOffset < b.BaseOffset, b.LastOffset >= x.upper, b.LastOffset-x.s.base > maxRelative:
		at.Reason, at.Found, at.Want = "last offset", int64(b.LastOffset), int64(x.upper-1)
	case b.Magic >= record.MagicV2 && (b.LeaderEpoch < kafka.NoLeaderEpoch || b.LeaderEpoch >= 0 && b.LeaderEpoch < x.epoch):
		at.Reason, at.Found, at.Want = "leader epoch", int64(b.LeaderEpoch), int64(x.epoch)
	default:
		x.held, x.holds = *b, true
		return
	}
	x.damage(at)
}

// settle takes the batch that was held back for good, or for damaged when its
// leader epoch stands alone. after is the one behind it; nil when that is not known.
func (x *examiner) settle(after *goodBatch) {
	if !x.holds {
		return
	}
	x.holds = false
	h := &x.held
	if x.epochs.alone(h, after) {
		x.damage(BadRange{Position: h.pos, End: h.pos + int64(h.Size), Reason: "leader epoch", Found: int64(h.LeaderEpoch), Want: int64(h.want)})
		return
	}
	x.reach(h.BaseOffset)
	x.next = h.NextOffset()
	if h.Magic >= record.MagicV2 {
		x.epoch = max(x.epoch, h.LeaderEpoch)
	}
	x.good(h)
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
