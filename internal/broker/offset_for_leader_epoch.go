package broker

// OffsetForLeaderEpoch (key 23), versions 2 to 4: the replica id from 3; flexible
// from 4. Where a leader epoch ends on this log, so that a client whose log or
// position has parted from it finds where (KIP-101, KIP-320). An epoch that the
// log does not know is no error: epoch and end offset are -1.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

func (b *Broker) offsetForLeaderEpoch(_ *Context, q *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	answer := kmsg.NewPtrOffsetForLeaderEpochResponse()
	for i := range q.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = q.Topics[i].Topic
		for j := range q.Topics[i].Partitions {
			asked := &q.Topics[i].Partitions[j]
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = asked.Partition, int32(kafka.NoLeaderEpoch), int64(kafka.NoOffset)
			epoch, end, code := b.endOfEpoch(t.Topic, asked)
			p.ErrorCode = int16(code)
			if code == kafka.None {
				p.LeaderEpoch, p.EndOffset = int32(epoch), int64(end)
			}
			t.Partitions = append(t.Partitions, p)
		}
		answer.Topics = append(answer.Topics, t)
	}
	return answer
}

func (b *Broker) endOfEpoch(topic string, asked *kmsg.OffsetForLeaderEpochRequestTopicPartition) (kafka.LeaderEpoch, kafka.Offset, kafka.ErrorCode) {
	p, code := b.partition([]byte(topic), kafka.ZeroUUID, asked.Partition)
	if code != kafka.None {
		return 0, 0, code
	}
	l, err := p.Lead(max(kafka.LeaderEpoch(asked.CurrentLeaderEpoch), kafka.NoLeaderEpoch))
	if err != nil {
		return 0, 0, ErrorCode(err)
	}
	epoch, end := l.EndOffsetForEpoch(kafka.LeaderEpoch(asked.LeaderEpoch))
	return epoch, end, kafka.None
}
