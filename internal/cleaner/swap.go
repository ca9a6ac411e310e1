package cleaner

import (
	"errors"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/segment"
)

// swap makes what was written durable and puts it in the place of its group
// (order O11). It keeps the time of the group's last segment, by which records
// without timestamps, and tombstones of the old formats, grow old.
func (r *round) swap(out *output, group []sized) error {
	err := r.finish(out, group)
	if err != nil {
		out.discard()
		return err
	}
	old := make([]*segment.Segment, len(group))
	for i, g := range group {
		old[i] = g.segment
	}
	err = r.log.ReplaceSegments(r.generation, out.segs, old)
	if errors.Is(err, commitlog.ErrSegmentsChanged) {
		err = errAborted
	}
	if err != nil {
		out.discard()
		return err
	}
	r.stats.SegmentsBefore += len(old)
	r.stats.SegmentsAfter += len(out.segs)
	return nil
}

func (r *round) finish(out *output, group []sized) error {
	modified, err := group[len(group)-1].segment.LastModified()
	if err != nil {
		return err
	}
	for _, s := range out.segs {
		if err := errors.Join(s.Seal(), s.Flush(), s.SetLastModified(modified)); err != nil {
			return r.log.WriteError("compaction", err)
		}
	}
	return r.check()
}
