package broker

// OffsetFetch (key 9), versions 1 to 10: null topics, for everything that the
// group has, and a top-level error from 2; leader epochs from 5 (KIP-320);
// flexible from 6; RequireStable from 7 (KIP-447); several groups from 8
// (KIP-709); the member of a KIP-848 group from 9; topics by id from 10.
//
// What was never committed is offset -1 without an error, also in a topic or a
// group that does not exist; only an unknown id is one (100).

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

func (b *Broker) offsetFetch(c *Context, q *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	answer := kmsg.NewPtrOffsetFetchResponse()
	if c.Version < 8 {
		g := singleFetch(q)
		row, err := b.opts.Groups.OffsetFetch(c, groupClient(c), &g, q.RequireStable)
		if err != nil {
			return nil
		}
		answerSingle(answer, &g, &row, c.Version)
		return answer
	}
	image := b.opts.Image()
	for i := range q.Groups {
		row, err := b.fetchGroup(c, image, &q.Groups[i], q.RequireStable)
		if err != nil {
			return nil
		}
		answer.Groups = append(answer.Groups, row)
	}
	return answer
}

// fetchGroup fetches the offsets of one group of a batched request.
func (b *Broker) fetchGroup(c *Context, image *metadata.Image, g *kmsg.OffsetFetchRequestGroup, stable bool) (kmsg.OffsetFetchResponseGroup, error) {
	if c.Version < 10 {
		return b.opts.Groups.OffsetFetch(c, groupClient(c), g, stable)
	}
	known := *g
	var unknown []kmsg.OffsetFetchResponseGroupTopic
	if g.Topics != nil {
		known.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range g.Topics {
		topic := image.TopicByID(t.TopicID)
		if topic == nil {
			unknown = append(unknown, unknownFetch(&t))
			continue
		}
		t.Topic = topic.Name
		known.Topics = append(known.Topics, t)
	}
	row, err := b.opts.Groups.OffsetFetch(c, groupClient(c), &known, stable)
	if err != nil || row.ErrorCode != 0 {
		return row, err
	}
	if g.Topics == nil {
		row.Topics = withIDs(image, row.Topics)
	}
	row.Topics = append(row.Topics, unknown...)
	return row, nil
}

// unknownFetch answers the partitions of a topic id that nobody knows.
func unknownFetch(t *kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchResponseGroupTopic {
	row := kmsg.NewOffsetFetchResponseGroupTopic()
	row.TopicID = t.TopicID
	for _, p := range t.Partitions {
		none := ""
		cell := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		cell.Partition, cell.Offset, cell.LeaderEpoch, cell.Metadata = p, -1, -1, &none
		cell.ErrorCode = int16(kafka.ErrUnknownTopicID)
		row.Partitions = append(row.Partitions, cell)
	}
	return row
}

// withIDs gives topics their ids, and leaves out those that are gone.
func withIDs(image *metadata.Image, topics []kmsg.OffsetFetchResponseGroupTopic) []kmsg.OffsetFetchResponseGroupTopic {
	kept := topics[:0]
	for _, t := range topics {
		if topic := image.Topic(t.Topic); topic != nil {
			t.TopicID = topic.ID
			kept = append(kept, t)
		}
	}
	return kept
}

// singleFetch is the group of a request before version 8.
func singleFetch(q *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = q.Group
	if q.Topics != nil {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range q.Topics {
		row := kmsg.NewOffsetFetchRequestGroupTopic()
		row.Topic, row.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, row)
	}
	return g
}

// answerSingle is the answer before version 8. Version 1 has no place for the
// group's error but the partitions.
func answerSingle(a *kmsg.OffsetFetchResponse, g *kmsg.OffsetFetchRequestGroup, row *kmsg.OffsetFetchResponseGroup, version int16) {
	if row.ErrorCode != 0 && version >= 2 {
		a.ErrorCode = row.ErrorCode
		return
	}
	if row.ErrorCode != 0 {
		for i := range g.Topics {
			failed := unknownFetch(&g.Topics[i])
			failed.Topic = g.Topics[i].Topic
			for j := range failed.Partitions {
				failed.Partitions[j].ErrorCode = row.ErrorCode
			}
			row.Topics = append(row.Topics, failed)
		}
	}
	for _, t := range row.Topics {
		topic := kmsg.NewOffsetFetchResponseTopic()
		topic.Topic = t.Topic
		for _, p := range t.Partitions {
			cell := kmsg.NewOffsetFetchResponseTopicPartition()
			cell.Partition, cell.Offset, cell.LeaderEpoch, cell.Metadata = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata
			cell.ErrorCode = p.ErrorCode
			topic.Partitions = append(topic.Partitions, cell)
		}
		a.Topics = append(a.Topics, topic)
	}
}
