package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// Logged is a record as it was read from, or has been appended to, the partition.
type Logged struct {
	Record
	Offset   kafka.Offset
	Producer kafka.ProducerID // -1 unless the batch is transactional
	Now      kafka.Timestamp  // the batch's time: groups that come to be start then
}

// Replay applies a record. Records of unknown type or version are reported with
// ErrUnknownRecord, damaged ones with ErrCorrupt; both change nothing.
func (m *Machine) Replay(l Logged) error {
	k, err := DecodeKey(l.Key)
	if err != nil {
		return err
	}
	switch {
	case k.Type <= OffsetCommitKey:
		return m.replayOffset(k, l)
	case k.Type == GroupMetadataKey:
		return m.replayGroup(k, l.Value)
	}
	return m.replayModern(k, l.Value)
}

// ReplayEndTransaction applies the marker that ends a producer's transaction.
func (m *Machine) ReplayEndTransaction(pid kafka.ProducerID, commit bool) {
	m.offsets.endTransaction(pid, commit)
}

func (m *Machine) replayOffset(k Key, l Logged) error {
	if l.Value == nil {
		m.offsets.remove(k.Group, k.Topic, k.Partition)
		m.wrote(k.Group, l.Offset)
		return nil
	}
	v, err := DecodeOffset(l.Value)
	if err != nil {
		return err
	}
	// A commit to a group that nobody knows makes a simple group.
	if !m.exists(k.Group) {
		m.createClassic(k.Group, l.Now)
	}
	o := &Offset{
		Offset:      kafka.Offset(v.Offset),
		LeaderEpoch: kafka.LeaderEpoch(v.LeaderEpoch),
		Metadata:    v.Metadata,
		Committed:   kafka.Timestamp(v.CommitTimestamp),
		Expires:     kafka.Timestamp(v.ExpireTimestamp),
		TopicID:     v.TopicID,
		Record:      l.Offset,
	}
	if v.Version != 1 {
		o.Expires = kafka.NoTimestamp
	}
	if v.Version < 3 {
		o.LeaderEpoch = kafka.NoLeaderEpoch
	}
	if l.Producer == kafka.NoProducerID {
		m.offsets.put(k.Group, k.Topic, k.Partition, o)
	} else {
		m.offsets.putPending(l.Producer, k.Group, k.Topic, k.Partition, o)
	}
	m.wrote(k.Group, l.Offset)
	return nil
}

// wrote remembers how far the log must be committed before the group's offsets
// may be shown.
func (m *Machine) wrote(group string, at kafka.Offset) {
	if m.exists(group) {
		m.offsets.written[group] = at + 1
	}
}

func (m *Machine) replayGroup(k Key, value []byte) error {
	if value == nil {
		delete(m.classic, k.Group)
		delete(m.offsets.written, k.Group)
		return nil
	}
	v, err := DecodeGroup(value)
	if err != nil {
		return err
	}
	g := &classicGroup{
		id:           k.Group,
		state:        Empty,
		previous:     Dead,
		stateSince:   kafka.Timestamp(v.CurrentStateTimestamp),
		protocolType: v.ProtocolType,
		generation:   v.Generation,
		protocol:     v.Protocol,
		leader:       v.Leader,
	}
	if len(v.Members) > 0 {
		g.state = Stable
	}
	for _, e := range v.Members {
		if g.member(e.MemberID) != nil {
			continue
		}
		mb := &member{
			id:               e.MemberID,
			instance:         e.InstanceID,
			clientID:         e.ClientID,
			clientHost:       e.ClientHost,
			rebalanceTimeout: e.RebalanceTimeoutMillis,
			sessionTimeout:   e.SessionTimeoutMillis,
			protocols:        []kmsg.JoinGroupRequestProtocol{{Name: deref(v.Protocol), Metadata: append([]byte{}, e.Subscription...)}},
			assignment:       append([]byte{}, e.Assignment...),
		}
		if mb.rebalanceTimeout == -1 {
			mb.rebalanceTimeout = mb.sessionTimeout
		}
		g.add(mb, v.ProtocolType)
	}
	if g.leader != nil && g.member(*g.leader) == nil {
		g.leader = nil
		if len(g.members) > 0 {
			g.leader = &g.members[0].id
		}
	}
	g.topics = g.subscribedTopics()
	delete(m.modern, k.Group)
	m.classic[k.Group] = g
	return nil
}
