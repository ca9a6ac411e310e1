package segment

import (
	"fmt"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// comparison holds the entries of both indexes against the batches of a .log, as
// an Examine comes to them.
type comparison struct {
	offsets []index.Position
	times   []index.TimePosition
	// What is wrong with an index as a whole.
	offsetProblem, timeProblem string
	// What is wrong with single entries, unless the damage of the .log explains it.
	offsetDoubts, timeDoubts []doubt

	pending bool // the batch at the position of the first entry left ended before its offset
	largest index.TimePosition
	last    kafka.Timestamp // of the last time entry
}

// doubt is an entry that does not fit, and where in the .log.
type doubt struct {
	offset kafka.Offset
	pos    int64
	text   string
}

// comparison reads the indexes. One that cannot be read is wrong.
func (s *Segment) comparison() (*comparison, error) {
	none := index.TimePosition{Timestamp: kafka.NoTimestamp, Offset: s.base}
	c := &comparison{largest: none, last: kafka.NoTimestamp}
	var err error
	if c.offsetProblem, err = readable(s.offsets.Check(s.size.Load())); err != nil {
		return c, err
	}
	if c.timeProblem, err = readable(s.times.Check()); err != nil {
		return c, err
	}
	if c.offsetProblem == "" {
		err = s.offsets.Entries(func(_ int, p index.Position) bool { c.offsets = append(c.offsets, p); return true })
		if c.offsetProblem, err = readable("", err); err != nil {
			return c, err
		}
	}
	if c.timeProblem == "" {
		err = s.times.Entries(func(_ int, p index.TimePosition) bool { c.times = append(c.times, p); return true })
		if c.timeProblem, err = readable("", err); err != nil {
			return c, err
		}
		if n := len(c.times); n > 0 {
			c.last = c.times[n-1].Timestamp
		}
	}
	return c, nil
}

// batch takes the next good batch.
func (c *comparison) batch(h *record.Header, pos int64) {
	if h.MaxTimestamp > c.largest.Timestamp {
		c.largest = index.TimePosition{Timestamp: h.MaxTimestamp, Offset: h.LastOffset}
	}
	for len(c.offsets) > 0 {
		e := c.offsets[0]
		behind := !c.pending && e.Byte < pos || c.pending && len(c.offsets) > 1 && c.offsets[1].Byte <= pos
		if behind || c.pending && h.LastOffset > e.Offset || e.Byte == pos && h.LastOffset > e.Offset {
			c.offsetDoubts = append(c.offsetDoubts, doubt{e.Offset, e.Byte,
				fmt.Sprintf("no batch at position %d ends at offset %d", e.Byte, e.Offset)})
		} else if !c.pending && e.Byte > pos {
			break
		} else if c.pending = h.LastOffset < e.Offset; c.pending {
			break // followers of Kafka up to 3.8 made one entry for several batches
		}
		c.offsets, c.pending = c.offsets[1:], false
	}
	for len(c.times) > 0 && c.times[0].Offset <= h.LastOffset {
		e := c.times[0]
		c.times = c.times[1:]
		// It is for the batch that was the first to be as late: a lookup starts there.
		if e.Timestamp != h.MaxTimestamp || e.Timestamp != c.largest.Timestamp || c.largest.Offset != h.LastOffset {
			c.timeDoubts = append(c.timeDoubts, doubt{e.Offset, pos,
				fmt.Sprintf("the entry of offset %d has timestamp %d, its batch %d, the largest so far is %d", e.Offset, e.Timestamp, h.MaxTimestamp, c.largest.Timestamp)})
		}
	}
}

// end says what is wrong with the two indexes.
func (c *comparison) end(damaged []BadRange) (offsets, times string) {
	for _, e := range c.offsets {
		c.offsetDoubts = append(c.offsetDoubts, doubt{e.Offset, e.Byte, fmt.Sprintf("no batch at position %d ends at offset %d", e.Byte, e.Offset)})
	}
	for _, e := range c.times {
		c.timeDoubts = append(c.timeDoubts, doubt{e.Offset, -1, fmt.Sprintf("no batch holds the offset %d of an entry", e.Offset)})
	}
	if offsets = c.offsetProblem; offsets == "" {
		offsets = unexplained(c.offsetDoubts, damaged)
	}
	if times = c.timeProblem; times == "" {
		times = unexplained(c.timeDoubts, damaged)
	}
	if times == "" && len(damaged) == 0 && c.last != c.largest.Timestamp {
		times = fmt.Sprintf("last entry has timestamp %d, the largest is %d at offset %d", c.last, c.largest.Timestamp, c.largest.Offset)
	}
	return offsets, times
}

// unexplained is the first doubt that has nothing to do with what is damaged in
// the .log: the entries of a damaged batch may be right, and what it was the
// latest of is not known.
func unexplained(doubts []doubt, damaged []BadRange) string {
	for _, d := range doubts {
		explained := false
		for _, r := range damaged {
			explained = explained || d.offset >= r.First && d.offset < r.Next || d.pos >= r.Position
		}
		if !explained {
			return d.text
		}
	}
	return ""
}
