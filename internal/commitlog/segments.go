package commitlog

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
)

// segmentList is the segments by base offset, at least one. It is never
// changed: the writer publishes another one.
type segmentList struct {
	bases []kafka.Offset
	segs  []*segment.Segment
}

func newSegmentList(segs []*segment.Segment) *segmentList {
	l := &segmentList{bases: make([]kafka.Offset, len(segs)), segs: segs}
	for i, s := range segs {
		l.bases[i] = s.BaseOffset()
	}
	return l
}

// floor is the index of the last segment that starts at or before offset, -1
// when all start after it. The tail, which is nearly always asked for, is
// looked at first.
func (l *segmentList) floor(offset kafka.Offset) int {
	n := len(l.bases)
	if n > 0 && l.bases[n-1] <= offset {
		return n - 1
	}
	return sort.Search(n, func(i int) bool { return l.bases[i] > offset }) - 1
}

func (l *segmentList) active() *segment.Segment { return l.segs[len(l.segs)-1] }

// from is the segments that hold offsets in [from, to).
func (l *segmentList) span(from, to kafka.Offset) []*segment.Segment {
	lo := max(l.floor(from), 0)
	hi := sort.Search(len(l.bases), func(i int) bool { return l.bases[i] >= to })
	if lo >= hi {
		return nil
	}
	return l.segs[lo:hi]
}

func (l *segmentList) with(s *segment.Segment) *segmentList {
	return newSegmentList(append(slices.Clone(l.segs), s))
}

func (l *segmentList) without(gone []*segment.Segment) *segmentList {
	kept := make([]*segment.Segment, 0, len(l.segs))
	for _, s := range l.segs {
		if !slices.Contains(gone, s) {
			kept = append(kept, s)
		}
	}
	return newSegmentList(kept)
}

// endMark is the log end offset and where in which segment it lies. One writer
// stores the three together; a reader that finds them half stored looks again.
type endMark struct {
	seq    atomic.Uint64 // odd while a store is under way
	offset atomic.Int64
	base   atomic.Int64
	pos    atomic.Int64
	_      [cacheLine - 32]byte
}

func (m *endMark) get() kafka.Offset { return kafka.Offset(m.offset.Load()) }

func (m *endMark) load() (offset, base kafka.Offset, pos int64) {
	for {
		seq := m.seq.Load()
		offset, base, pos = kafka.Offset(m.offset.Load()), kafka.Offset(m.base.Load()), m.pos.Load()
		if seq&1 == 0 && m.seq.Load() == seq {
			return offset, base, pos
		}
	}
}

func (m *endMark) store(offset, base kafka.Offset, pos int64) {
	m.seq.Add(1)
	m.base.Store(int64(base))
	m.pos.Store(pos)
	m.offset.Store(int64(offset))
	m.seq.Add(1)
}
