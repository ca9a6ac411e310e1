package wire

import (
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
)

// Produce (key 0), versions 3 to 13: flexible from 9; record errors and a
// message from 8; the current leader as a tagged field from 10 (KIP-951); topic
// ids instead of names from 13 (KIP-516).
const (
	ProduceKey        = 0
	ProduceMinVersion = 3
	ProduceMaxVersion = 13

	produceFlexible = 9
	produceTopicIDs = 13
)

// ProduceRequest is a decoded request. Its byte slices alias the frame. Decode
// reuses the slices of an earlier one, so a pooled request allocates nothing.
type ProduceRequest struct {
	TransactionalID []byte // nil is null
	Acks            int16
	TimeoutMs       int32
	Topics          []ProduceTopic
}

// ProduceTopic is the part of one topic. Name is set below version 13, ID from
// there on.
type ProduceTopic struct {
	Name       []byte
	ID         kafka.TopicID
	Partitions []ProducePartition
}

// ProducePartition is the part of one partition. Records is nil when null.
type ProducePartition struct {
	Index   int32
	Records []byte
}

// Decode reads the body of a request.
func (p *ProduceRequest) Decode(body []byte, version int16) error {
	r := NewReader(body, version >= produceFlexible)
	p.TransactionalID = r.NullableString()
	p.Acks = r.Int16()
	p.TimeoutMs = r.Int32()
	n := r.Array(4) // name or id, partitions
	p.Topics = p.Topics[:0]
	for i := 0; i < n && r.err == nil; i++ {
		p.Topics = extend(p.Topics)
		p.Topics[i].decode(&r, version)
	}
	r.SkipTags()
	if r.err != nil {
		return fmt.Errorf("produce request v%d: %w", version, r.err)
	}
	return nil
}

func (t *ProduceTopic) decode(r *Reader, version int16) {
	t.Name, t.ID = nil, kafka.ZeroUUID
	if version >= produceTopicIDs {
		t.ID = r.UUID()
	} else {
		t.Name = r.String()
	}
	n := r.Array(5) // index, records
	t.Partitions = t.Partitions[:0]
	for j := 0; j < n && r.err == nil; j++ {
		t.Partitions = extend(t.Partitions)
		part := &t.Partitions[j]
		part.Index = r.Int32()
		part.Records = r.NullableBytes()
		r.SkipTags()
	}
	r.SkipTags()
}

// Forget drops what aliases the frame and keeps the memory for the next Decode.
func (p *ProduceRequest) Forget() {
	p.TransactionalID = nil
	for i := range p.Topics {
		t := &p.Topics[i]
		t.Name = nil
		for j := range t.Partitions {
			t.Partitions[j].Records = nil
		}
	}
	p.Topics = p.Topics[:0]
}

// extend makes s one element longer and keeps what an earlier use left in it,
// so that slices inside the element are reused.
func extend[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	var zero T
	return append(s, zero)
}

// ProduceResponse is an answer, encoded by Encode. Its slices may be reused.
type ProduceResponse struct {
	Topics        []ProduceTopicResponse
	ThrottleMs    int32
	NodeEndpoints []NodeEndpoint // version 10 and up; left out when empty
}

// ProduceTopicResponse is the part of one topic, named as in the request.
type ProduceTopicResponse struct {
	Name       []byte
	ID         kafka.TopicID
	Partitions []ProducePartitionResponse
}

// ProducePartitionResponse is the outcome for one partition.
type ProducePartitionResponse struct {
	Index         int32
	ErrorCode     kafka.ErrorCode
	BaseOffset    kafka.Offset
	LogAppendTime kafka.Timestamp
	LogStart      kafka.Offset
	RecordErrors  []RecordError
	ErrorMessage  []byte // nil is null
	CurrentLeader LeaderIDAndEpoch
}

// RecordError says which record of a batch was refused, and why.
type RecordError struct {
	BatchIndex int32
	Message    []byte // nil is null
}

// LeaderIDAndEpoch is a leader as error answers carry it (KIP-951). Known is
// false when the field is left out.
type LeaderIDAndEpoch struct {
	Known bool
	ID    kafka.BrokerID
	Epoch kafka.LeaderEpoch
}

// NodeEndpoint is where a broker can be reached on the listener that was asked.
type NodeEndpoint struct {
	NodeID kafka.BrokerID
	Host   []byte
	Port   int32
	Rack   []byte // nil is null
}

// Encode writes the body of the answer to a request of this version.
func (p *ProduceResponse) Encode(c *Chunks, version int16) {
	c.Array(len(p.Topics))
	for i := range p.Topics {
		t := &p.Topics[i]
		if version >= produceTopicIDs {
			c.UUID(t.ID)
		} else {
			c.String(t.Name)
		}
		c.Array(len(t.Partitions))
		for j := range t.Partitions {
			t.Partitions[j].encode(c, version)
		}
		c.NoTags()
	}
	c.Int32(p.ThrottleMs)
	if version < produceFlexible {
		return
	}
	c.endWithEndpoints(version >= 10, p.NodeEndpoints)
}

func (p *ProducePartitionResponse) encode(c *Chunks, version int16) {
	c.Int32(p.Index)
	c.Int16(int16(p.ErrorCode))
	c.Int64(int64(p.BaseOffset))
	c.Int64(int64(p.LogAppendTime))
	if version >= 5 {
		c.Int64(int64(p.LogStart))
	}
	if version >= 8 {
		c.Array(len(p.RecordErrors))
		for _, e := range p.RecordErrors {
			c.Int32(e.BatchIndex)
			c.NullableString(e.Message)
			c.NoTags()
		}
		c.NullableString(p.ErrorMessage)
	}
	if version < produceFlexible {
		return
	}
	if version < 10 || !p.CurrentLeader.Known {
		c.NoTags()
		return
	}
	c.Uvarint(1)
	c.currentLeader(0, p.CurrentLeader)
}

// currentLeader writes a leader as the tagged field with this number.
func (c *Chunks) currentLeader(tag uint32, l LeaderIDAndEpoch) {
	c.Uvarint(tag)
	c.Uvarint(4 + 4 + 1)
	c.Int32(int32(l.ID))
	c.Int32(int32(l.Epoch))
	c.NoTags()
}

// endWithEndpoints writes the tagged fields that end a Produce and a Fetch
// response: where the leaders named in it are, from the version on that has them.
func (c *Chunks) endWithEndpoints(known bool, list []NodeEndpoint) {
	if !known || len(list) == 0 {
		c.NoTags()
		return
	}
	c.Uvarint(1)
	c.nodeEndpoints(0, list)
}

// nodeEndpoints writes endpoints as the tagged field with this number.
func (c *Chunks) nodeEndpoints(tag uint32, nodes []NodeEndpoint) {
	size := uvarintLen(uint32(len(nodes) + 1))
	for i := range nodes {
		n := &nodes[i]
		size += 4 + compactLen(len(n.Host)) + 4 + compactLen(len(n.Rack)) + 1
	}
	c.Uvarint(tag)
	c.Uvarint(uint32(size))
	c.Array(len(nodes))
	for i := range nodes {
		n := &nodes[i]
		c.Int32(int32(n.NodeID))
		c.String(n.Host)
		c.Int32(n.Port)
		c.NullableString(n.Rack)
		c.NoTags()
	}
}

// compactLen is the encoded size of a compact string of n bytes. Null is as
// long as the empty string.
func compactLen(n int) int { return uvarintLen(uint32(n+1)) + n }

func uvarintLen(v uint32) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}
