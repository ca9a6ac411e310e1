package broker

// CreatePartitions (key 37), versions 0 to 3: flexible from 2; quota error from
// 3 (KIP-599).
//
// A null list of assignments leaves the choice to the controller; an empty one
// counts as no assignment for what is added. The number of partitions can only
// rise.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/kafka"
)

func (b *Broker) createPartitions(_ *Context, q *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	answer := kmsg.NewPtrCreatePartitionsResponse()
	answer.Topics = []kmsg.CreatePartitionsResponseTopic{}
	add := func(name string, code kafka.ErrorCode, message *string) {
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic, t.ErrorCode, t.ErrorMessage = name, int16(code), message
		answer.Topics = append(answer.Topics, t)
	}
	count := map[string]int{}
	for i := range q.Topics {
		count[q.Topics[i].Topic]++
	}
	var topics []controller.MorePartitions
	for i := range q.Topics {
		t := &q.Topics[i]
		switch n := count[t.Topic]; {
		case n > 1:
			count[t.Topic] = answeredTwice
			message := "Duplicate topic name."
			add(t.Topic, kafka.ErrInvalidRequest, &message)
		case n == 1:
			topics = append(topics, morePartitions(t))
		}
	}
	refused, err := b.opts.Controller.CreatePartitions(topics, q.ValidateOnly)
	for i := range topics {
		switch {
		case err != nil:
			message := err.Error()
			add(topics[i].Topic, ErrorCode(err), &message)
		case refused[i] != nil:
			add(topics[i].Topic, refused[i].Code, &refused[i].Message)
		default:
			add(topics[i].Topic, kafka.None, nil)
		}
	}
	return answer
}

func morePartitions(t *kmsg.CreatePartitionsRequestTopic) controller.MorePartitions {
	m := controller.MorePartitions{Topic: t.Topic, Count: t.Count}
	if t.Assignment != nil {
		m.Assignments = make([][]kafka.BrokerID, len(t.Assignment))
		for i, a := range t.Assignment {
			m.Assignments[i] = replicaIDs(a.Replicas)
		}
	}
	return m
}
