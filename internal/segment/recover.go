package segment

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// Recover makes the segment one that a crash did not touch: it checks every
// batch from the first on, rebuilds the indexes with the entries that appends
// would have made, and cuts the .log after the last batch that is whole and
// right. visit sees each good batch in order (leader epochs and producer state
// are rebuilt there; AppendTxn may be called from it) and may be nil. It returns
// how many bytes were cut.
//
// A batch that fails its checksum ends the log. An error of the disk does not:
// it is returned and nothing is cut. An offset that cannot be expressed is
// ErrOverflow; the segment must be split then.
func (s *Segment) Recover(visit Visit) (cut int64, err error) {
	return s.RecoverWith(RecoverOptions{Visit: visit})
}

// RecoverOptions are what the log adds to a recovery. All may be nil.
type RecoverOptions struct {
	// Accept is asked about each batch whose checksum is right, before anything
	// is done with it; false ends the log there, as a bad checksum does: the
	// batch does not follow from the one before.
	Accept func(h *record.Header) bool
	// Visit sees each good batch, see Recover.
	Visit Visit
	// BeforeCut is told the part of the .log that is about to be cut off, to set
	// aside what is good in it. Its error is returned and nothing is cut.
	BeforeCut func(path string, from, to int64) error
	// Keep cuts nothing: a batch with a bad checksum is passed over, and the
	// indexes end where the framing does. It is for a segment whose bytes are
	// known to have reached the disk: what is wrong with them now is damage, and
	// what lies behind it is still there.
	Keep bool
}

// RecoverWith is Recover with a say in where the log ends.
func (s *Segment) RecoverWith(o RecoverOptions) (cut int64, err error) {
	s.activate()
	f, err := s.file()
	if err != nil {
		return 0, err
	}
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	if err := errors.Join(s.offsets.Reset(), s.times.Reset(), s.txns.Reset()); err != nil {
		return 0, err
	}
	s.unsynced.Store(true)
	s.size.Store(size)
	s.ring.Store(nil)
	s.rolling, s.sinceEntry, s.broken = kafka.NoTimestamp, 0, nil
	none := index.TimePosition{Timestamp: kafka.NoTimestamp, Offset: s.base}
	r := recovery{s: s, accept: o.Accept, visit: o.Visit, keep: o.Keep, max: none}
	end, err := s.scan(0, size, r.large, r.batch)
	s.setMax(r.max)
	if err != nil && !errors.Is(err, record.ErrCorrupt) && !errors.Is(err, record.ErrInvalid) {
		return 0, err
	}
	if r.failed != nil {
		return 0, r.failed
	}
	if o.Keep {
		end = size
	}
	if end < size {
		if o.BeforeCut != nil {
			if err := o.BeforeCut(s.Path(), end, size); err != nil {
				return 0, err
			}
		}
		if err := f.Truncate(end); err != nil {
			return 0, err
		}
	}
	s.size.Store(end)
	s.reserved, s.reserveStart = 0, end
	return size - end, s.trimIndexes()
}

// recovery is one Recover while it runs.
type recovery struct {
	s         *Segment
	accept    func(h *record.Header) bool
	visit     Visit
	keep      bool
	max       index.TimePosition
	lastEntry int64 // start of the batch that the last index entry is for
	unindexed bool  // the disk is full: the rest is found by walking
	failed    error // of visit: it does not end the log, whatever it is
}

// largeBatch is the size from which a batch is checked piece by piece before it
// is read into memory: a damaged length may claim most of the file.
const largeBatch = 4 << 20

// checkLarge compares the checksum of a large v2 batch without holding it.
func checkLarge(f vfs.File, h *record.Header, pos int64) error {
	if h.Size < largeBatch || h.Magic < record.MagicV2 {
		return nil
	}
	const covered = 21 // the checksum is of everything from the attributes on
	buf := make([]byte, 1<<20)
	crc, table := uint32(0), crc32.MakeTable(crc32.Castagnoli)
	for at := int64(covered); at < int64(h.Size); {
		piece := buf[:min(int64(len(buf)), int64(h.Size)-at)]
		n, err := f.ReadAt(piece, pos+at)
		if n < len(piece) {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		crc = crc32.Update(crc, table, piece)
		at += int64(n)
	}
	if crc != h.CRC {
		return &record.CorruptError{Base: h.BaseOffset, Position: pos, Reason: "checksum", Found: int64(h.CRC), Want: int64(crc)}
	}
	return nil
}

// large looks at a batch before it is read into memory.
func (r *recovery) large(f vfs.File, h *record.Header, pos int64) error {
	err := checkLarge(f, h, pos)
	if r.keep && errors.Is(err, record.ErrCorrupt) {
		return errPassOver
	}
	return err
}

func (r *recovery) batch(h *record.Header, b []byte, pos int64) error {
	s := r.s
	if err := record.Check(b); err != nil {
		if r.keep {
			return nil
		}
		return err
	}
	if r.accept != nil && !r.accept(h) {
		return &record.CorruptError{Base: h.BaseOffset, Position: pos, Reason: "batch does not follow from the one before it"}
	}
	if _, err := index.Relative(s.base, h.LastOffset); err != nil {
		return err
	}
	if h.MaxTimestamp > r.max.Timestamp {
		r.max = index.TimePosition{Timestamp: h.MaxTimestamp, Offset: h.LastOffset}
	}
	if pos-r.lastEntry > s.opts.IndexInterval && !r.unindexed {
		if err := r.index(h.LastOffset, pos); err != nil {
			return err
		}
	}
	if r.visit == nil {
		return nil
	}
	if err := r.visit(h, b, pos); err != nil {
		r.failed = err
		return err
	}
	return nil
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
