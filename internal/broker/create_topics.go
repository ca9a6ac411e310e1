package broker

// CreateTopics (key 19), versions 2 to 7: -1 for partitions and replication
// factor is the broker's default (in the schema from 4, honoured from 2);
// flexible, and the effective configs in the answer, from 5 (KIP-525); quota
// error from 6 (KIP-599); topic id in the answer from 7.
//
// The decision is the controller's. Here are the time limit, which fails every
// topic when it is over before the work begins, and the configs of the answer:
// all effective ones, an empty array for a topic that was refused (Java clients
// fail on null).

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/kafka"
)

func (b *Broker) createTopics(_ *Context, q *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	answer := kmsg.NewPtrCreateTopicsResponse()
	answer.Topics = []kmsg.CreateTopicsResponseTopic{}
	if q.TimeoutMillis <= 0 {
		for i := range q.Topics {
			answer.Topics = append(answer.Topics, refusedTopic(q.Topics[i].Topic, kafka.ErrRequestTimedOut, "The request timed out."))
		}
		return answer
	}
	topics := make([]controller.NewTopic, len(q.Topics))
	for i := range q.Topics {
		topics[i] = newTopic(&q.Topics[i])
	}
	created, err := b.opts.Controller.CreateTopics(topics, q.ValidateOnly)
	if err != nil {
		for i := range q.Topics {
			answer.Topics = append(answer.Topics, refusedTopic(q.Topics[i].Topic, ErrorCode(err), err.Error()))
		}
		return answer
	}
	for i := range created {
		answer.Topics = append(answer.Topics, b.createdTopic(&created[i]))
	}
	return answer
}

func newTopic(t *kmsg.CreateTopicsRequestTopic) controller.NewTopic {
	n := controller.NewTopic{Name: t.Topic, Partitions: t.NumPartitions, ReplicationFactor: t.ReplicationFactor}
	for _, a := range t.ReplicaAssignment {
		n.Assignments = append(n.Assignments, controller.Assignment{Partition: a.Partition, Replicas: replicaIDs(a.Replicas)})
	}
	for _, c := range t.Configs {
		n.Configs = append(n.Configs, controller.Setting{Name: c.Name, Value: c.Value})
	}
	return n
}

func replicaIDs(ids []int32) []kafka.BrokerID {
	list := make([]kafka.BrokerID, len(ids))
	for i, id := range ids {
		list[i] = kafka.BrokerID(id)
	}
	return list
}

func refusedTopic(name string, code kafka.ErrorCode, message string) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic, t.ErrorCode, t.ErrorMessage = name, int16(code), &message
	t.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	return t
}

func (b *Broker) createdTopic(c *controller.CreatedTopic) kmsg.CreateTopicsResponseTopic {
	if c.Err != nil {
		return refusedTopic(c.Name, c.Err.Code, c.Err.Message)
	}
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic, t.TopicID = c.Name, c.ID
	t.NumPartitions, t.ReplicationFactor = c.Partitions, c.ReplicationFactor
	for _, e := range b.opts.Config().DescribeTopic(c.Configs, nil) {
		entry := kmsg.NewCreateTopicsResponseTopicConfig()
		entry.Name, entry.Value = e.Name, nullable(e.Value, e.Null)
		entry.ReadOnly, entry.Source, entry.IsSensitive = e.ReadOnly, int8(e.Source), e.Sensitive
		t.Configs = append(t.Configs, entry)
	}
	return t
}

// nullable is a string of the protocol that may be null.
func nullable(s string, null bool) *string {
	if null {
		return nil
	}
	return &s
}
