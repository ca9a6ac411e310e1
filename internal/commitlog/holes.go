package commitlog

import (
	"fmt"
	"slices"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
)

// MissingError is a segment that is gone from the middle of a log, with records
// that had reached the disk. Nothing is cut or removed for it; the partition is
// not served, because a reader would pass over what is gone without a word.
type MissingError struct {
	Path     string       // of the segment, when its other files name it; else of the one before
	From, To kafka.Offset // [From, To) are gone
	Before   string       // path of the segment that ends at From
	After    string       // path of the segment that starts at To
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is missing: the offsets %d to %d, between %s and %s, are gone; restore the file, or accept the gap with varve repair --allow-data-loss",
		e.Path, e.From, e.To-1, e.Before, e.After)
}

// mayMiss reports whether offsets may be missing behind a segment because the
// log was compacted.
func (ld *loader) mayMiss(base kafka.Offset) bool {
	if o := &ld.l.opts; o.FirstDirtyKnown {
		return base < o.FirstDirty
	}
	return ld.l.Config().CleanupCompact
}

// missing finds a `.log` that is gone from the part of the log that is believed,
// by the other files of its name. Kafka removes those and serves a log with a
// hole. A segment that is gone with all its files is found by verify.
func (ld *loader) missing(orphans []segment.FileName, unflushed kafka.Offset) error {
	for _, n := range orphans {
		i, _ := slices.BinarySearch(ld.bases, n.Base)
		if i == 0 || i == len(ld.bases) || ld.bases[i-1] >= unflushed || ld.bases[i] <= ld.logStart || ld.mayMiss(ld.bases[i-1]) {
			continue
		}
		next, err := ld.segs[i-1].ReadNextOffset()
		if err != nil {
			return err
		}
		if next < ld.bases[i] && n.Base >= next {
			return ld.missingError(ld.l.path(segment.Name(n.Base, segment.LogExt)), ld.segs[i-1], next, ld.segs[i])
		}
	}
	return nil
}

func (ld *loader) missingError(path string, before *segment.Segment, next kafka.Offset, after *segment.Segment) error {
	return &MissingError{Path: path, From: next, To: after.BaseOffset(), Before: before.Path(), After: after.Path()}
}

// cutAtHole ends the log where offsets are missing between two segments that had
// not reached the disk, as a lost power leaves them when several rolls were on
// their way. What lies behind is set aside; a hole is never served. When the
// missing records had reached the disk, it is no lost power: the log is refused.
func (ld *loader) cutAtHole(s *segment.Segment, later []*segment.Segment, next kafka.Offset) error {
	// A log start that was raised raised the recovery point with it, and not for
	// the sake of what lies below, which nobody misses.
	if max(next, ld.logStart) < ld.keep {
		return ld.missingError(ld.l.path(segment.Name(next, segment.LogExt)), s, next, later[0])
	}
	var a aside
	reason := fmt.Errorf("offsets %d to %d are missing before the next segment", next, later[0].BaseOffset()-1)
	if err := ld.dropAfterCut(later, &a); err != nil {
		return err
	}
	ld.tailCut(s, s.Size(), s.Size(), next, reason, &a)
	return nil
}
