package controller

import (
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// maxPartitionsPerRequest bounds what one CreateTopics request may make.
const maxPartitionsPerRequest = 10_000

// Setting is one config as a client sends it. A nil Value is null.
type Setting struct {
	Name  string
	Value *string
}

// Assignment says which brokers hold a partition.
type Assignment struct {
	Partition int32
	Replicas  []kafka.BrokerID
}

// NewTopic is one topic that a client wants.
type NewTopic struct {
	Name              string
	Partitions        int32 // -1: num.partitions
	ReplicationFactor int16 // -1: default.replication.factor
	Assignments       []Assignment
	Configs           []Setting // of a key given twice the last counts
}

// CreatedTopic is the answer for one topic.
type CreatedTopic struct {
	Name              string
	ID                kafka.TopicID
	Partitions        int32
	ReplicationFactor int16
	Configs           map[string]string // the topic's own settings
	Err               *Error            // nil: created, or valid
}

// CreateTopics creates topics, each on its own: one that is refused does not
// keep the others from being made, and those that are made come in one batch.
// With validateOnly the same is checked and nothing written. The answers are in
// the order of the request; a name given twice is answered once, at the end.
func (c *Controller) CreateTopics(topics []NewTopic, validateOnly bool) ([]CreatedTopic, error) {
	var results []CreatedTopic
	_, err := c.q.Update(func(image *metadata.Image) ([]metadata.Record, error) {
		var records []metadata.Record
		results, records = c.createTopics(image, topics, clientOrder)
		if validateOnly {
			return nil, nil
		}
		return records, nil
	})
	if err == nil && !validateOnly {
		c.placeCreated(results)
	}
	return results, err
}

// placeCreated is placeNew for the topics that were created.
func (c *Controller) placeCreated(results []CreatedTopic) {
	for i := range results {
		if results[i].Err == nil {
			c.placeNew(results[i].Name)
		}
	}
}

// configOrder says in which order a topic's settings are written.
type configOrder bool

const (
	clientOrder configOrder = false // sorted by key, as for client requests
	givenOrder  configOrder = true  // as given, as for internal topics
)

func (c *Controller) createTopics(image *metadata.Image, topics []NewTopic, order configOrder) ([]CreatedTopic, []metadata.Record) {
	count := map[string]int{}
	for _, t := range topics {
		count[t.Name]++
	}
	excessive := c.totalPartitions(topics) > maxPartitionsPerRequest
	var results, last []CreatedTopic
	var records []metadata.Record
	pending := map[string]string{} // unified name to a name created in this request
	for _, t := range topics {
		if count[t.Name] > 1 {
			count[t.Name] = -1 // answered now, its repetitions not again
			last = append(last, CreatedTopic{Name: t.Name, Err: refuse(kafka.ErrInvalidRequest, "Duplicate topic name.")})
		}
		if count[t.Name] < 0 {
			continue
		}
		if err := internalName(t.Name); err != nil {
			last = append(last, CreatedTopic{Name: t.Name, Err: err})
			continue
		}
		if excessive {
			results = append(results, CreatedTopic{Name: t.Name,
				Err: refuse(kafka.ErrPolicyViolation, "Excessively large number of partitions per request.")})
			continue
		}
		result, made := c.createTopic(image, &t, order, pending)
		if result.Err == nil {
			pending[unified(t.Name)] = t.Name
		}
		results = append(results, result)
		records = append(records, made...)
	}
	return append(results, last...), records
}

func (c *Controller) totalPartitions(topics []NewTopic) int64 {
	total := int64(0)
	for _, t := range topics {
		switch {
		case len(t.Assignments) > 0:
			total += int64(len(t.Assignments))
		case t.Partitions == -1:
			total += int64(c.cfg.Broker().NumPartitions)
		case t.Partitions > 0:
			total += int64(t.Partitions)
		}
	}
	return total
}

// createTopic checks one topic and returns its records: the topic, its
// configs, its partitions.
func (c *Controller) createTopic(image *metadata.Image, t *NewTopic, order configOrder, pending map[string]string) (CreatedTopic, []metadata.Record) {
	result := CreatedTopic{Name: t.Name}
	if result.Err = checkNewName(image, t.Name, pending); result.Err != nil {
		return result, nil
	}
	configs, err := c.newConfigs(image, t, order)
	if err != nil {
		result.Err = err
		return result, nil
	}
	partitions, err := c.newPartitions(image, t)
	if err != nil {
		result.Err = err
		return result, nil
	}
	result.ID = c.cfg.NewID()
	result.Partitions = int32(len(partitions))
	result.ReplicationFactor = int16(len(partitions[0].Replicas))
	result.Configs = map[string]string{}
	records := []metadata.Record{&metadata.TopicRecord{Name: t.Name, TopicID: result.ID}}
	for _, r := range configs {
		result.Configs[r.Name] = *r.Value
		records = append(records, r)
	}
	records = append(records, clearElrFor(image, configs)...)
	for i, p := range partitions {
		records = append(records, p.Record(result.ID, int32(i)))
	}
	return result, records
}

func checkNewName(image *metadata.Image, name string, pending map[string]string) *Error {
	if reason := ValidateTopicName(name); reason != "" {
		return refuse(kafka.ErrInvalidTopicException, "%s", reason)
	}
	if image.Topic(name) != nil {
		return refuse(kafka.ErrTopicAlreadyExists, "Topic '%s' already exists.", name)
	}
	other := collision(image, name)
	if other == "" {
		other = pending[unified(name)] // Kafka would make both
	}
	if other != "" {
		return refuse(kafka.ErrInvalidTopicException, "Topic '%s' collides with existing topic: %s", name, other)
	}
	return nil
}

// newConfigs checks the settings of a new topic.
func (c *Controller) newConfigs(image *metadata.Image, t *NewTopic, order configOrder) ([]*metadata.ConfigRecord, *Error) {
	values := map[string]string{}
	var names, null []string
	for _, s := range t.Configs {
		if s.Value == nil {
			null = append(null, s.Name)
			continue
		}
		if _, repeated := values[s.Name]; !repeated {
			names = append(names, s.Name)
		}
		values[s.Name] = *s.Value
	}
	if len(null) > 0 {
		return nil, refuse(kafka.ErrInvalidConfig, "Null value not supported for topic configs: %s", strings.Join(null, ","))
	}
	if _, err := config.ParseTopic(values, c.cfg.Broker()); err != nil {
		return nil, refuse(kafka.ErrInvalidConfig, "%s", err.Error())
	}
	if order == clientOrder {
		slices.Sort(names)
	}
	records := make([]*metadata.ConfigRecord, len(names))
	for i, name := range names {
		value := values[name]
		records[i] = &metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: t.Name, Name: name, Value: &value}
	}
	return records, nil
}

