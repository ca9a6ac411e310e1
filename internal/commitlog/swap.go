package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// removeTemporary unlinks what a crash left of deletions and of rewrites that
// were not complete, and returns the `.swap` files that are.
//
// A rewrite (compaction, or the split of a segment) first writes `.cleaned`
// files, then renames them to `.swap` from the highest base to the lowest. So as
// long as there is a `.cleaned`, the swaps at and above it are not all there.
func (ld *loader) removeTemporary() (swaps []segment.FileName, err error) {
	l := ld.l
	names, err := l.fs.ReadDir(l.Dir())
	if err != nil {
		return nil, err
	}
	var cleaned []segment.FileName
	deleted, dropped := 0, 0
	lowest := kafka.Offset(math.MaxInt64)
	for _, d := range names {
		if !d.Type().IsRegular() {
			continue
		}
		if isTemporary(d.Name()) {
			if err := l.fs.Remove(l.path(d.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			continue
		}
		n, ok := segment.ParseName(d.Name())
		if !ok {
			continue
		}
		switch n.Suffix {
		case segment.DeletedSuffix:
			deleted++
			if err := ld.remove(n); err != nil {
				return nil, err
			}
		case segment.CleanedSuffix:
			cleaned = append(cleaned, n)
			lowest = min(lowest, n.Base)
		case segment.SwapSuffix:
			swaps = append(swaps, n)
		}
	}
	complete := swaps[:0]
	for _, n := range swaps {
		if n.Base >= lowest {
			dropped++
			if err := ld.remove(n); err != nil {
				return nil, err
			}
			continue
		}
		complete = append(complete, n)
	}
	if dropped > 0 && len(cleaned) > 0 {
		// A power cut that brought a swap back without the `.cleaned` would have it
		// taken for a complete one.
		if err := l.fs.SyncDir(l.Dir()); err != nil {
			return nil, err
		}
	}
	for _, n := range cleaned {
		if err := ld.remove(n); err != nil {
			return nil, err
		}
	}
	l.finished("deletion", deleted)
	l.finished("compaction", dropped+len(cleaned)) // given up: the old segments are all there
	return complete, nil
}

const temporarySuffix = ".tmp"

// isTemporary tells a file that was being written when a crash came, and whose
// name was never given to it. Only names that the engine writes are meant.
func isTemporary(name string) bool {
	final, ok := strings.CutSuffix(name, temporarySuffix)
	if !ok {
		return false
	}
	n, ofSegment := segment.ParseName(final)
	rebuilt := ofSegment && n.Suffix == "" && (n.Ext == segment.IndexExt || n.Ext == segment.TimeIndexExt || n.Ext == segment.TxnIndexExt)
	return rebuilt || final == checkpoint.EpochFile || final == checkpoint.PartitionFile || strings.Contains(final, segment.LogExt+CutSuffix)
}

func (ld *loader) remove(n segment.FileName) error {
	err := ld.l.fs.Remove(ld.l.path(n.String()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// completeSwaps finishes replacements: every file numbered within the offsets
// that the swaps cover goes, then the swaps get their final names. A swap
// without a record covers no offset; Kafka leaves it the transaction index of the
// segment it replaces, whose aborted transactions are not in it any more.
func (ld *loader) completeSwaps(swaps []segment.FileName) error {
	l := ld.l
	if len(swaps) == 0 {
		return nil
	}
	from, to := kafka.Offset(math.MaxInt64), kafka.Offset(math.MinInt64)
	replaced := map[kafka.Offset]bool{}
	for _, n := range swaps {
		if n.Ext != segment.LogExt {
			continue
		}
		o := l.segmentOptions()
		o.Suffix, o.ReadOnly = segment.SwapSuffix, true // no index is made that would become a swap itself
		s, err := segment.Open(l.fs, l.Dir(), n.Base, o)
		if err != nil {
			return err
		}
		next, err := s.ReadNextOffset()
		if err = errors.Join(err, s.Abandon()); err != nil {
			return fmt.Errorf("swap %d: %w", n.Base, err)
		}
		from, to = min(from, n.Base), max(to, next)
		replaced[n.Base] = true
	}
	names, err := l.fs.ReadDir(l.Dir())
	if err != nil {
		return err
	}
	for _, d := range names {
		n, ok := segment.ParseName(d.Name())
		if !ok || !d.Type().IsRegular() || n.Suffix == segment.SwapSuffix {
			continue
		}
		if n.Base >= from && n.Base < to || replaced[n.Base] && n.Ext != segment.SnapshotExt {
			if err := ld.remove(n); err != nil {
				return err
			}
		}
	}
	// A power cut must not bring an old segment back beside the new ones.
	if err := l.fs.SyncDir(l.Dir()); err != nil {
		return err
	}
	for _, n := range swaps {
		final := n
		final.Suffix = ""
		if err := l.fs.Rename(l.path(n.String()), l.path(final.String())); err != nil {
			return err
		}
	}
	l.finished("compaction", len(swaps))
	return l.fs.SyncDir(l.Dir())
}

// split replaces a segment whose offsets are too far apart for one base by
// several (KAFKA-6264), batch for batch.
func (ld *loader) split(s *segment.Segment) (err error) {
	l := ld.l
	var parts []*segment.Segment
	defer func() {
		if err != nil {
			for _, open := range append(parts, s) {
				err = errors.Join(err, open.Abandon())
			}
		}
	}()
	var part *segment.Segment
	var bytes int64
	_, err = s.Scan(0, s.Size(), func(h *record.Header, b []byte, _ int64) error {
		if part == nil || h.LastOffset-part.BaseOffset() > math.MaxInt32 {
			var err error
			if part, err = l.NewCleanedSegment(h.BaseOffset); err != nil {
				return err
			}
			parts = append(parts, part)
		}
		bytes += int64(len(b))
		return part.Append(h.LastOffset, b)
	})
	if err != nil && !errors.Is(err, record.ErrCorrupt) {
		return err
	}
	if len(parts) == 0 {
		return fmt.Errorf("split of segment %d: no batch in it", s.BaseOffset())
	}
	if bytes != s.Size() {
		return fmt.Errorf("split of segment %d: %d bytes of whole batches, want %d", s.BaseOffset(), bytes, s.Size())
	}
	for _, p := range parts {
		if err := errors.Join(p.Seal(), p.Flush()); err != nil {
			return err
		}
	}
	if err := l.fs.SyncDir(l.Dir()); err != nil {
		return err
	}
	if err := l.swapIn(parts); err != nil {
		return err
	}
	kept := slices.DeleteFunc(ld.segs, func(o *segment.Segment) bool { return o == s })
	ld.segs = append(kept, parts...)
	slices.SortFunc(ld.segs, func(a, b *segment.Segment) int { return int(min(max(a.BaseOffset()-b.BaseOffset(), -1), 1)) })
	if err := ld.discard([]*segment.Segment{s}); err != nil {
		return err
	}
	l.finished("split", len(parts))
	return l.finishSwap(parts)
}

// NewCleanedSegment makes a segment that ReplaceSegments can bring in.
func (l *Log) NewCleanedSegment(base kafka.Offset) (*segment.Segment, error) {
	o := l.segmentOptions()
	o.Create, o.Suffix = true, segment.CleanedSuffix
	if err := segment.RemoveFiles(l.fs, l.Dir(), base, segment.CleanedSuffix); err != nil {
		return nil, err
	}
	return segment.Open(l.fs, l.Dir(), base, o)
}

// Generation changes whenever records that were in the log are cut off. A
// rewrite that began in one generation must not be put into another.
func (l *Log) Generation() uint64 { return l.truncations.Load() }

// ReplaceSegments puts rewritten segments, sealed and flushed `.cleaned` ones,
// in the place of old ones (order O11). Readers of the old ones are not
// disturbed. ErrSegmentsChanged, and nothing was done, when an old one has left
// the log, has become the active one, or the log was cut since generation.
//
// A crash at any point leaves the new segments, or the old ones, or the new ones
// and, above their last offset, the newer part of the old ones: old segments
// that the new ones do not reach leave from the lowest up, each durably, so that
// a tombstone is never gone before what it deletes.
func (l *Log) ReplaceSegments(generation uint64, cleaned, old []*segment.Segment) error {
	ends := make([]kafka.Offset, len(cleaned))
	for i, s := range cleaned {
		var err error
		if ends[i], err = s.ReadNextOffset(); err != nil {
			return l.readError(err)
		}
	}
	// Once the `.cleaned` names are durable, those that are left tell a swap that
	// is not complete. Without, a power cut could leave a part of it, and no sign.
	if err := l.WriteError("replace segments", l.fs.SyncDir(l.Dir())); err != nil {
		return err
	}
	// Offsets that compaction leaves out between segments are not taken for a hole
	// after a crash, because they lie below the recovery point: what is compacted
	// was flushed. A full disk must not keep a log from becoming smaller.
	if persist := l.opts.PersistRecoveryPoint; persist != nil {
		if err := persist(l.recoveryPoint.get()); err != nil && !vfs.IsFull(err) {
			return l.WriteError("recovery point checkpoint", err)
		}
	}
	l.mu.Lock()
	defer l.unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	list := l.segments.Load()
	for _, s := range old {
		if s == list.active() || !slices.Contains(list.segs, s) {
			return ErrSegmentsChanged
		}
	}
	if l.truncations.Load() != generation {
		return ErrSegmentsChanged
	}
	if err := l.swapIn(cleaned); err != nil {
		if vfs.IsFull(err) {
			if undo := l.swapOut(cleaned); undo == nil {
				return l.writeErrorLocked("replace segments", err)
			}
		}
		return l.fail("replace segments", err)
	}
	l.replacements.Add(1) // before the list: a hint into an old file is not used in a new one
	segs := append(list.without(old).segs, cleaned...)
	slices.SortFunc(segs, func(a, b *segment.Segment) int { return cmp.Compare(a.BaseOffset(), b.BaseOffset()) })
	l.segments.Store(newSegmentList(segs))
	if err := l.retireLocked(old, newSegmentList(cleaned), ends); err != nil {
		for _, s := range old {
			err = errors.Join(err, s.Retire())
		}
		return l.fail("replace segments", err)
	}
	if err := l.finishSwap(cleaned); err != nil {
		return l.fail("replace segments", err)
	}
	return nil
}

// retireLocked gives replaced segments, and the producer snapshots of bases that
// no longer begin a segment, the suffix `.deleted`. ends are the next offsets of
// the new segments.
func (l *Log) retireLocked(old []*segment.Segment, cleaned *segmentList, ends []kafka.Offset) error {
	for _, s := range old {
		base := s.BaseOffset()
		err := s.ChangeSuffix(segment.DeletedSuffix)
		if vfs.IsFull(err) {
			// No room for longer names. Its readers have the files open.
			_ = s.ChangeSuffix("")
			err = s.Delete()
		}
		if err != nil {
			return err
		}
		if err := s.Retire(); err != nil {
			l.say(slog.LevelWarn, "replaced segment", "base", base, "err", err)
		}
		// At load a swap removes what is numbered within it; the others go here.
		i := cleaned.floor(base)
		named := i >= 0 && cleaned.bases[i] == base
		if !named && (i < 0 || base >= ends[i]) {
			if err := l.fs.SyncDir(l.Dir()); err != nil {
				return err
			}
		}
		if named || !l.producers.DetachSnapshot(base) {
			continue
		}
		name := l.path(producer.SnapshotName(base))
		if err := l.fs.Rename(name, name+segment.DeletedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	l.after = append(l.after, func() { l.unlinkLater(old) })
	// The new segments must not get their names before the old ones lose theirs.
	return l.fs.SyncDir(l.Dir())
}

// swapIn declares the replacement complete: from here on a crash ends with the
// new segments. Their present names are durable.
func (l *Log) swapIn(cleaned []*segment.Segment) error {
	for _, s := range slices.Backward(cleaned) {
		if err := s.ChangeSuffix(segment.SwapSuffix); err != nil {
			return err
		}
	}
	return l.fs.SyncDir(l.Dir())
}

// swapOut takes back what swapIn began, on a disk that has no room for names.
func (l *Log) swapOut(cleaned []*segment.Segment) error {
	for _, s := range cleaned {
		renamed := s.ChangeSuffix(segment.CleanedSuffix) // an error for those files that had this name still
		if _, err := l.fs.Stat(s.Path()); err != nil {
			return errors.Join(err, renamed)
		}
	}
	return nil
}

func (l *Log) finishSwap(cleaned []*segment.Segment) error {
	for _, s := range cleaned {
		if err := s.ChangeSuffix(""); err != nil {
			return err
		}
	}
	return l.fs.SyncDir(l.Dir())
}
