package commitlog

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
)

// epochCache says which leader epoch wrote which offsets (KIP-101, Kafka's
// LeaderEpochFileCache): entry i holds from its start to that of entry i+1.
//
// Invariant: epochs and starts both rise strictly.
//
// The log's mutex guards changes; readers take the published slice, which is
// never changed in place. The file is the log's business: a change returns
// true when it has to be written.
type epochCache struct {
	entries atomic.Pointer[[]checkpoint.Epoch]
}

func (c *epochCache) load() []checkpoint.Epoch {
	if p := c.entries.Load(); p != nil {
		return *p
	}
	return nil
}

func (c *epochCache) store(e []checkpoint.Epoch) { c.entries.Store(&e) }

func (c *epochCache) latest() (checkpoint.Epoch, bool) {
	e := c.load()
	if len(e) == 0 {
		return checkpoint.Epoch{Epoch: kafka.NoLeaderEpoch}, false
	}
	return e[len(e)-1], true
}

func (c *epochCache) earliest() (checkpoint.Epoch, bool) {
	e := c.load()
	if len(e) == 0 {
		return checkpoint.Epoch{Epoch: kafka.NoLeaderEpoch}, false
	}
	return e[0], true
}

// assign records that epoch starts at start. Entries of later epochs or at
// later offsets are dropped: the log they described was truncated.
func (c *epochCache) assign(epoch kafka.LeaderEpoch, start kafka.Offset) (changed bool) {
	old := c.load()
	if n := len(old); n > 0 && old[n-1].Epoch == epoch && start >= old[n-1].Start {
		return false
	}
	keep := len(old)
	for keep > 0 && (old[keep-1].Epoch >= epoch || old[keep-1].Start >= start) {
		keep--
	}
	c.store(append(slices.Clone(old[:keep]), checkpoint.Epoch{Epoch: epoch, Start: start}))
	return true
}

// truncateFromEnd drops entries that start at or after end.
func (c *epochCache) truncateFromEnd(end kafka.Offset) (changed bool) {
	old := c.load()
	keep := len(old)
	for keep > 0 && old[keep-1].Start >= end {
		keep--
	}
	if end < 0 || keep == len(old) {
		return false
	}
	c.store(slices.Clone(old[:keep]))
	return true
}

// truncateFromStart drops entries before start; the one that holds start then begins there.
func (c *epochCache) truncateFromStart(start kafka.Offset) (changed bool) {
	old := c.load()
	drop := 0
	for drop < len(old) && old[drop].Start <= start {
		drop++
	}
	if drop == 0 || (drop == 1 && old[0].Start == start) {
		return false
	}
	kept := slices.Clone(old[drop-1:])
	kept[0].Start = start
	c.store(kept)
	return true
}

func (c *epochCache) clear() (changed bool) {
	if len(c.load()) == 0 {
		return false
	}
	c.store(nil)
	return true
}

// forOffset is the epoch that wrote offset.
func (c *epochCache) forOffset(offset kafka.Offset) (kafka.LeaderEpoch, bool) {
	e := c.load()
	i := sort.Search(len(e), func(i int) bool { return e[i].Start > offset })
	if i == 0 {
		return kafka.NoLeaderEpoch, false
	}
	return e[i-1].Epoch, true
}

// endOffset is the answer to OffsetForLeaderEpoch: the largest epoch at or
// below the requested one and where it ends; (-1, -1) when that is not known.
func (c *epochCache) endOffset(requested kafka.LeaderEpoch, logEnd kafka.Offset) (kafka.LeaderEpoch, kafka.Offset) {
	e := c.load()
	if requested == kafka.NoLeaderEpoch {
		return kafka.NoLeaderEpoch, kafka.NoOffset
	}
	if n := len(e); n > 0 && e[n-1].Epoch == requested {
		return requested, logEnd
	}
	higher := sort.Search(len(e), func(i int) bool { return e[i].Epoch > requested })
	switch {
	case higher == len(e):
		return kafka.NoLeaderEpoch, kafka.NoOffset
	case higher == 0:
		return requested, e[0].Start
	}
	return e[higher-1].Epoch, e[higher].Start
}
