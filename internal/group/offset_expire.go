package group

import "github.com/varvelog/varve/internal/kafka"

// Expire deletes offsets whose time is over (KIP-211), and groups that have
// none left and no members. It is to be called every
// offsets.retention.check.interval.ms. Offsets that an open transaction may
// still change are kept.
func (m *Machine) Expire(now kafka.Timestamp) Effects {
	fx := Effects{Replay: true, Divisible: true}
	for _, id := range m.groupIDs() {
		if m.expireOffsets(&fx, id, now) && m.isEmpty(id) {
			m.deleteRecords(&fx, id)
		}
	}
	return fx
}

func (m *Machine) isEmpty(id string) bool {
	if g := m.modern[id]; g != nil {
		return len(g.members) == 0 && g.kind != Share
	}
	return m.classic[id].state == Empty
}

// expireOffsets reports whether the group has no offset left.
func (m *Machine) expireOffsets(fx *Effects, id string, now kafka.Timestamp) bool {
	topics := m.offsets.groups[id]
	if len(topics) == 0 {
		return !m.offsets.hasPending(id)
	}
	since, subscribes := m.expiryOf(id)
	if since == nil {
		return false
	}
	all := true
	topics.each(func(topic string, partition int32, o *Offset) {
		if subscribes(topic) || !m.expired(o, since(o), now) || m.offsets.isPending(id, topic, partition) {
			all = false
			return
		}
		fx.record(offsetKey(id, topic, partition).tombstone())
	})
	return all && !m.offsets.hasPending(id)
}

func (m *Machine) expired(o *Offset, since, now kafka.Timestamp) bool {
	if o.Expires != kafka.NoTimestamp {
		return now >= o.Expires
	}
	return now.Since(since) >= m.cfg.OffsetsRetention.Milliseconds()
}

// expiryOf returns from when an offset's retention counts, nil when none of the
// group's offsets may expire now.
func (m *Machine) expiryOf(id string) (since func(*Offset) kafka.Timestamp, subscribes func(string) bool) {
	committed := func(o *Offset) kafka.Timestamp { return o.Committed }
	if g := m.modern[id]; g != nil {
		if g.kind == Share {
			return nil, nil
		}
		return committed, g.subscribes
	}
	g := m.classic[id]
	switch {
	case g.protocolType == "": // a simple group
		return committed, g.subscribes
	case g.state == Empty && g.stateSince != kafka.NoTimestamp:
		return func(*Offset) kafka.Timestamp { return g.stateSince }, g.subscribes
	case g.state == Empty:
		return committed, g.subscribes
	case g.isConsumer() && g.topics != nil && g.state == Stable:
		return committed, g.subscribes
	}
	return nil, nil
}

// DeletedTopic names a topic that has been deleted.
type DeletedTopic struct {
	Name string
	ID   kafka.TopicID
}

// TopicsDeleted deletes the offsets of topics that are gone. Offsets of a newer
// topic with the same name stay.
func (m *Machine) TopicsDeleted(deleted []DeletedTopic) Effects {
	fx := Effects{Replay: true, Divisible: true}
	seen := map[string]bool{}
	drop := func(id string, topics topicOffsets) {
		topics.each(func(topic string, partition int32, o *Offset) {
			for _, d := range deleted {
				if d.Name == topic && (o.TopicID.IsZero() || o.TopicID == d.ID) {
					r := offsetKey(id, topic, partition).tombstone()
					if !seen[string(r.Key)] {
						seen[string(r.Key)] = true
						fx.record(r)
					}
				}
			}
		})
	}
	for _, id := range m.groupIDs() {
		drop(id, m.offsets.groups[id])
		for _, groups := range m.offsets.pending {
			drop(id, groups[id])
		}
	}
	return fx
}
