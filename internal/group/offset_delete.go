package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// OffsetDelete deletes offsets of topics that the group does not subscribe to.
func (m *Machine) OffsetDelete(c Context, r *kmsg.OffsetDeleteRequest) Effects {
	fx := Effects{Replay: true}
	a := kmsg.NewPtrOffsetDeleteResponse()
	code, subscribes := m.checkDelete(r.Group)
	if code != kafka.None {
		a.ErrorCode = int16(code)
		fx.reply(c.Waiter, a)
		return fx
	}
	for _, t := range r.Topics {
		row := kmsg.NewOffsetDeleteResponseTopic()
		row.Topic = t.Topic
		used := subscribes(t.Topic)
		for _, p := range t.Partitions {
			cell := kmsg.NewOffsetDeleteResponseTopicPartition()
			cell.Partition = p.Partition
			if used {
				cell.ErrorCode = int16(kafka.ErrGroupSubscribedToTopic)
			} else if m.offsets.groups[r.Group].get(t.Topic, p.Partition) != nil || m.offsets.isPending(r.Group, t.Topic, p.Partition) {
				fx.record(offsetKey(r.Group, t.Topic, p.Partition).tombstone())
			}
			row.Partitions = append(row.Partitions, cell)
		}
		a.Topics = append(a.Topics, row)
	}
	if len(fx.Records) == 0 {
		fx.reply(c.Waiter, a)
		return fx
	}
	fx.then(func(o Outcome) Effects {
		var fx Effects
		if o.Err != kafka.None {
			a.ErrorCode, a.Topics = int16(coordinatorError(o.Err)), nil
		}
		fx.reply(c.Waiter, a)
		return fx
	})
	return fx
}

// checkDelete says whether offsets of the group may be deleted, and which topics it uses.
func (m *Machine) checkDelete(id string) (kafka.ErrorCode, func(topic string) bool) {
	if id == "" {
		return kafka.ErrInvalidGroupID, nil
	}
	if g := m.modern[id]; g != nil && g.kind != Share {
		return kafka.None, g.subscribes
	}
	g := m.classic[id]
	switch {
	case g == nil:
		return kafka.ErrGroupIDNotFound, nil
	case g.state != Empty && !g.isConsumer():
		return kafka.ErrNonEmptyGroup, nil
	}
	return kafka.None, g.subscribes
}

// DeleteGroups deletes groups that have no members, with all their offsets, in
// one batch. The answer has one row for each group of the request.
func (m *Machine) DeleteGroups(c Context, groups []string) Effects {
	fx := Effects{Replay: true}
	a := kmsg.NewPtrDeleteGroupsResponse()
	done := map[string]bool{}
	for _, id := range groups {
		row := kmsg.NewDeleteGroupsResponseGroup()
		row.Group = id
		if code := m.checkDeleteGroup(id); code != kafka.None {
			row.ErrorCode = int16(code)
		} else if !done[id] {
			done[id] = true
			m.deleteGroup(&fx, id)
		}
		a.Groups = append(a.Groups, row)
	}
	if len(fx.Records) == 0 {
		fx.reply(c.Waiter, a)
		return fx
	}
	fx.then(func(o Outcome) Effects {
		var fx Effects
		for i := range a.Groups {
			if o.Err != kafka.None {
				a.Groups[i].ErrorCode = int16(coordinatorError(o.Err))
			}
		}
		fx.reply(c.Waiter, a)
		return fx
	})
	return fx
}

func (m *Machine) checkDeleteGroup(id string) kafka.ErrorCode {
	if g := m.modern[id]; g != nil {
		switch {
		case len(g.members) > 0:
			return kafka.ErrNonEmptyGroup
		case g.kind == Share: // its share state would be left behind
			return kafka.ErrGroupDeletionFailed
		}
		return kafka.None
	}
	g := m.classic[id]
	switch {
	case g == nil:
		return kafka.ErrGroupIDNotFound
	case g.state != Empty:
		return kafka.ErrNonEmptyGroup
	}
	return kafka.None
}

// deleteGroup writes the tombstones of a group: its offsets, then itself. A
// simple group gets one too, although it never had a record.
func (m *Machine) deleteGroup(fx *Effects, id string) {
	m.offsets.groups[id].each(func(topic string, partition int32, _ *Offset) {
		fx.record(offsetKey(id, topic, partition).tombstone())
	})
	for _, groups := range m.offsets.pending {
		groups[id].each(func(topic string, partition int32, _ *Offset) {
			if m.offsets.groups[id].get(topic, partition) == nil {
				fx.record(offsetKey(id, topic, partition).tombstone())
			}
		})
	}
	m.deleteRecords(fx, id)
}

func (m *Machine) deleteRecords(fx *Effects, id string) {
	if g := m.modern[id]; g != nil {
		g.tombstones(fx)
		return
	}
	fx.record(groupKey(id).tombstone())
}
