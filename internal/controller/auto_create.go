package controller

import (
	"strconv"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// EnsureTopics creates those of the topics that do not exist, as Metadata and
// FindCoordinator do: internal topics with their own settings, others with the
// broker's defaults. The answers are in the order of names; a topic that exists
// already is an error ErrTopicAlreadyExists there, with nothing written for it.
func (c *Controller) EnsureTopics(names []string) ([]CreatedTopic, error) {
	image := c.Image()
	results := make([]CreatedTopic, 0, len(names))
	var missing []NewTopic
	for _, name := range names {
		if image.Topic(name) == nil {
			missing = append(missing, c.automatic(name, image))
		}
	}
	made := map[string]CreatedTopic{}
	if len(missing) > 0 {
		var created []CreatedTopic
		_, err := c.q.Update(func(image *metadata.Image) ([]metadata.Record, error) {
			var records []metadata.Record
			created, records = c.createTopics(image, missing, givenOrder)
			return records, nil
		})
		if err != nil {
			return nil, err
		}
		for _, t := range created {
			made[t.Name] = t
		}
		c.placeCreated(created)
	}
	for _, name := range names {
		result, ok := made[name]
		if !ok {
			result = CreatedTopic{Name: name, Err: refuse(kafka.ErrTopicAlreadyExists, "Topic '%s' already exists.", name)}
		}
		results = append(results, result)
	}
	return results, nil
}

// automatic is the topic that is made when nobody said how.
func (c *Controller) automatic(name string, image *metadata.Image) NewTopic {
	b := c.cfg.Broker()
	switch name {
	case kafka.ConsumerOffsetsTopic:
		return NewTopic{
			Name:              name,
			Partitions:        b.OffsetsTopicPartitions,
			ReplicationFactor: capped(b, "offsets.topic.replication.factor", b.OffsetsTopicReplicationFactor, image),
			Configs: settings(
				"compression.type", "producer",
				"cleanup.policy", "compact",
				"segment.bytes", strconv.Itoa(int(b.OffsetsTopicSegmentBytes))),
		}
	case kafka.TransactionStateTopic:
		return NewTopic{
			Name:              name,
			Partitions:        b.TransactionTopicPartitions,
			ReplicationFactor: capped(b, "transaction.state.log.replication.factor", b.TransactionTopicReplicationFactor, image),
			Configs: settings(
				"compression.type", "uncompressed",
				"cleanup.policy", "compact",
				minInsyncReplicas, strconv.Itoa(cappedMinISR(b, "transaction.state.log.min.isr", b.TransactionTopicMinISR, image)),
				"segment.bytes", strconv.Itoa(int(b.TransactionTopicSegmentBytes)),
				"unclean.leader.election.enable", "false"),
		}
	case kafka.ShareGroupStateTopic:
		return c.shareStateTopic(b, image)
	}
	return NewTopic{
		Name:              name,
		Partitions:        min(b.NumPartitions, int32(b.AutoPartitionsCap)),
		ReplicationFactor: b.DefaultReplicationFactor,
	}
}

func (c *Controller) shareStateTopic(b *config.Broker, image *metadata.Image) NewTopic {
	number := func(key string) int {
		value, _ := b.Value(key)
		n, _ := strconv.Atoi(value) // checked when it was loaded
		return n
	}
	const prefix = "share.coordinator.state.topic."
	return NewTopic{
		Name:              kafka.ShareGroupStateTopic,
		Partitions:        int32(number(prefix + "num.partitions")),
		ReplicationFactor: capped(b, prefix+"replication.factor", int16(number(prefix+"replication.factor")), image),
		Configs: settings(
			"compression.type", "producer",
			"cleanup.policy", "delete",
			minInsyncReplicas, strconv.Itoa(cappedMinISR(b, prefix+"min.isr", number(prefix+"min.isr"), image)),
			"segment.bytes", strconv.Itoa(number(prefix+"segment.bytes")),
			"retention.ms", "-1"),
	}
}

// capped is a replication factor that does not ask for more brokers than there
// are, unless somebody configured it: Kafka's defaults of 3 would keep a single
// node from ever having its internal topics.
func capped(b *config.Broker, key string, factor int16, image *metadata.Image) int16 {
	if b.IsSet(key) {
		return factor
	}
	return min(factor, int16(max(1, image.Brokers.Len())))
}

func cappedMinISR(b *config.Broker, key string, minISR int, image *metadata.Image) int {
	if b.IsSet(key) {
		return minISR
	}
	return min(minISR, max(1, image.Brokers.Len()))
}

func settings(pairs ...string) []Setting {
	var list []Setting
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, Setting{pairs[i], &pairs[i+1]})
	}
	return list
}
