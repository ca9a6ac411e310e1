package metadata

import "github.com/varvelog/varve/internal/kafka"

// TopicRecord creates a topic; its partitions follow.
type TopicRecord struct {
	Name    string
	TopicID kafka.TopicID
}

// Type is TypeTopic.
func (*TopicRecord) Type() RecordType { return TypeTopic }

func (r *TopicRecord) walk(c codec, _ int16) {
	c.string("name", &r.Name)
	c.uuid("topicId", &r.TopicID)
}

// RemoveTopicRecord deletes a topic, its partitions and its configs.
type RemoveTopicRecord struct {
	TopicID kafka.TopicID
}

// Type is TypeRemoveTopic.
func (*RemoveTopicRecord) Type() RecordType { return TypeRemoveTopic }

func (r *RemoveTopicRecord) walk(c codec, _ int16) { c.uuid("topicId", &r.TopicID) }

// LeaderRecoveryState says whether a leader was elected uncleanly (KIP-704).
type LeaderRecoveryState = int8

// The states of a leader; RecoveryUnchanged only in a PartitionChangeRecord.
const (
	RecoveryUnchanged LeaderRecoveryState = -1
	Recovered         LeaderRecoveryState = 0
	Recovering        LeaderRecoveryState = 1
)

// PartitionRecord is the whole state of a partition.
type PartitionRecord struct {
	PartitionID            int32
	TopicID                kafka.TopicID
	Replicas               []kafka.BrokerID
	ISR                    []kafka.BrokerID
	RemovingReplicas       []kafka.BrokerID
	AddingReplicas         []kafka.BrokerID
	Leader                 kafka.BrokerID
	LeaderRecoveryState    LeaderRecoveryState
	LeaderEpoch            kafka.LeaderEpoch
	PartitionEpoch         int32
	Directories            []kafka.UUID     // since version 1; one per replica
	EligibleLeaderReplicas []kafka.BrokerID // since version 2; nil: none
	LastKnownELR           []kafka.BrokerID // since version 2; nil: none
}

// Type is TypePartition.
func (*PartitionRecord) Type() RecordType { return TypePartition }

func (r *PartitionRecord) walk(c codec, version int16) {
	c.int32("partitionId", &r.PartitionID)
	c.uuid("topicId", &r.TopicID)
	c.brokers("replicas", &r.Replicas, false)
	c.brokers("isr", &r.ISR, false)
	c.brokers("removingReplicas", &r.RemovingReplicas, false)
	c.brokers("addingReplicas", &r.AddingReplicas, false)
	brokerID(c, "leader", &r.Leader)
	c.tagged(0, r.LeaderRecoveryState != Recovered, func() { c.int8("leaderRecoveryState", &r.LeaderRecoveryState) })
	leaderEpoch(c, "leaderEpoch", &r.LeaderEpoch)
	c.int32("partitionEpoch", &r.PartitionEpoch)
	if version >= 1 {
		c.uuids("directories", &r.Directories, false)
	}
	if version >= 2 {
		c.tagged(1, r.EligibleLeaderReplicas != nil, func() { c.brokers("eligibleLeaderReplicas", &r.EligibleLeaderReplicas, true) })
		c.tagged(2, r.LastKnownELR != nil, func() { c.brokers("lastKnownElr", &r.LastKnownELR, true) })
	}
}

// LeaderUnchanged stands in a PartitionChangeRecord that keeps the leader and
// its epoch.
const LeaderUnchanged kafka.BrokerID = -2

// PartitionChangeRecord changes parts of a partition; nil slices are unchanged.
// Every one raises the partition epoch, and one with a Leader (the same or
// another) also the leader epoch.
type PartitionChangeRecord struct {
	PartitionID            int32
	TopicID                kafka.TopicID
	ISR                    []kafka.BrokerID
	Leader                 kafka.BrokerID // LeaderUnchanged, or kafka.NoBroker
	Replicas               []kafka.BrokerID
	RemovingReplicas       []kafka.BrokerID
	AddingReplicas         []kafka.BrokerID
	LeaderRecoveryState    LeaderRecoveryState // or RecoveryUnchanged
	Directories            []kafka.UUID        // since version 1
	EligibleLeaderReplicas []kafka.BrokerID    // since version 2
	LastKnownELR           []kafka.BrokerID    // since version 2
}

// NewPartitionChange returns a record that changes nothing yet.
func NewPartitionChange() *PartitionChangeRecord {
	return &PartitionChangeRecord{Leader: LeaderUnchanged, LeaderRecoveryState: RecoveryUnchanged}
}

// Type is TypePartitionChange.
func (*PartitionChangeRecord) Type() RecordType { return TypePartitionChange }

func (r *PartitionChangeRecord) walk(c codec, version int16) {
	c.int32("partitionId", &r.PartitionID)
	c.uuid("topicId", &r.TopicID)
	c.tagged(0, r.ISR != nil, func() { c.brokers("isr", &r.ISR, true) })
	c.tagged(1, r.Leader != LeaderUnchanged, func() { brokerID(c, "leader", &r.Leader) })
	c.tagged(2, r.Replicas != nil, func() { c.brokers("replicas", &r.Replicas, true) })
	c.tagged(3, r.RemovingReplicas != nil, func() { c.brokers("removingReplicas", &r.RemovingReplicas, true) })
	c.tagged(4, r.AddingReplicas != nil, func() { c.brokers("addingReplicas", &r.AddingReplicas, true) })
	c.tagged(5, r.LeaderRecoveryState != RecoveryUnchanged, func() { c.int8("leaderRecoveryState", &r.LeaderRecoveryState) })
	if version >= 1 {
		c.tagged(8, r.Directories != nil, func() { c.uuids("directories", &r.Directories, true) })
	}
	if version >= 2 {
		c.tagged(6, r.EligibleLeaderReplicas != nil, func() { c.brokers("eligibleLeaderReplicas", &r.EligibleLeaderReplicas, true) })
		c.tagged(7, r.LastKnownELR != nil, func() { c.brokers("lastKnownElr", &r.LastKnownELR, true) })
	}
}

// ClearElrRecord empties the eligible leader replicas of a topic, or of every
// topic when the name is empty (KIP-966).
type ClearElrRecord struct {
	TopicName string
}

// Type is TypeClearElr.
func (*ClearElrRecord) Type() RecordType { return TypeClearElr }

func (r *ClearElrRecord) walk(c codec, _ int16) { c.string("topicName", &r.TopicName) }

// ResourceType says what a dynamic config belongs to (ConfigResource.Type).
type ResourceType int8

// The resource types that have records. Loggers (8) are not stored.
const (
	ResourceTopic         ResourceType = 2
	ResourceBroker        ResourceType = 4 // name "" is the cluster's default
	ResourceClientMetrics ResourceType = 16
	ResourceGroup         ResourceType = 32
)

// ConfigRecord sets one dynamic config, or removes it when Value is nil.
type ConfigRecord struct {
	ResourceType ResourceType
	ResourceName string
	Name         string
	Value        *string
}

// Type is TypeConfig.
func (*ConfigRecord) Type() RecordType { return TypeConfig }

func (r *ConfigRecord) walk(c codec, _ int16) {
	c.int8("resourceType", (*int8)(&r.ResourceType))
	c.string("resourceName", &r.ResourceName)
	c.string("name", &r.Name)
	c.nullString("value", &r.Value)
}
