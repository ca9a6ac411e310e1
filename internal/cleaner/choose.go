package cleaner

import (
	"math"
	"slices"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
)

// view is a log as the choice sees it: numbers, taken at one moment.
type view struct {
	start, end, lastStable kafka.Offset
	segs                   []segmentView // oldest first; the last one is active
	minLagMs, maxLagMs     int64
}

// segmentView is one segment. The times are asked for only where a lag is set,
// and only of dirty segments that are not active.
type segmentView struct {
	base    kafka.Offset
	size    int64
	first   kafka.Timestamp // largest of the first batch; -1 for none
	largest kafka.Timestamp
}

// extent is what of a log a round would clean. Offsets are half-open ranges.
type extent struct {
	firstDirty  kafka.Offset // below it a round was through already
	uncleanable kafka.Offset // base of the first segment that must not be touched
	cleanBytes  int64        // of segments that begin below firstDirty
	dirtyBytes  int64        // of those that a round would look for keys in
	overdue     bool         // max.compaction.lag.ms is over
	reset       bool         // the checkpoint did not fit the log
}

// ratio is how much of what a round reads is dirty, from 0 to 1.
func (e *extent) ratio() float64 {
	if e.dirtyBytes == 0 {
		return 0
	}
	return float64(e.dirtyBytes) / float64(e.cleanBytes+e.dirtyBytes)
}

// wanted reports whether the log may be cleaned now. An overdue one may whatever
// its ratio is; it is not preferred.
func (e *extent) wanted(minRatio float64) bool {
	return e.dirtyBytes > 0 && (e.overdue || e.ratio() > minRatio)
}

// firstDirtyOf is where the last round ended by the checkpoint, NoOffset without
// one; reset is true when that cannot be, and the whole log is dirty.
func firstDirtyOf(start, end, checkpoint kafka.Offset) (first kafka.Offset, reset bool) {
	switch {
	case checkpoint == kafka.NoOffset:
		return start, false
	case checkpoint < start || checkpoint > end:
		return start, true
	}
	return checkpoint, false
}

// floor is the index of the last segment that begins at or before offset, or 0.
func floor(segs []segmentView, offset kafka.Offset) int {
	i, found := slices.BinarySearchFunc(segs, offset, func(s segmentView, o kafka.Offset) int { return int(min(max(s.base-o, -1), 1)) })
	if !found {
		i--
	}
	return max(i, 0)
}

// extentOf is what may be cleaned of a log whose checkpoint says that the part
// below it is clean (LogCleanerManager.cleanableOffsets and calculateCleanableBytes).
//
// A segment is cleaned as a whole or not at all: not the active one, none that
// holds an offset at or above the last stable one, and none from the first dirty
// one on that holds a record younger than min.compaction.lag.ms.
func (v *view) extentOf(checkpoint kafka.Offset, now kafka.Timestamp) extent {
	var e extent
	e.firstDirty, e.reset = firstDirtyOf(v.start, v.end, checkpoint)
	active := len(v.segs) - 1
	firstDirty := floor(v.segs, e.firstDirty)
	bound := min(floor(v.segs, max(v.lastStable, e.firstDirty)), active)
	if v.minLagMs > 0 {
		for i := firstDirty; i < bound; i++ {
			if int64(v.segs[i].largest) > int64(now)-v.minLagMs {
				bound = i
			}
		}
	}
	e.uncleanable = v.segs[bound].base
	earliest := int64(math.MaxInt64)
	for i, s := range v.segs[:active] {
		if s.base < e.firstDirty {
			e.cleanBytes += s.size
		}
		if i >= firstDirty && i < bound {
			e.dirtyBytes += s.size
		}
		if i >= firstDirty && s.first > 0 {
			earliest = min(earliest, int64(s.first))
		}
	}
	e.overdue = earliest < int64(now)-max(v.maxLagMs, 0)
	return e
}

// look takes a view of a log. segs is the list that it was taken of.
func look(l *commitlog.Log, checkpoint kafka.Offset) (v view, segs []*segment.Segment, err error) {
	c := l.Config()
	segs = l.Segments()
	v = view{
		start: l.StartOffset(), end: l.EndOffset(), lastStable: l.LastStable(),
		minLagMs: c.MinCompactionLagMs, maxLagMs: c.MaxCompactionLagMs, segs: make([]segmentView, len(segs)),
	}
	for i, s := range segs {
		v.segs[i] = segmentView{base: s.BaseOffset(), size: s.Size(), first: kafka.NoTimestamp, largest: kafka.NoTimestamp}
	}
	first, _ := firstDirtyOf(v.start, v.end, checkpoint)
	for i := floor(v.segs, first); i < len(segs)-1; i++ {
		if v.minLagMs > 0 {
			if v.segs[i].largest, err = segs[i].LargestTimestamp(); err != nil {
				return v, segs, err
			}
		}
		if v.maxLagMs != math.MaxInt64 {
			if v.segs[i].first, err = segs[i].FirstTimestamp(); err != nil {
				return v, segs, err
			}
		}
	}
	return v, segs, nil
}
