package broker

// DescribeProducers (key 61), version 0 (KIP-664): the idempotent and
// transactional producers that a partition remembers.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

func (b *Broker) describeProducers(_ *Context, q *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
	answer := kmsg.NewPtrDescribeProducersResponse()
	for i := range q.Topics {
		t := kmsg.NewDescribeProducersResponseTopic()
		t.Topic = q.Topics[i].Topic
		for _, index := range q.Topics[i].Partitions {
			t.Partitions = append(t.Partitions, b.producersOf(t.Topic, index))
		}
		answer.Topics = append(answer.Topics, t)
	}
	return answer
}

func (b *Broker) producersOf(topic string, index int32) kmsg.DescribeProducersResponseTopicPartition {
	k := kmsg.NewDescribeProducersResponseTopicPartition()
	k.Partition = index
	p, code := b.partition([]byte(topic), kafka.ZeroUUID, index)
	if code == kafka.None {
		code = ErrorCode(p.CheckEpoch(kafka.NoLeaderEpoch))
	}
	if code != kafka.None {
		k.ErrorCode = int16(code)
		return k
	}
	for _, e := range p.Log().ActiveProducers() {
		x := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		x.ProducerID, x.ProducerEpoch = int64(e.ProducerID), int32(e.Epoch)
		x.LastSequence, x.LastTimestamp = int32(e.LastSequence), int64(e.Timestamp)
		x.CoordinatorEpoch, x.CurrentTxnStartOffset = e.CoordinatorEpoch, int64(e.TxnFirstOffset)
		k.ActiveProducers = append(k.ActiveProducers, x)
	}
	return k
}
