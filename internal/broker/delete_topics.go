package broker

// DeleteTopics (key 20), versions 1 to 6: disabled deletion is error 73 from 3
// and 42 before; flexible from 4; messages from 5; topics by id from 6
// (KIP-516).
//
// Each topic is named by name or by id; both, neither, and anything twice are
// refused one by one. Every topic of the request is answered once.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

const (
	unknownTopicMessage = "This server does not host this topic-partition."
	unknownIDMessage    = "This server does not host this topic ID."
)

// deletion gathers what is to be deleted and the answers so far.
type deletion struct {
	image  *metadata.Image
	answer *kmsg.DeleteTopicsResponse
	ids    []kafka.TopicID // in the order of the request
	names  map[kafka.TopicID]string
}

func (b *Broker) deleteTopics(c *Context, q *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	d := deletion{image: b.opts.Image(), answer: kmsg.NewPtrDeleteTopicsResponse(), names: map[kafka.TopicID]string{}}
	d.answer.Topics = []kmsg.DeleteTopicsResponseTopic{}
	topics := q.Topics
	for i := range q.TopicNames {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &q.TopicNames[i]
		topics = append(topics, t)
	}
	if !b.opts.Config().DeleteTopics {
		code, message := kafka.ErrTopicDeletionDisabled, "Topic deletion is disabled."
		if c.Version < 3 {
			code = kafka.ErrInvalidRequest
		}
		for _, t := range topics {
			d.refuse(t.Topic, t.TopicID, code, message)
		}
		return d.answer
	}
	d.resolve(topics)
	refused, err := b.opts.Controller.DeleteTopics(d.ids)
	for i, id := range d.ids {
		name := d.names[id]
		switch {
		case err != nil:
			d.refuse(&name, id, ErrorCode(err), err.Error())
		case refused[i] != nil:
			d.refuse(&name, id, refused[i].Code, refused[i].Message)
		default:
			t := kmsg.NewDeleteTopicsResponseTopic()
			t.Topic, t.TopicID = &name, id
			d.answer.Topics = append(d.answer.Topics, t)
		}
	}
	return d.answer
}

func (d *deletion) refuse(name *string, id kafka.TopicID, code kafka.ErrorCode, message string) {
	t := kmsg.NewDeleteTopicsResponseTopic()
	t.Topic, t.TopicID, t.ErrorCode, t.ErrorMessage = name, id, int16(code), &message
	d.answer.Topics = append(d.answer.Topics, t)
}

// resolve finds the ids to delete and answers what cannot be.
func (d *deletion) resolve(topics []kmsg.DeleteTopicsRequestTopic) {
	countNames, countIDs := map[string]int{}, map[kafka.TopicID]int{}
	for _, t := range topics {
		switch {
		case t.Topic != nil && t.TopicID == kafka.ZeroUUID:
			countNames[*t.Topic]++
		case t.Topic == nil:
			countIDs[t.TopicID]++
		}
	}
	for _, t := range topics {
		switch {
		case t.Topic == nil && t.TopicID == kafka.ZeroUUID:
			d.refuse(nil, kafka.ZeroUUID, kafka.ErrInvalidRequest, "Neither topic name nor id were specified.")
		case t.Topic != nil && t.TopicID != kafka.ZeroUUID:
			d.refuse(t.Topic, t.TopicID, kafka.ErrInvalidRequest, "You may not specify both topic name and topic id.")
		case t.Topic == nil:
			d.byID(t.TopicID, countIDs)
		}
	}
	for _, t := range topics {
		if t.Topic != nil && t.TopicID == kafka.ZeroUUID {
			d.byName(*t.Topic, countNames)
		}
	}
}

// answeredTwice marks in a count that its duplicates were answered.
const answeredTwice = -1

func (d *deletion) byID(id kafka.TopicID, count map[kafka.TopicID]int) {
	switch n := count[id]; {
	case n > 1:
		count[id] = answeredTwice
		d.refuse(nil, id, kafka.ErrInvalidRequest, "Duplicate topic id.")
	case n == 1:
		if t := d.image.TopicByID(id); t != nil {
			d.add(t)
		} else {
			d.refuse(nil, id, kafka.ErrUnknownTopicID, unknownIDMessage)
		}
	}
}

func (d *deletion) byName(name string, count map[string]int) {
	switch n := count[name]; {
	case n > 1:
		count[name] = answeredTwice
		d.refuse(&name, kafka.ZeroUUID, kafka.ErrInvalidRequest, "Duplicate topic name.")
	case n == 1:
		t := d.image.Topic(name)
		if t == nil {
			d.refuse(&name, kafka.ZeroUUID, kafka.ErrUnknownTopicOrPartition, unknownTopicMessage)
			return
		}
		if _, byID := d.names[t.ID]; byID {
			// Named twice in two ways: neither counts.
			delete(d.names, t.ID)
			d.ids = remove(d.ids, t.ID)
			d.refuse(&name, t.ID, kafka.ErrInvalidRequest, "The provided topic name maps to an ID that was already supplied.")
			return
		}
		d.add(t)
	}
}

func (d *deletion) add(t *metadata.Topic) {
	d.ids = append(d.ids, t.ID)
	d.names[t.ID] = t.Name
}

func remove(ids []kafka.TopicID, id kafka.TopicID) []kafka.TopicID {
	var kept []kafka.TopicID
	for _, other := range ids {
		if other != id {
			kept = append(kept, other)
		}
	}
	return kept
}
