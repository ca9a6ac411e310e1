package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// OffsetFetch returns the committed offsets of one group: those of the topics
// asked for, or all when the list is nil. Topics carry names, and ids where the
// request has them. After is set to the offset of the log up to which the
// answer depends on it.
//
// With requireStable, offsets that an open transaction may change are refused
// as unstable (KIP-447).
func (m *Machine) OffsetFetch(r *kmsg.OffsetFetchRequestGroup, requireStable bool) (a kmsg.OffsetFetchResponseGroup, after kafka.Offset) {
	a = kmsg.NewOffsetFetchResponseGroup()
	a.Group = r.Group
	var committed topicOffsets
	if mg := m.modern[r.Group]; mg != nil && mg.kind != Share {
		if code := mg.checkFetch(r.MemberID, r.MemberEpoch); code != kafka.None {
			a.ErrorCode = int16(code)
			return a, 0
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
	return a, m.offsets.written[r.Group]
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
