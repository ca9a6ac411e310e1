package broker

// OffsetCommit (key 8), versions 2 to 10: a retention time from 2 to 4; leader
// epochs from 6 (KIP-320); static members from 7; flexible from 8; errors of
// KIP-848 groups from 9; topics by id from 10.
//
// Partitions that do not exist are refused one by one (3, and 100 for an id) and
// the rest is committed. When nothing is left the coordinator is not asked.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

func (b *Broker) offsetCommit(c *Context, q *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	image := b.opts.Image()
	answer := commitAnswer{kmsg.NewPtrOffsetCommitResponse(), map[commitRow]int{}}
	known := *q
	known.Topics = nil
	for _, t := range q.Topics {
		topic, code := commitTopic(image, &t, c.Version)
		if topic == nil {
			for _, p := range t.Partitions {
				answer.add(t.Topic, t.TopicID, p.Partition, code)
			}
			continue
		}
		t.Topic, t.TopicID = topic.Name, topic.ID
		all := t.Partitions
		t.Partitions = nil
		for _, p := range all {
			if _, ok := topic.Partitions.Get(p.Partition); !ok {
				answer.add(t.Topic, t.TopicID, p.Partition, kafka.ErrUnknownTopicOrPartition)
				continue
			}
			t.Partitions = append(t.Partitions, p)
		}
		if len(t.Partitions) > 0 {
			known.Topics = append(known.Topics, t)
		}
	}
	if len(known.Topics) == 0 {
		return answer.OffsetCommitResponse
	}
	committed, err := b.opts.Groups.OffsetCommit(c, groupClient(c), &known)
	if err != nil {
		return nil
	}
	for i := range committed.Topics {
		t := &committed.Topics[i]
		for _, p := range t.Partitions {
			answer.add(t.Topic, t.TopicID, p.Partition, kafka.ErrorCode(p.ErrorCode))
		}
	}
	return answer.OffsetCommitResponse
}

// commitTopic finds the topic that a request names, by id from version 10 on.
func commitTopic(image *metadata.Image, t *kmsg.OffsetCommitRequestTopic, version int16) (*metadata.Topic, kafka.ErrorCode) {
	if version >= 10 {
		return image.TopicByID(t.TopicID), kafka.ErrUnknownTopicID
	}
	return image.Topic(t.Topic), kafka.ErrUnknownTopicOrPartition
}

// commitAnswer is an answer with a row for each topic.
type commitAnswer struct {
	*kmsg.OffsetCommitResponse
	rows map[commitRow]int // where the row of each topic is
}

// commitRow names a topic as its request does.
type commitRow struct {
	name string
	id   kafka.TopicID
}

// add adds a partition to the row of its topic.
func (a *commitAnswer) add(topic string, id kafka.TopicID, partition int32, code kafka.ErrorCode) {
	at, ok := a.rows[commitRow{topic, id}]
	if !ok {
		at = len(a.Topics)
		a.rows[commitRow{topic, id}] = at
		row := kmsg.NewOffsetCommitResponseTopic()
		row.Topic, row.TopicID = topic, id
		a.Topics = append(a.Topics, row)
	}
	cell := kmsg.NewOffsetCommitResponseTopicPartition()
	cell.Partition, cell.ErrorCode = partition, int16(code)
	a.Topics[at].Partitions = append(a.Topics[at].Partitions, cell)
}
