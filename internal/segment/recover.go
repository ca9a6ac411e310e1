package segment

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// Recover makes the segment one that a crash did not touch: it checks every
// batch from the first on, rebuilds the indexes with the entries that appends
// would have made, and cuts the .log after the last batch that is whole, right
// and follows from the one before. visit sees each good batch in order with its
// bytes (AppendTxn may be called from it) and may be nil. It returns how many
// bytes were cut.
//
// An error of the disk does not end the log: it is returned and nothing is cut.
// An offset that cannot be expressed is ErrOverflow; the segment must be split then.
func (s *Segment) Recover(visit Visit) (cut int64, err error) {
	r, err := s.RecoverWith(RecoverOptions{Visit: visit, Whole: true, Gaps: true})
	return r.Cut, err
}

// RecoverOptions are what the log adds to a recovery. Every field may be zero.
type RecoverOptions struct {
	// Visit sees each good batch in order: leader epochs and producer state are
	// rebuilt there. Its bytes are nil unless the batch is a control batch, of an
	// old format, or Whole is set: nothing else has to be looked into.
	Visit Visit
	Whole bool
	// Keep is the recovery point: what lies below it had reached the disk. What
	// is wrong there now is damage, and what lies behind it is still there, so it
	// is passed over and noted (Damaged). math.MaxInt64: nothing is cut at all.
	Keep kafka.Offset
	// Below is the base offset of the next segment; 0: there is none.
	Below kafka.Offset
	// Gaps says that offsets may be missing between batches, as compaction leaves them.
	Gaps bool
	// BeforeCut is told what is about to be cut off, to set aside what is good in
	// it. Its error is returned and nothing is cut.
	BeforeCut func(c Cut) error
	// Scanned is told from time to time of bytes that were read.
	Scanned func(bytes int64)
}

// Cut is where a .log ends, and why.
type Cut struct {
	From, To int64        // the bytes that go
	Next     kafka.Offset // where the log ends
	Reason   *record.CorruptError
}

// Recovered is what a recovery found.
type Recovered struct {
	// Next is behind the last good batch, the base when there is none; the next
	// segment's base when there is damage up to the end.
	Next    kafka.Offset
	Batches int
	Entries int // of the offset index
	// Gap is before the last batch, where nothing tells whether offsets are missing
	// there or the offset of that batch is damaged; zero: there is none.
	Gap    OffsetGap
	Cut    int64 // bytes that were cut off
	From   int64 // where the .log was cut
	Reason *record.CorruptError
}

// OffsetGap says that no batch has the offsets [From, To).
type OffsetGap struct{ From, To kafka.Offset }

// RecoverWith is Recover with a say in where the log ends.
func (s *Segment) RecoverWith(o RecoverOptions) (out Recovered, err error) {
	s.activate()
	f, err := s.file()
	if err != nil {
		return out, err
	}
	size, err := f.Size()
	if err != nil {
		return out, err
	}
	if err := errors.Join(s.offsets.Reset(), s.times.Reset()); err != nil {
		return out, err
	}
	s.txns.Rebuild()
	s.changed()
	s.size.Store(size)
	s.ring.Store(nil)
	s.rolling, s.sinceEntry, s.broken = kafka.NoTimestamp, 0, nil
	r := recovery{
		s: s, o: o, in: newReader(f, size, o.Scanned), chain: NewChain(s.base),
		max: index.TimePosition{Timestamp: kafka.NoTimestamp, Offset: s.base},
	}
	defer r.in.giveBack()
	end, err := r.run()
	s.setMax(r.max)
	if err != nil {
		return out, err
	}
	if n := len(r.damage); n > 0 && o.Below == 0 && r.damage[n-1].End == size && end == size {
		r.damage = r.damage[:n-1] // the end of the log is judged by itself
	}
	s.SetDamage(r.damage)
	next := r.chain.Next
	if n := len(r.damage); n > 0 && r.damage[n-1].End == size && end == size {
		next = max(next, o.Below) // the offsets up to there are damaged, not missing
	}
	out = Recovered{Next: next, Batches: r.batches, Gap: r.gap, From: end, Reason: r.reason}
	if out.Entries, err = s.offsets.Len(); err != nil {
		return out, err
	}
	if end < size {
		if o.BeforeCut != nil {
			if err := o.BeforeCut(Cut{From: end, To: size, Next: r.chain.Next, Reason: r.reason}); err != nil {
				return out, err
			}
		}
		if err := f.Truncate(end); err != nil {
			return out, err
		}
		out.Cut = size - end
	}
	s.size.Store(end)
	s.reserved, s.reserveStart = 0, end
	if replaced, err := s.txns.Publish(); err != nil {
		return out, fmt.Errorf("rebuild transaction index: %w", err)
	} else if replaced {
		// With the old one back after a power cut nothing would say that it is not whole.
		if err := s.fs.SyncDir(s.directory()); err != nil {
			return out, err
		}
	}
	if err := s.trimIndexes(); err != nil {
		return out, err
	}
	if s.files.crowded() {
		// It stays open until it is durable, and a recovery may pass through
		// more segments than there are descriptors.
		return out, s.Flush()
	}
	return out, nil
}

