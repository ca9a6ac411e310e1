package group

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// KeyType is the first two bytes of a record's key in __consumer_offsets.
type KeyType int16

// The record types of Kafka 4.4. 9 and 18 were never released; types from 3 on
// belong to the KIP-848, share and streams protocols.
const (
	OffsetCommitLegacyKey KeyType = 0 // read as OffsetCommitKey
	OffsetCommitKey       KeyType = 1
	GroupMetadataKey      KeyType = 2

	ConsumerGroupMetadataKey          KeyType = 3
	ConsumerGroupPartitionMetadataKey KeyType = 4
	ConsumerGroupMemberKey            KeyType = 5
	ConsumerGroupTargetKey            KeyType = 6
	ConsumerGroupTargetMemberKey      KeyType = 7
	ConsumerGroupCurrentMemberKey     KeyType = 8
	ShareGroupMemberKey               KeyType = 10
	ShareGroupMetadataKey             KeyType = 11
	ShareGroupTargetKey               KeyType = 12
	ShareGroupTargetMemberKey         KeyType = 13
	ShareGroupCurrentMemberKey        KeyType = 14
	ShareGroupStatePartitionKey       KeyType = 15
	ConsumerGroupRegexKey             KeyType = 16
	StreamsGroupMetadataKey           KeyType = 17
	StreamsGroupMemberKey             KeyType = 19
	StreamsGroupTargetKey             KeyType = 20
	StreamsGroupTargetMemberKey       KeyType = 21
	StreamsGroupCurrentMemberKey      KeyType = 22
	StreamsGroupTopologyKey           KeyType = 23
)

// ErrCorrupt is wrapped by the error of a key or value that is not what its
// type and version say.
var ErrCorrupt = errors.New("corrupt group record")

// ErrUnknownRecord is wrapped by the error of a record whose type or version
// this code does not know. Such a record is to be kept and passed over.
var ErrUnknownRecord = errors.New("unknown group record")

// Key is a decoded key. Topic and Partition belong to offset commits; Member is
// the member id of the types that have one, and the regular expression of
// ConsumerGroupRegexKey.
type Key struct {
	Type      KeyType
	Group     string
	Topic     string
	Partition int32
	Member    string
}

// hasMember reports whether keys of the type carry a second string.
func (t KeyType) hasMember() bool {
	switch t {
	case ConsumerGroupMemberKey, ConsumerGroupTargetMemberKey, ConsumerGroupCurrentMemberKey,
		ShareGroupMemberKey, ShareGroupTargetMemberKey, ShareGroupCurrentMemberKey, ConsumerGroupRegexKey,
		StreamsGroupMemberKey, StreamsGroupTargetMemberKey, StreamsGroupCurrentMemberKey:
		return true
	}
	return false
}

func (t KeyType) known() bool {
	return t >= OffsetCommitLegacyKey && t <= StreamsGroupTopologyKey && t != 9 && t != 18
}

// DecodeKey reads the key of a record of __consumer_offsets.
func DecodeKey(b []byte) (Key, error) {
	r := reader{b: b}
	k := Key{Type: KeyType(r.int16())}
	if !r.bad && !k.Type.known() {
		return k, fmt.Errorf("key type %d: %w", k.Type, ErrUnknownRecord)
	}
	k.Group = r.string()
	switch {
	case k.Type <= OffsetCommitKey:
		k.Topic, k.Partition = r.string(), r.int32()
	case k.Type.hasMember():
		k.Member = r.string()
	}
	if r.bad || len(r.b) > 0 {
		return k, fmt.Errorf("key of %d bytes, type %d: %w", len(b), k.Type, ErrCorrupt)
	}
	return k, nil
}

// AppendTo appends the encoded key.
func (k Key) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(k.Type))
	dst = appendString(dst, k.Group)
	switch {
	case k.Type <= OffsetCommitKey:
		dst = appendString(dst, k.Topic)
		dst = binary.BigEndian.AppendUint32(dst, uint32(k.Partition))
	case k.Type.hasMember():
		dst = appendString(dst, k.Member)
	}
	return dst
}

func (k Key) encode() []byte { return k.AppendTo(nil) }

func (k Key) tombstone() Record { return Record{Key: k.encode()} }

func offsetKey(group, topic string, partition int32) Key {
	return Key{Type: OffsetCommitKey, Group: group, Topic: topic, Partition: partition}
}

