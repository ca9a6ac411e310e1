package cleaner

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
)

// rewrite writes the segments of a group as one and swaps it in.
func (r *round) rewrite(group []sized) error {
	out, err := newOutput(r, group[0].base)
	if err != nil {
		return err
	}
	if err := r.rewriteInto(out, group); err != nil {
		out.discard()
		return err
	}
	return r.swap(out, group)
}

func (r *round) rewriteInto(out *output, group []sized) error {
	active := producers{}
	for _, e := range r.log.ActiveProducers() {
		active[e.ProducerID] = e
	}
	for i, g := range group {
		next := g.limit
		if i+1 == len(group) {
			// The following group looks for itself at what reaches into it.
			var err error
			if next, err = g.segment.ReadNextOffset(); err != nil {
				return err
			}
		}
		aborted, err := collectAborted(r.segs, g.base, next)
		if err != nil {
			return err
		}
		r.txns.add(aborted)
		modified, err := g.segment.LastModified()
		if err != nil {
			return err
		}
		old := modified <= r.legacyHorizon
		r.stats.BytesBefore += g.log
		err = r.batches(g.segment, 0, func(h *record.Header, b []byte) error {
			v, err := r.judge(h, b, active)
			if err != nil {
				return err
			}
			left, err := r.filter(h, b, v, old)
			if err != nil || left == nil {
				return err
			}
			return out.add(left, h.LastOffset, v.abort)
		})
		if err != nil {
			return err
		}
	}
	return out.flush()
}

// output is the segment that is being written, `.cleaned` still. When its
// indexes are full before its group is through, as after index.interval.bytes
// was lowered, or an offset is too far from its base, another one follows.
type output struct {
	r       *round
	segs    []*segment.Segment // by base; the last one is written to
	batches []pending          // in the write buffer
}

// pending is a batch in the write buffer.
type pending struct {
	size int
	last kafka.Offset
	txn  *index.AbortedTxn // to be noted once the batch is written
}

func newOutput(r *round, base kafka.Offset) (*output, error) {
	o := &output{r: r}
	r.memory.write = r.memory.write[:0]
	return o, o.begin(base)
}

func (o *output) begin(base kafka.Offset) error {
	s, err := o.r.log.NewCleanedSegment(base)
	if err != nil {
		return o.r.log.WriteError("compaction", err)
	}
	o.segs = append(o.segs, s)
	return nil
}

func (o *output) current() *segment.Segment { return o.segs[len(o.segs)-1] }

// add takes a batch into the write buffer.
func (o *output) add(b []byte, last kafka.Offset, txn *index.AbortedTxn) error {
	m := o.r.memory
	if len(m.write) > 0 && len(m.write)+len(b) > m.bufferBytes {
		if err := o.flush(); err != nil {
			return err
		}
	}
	m.write = append(m.write, b...)
	o.batches = append(o.batches, pending{len(b), last, txn})
	return nil
}

// flush writes the buffer, in one append where that has room.
func (o *output) flush() error {
	m := o.r.memory
	defer func() {
		o.batches = o.batches[:0]
		m.write = m.write[:0]
		if cap(m.write) > 2*m.bufferBytes {
			m.write = nil
		}
	}()
	if len(o.batches) == 0 {
		return nil
	}
	err := o.current().Append(o.batches[len(o.batches)-1].last, m.write)
	if isFull(err) {
		return o.flushEach()
	}
	if err != nil {
		return o.r.log.WriteError("compaction", err)
	}
	for _, b := range o.batches {
		if err := o.note(b.txn); err != nil {
			return err
		}
	}
	o.written(len(m.write))
	return nil
}

func (o *output) written(n int) {
	o.r.stats.BytesAfter += int64(n)
	o.r.pace.wait(n, o.r.cancel)
}

// flushEach writes batch by batch, and begins another segment where one has no room.
func (o *output) flushEach() error {
	buf := o.r.memory.write
	for _, b := range o.batches {
		one := buf[:b.size]
		buf = buf[b.size:]
		err := o.current().Append(b.last, one)
		if base := record.Batch(one).BaseOffset(); isFull(err) && base > o.current().BaseOffset() {
			if err := o.begin(base); err != nil {
				return err
			}
			err = o.current().Append(b.last, one)
		}
		if isFull(err) {
			return fmt.Errorf("batch at offset %d has no room in a segment of its own: %w", b.last, err)
		}
		if err != nil {
			return o.r.log.WriteError("compaction", err)
		}
		if err := o.note(b.txn); err != nil {
			return err
		}
		o.written(b.size)
	}
	return nil
}

// isFull reports that a segment can take no more, which says nothing about the disk.
func isFull(err error) bool {
	return errors.Is(err, segment.ErrIndexFull) || errors.Is(err, segment.ErrOverflow) || errors.Is(err, segment.ErrTooLong)
}

func (o *output) note(txn *index.AbortedTxn) error {
	if txn == nil {
		return nil
	}
	return o.r.log.WriteError("compaction", o.current().AppendTxn(*txn))
}

// discard removes what was written, unless the disk is not to be touched any more:
// then the next start does.
func (o *output) discard() {
	l := o.r.log
	for _, s := range o.segs {
		remove := s.Delete
		if l.Failure() != nil {
			remove = s.Abandon
		}
		if err := remove(); err != nil {
			o.r.logger.Warn("unfinished output of compaction not removed", "partition", l.Partition(), "file", s.Path(), "err", err)
		}
	}
}