// Chain accepts batches that can follow each other: offsets rise, leader epochs
// do not fall. A page of an older life of the file can hold whole batches with
// right checksums (faults W6); they do not fit behind the ones before.
type Chain struct {
	Next  kafka.Offset // of the batch to come, at least
	Epoch kafka.LeaderEpoch
}

// NewChain begins a segment.
func NewChain(base kafka.Offset) Chain { return Chain{Next: base, Epoch: kafka.NoLeaderEpoch} }

// Follows reports whether a batch can come next.
func (c *Chain) Follows(h *record.Header) bool {
	return h.BaseOffset >= c.Next && h.LastOffset >= h.BaseOffset && (h.Magic < record.MagicV2 || h.LeaderEpoch < 0 || h.LeaderEpoch >= c.Epoch)
}

// Take moves behind a batch.
func (c *Chain) Take(h *record.Header) {
	c.Next = h.LastOffset + 1
	if h.Magic >= record.MagicV2 && h.LeaderEpoch >= 0 {
		c.Epoch = h.LeaderEpoch
	}
}

// recovery is one RecoverWith while it runs.
type recovery struct {
	s         *Segment
	o         RecoverOptions
	in        *reader
	chain     Chain
	batches   int
	max       index.TimePosition
	lastEntry int64 // start of the batch that the last index entry is for
	again     bool  // behind damage: the next batch gets an entry, so that it can be found
	unindexed bool  // the disk is full: the rest is found by walking
	reason    *record.CorruptError
	damage    []BadRange
	gap       OffsetGap
}

// run goes through the file and returns where the log ends.
func (r *recovery) run() (end int64, err error) {
	pos, size := int64(0), r.in.size
	for pos < size {
		h, err := r.look(pos)
		if err != nil {
			var bad *record.CorruptError
			if !errors.As(err, &bad) {
				return 0, explain(r.in.f, err)
			}
			if pos == 0 {
				if err := r.misnamed(); err != nil {
					return 0, err
				}
			}
			next, found, err := r.passOver(pos, bad)
			if err != nil {
				return 0, explain(r.in.f, err)
			}
			if !found {
				r.reason = bad
				return pos, nil
			}
			pos = next
			continue
		}
		if err := r.take(h, pos); err != nil {
			return 0, err
		}
		pos += int64(h.Size)
	}
	return size, nil
}

// look reads the batch at pos; a *record.CorruptError says why there is none
// that can be in the log.
func (r *recovery) look(pos int64) (*record.Header, error) {
	h, err := r.in.header(pos)
	if err != nil {
		return nil, err
	}
	if err := r.in.check(h, pos); err != nil {
		return nil, err
	}
	if h.BaseOffset < r.chain.Next || h.LastOffset < h.BaseOffset || r.chain.Next >= r.o.Keep && !r.chain.Follows(h) {
		return nil, &record.CorruptError{Base: h.BaseOffset, Position: pos, Reason: "batch does not follow from the one before it"}
	}
	if h.BaseOffset > r.chain.Next {
		ok, err := r.mayJump(h, pos)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, &record.CorruptError{Base: h.BaseOffset, Position: pos, Reason: "base offset", Found: int64(h.BaseOffset), Want: int64(r.chain.Next)}
		}
	}
	if h.Magic >= record.MagicV2 && h.LeaderEpoch > r.chain.Epoch {
		if err := r.epochFits(h, pos); err != nil {
			return nil, err
		}
	}
	if _, err := index.Relative(r.s.base, h.LastOffset); err != nil {
		return nil, err
	}
	return h, nil
}

// wrongEpoch is the reason of a batch whose leader epoch is damaged, and what lies
// behind it is not.
const wrongEpoch = "leader epoch"

