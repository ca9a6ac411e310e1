package broker

// OffsetDelete (key 47), version 0 (KIP-496).
//
// Partitions that do not exist are error 3, topics that the group subscribes to
// error 86; an unknown group fails the whole request (69).

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

func (b *Broker) offsetDelete(c *Context, q *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	image := b.opts.Image()
	var refused []kmsg.OffsetDeleteResponseTopic
	known := *q
	known.Topics = nil
	for _, t := range q.Topics {
		there, gone := t, kmsg.NewOffsetDeleteResponseTopic()
		there.Partitions, gone.Topic = nil, t.Topic
		for _, p := range t.Partitions {
			if image.Partition(kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}) != nil {
				there.Partitions = append(there.Partitions, p)
				continue
			}
			cell := kmsg.NewOffsetDeleteResponseTopicPartition()
			cell.Partition, cell.ErrorCode = p.Partition, int16(kafka.ErrUnknownTopicOrPartition)
			gone.Partitions = append(gone.Partitions, cell)
		}
		if len(there.Partitions) > 0 {
			known.Topics = append(known.Topics, there)
		}
		if len(gone.Partitions) > 0 {
			refused = append(refused, gone)
		}
	}
	answer, err := b.opts.Groups.OffsetDelete(c, groupClient(c), &known)
	if err != nil {
		return nil
	}
	if answer.ErrorCode == 0 {
		answer.Topics = mergeDeleted(refused, answer.Topics)
	}
	return answer
}

// mergeDeleted puts the partitions of a topic into one row.
func mergeDeleted(rows, more []kmsg.OffsetDeleteResponseTopic) []kmsg.OffsetDeleteResponseTopic {
	at := make(map[string]int, len(rows)) // the first row of each topic
	for i := range rows {
		if _, ok := at[rows[i].Topic]; !ok {
			at[rows[i].Topic] = i
		}
	}
	for _, t := range more {
		if i, ok := at[t.Topic]; ok {
			rows[i].Partitions = append(rows[i].Partitions, t.Partitions...)
			continue
		}
		at[t.Topic] = len(rows)
		rows = append(rows, t)
	}
	return rows
}