// newPartitions places the partitions of a new topic.
func (c *Controller) newPartitions(image *metadata.Image, t *NewTopic) ([]*metadata.Partition, *Error) {
	if len(t.Assignments) > 0 {
		return c.assignedPartitions(image, t)
	}
	switch {
	case t.ReplicationFactor < -1 || t.ReplicationFactor == 0:
		return nil, refuse(kafka.ErrInvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	case t.Partitions < -1 || t.Partitions == 0:
		return nil, refuse(kafka.ErrInvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	broker := c.cfg.Broker()
	partitions, factor := t.Partitions, t.ReplicationFactor
	if partitions == -1 {
		partitions = broker.NumPartitions
	}
	if factor == -1 {
		factor = broker.DefaultReplicationFactor
	}
	if reason := c.cannotPlace(image, factor); reason != "" {
		return nil, refuse(kafka.ErrInvalidReplicationFactor, "Unable to replicate the partition %d time(s): %s", factor, reason)
	}
	list := make([]*metadata.Partition, partitions)
	for i := range list {
		list[i] = c.partition(image, []kafka.BrokerID{c.id})
	}
	return list, nil
}

// cannotPlace says why the placer has no room for factor replicas
// (StripedReplicaPlacer); "" when it has.
func (c *Controller) cannotPlace(image *metadata.Image, factor int16) string {
	registered, active := 0, 0
	for _, b := range image.Brokers.All() {
		registered++
		if b.Active() {
			active++
		}
	}
	switch {
	case active == 0:
		return "All brokers are currently fenced or in controlled shutdown."
	case int(factor) > registered:
		return "The target replication factor of " + strconv.Itoa(int(factor)) + " cannot be reached because only " +
			strconv.Itoa(registered) + " broker(s) are registered or some brokers have all their log directories cordoned."
	}
	return ""
}

// assignedPartitions checks a manual assignment.
func (c *Controller) assignedPartitions(image *metadata.Image, t *NewTopic) ([]*metadata.Partition, *Error) {
	switch {
	case t.ReplicationFactor != -1:
		return nil, refuse(kafka.ErrInvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	case t.Partitions != -1:
		return nil, refuse(kafka.ErrInvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	byNumber := map[int32]*metadata.Partition{}
	factor := -1
	for _, a := range t.Assignments {
		if byNumber[a.Partition] != nil {
			return nil, refuse(kafka.ErrInvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		if err := checkAssignment(image, a.Replicas, factor); err != nil {
			return nil, err
		}
		if !anyActive(image, a.Replicas) {
			return nil, refuse(kafka.ErrInvalidReplicaAssignment,
				"All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", a.Partition)
		}
		factor = len(a.Replicas)
		byNumber[a.Partition] = c.partition(image, a.Replicas)
	}
	list := make([]*metadata.Partition, len(byNumber))
	for i := range list {
		if list[i] = byNumber[int32(i)]; list[i] == nil {
			return nil, refuse(kafka.ErrInvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
	}
	return list, nil
}

// checkAssignment is validateManualPartitionAssignment; factor below 0 is free.
func checkAssignment(image *metadata.Image, replicas []kafka.BrokerID, factor int) *Error {
	if len(replicas) == 0 {
		return refuse(kafka.ErrInvalidReplicaAssignment, "The manual partition assignment includes an empty replica list.")
	}
	sorted := slices.Sorted(slices.Values(replicas))
	for i, id := range sorted {
		if image.Broker(id) == nil {
			return refuse(kafka.ErrInvalidReplicaAssignment, "The manual partition assignment includes broker %d, but no such broker is registered.", id)
		}
		if i > 0 && id == sorted[i-1] {
			return refuse(kafka.ErrInvalidReplicaAssignment, "The manual partition assignment includes the broker %d more than once.", id)
		}
	}
	if factor >= 0 && len(replicas) != factor {
		return refuse(kafka.ErrInvalidReplicaAssignment,
			"The manual partition assignment includes a partition with %d replica(s), but this is not consistent with previous partitions, which have %d replica(s).", len(replicas), factor)
	}
	return nil
}

func anyActive(image *metadata.Image, ids []kafka.BrokerID) bool {
	return slices.ContainsFunc(ids, func(id kafka.BrokerID) bool {
		b := image.Broker(id)
		return b != nil && b.Active()
	})
}

// partition is the first state of a partition on this node. With several
// directories the broker chooses one later and PlaceReplicas records it.
func (c *Controller) partition(image *metadata.Image, replicas []kafka.BrokerID) *metadata.Partition {
	p := &metadata.Partition{
		Replicas:         replicas,
		ISR:              replicas,
		RemovingReplicas: []kafka.BrokerID{},
		AddingReplicas:   []kafka.BrokerID{},
		Leader:           replicas[0],
	}
	directory := kafka.DirUnassigned
	if b := image.Broker(c.id); b != nil && len(b.LogDirs) == 1 {
		directory = b.LogDirs[0]
	}
	for range replicas {
		p.Directories = append(p.Directories, directory)
	}
	return p
}