// epochFits finds a leader epoch, which no checksum covers, that has a bit more
// than that of the batch behind it: all from there on would have to be cut off for
// it. Above the recovery point the ones behind could be of an older life of the
// file, and have to go on exactly from the one before.
func (r *recovery) epochFits(h *record.Header, pos int64) error {
	at := *h // the reader's header is overwritten
	defer func() { *h = at }()
	end := pos + int64(at.Size)
	after, err := r.in.header(end)
	if err == nil && after.LeaderEpoch < at.LeaderEpoch && after.LeaderEpoch >= max(r.chain.Epoch, 0) && after.BaseOffset > at.LastOffset &&
		(r.chain.Next < r.o.Keep || after.LeaderEpoch == r.chain.Epoch && after.BaseOffset == at.LastOffset+1) &&
		bits.OnesCount32(uint32(at.LeaderEpoch^after.LeaderEpoch)) == 1 {
		if err = r.in.check(after, end); err == nil {
			return &record.CorruptError{Base: at.BaseOffset, Position: pos, Reason: wrongEpoch, Found: int64(at.LeaderEpoch), Want: int64(after.LeaderEpoch)}
		}
	}
	var bad *record.CorruptError
	if err == nil || errors.As(err, &bad) {
		return nil
	}
	return err
}

// mayJump decides whether offsets are missing before a batch, or its base
// offset, which no checksum covers, is damaged: then the batch behind it goes on
// from the one before it.
func (r *recovery) mayJump(h *record.Header, pos int64) (bool, error) {
	if h.Magic < record.MagicV2 {
		return true, nil // the offsets of a compressed message of format 0 and 1 are those of its last record
	}
	if r.o.Below > 0 && h.BaseOffset >= r.o.Below {
		return false, nil
	}
	at := *h // the reader's header is overwritten
	defer func() { *h = at }()
	end := pos + int64(at.Size)
	after, err := r.in.header(end)
	// It may begin later than expected when the one behind it begins behind its end,
	// or does not fit in any case.
	fits := func() bool { return after.BaseOffset < r.chain.Next || after.BaseOffset > at.LastOffset }
	if err == nil && r.o.Gaps && fits() {
		return true, nil
	}
	if err == nil {
		err = r.in.check(after, end)
	}
	var bad *record.CorruptError
	switch {
	case err == nil:
		return fits(), nil
	case !errors.As(err, &bad):
		return false, err
	}
	// Nothing behind it says what is right. Damage in front of it explains a jump, and
	// a recovery point that lies where it would end without one contradicts it: no
	// recovery point lies within a batch, and in what a truncation inside a batch
	// skipped at its end alone.
	gap, unmoved := at.BaseOffset-r.chain.Next, r.chain.Next+kafka.Offset(at.LastOffsetDelta)+1
	switch n := len(r.damage); {
	case n > 0 && r.damage[n-1].End == pos:
		return true, nil
	case r.o.Keep == unmoved && at.BaseOffset != unmoved:
		return false, nil
	}
	// A follower that was truncated inside a batch leaves a small gap, in the same
	// leader epoch too; one flipped bit of the offset mostly a large one.
	one := bits.OnesCount64(uint64(at.BaseOffset^r.chain.Next)) == 1
	if one && gap < maxGap && !r.o.Gaps {
		r.gap = OffsetGap{From: r.chain.Next, To: at.BaseOffset}
	}
	return r.o.Gaps || gap < maxGap || !one, nil
}

// maxGap is more offsets than a batch has.
const maxGap = 1 << 20

// MisnamedError is a segment whose batches, with right checksums, lie below its
// base offset. Nothing was cut.
type MisnamedError struct{ Found kafka.Offset }

func (e *MisnamedError) Error() string {
	return fmt.Sprintf("the first batch is at offset %d, below the base offset", e.Found)
}

// misnamed tells a segment under a wrong name from one whose first batch has a
// damaged base offset: what follows that one fits the name.
func (r *recovery) misnamed() error {
	h, err := r.in.header(0)
	if err == nil {
		err = r.in.check(h, 0)
	}
	if err != nil || h.BaseOffset >= r.s.base || h.BaseOffset < 0 {
		return nil // it is damaged, or of the disk, and found again
	}
	first := *h
	after, err := r.in.header(int64(first.Size))
	if err == nil {
		err = r.in.check(after, int64(first.Size))
	}
	fits := err == nil && after.BaseOffset >= r.s.base
	if int64(first.Size) == r.in.size {
		fits = r.s.base+kafka.Offset(first.LastOffsetDelta)+1 == r.o.Below
	}
	if fits {
		return nil
	}
	return &MisnamedError{Found: first.BaseOffset}
}

