package group

import (
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
)

// modernGroup is what is known of a group of a newer protocol: that it exists,
// who its members are and how far they are. That is enough to list it, to
// refuse what Kafka would refuse, and to leave its records alone.
type modernGroup struct {
	id      string
	kind    Type
	epoch   int32
	target  int32 // epoch of the target assignment, -1 for none
	members map[string]*modernMember
}

type modernMember struct {
	topics map[string]struct{}
	epoch  int32 // -1 until it has a current assignment
	state  int8  // 0 is Stable
}

// kindOf returns the protocol that a record type belongs to.
func kindOf(t KeyType) Type {
	switch {
	case t >= ConsumerGroupMetadataKey && t <= ConsumerGroupCurrentMemberKey, t == ConsumerGroupRegexKey:
		return Consumer
	case t >= ShareGroupMemberKey && t <= ShareGroupStatePartitionKey:
		return Share
	case t >= StreamsGroupMetadataKey:
		return Streams
	}
	return UnknownType
}

// state is the group's state as ListGroups shows it.
func (g *modernGroup) state() string {
	if len(g.members) == 0 {
		return "Empty"
	}
	if g.kind == Share {
		return "Stable"
	}
	if g.epoch > g.target {
		return "Assigning"
	}
	for _, mb := range g.members {
		if mb.state != 0 || mb.epoch != g.target {
			return "Reconciling"
		}
	}
	return "Stable"
}

// protocolType is the word of ListGroups for groups of this kind.
func (g *modernGroup) protocolType() string { return g.kind.String() }

func (g *modernGroup) subscribes(topic string) bool {
	for _, mb := range g.members {
		if _, ok := mb.topics[topic]; ok {
			return true
		}
	}
	return false
}

// checkCommit validates an offset commit to the group.
func (g *modernGroup) checkCommit(memberID string, epoch int32, version int16) kafka.ErrorCode {
	if g.kind == Share {
		return kafka.ErrGroupIDNotFound
	}
	if epoch < 0 && len(g.members) == 0 {
		return kafka.None
	}
	mb := g.members[memberID]
	switch {
	case mb == nil:
		return kafka.ErrUnknownMemberID
	case version < 9:
		return kafka.ErrUnsupportedVersion
	case epoch != mb.epoch:
		return kafka.ErrStaleMemberEpoch
	}
	return kafka.None
}

// checkFetch validates an offset fetch. A request without member is the
// administrator's and is allowed.
func (g *modernGroup) checkFetch(memberID *string, epoch int32) kafka.ErrorCode {
	if memberID == nil && epoch < 0 {
		return kafka.None
	}
	mb := g.members[deref(memberID)]
	switch {
	case mb == nil:
		return kafka.ErrUnknownMemberID
	case epoch != mb.epoch:
		return kafka.ErrStaleMemberEpoch
	}
	return kafka.None
}

// tombstones deletes the records of a group without members.
func (g *modernGroup) tombstones(fx *Effects) {
	var types []KeyType
	switch g.kind {
	case Consumer:
		types = []KeyType{ConsumerGroupTargetKey, ConsumerGroupPartitionMetadataKey, ConsumerGroupMetadataKey}
	case Streams:
		types = []KeyType{StreamsGroupTargetKey, StreamsGroupMetadataKey, StreamsGroupTopologyKey}
	}
	for _, t := range types {
		fx.record(Key{Type: t, Group: g.id}.tombstone())
	}
}

// replayModern applies a record of types 3 to 23.
func (m *Machine) replayModern(k Key, value []byte) error {
	kind := kindOf(k.Type)
	g := m.modern[k.Group]
	if value == nil {
		if g != nil && g.kind == kind {
			g.replayTombstone(m, k)
		}
		return nil
	}
	if g == nil || g.kind != kind {
		// A simple group turns into the first other kind that claims its id.
		delete(m.classic, k.Group)
		g = &modernGroup{id: k.Group, kind: kind, target: -1, members: map[string]*modernMember{}}
		m.modern[k.Group] = g
	}
	r := reader{b: value}
	if v := r.int16(); !r.bad && v != 0 {
		return fmt.Errorf("value version %d of type %d: %w", v, k.Type, ErrUnknownRecord)
	}
	switch k.Type {
	case ConsumerGroupMetadataKey, ShareGroupMetadataKey, StreamsGroupMetadataKey:
		g.epoch = r.int32()
	case ConsumerGroupTargetKey, ShareGroupTargetKey, StreamsGroupTargetKey:
		g.target = r.int32()
	case ConsumerGroupMemberKey, ShareGroupMemberKey, StreamsGroupMemberKey:
		g.member(k.Member).topics = readTopics(&r, k.Type)
	case ConsumerGroupCurrentMemberKey, ShareGroupCurrentMemberKey, StreamsGroupCurrentMemberKey:
		mb := g.member(k.Member)
		mb.epoch, _, mb.state = r.int32(), r.int32(), r.int8()
	}
	if r.bad {
		return fmt.Errorf("value of %d bytes, type %d: %w", len(value), k.Type, ErrCorrupt)
	}
	return nil
}

func (g *modernGroup) member(id string) *modernMember {
	mb := g.members[id]
	if mb == nil {
		mb = &modernMember{epoch: -1}
		g.members[id] = mb
	}
	return mb
}

// replayTombstone applies the deletion of a record.
func (g *modernGroup) replayTombstone(m *Machine, k Key) {
	switch k.Type {
	case ConsumerGroupMetadataKey, ShareGroupMetadataKey, StreamsGroupMetadataKey:
		delete(m.modern, k.Group)
	case ConsumerGroupTargetKey, ShareGroupTargetKey, StreamsGroupTargetKey:
		g.target = -1
	case ConsumerGroupMemberKey, ShareGroupMemberKey, StreamsGroupMemberKey:
		delete(g.members, k.Member)
	case ConsumerGroupCurrentMemberKey, ShareGroupCurrentMemberKey, StreamsGroupCurrentMemberKey:
		if mb := g.members[k.Member]; mb != nil {
			mb.epoch = -1
		}
	}
}

// readTopics reads the subscription from a member record of a consumer or
// share group; streams members subscribe through their topology.
func readTopics(r *reader, t KeyType) map[string]struct{} {
	if t == StreamsGroupMemberKey {
		return nil
	}
	if t == ConsumerGroupMemberKey {
		r.compactString() // instance id
	}
	r.compactString() // rack
	r.compactString() // client id
	r.compactString() // client host
	n := r.uvarint() - 1
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	topics := make(map[string]struct{}, max(n, 0))
	for range n {
		topics[r.compactString()] = struct{}{}
	}
	return topics
}
