package broker

// DeleteRecords (key 21), versions 0 to 2: flexible from 2. Raises the log start
// offset of partitions; -1 means the high watermark. The answer is the new start,
// -1 with an error. Internal topics are refused with 17, topics that are only
// compacted with 44.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

func (b *Broker) deleteRecords(_ *Context, q *kmsg.DeleteRecordsRequest) *kmsg.DeleteRecordsResponse {
	answer := kmsg.NewPtrDeleteRecordsResponse()
	for i := range q.Topics {
		t := kmsg.NewDeleteRecordsResponseTopic()
		t.Topic = q.Topics[i].Topic
		for _, asked := range q.Topics[i].Partitions {
			p := kmsg.NewDeleteRecordsResponseTopicPartition()
			p.Partition = asked.Partition
			low, code := b.deleteRecordsOf(t.Topic, asked.Partition, kafka.Offset(asked.Offset))
			p.LowWatermark, p.ErrorCode = int64(low), int16(code)
			t.Partitions = append(t.Partitions, p)
		}
		answer.Topics = append(answer.Topics, t)
	}
	return answer
}

func (b *Broker) deleteRecordsOf(topic string, partition int32, offset kafka.Offset) (kafka.Offset, kafka.ErrorCode) {
	p, code := b.partition([]byte(topic), kafka.ZeroUUID, partition)
	switch {
	case code != kafka.None && code != kafka.ErrNotLeaderOrFollower:
		return kafka.NoOffset, code
	case kafka.IsInternalTopic(topic):
		return kafka.NoOffset, kafka.ErrInvalidTopicException
	case code != kafka.None:
		return kafka.NoOffset, code
	}
	low, err := p.DeleteRecords(offset)
	if err != nil {
		return kafka.NoOffset, ErrorCode(err)
	}
	return low, kafka.None
}
