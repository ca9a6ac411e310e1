package controller

import (
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// DeleteTopics deletes topics by id and returns an error, nil for none, for
// each in their order. The ids are distinct. A topic's configs go with it.
func (c *Controller) DeleteTopics(ids []kafka.TopicID) ([]*Error, error) {
	results := make([]*Error, len(ids))
	_, err := c.q.Update(func(image *metadata.Image) ([]metadata.Record, error) {
		var records []metadata.Record
		for i, id := range ids {
			if image.TopicByID(id) == nil {
				results[i] = refuse(kafka.ErrUnknownTopicID, "This server does not host this topic ID.")
				continue
			}
			records = append(records, &metadata.RemoveTopicRecord{TopicID: id})
		}
		return records, nil
	})
	return results, err
}

// MorePartitions is a topic that a client wants to have Count partitions.
type MorePartitions struct {
	Topic string
	Count int32
	// Assignments say where each added partition lies; nil: the controller
	// chooses. An empty one is not nil: it counts as none.
	Assignments [][]kafka.BrokerID
}

// CreatePartitions adds partitions to topics, each on its own, and returns an
// error, nil for none, for each in their order. The topics are distinct.
func (c *Controller) CreatePartitions(topics []MorePartitions, validateOnly bool) ([]*Error, error) {
	results := make([]*Error, len(topics))
	_, err := c.q.Update(func(image *metadata.Image) ([]metadata.Record, error) {
		var records []metadata.Record
		for i := range topics {
			added, err := c.addPartitions(image, &topics[i])
			if err == nil && len(records)+len(added) > maxPartitionsPerRequest {
				err = refuse(kafka.ErrPolicyViolation, "Unable to perform excessively large batch operation.")
			}
			if results[i] = err; err == nil {
				records = append(records, added...)
			}
		}
		if validateOnly {
			return nil, nil
		}
		return records, nil
	})
	if err == nil && !validateOnly {
		for i := range topics {
			if results[i] == nil {
				c.placeNew(topics[i].Topic)
			}
		}
	}
	return results, err
}

func (c *Controller) addPartitions(image *metadata.Image, want *MorePartitions) ([]metadata.Record, *Error) {
	t := image.Topic(want.Topic)
	if t == nil {
		return nil, refuse(kafka.ErrUnknownTopicOrPartition, "This server does not host this topic-partition.")
	}
	have := int32(t.Partitions.Len())
	switch {
	case want.Count == have:
		return nil, refuse(kafka.ErrInvalidPartitions, "Topic already has %d partition(s).", have)
	case want.Count < have:
		return nil, refuse(kafka.ErrInvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", want.Topic, have, want.Count)
	}
	additional := want.Count - have
	if want.Assignments != nil && len(want.Assignments) != int(additional) {
		return nil, refuse(kafka.ErrInvalidReplicaAssignment,
			"Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", additional, len(want.Assignments))
	}
	if additional > maxPartitionsPerRequest {
		return nil, refuse(kafka.ErrPolicyViolation, "Unable to perform excessively large batch operation.")
	}
	first, ok := t.Partitions.Get(0)
	if !ok {
		return nil, refuse(kafka.ErrUnknownServerError, "Invalid state: topic %s appears to have no partitions.", want.Topic)
	}
	factor := len(first.Replicas)
	var records []metadata.Record
	for i := range additional {
		replicas := []kafka.BrokerID{c.id}
		if want.Assignments != nil {
			replicas = want.Assignments[i]
			if err := checkAssignment(image, replicas, factor); err != nil {
				return nil, err
			}
			if !anyActive(image, replicas) {
				return nil, refuse(kafka.ErrInvalidReplicaAssignment,
					"All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", have+i)
			}
		} else if reason := c.cannotPlace(image, int16(factor)); reason != "" {
			return nil, refuse(kafka.ErrInvalidReplicationFactor, "Unable to replicate the partition %d time(s): %s", factor, reason)
		}
		records = append(records, c.partition(image, replicas).Record(t.ID, have+i))
	}
	return records, nil
}