func groupKey(group string) Key { return Key{Type: GroupMetadataKey, Group: group} }

// DecodeOffset reads the value of an offset commit.
func DecodeOffset(b []byte) (kmsg.OffsetCommitValue, error) {
	v := kmsg.NewOffsetCommitValue()
	if err := checkVersion(b, 4); err != nil {
		return v, err
	}
	if err := v.ReadFrom(b); err != nil {
		return v, fmt.Errorf("offset commit value of %d bytes: %w", len(b), ErrCorrupt)
	}
	return v, nil
}

// DecodeGroup reads the value of a group metadata record.
func DecodeGroup(b []byte) (kmsg.GroupMetadataValue, error) {
	v := kmsg.NewGroupMetadataValue()
	if err := checkVersion(b, 4); err != nil {
		return v, err
	}
	if err := v.ReadFrom(b); err != nil {
		return v, fmt.Errorf("group metadata value of %d bytes: %w", len(b), ErrCorrupt)
	}
	return v, nil
}

func checkVersion(b []byte, highest int16) error {
	if len(b) < 2 {
		return fmt.Errorf("value of %d bytes: %w", len(b), ErrCorrupt)
	}
	if v := int16(binary.BigEndian.Uint16(b)); v < 0 || v > highest {
		return fmt.Errorf("value version %d: %w", v, ErrUnknownRecord)
	}
	return nil
}

// offsetRecord encodes a commit as Kafka 4.4 does: version 1 when the commit
// brings its own expiry, otherwise version 4 with the topic's id.
func offsetRecord(group, topic string, partition int32, o Offset) Record {
	v := kmsg.NewOffsetCommitValue()
	v.Version = 4
	v.Offset, v.LeaderEpoch, v.Metadata = int64(o.Offset), int32(o.LeaderEpoch), o.Metadata
	v.CommitTimestamp, v.ExpireTimestamp = int64(o.Committed), int64(o.Expires)
	v.TopicID = o.TopicID
	if o.Expires != kafka.NoTimestamp {
		v.Version = 1
	}
	return Record{offsetKey(group, topic, partition).encode(), v.AppendTo(nil)}
}

// groupRecord encodes a classic group as version 3, with the given assignments
// in place of those that its members have.
func groupRecord(g *classicGroup, assignment map[string][]byte) Record {
	v := kmsg.NewGroupMetadataValue()
	v.Version = 3
	v.ProtocolType, v.Generation = g.protocolType, g.generation
	v.Protocol, v.Leader = g.protocol, g.leader
	v.CurrentStateTimestamp = int64(g.stateSince)
	for _, mb := range g.members {
		e := kmsg.NewGroupMetadataValueMember()
		e.MemberID, e.InstanceID = mb.id, mb.instance
		e.ClientID, e.ClientHost = mb.clientID, mb.clientHost
		e.RebalanceTimeoutMillis, e.SessionTimeoutMillis = mb.rebalanceTimeout, mb.sessionTimeout
		e.Subscription, e.Assignment = mb.metadata(deref(g.protocol)), assignment[mb.id]
		v.Members = append(v.Members, e)
	}
	return Record{groupKey(g.id).encode(), v.AppendTo(nil)}
}

// emptyGroupRecord is what Kafka 4.4 writes for a group at its first join.
func emptyGroupRecord(g *classicGroup) Record {
	v := kmsg.NewGroupMetadataValue()
	v.Version, v.CurrentStateTimestamp = 3, int64(g.stateSince)
	return Record{groupKey(g.id).encode(), v.AppendTo(nil)}
}

// coordinatorError maps the error of an append to what group members are told.
func coordinatorError(code kafka.ErrorCode) kafka.ErrorCode {
	switch code {
	case kafka.ErrUnknownTopicOrPartition, kafka.ErrNotEnoughReplicas, kafka.ErrNotEnoughReplicasAfterAppend,
		kafka.ErrRequestTimedOut:
		return kafka.ErrCoordinatorNotAvailable
	case kafka.ErrNotLeaderOrFollower, kafka.ErrKafkaStorageError:
		return kafka.ErrNotCoordinator
	case kafka.ErrMessageTooLarge, kafka.ErrRecordListTooLarge, kafka.ErrInvalidFetchSize:
		return kafka.ErrUnknownServerError
	}
	return code
}
