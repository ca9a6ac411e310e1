package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// OffsetFetch answers with the committed offsets of one group, as an
// OffsetFetchResponse of that single group: the offsets of the topics asked
// for, or all of them when the list is nil. Topics carry names, and ids where
// the request has them.
//
// With requireStable, offsets that an open transaction may change are refused
// as unstable (KIP-447). The answer waits until what it shows is committed.
func (m *Machine) OffsetFetch(c Context, r *kmsg.OffsetFetchRequestGroup, requireStable bool) Effects {
	a := m.fetch(r, requireStable)
	return Effects{
		After: m.offsets.written[r.Group],
		Then: func(o Outcome) Effects {
			var fx Effects
			if o.Err != kafka.None {
				a = kmsg.NewOffsetFetchResponseGroup()
				a.Group, a.ErrorCode = r.Group, int16(FetchError(o.Err))
			}
			answer := kmsg.NewPtrOffsetFetchResponse()
			answer.Groups = append(answer.Groups, a)
			fx.reply(c.Waiter, answer)
			return fx
		},
	}
}

// FetchError maps an error to what OffsetFetch answers. Older consumers do not
// know COORDINATOR_NOT_AVAILABLE there, so Kafka says NOT_COORDINATOR.
func FetchError(code kafka.ErrorCode) kafka.ErrorCode {
	if code = coordinatorError(code); code == kafka.ErrCoordinatorNotAvailable {
		return kafka.ErrNotCoordinator
	}
	return code
}

func (m *Machine) fetch(r *kmsg.OffsetFetchRequestGroup, requireStable bool) kmsg.OffsetFetchResponseGroup {
	a := kmsg.NewOffsetFetchResponseGroup()
	a.Group = r.Group
	var committed topicOffsets
	if mg := m.modern[r.Group]; mg != nil && mg.kind != Share {
		if code := mg.checkFetch(r.MemberID, r.MemberEpoch); code != kafka.None {
			a.ErrorCode = int16(code)
			return a
		}
		committed = m.offsets.groups[r.Group]
	} else if m.classic[r.Group] != nil {
		committed = m.offsets.groups[r.Group]
	}

	if r.Topics == nil {
		m.fetchAll(&a, committed, requireStable)
	}
	for _, t := range r.Topics {
		row := kmsg.NewOffsetFetchResponseGroupTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			o := committed.get(t.Topic, p)
			if o != nil && !o.isFor(t.TopicID) {
				o = nil
			}
			row.Partitions = append(row.Partitions, m.fetched(r.Group, t.Topic, p, o, requireStable))
		}
		a.Topics = append(a.Topics, row)
	}
	return a
}

func (m *Machine) fetchAll(a *kmsg.OffsetFetchResponseGroup, committed topicOffsets, requireStable bool) {
	committed.each(func(topic string, partition int32, o *Offset) {
		if n := len(a.Topics); n == 0 || a.Topics[n-1].Topic != topic {
			row := kmsg.NewOffsetFetchResponseGroupTopic()
			row.Topic = topic
			a.Topics = append(a.Topics, row)
		}
		row := &a.Topics[len(a.Topics)-1]
		row.Partitions = append(row.Partitions, m.fetched(a.Group, topic, partition, o, requireStable))
	})
}

func (m *Machine) fetched(group, topic string, partition int32, o *Offset, requireStable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	none := ""
	cell := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	cell.Partition, cell.Offset, cell.LeaderEpoch, cell.Metadata = partition, -1, -1, &none
	switch {
	case requireStable && m.offsets.isPending(group, topic, partition):
		cell.ErrorCode = int16(kafka.ErrUnstableOffsetCommit)
	case o != nil:
		cell.Offset, cell.LeaderEpoch, cell.Metadata = int64(o.Offset), int32(o.LeaderEpoch), &o.Metadata
	}
	return cell
}
