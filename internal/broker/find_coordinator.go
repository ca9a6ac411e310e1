package broker

// FindCoordinator (key 10), versions 0 to 6: throttle time, key type and a
// message from 1; flexible from 3; several keys from 4 (KIP-699); share groups
// from 6 (KIP-932).
//
// The coordinator of a group is the leader of its partition of
// __consumer_offsets. The first request creates that topic and is answered with
// error 15, as long as there is no leader. There is no coordinator of
// transactions or share groups yet: their key types are refused with error 42.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/coordinator"
	"github.com/varvelog/varve/internal/kafka"
)

const keyTypeGroup = 0

// coordinatorNode is where a coordinator is, or why there is none.
type coordinatorNode struct {
	code kafka.ErrorCode
	id   kafka.BrokerID
	host string
	port int32
}

func (b *Broker) findCoordinator(c *Context, q *kmsg.FindCoordinatorRequest) *kmsg.FindCoordinatorResponse {
	answer := kmsg.NewPtrFindCoordinatorResponse()
	if c.Version < 4 {
		n := b.coordinatorOf(c, q.CoordinatorType, q.CoordinatorKey)
		answer.ErrorCode, answer.NodeID, answer.Host, answer.Port = int16(n.code), int32(n.id), n.host, n.port
		message := "NONE"
		if n.code != kafka.None {
			message = coordinatorMessage(n.code)
		}
		answer.ErrorMessage = &message
		return answer
	}
	for _, key := range q.CoordinatorKeys {
		n := b.coordinatorOf(c, q.CoordinatorType, key)
		k := kmsg.NewFindCoordinatorResponseCoordinator()
		k.Key, k.ErrorCode, k.NodeID, k.Host, k.Port = key, int16(n.code), int32(n.id), n.host, n.port
		k.ErrorMessage = new(string)
		answer.Coordinators = append(answer.Coordinators, k)
	}
	return answer
}

func coordinatorMessage(code kafka.ErrorCode) string {
	if code == kafka.ErrInvalidRequest {
		return "This broker coordinates groups only."
	}
	return "The coordinator is not available."
}

func (b *Broker) coordinatorOf(c *Context, keyType int8, key string) coordinatorNode {
	none := coordinatorNode{code: kafka.ErrCoordinatorNotAvailable, id: kafka.NoBroker, port: -1}
	if keyType != keyTypeGroup {
		none.code = kafka.ErrInvalidRequest
		return none
	}
	image := b.opts.Image()
	topic := image.Topic(kafka.ConsumerOffsetsTopic)
	if topic == nil {
		b.ensureTopic(kafka.ConsumerOffsetsTopic)
		return none
	}
	p, ok := topic.Partitions.Get(coordinator.PartitionFor(key, int32(topic.Partitions.Len())))
	if !ok {
		return none
	}
	e := endpoint(image, p.Leader, c.Listener())
	if e == nil {
		return none
	}
	return coordinatorNode{id: p.Leader, host: e.Host, port: int32(e.Port)}
}

// ensureTopic creates an internal topic; a failure is logged, and the client
// asks again.
func (b *Broker) ensureTopic(name string) {
	created, err := b.opts.Controller.EnsureTopics([]string{name})
	if err == nil && len(created) == 1 && created[0].Err != nil && created[0].Err.Code != kafka.ErrTopicAlreadyExists {
		err = created[0].Err
	}
	if err != nil {
		b.log.Error("create internal topic", "topic", name, "err", err)
	}
}
