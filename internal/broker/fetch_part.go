package broker

import (
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/wire"
)

// fetchPart is one partition of a fetch: what is asked of it and where the last
// read of it ended. It lives in a session, or as long as a fetch without one.
type fetchPart struct {
	name []byte // nil when the topic is named by id
	id   kafka.TopicID
	want wire.FetchPartition

	p     *replica.Partition // nil until it was found
	watch replica.Watch
	told  watermarks // what an incremental answer is compared with
	// idle says that the last read found nothing below bound idleAt: until the
	// bound moves, another read would find nothing either.
	idle   bool
	idleAt kafka.Offset
	mark   replica.Mark   // of the last read
	joined bool           // the watch counts from mark
	next   commitlog.Hint // where the records after the last read begin

	before, behind *fetchPart // in the order in which partitions are visited
}

// watermarks are what a client is told of a partition besides records.
type watermarks struct {
	high, start kafka.Offset
}

// unknownWatermarks differ from everything that a partition can tell.
var unknownWatermarks = watermarks{high: -2, start: -2}

func (p *fetchPart) key() partKey { return partKey{p.id, string(p.name), p.want.Index} }

// ask replaces what is asked of the partition.
func (p *fetchPart) ask(want *wire.FetchPartition) {
	p.want, p.idle = *want, false
}

// unwatch ends the watch that the last wait may have left.
func (p *fetchPart) unwatch() {
	p.joined = false
	if p.p != nil {
		p.p.Unwatch(&p.watch)
	}
}

// currentEpoch is the leader epoch that the client knows. Other negative values
// than -1 count as none too.
func (p *fetchPart) currentEpoch() kafka.LeaderEpoch {
	return max(p.want.CurrentLeaderEpoch, kafka.NoLeaderEpoch)
}

// quiet reports whether another read would find nothing and could tell nothing
// that an incremental answer has not told.
func (p *fetchPart) quiet(bound commitlog.Bound) bool {
	if !p.idle || p.p.CheckEpoch(p.currentEpoch()) != nil {
		return false
	}
	l := p.p.Log()
	return boundOf(l, bound) == p.idleAt && (watermarks{l.HighWatermark(), l.StartOffset()}) == p.told
}

func boundOf(l *commitlog.Log, b commitlog.Bound) kafka.Offset {
	switch b {
	case commitlog.HighWatermark:
		return l.HighWatermark()
	case commitlog.LastStable:
		return l.LastStable()
	}
	return l.EndOffset()
}

// partList is a ring of partitions.
type partList struct{ head fetchPart }

func (l *partList) init() { l.head.before, l.head.behind = &l.head, &l.head }

func (l *partList) push(p *fetchPart) {
	p.before, p.behind = l.head.before, &l.head
	p.before.behind, p.behind.before = p, p
}

func (l *partList) remove(p *fetchPart) {
	p.before.behind, p.behind.before = p.behind, p.before
}

// first is nil when the list is empty, after nil at the end.
func (l *partList) first() *fetchPart { return l.after(&l.head) }

func (l *partList) after(p *fetchPart) *fetchPart {
	if p.behind == &l.head {
		return nil
	}
	return p.behind
}
