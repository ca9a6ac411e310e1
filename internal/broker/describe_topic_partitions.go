package broker

// DescribeTopicPartitions (key 75), version 0 (KIP-966): topics sorted by name,
// as many partitions as the limit allows, and a cursor where it was reached. An
// empty list of topics is all of them.

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

func (b *Broker) describeTopicPartitions(c *Context, q *kmsg.DescribeTopicPartitionsRequest) *kmsg.DescribeTopicPartitionsResponse {
	answer := kmsg.NewPtrDescribeTopicPartitionsResponse()
	image := b.opts.Image()
	names, all := topicsToDescribe(image, q)
	if q.Cursor != nil && q.Cursor.Partition < 0 {
		for _, name := range names {
			answer.Topics = append(answer.Topics, failedTopic(name, kafka.ErrInvalidRequest))
		}
		return answer
	}
	room := max(min(b.opts.Config().MaxRequestPartitionSizeLimit, int(q.ResponsePartitionLimit)), 1)
	for _, name := range names {
		if room == 0 {
			answer.NextCursor = cursorAt(name, 0)
			break
		}
		topic := image.Topic(name)
		if topic == nil {
			if !all {
				answer.Topics = append(answer.Topics, unknownTopic(name))
			}
			continue
		}
		first := int32(0)
		if q.Cursor != nil && q.Cursor.Topic == name {
			first = q.Cursor.Partition
		}
		t, next := describePartitions(image, topic, c.Listener(), first, room)
		answer.Topics = append(answer.Topics, t)
		if next >= 0 {
			answer.NextCursor = cursorAt(name, next)
			break
		}
		room -= len(t.Partitions)
	}
	return answer
}

// topicsToDescribe lists the names at or after the cursor, each once and sorted.
func topicsToDescribe(image *metadata.Image, q *kmsg.DescribeTopicPartitionsRequest) (names []string, all bool) {
	all = len(q.Topics) == 0
	if all {
		for name := range image.Topics.All() {
			names = append(names, name)
		}
	} else {
		for _, t := range q.Topics {
			names = append(names, t.Topic)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if q.Cursor != nil {
		from, _ := slices.BinarySearch(names, q.Cursor.Topic)
		names = names[from:]
	}
	return names, all
}

func cursorAt(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	k := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	k.Topic, k.Partition = topic, partition
	return &k
}

func unknownTopic(name string) kmsg.DescribeTopicPartitionsResponseTopic {
	if controller.ValidateTopicName(name) != "" {
		return failedTopic(name, kafka.ErrInvalidTopicException)
	}
	return failedTopic(name, kafka.ErrUnknownTopicOrPartition)
}

func failedTopic(name string, code kafka.ErrorCode) kmsg.DescribeTopicPartitionsResponseTopic {
	k := kmsg.NewDescribeTopicPartitionsResponseTopic()
	k.Topic, k.ErrorCode = &name, int16(code)
	k.IsInternal, k.AuthorizedOperations = kafka.IsInternalTopic(name), allTopicOperations
	return k
}

// describePartitions describes up to room partitions from first on. next is the
// one to go on with, -1 when none is left.
func describePartitions(image *metadata.Image, topic *metadata.Topic, listener string, first int32, room int) (kmsg.DescribeTopicPartitionsResponseTopic, int32) {
	k := kmsg.NewDescribeTopicPartitionsResponseTopic()
	k.Topic, k.TopicID, k.IsInternal, k.AuthorizedOperations = &topic.Name, topic.ID, kafka.IsInternalTopic(topic.Name), allTopicOperations
	m := metadataAnswer{image: image, listener: listener, version: 13}
	for index, p := range topic.Partitions.From(first) {
		if len(k.Partitions) == room {
			return k, index
		}
		d := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		leader, code := m.leader(p)
		d.ErrorCode, d.Partition, d.LeaderID, d.LeaderEpoch = int16(code), index, int32(leader), int32(p.LeaderEpoch)
		d.Replicas, d.ISR = nodeIDs(p.Replicas), nodeIDs(p.ISR)
		d.EligibleLeaderReplicas, d.LastKnownELR = nodeIDs(p.ELR), nodeIDs(p.LastKnownELR)
		for _, id := range p.Replicas {
			if !m.alive(id) {
				d.OfflineReplicas = append(d.OfflineReplicas, int32(id))
			}
		}
		k.Partitions = append(k.Partitions, d)
	}
	return k, -1
}

// nodeIDs is never nil: nil would be null on the wire.
func nodeIDs(ids []kafka.BrokerID) []int32 {
	list := make([]int32, len(ids))
	for i, id := range ids {
		list[i] = int32(id)
	}
	return list
}
