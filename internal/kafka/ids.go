// Package kafka is the vocabulary: the integers, identifiers and error codes
// that every other package speaks in. It depends on nothing and knows no file,
// socket or clock.
package kafka

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// Offset numbers a record within its partition. -1 is "unknown".
type Offset int64

// NoOffset stands where Kafka writes -1 for an offset it does not know.
const NoOffset Offset = -1

// LeaderEpoch counts the leaderships of a partition (KIP-101). -1 is "none".
type LeaderEpoch int32

// NoLeaderEpoch is the epoch of batches that carry none, as clients send them.
const NoLeaderEpoch LeaderEpoch = -1

// ProducerID identifies an idempotent producer (KIP-98). -1 is "none".
type ProducerID int64

// NoProducerID is the producer id of a batch from a producer that is not idempotent.
const NoProducerID ProducerID = -1

// ProducerEpoch fences older instances of a producer id. -1 is "none".
type ProducerEpoch int16

// NoProducerEpoch is the epoch that goes with NoProducerID.
const NoProducerEpoch ProducerEpoch = -1

// Sequence numbers the records of a producer within a partition. It wraps from
// 2^31-1 to 0; -1 is "none".
type Sequence int32

// NoSequence is the base sequence of a batch without one.
const NoSequence Sequence = -1

// Add returns the sequence n records after s, wrapping from 2^31-1 to 0
// (DefaultRecordBatch.incrementSequence). n must not be negative.
func (s Sequence) Add(n int32) Sequence {
	return Sequence((int64(s) + int64(n)) & 0x7fffffff)
}

// Sub returns the sequence n records before s, wrapping below 0 to 2^31-1
// (DefaultRecordBatch.decrementSequence). n must not be negative.
func (s Sequence) Sub(n int32) Sequence {
	return Sequence((int64(s) - int64(n)) & 0x7fffffff)
}

// BrokerID is a node id of the cluster. -1 is "none".
type BrokerID int32

// NoBroker stands where Kafka writes -1 for "no leader".
const NoBroker BrokerID = -1

// UUID is a topic id, directory id or incarnation id: 16 bytes as on the wire.
type UUID [16]byte

// TopicID identifies a topic across deletion and re-creation (KIP-516).
type TopicID = UUID

// The reserved UUIDs of org.apache.kafka.common.Uuid and DirectoryId. Random
// ids are never below 100.
var (
	ZeroUUID        = UUID{}
	MetadataTopicID = UUID{15: 1}
	DirUnassigned   = UUID{15: 1}
	DirLost         = UUID{15: 2}
)

// String renders u as Kafka does: 22 characters of unpadded URL-safe base64.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// IsZero reports whether u is the reserved "none".
func (u UUID) IsZero() bool { return u == ZeroUUID }

// ParseUUID reads the 22-character form that String writes.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 22 {
		return u, fmt.Errorf("uuid %q: %d characters, want 22", s, len(s))
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return u, fmt.Errorf("uuid %q: %w", s, err)
	}
	copy(u[:], b)
	return u, nil
}

// TopicPartition names one partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is Kafka's directory name for the partition: topic-partition.
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.FormatInt(int64(tp.Partition), 10)
}

// ParseTopicPartition splits a directory name at its last dash
// (LocalLog.parseTopicPartitionName, for names without a suffix).
func ParseTopicPartition(name string) (TopicPartition, error) {
	dash := strings.LastIndexByte(name, '-')
	if dash <= 0 || dash == len(name)-1 {
		return TopicPartition{}, fmt.Errorf("%q is not in the form of topic-partition", name)
	}
	n, err := strconv.ParseInt(name[dash+1:], 10, 32)
	if err != nil || n < 0 {
		return TopicPartition{}, fmt.Errorf("%q is not in the form of topic-partition", name)
	}
	return TopicPartition{Topic: name[:dash], Partition: int32(n)}, nil
}

// The topics whose records are the broker's own (org.apache.kafka.common.internals.Topic).
const (
	ConsumerOffsetsTopic  = "__consumer_offsets"
	TransactionStateTopic = "__transaction_state"
	ShareGroupStateTopic  = "__share_group_state"
	ClusterMetadataTopic  = "__cluster_metadata"
)

// IsInternalTopic reports whether clients may not write to the topic by Produce.
func IsInternalTopic(topic string) bool {
	switch topic {
	case ConsumerOffsetsTopic, TransactionStateTopic, ShareGroupStateTopic:
		return true
	}
	return false
}