// passOver finds where the log goes on behind damage below the recovery point;
// found is false when it ends there.
func (r *recovery) passOver(pos int64, bad *record.CorruptError) (next int64, found bool, err error) {
	whole := r.o.Keep == math.MaxInt64
	if r.chain.Next >= r.o.Keep && !whole && bad.Reason != wrongEpoch {
		return 0, false, nil
	}
	next, found, err = r.resume(pos)
	if err != nil {
		return 0, false, err
	}
	if !found {
		if !whole && (r.o.Below == 0 || r.chain.Next >= r.o.Keep) {
			return 0, false, nil
		}
		next = r.in.size // the log goes on in the next segment
	}
	r.again = true
	lost := BadRange{Position: pos, End: next, First: r.chain.Next, Next: r.o.Below, Reason: bad.Reason, Found: bad.Found, Want: bad.Want}
	if r.o.Below == 0 {
		lost.Next = r.s.base + maxRelative + 1
	}
	r.damage = append(r.damage, lost)
	return next, true, nil
}

// resume returns where the next batch starts: where the length of the damaged
// one leads, if something that fits is there, else the next whole batch.
func (r *recovery) resume(pos int64) (int64, bool, error) {
	limit := r.s.base + math.MaxInt32
	if r.o.Below > 0 {
		limit = min(limit, r.o.Below-1)
	}
	if h, err := r.in.header(pos); err == nil {
		end, next := pos+int64(h.Size), h.LastOffset+1
		if end == r.in.size {
			return end, r.o.Below > 0, nil // at the end of the log nothing is appended behind it
		}
		after, err := r.in.header(end)
		if err == nil && after.BaseOffset >= r.chain.Next && after.BaseOffset <= limit {
			if after.BaseOffset == next || r.in.check(after, end) == nil {
				return end, true, nil
			}
		}
	}
	for from := pos + 1; ; {
		at, found, err := record.FindWholeBatch(r.in.f, from, r.in.size, r.chain.Next, limit)
		if err != nil || !found {
			return 0, false, err
		}
		leads, err := r.leadsToEnd(at)
		if err != nil || leads {
			return at, leads, err
		}
		from = at + 1
	}
}

// leadsToEnd tells a batch of the log from something that looks like one inside
// a record: behind it there is batch after batch, up to the end of the file.
func (r *recovery) leadsToEnd(pos int64) (bool, error) {
	next := kafka.Offset(0)
	for pos < r.in.size {
		h, err := r.in.header(pos)
		var bad *record.CorruptError
		if errors.As(err, &bad) {
			return bad.Reason == PartialBatch || r.in.size-pos < record.HeaderSize, nil
		}
		if err != nil {
			return false, err
		}
		if h.BaseOffset < next {
			return false, nil
		}
		pos, next = pos+int64(h.Size), h.LastOffset+1
	}
	return true, nil
}

// take adds a good batch: its index entry, and what it means for the log.
func (r *recovery) take(h *record.Header, pos int64) error {
	s := r.s
	if h.MaxTimestamp > r.max.Timestamp {
		r.max = index.TimePosition{Timestamp: h.MaxTimestamp, Offset: h.LastOffset}
	}
	if (pos-r.lastEntry > s.opts.IndexInterval || r.again && pos > 0) && !r.unindexed {
		if err := r.index(h.LastOffset, pos); err != nil {
			return err
		}
		r.again = false
	}
	if n := len(r.damage); n > 0 && r.damage[n-1].End == pos {
		r.damage[n-1].Next = h.BaseOffset
	}
	r.batches++
	r.chain.Take(h)
	if r.o.Visit == nil {
		return nil
	}
	var b []byte
	if r.o.Whole || h.IsControl() || h.Magic < record.MagicV2 {
		var err error
		if b, err = r.in.bytes(pos, int64(h.Size)); err != nil {
			return explain(r.in.f, err)
		}
	}
	return r.o.Visit(h, b, pos)
}

// index adds an entry for the batch at pos. A full disk must not keep a log
// from being read: without an entry a lookup walks a little further.
func (r *recovery) index(last kafka.Offset, pos int64) error {
	err := r.s.offsets.Append(last, pos)
	if err == nil {
		err = r.s.times.MaybeAppend(r.max.Timestamp, r.max.Offset, false)
	}
	if vfs.IsFull(err) || errors.Is(err, index.ErrFull) {
		r.unindexed = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("rebuild index at %d: %w", pos, err)
	}
	r.lastEntry = pos
	return nil
}

// trimIndexes adds the final entry of the time index and cuts both files to
// their entries.
func (s *Segment) trimIndexes() error {
	if err := s.loadMax(); err != nil {
		return err
	}
	err := s.times.MaybeAppend(s.max.Timestamp, s.max.Offset, true)
	if err != nil && !vfs.IsFull(err) {
		return fmt.Errorf("final time index entry: %w", err)
	}
	if err := errors.Join(s.offsets.Trim(), s.times.Trim()); err != nil {
		return err
	}
	s.active.Store(false)
	s.touch()
	return nil
}
