package cleaner

import (
	"math"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
)

// sized is what grouping looks at in a segment.
type sized struct {
	base                kafka.Offset
	log, offsets, times int64 // bytes of the three files
	limit               kafka.Offset
	segment             *segment.Segment
}

// group puts neighbours together that will become one segment, so that segments
// do not only shrink: as long as the sums of their files stay within
// segment.bytes and segment.index.bytes, and the offsets can be written relative
// to the first one's base. An empty segment joins whatever its offsets are.
func group(segs []sized, maxLog, maxIndex int64) [][]sized {
	var groups [][]sized
	for i := 0; i < len(segs); {
		first := i
		sum := segs[i]
		for i++; i < len(segs); i++ {
			s := segs[i]
			if sum.log+s.log > maxLog || sum.offsets+s.offsets > maxIndex || sum.times+s.times > maxIndex {
				break
			}
			if s.log > 0 && s.limit-1-segs[first].base > math.MaxInt32 {
				break
			}
			sum.log += s.log
			sum.offsets += s.offsets
			sum.times += s.times
		}
		groups = append(groups, segs[first:i])
	}
	return groups
}

// measure takes the sizes of the segments, which a round cleans up to limit.
func measure(segs []*segment.Segment, limit kafka.Offset) ([]sized, error) {
	list := make([]sized, len(segs))
	for i, s := range segs {
		offsets, err := s.Offsets().Len()
		if err != nil {
			return nil, err
		}
		times, err := s.Times().Len()
		if err != nil {
			return nil, err
		}
		list[i] = sized{base: s.BaseOffset(), log: s.Size(), offsets: 8 * int64(offsets), times: 12 * int64(times), limit: limit, segment: s}
		if i > 0 {
			list[i-1].limit = s.BaseOffset()
		}
	}
	return list, nil
}
