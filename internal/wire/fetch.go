package wire

import (
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// Fetch (key 1), versions 4 to 18: sessions from 7 (KIP-227); current leader
// epoch from 9; rack from 11; flexible, and the last fetched epoch, from 12;
// topic ids from 13 (KIP-516); replica state from 15 (KIP-903); node endpoints
// from 16 (KIP-951); directory id from 17; high watermark from 18.
const (
	FetchKey        = 1
	FetchMinVersion = 4
	FetchMaxVersion = 18

	fetchSessions = 7
	fetchFlexible = 12
	fetchTopicIDs = 13
)

// FetchRequest is a decoded request. Its byte slices alias the frame. Decode
// reuses the slices of an earlier one.
type FetchRequest struct {
	ClusterID      []byte         // nil is null
	ReplicaID      kafka.BrokerID // -1 is a consumer
	ReplicaEpoch   int64
	MaxWaitMs      int32
	MinBytes       int32
	MaxBytes       int32
	IsolationLevel int8
	SessionID      int32
	SessionEpoch   int32
	Topics         []FetchTopic
	Forgotten      []ForgottenTopic
	RackID         []byte
}

// FetchTopic is the part of one topic. Name is set below version 13, ID from
// there on.
type FetchTopic struct {
	Name       []byte
	ID         kafka.TopicID
	Partitions []FetchPartition
}

// FetchPartition says from where and how much to read.
type FetchPartition struct {
	Index              int32
	CurrentLeaderEpoch kafka.LeaderEpoch // NoLeaderEpoch when not sent
	FetchOffset        kafka.Offset
	LastFetchedEpoch   kafka.LeaderEpoch // NoLeaderEpoch when not sent
	LogStartOffset     kafka.Offset      // of a follower
	MaxBytes           int32
	ReplicaDirectory   kafka.UUID
	HighWatermark      kafka.Offset // as the follower knows it; the largest offset when not sent
}

// ForgottenTopic lists partitions to drop from the session.
type ForgottenTopic struct {
	Name       []byte
	ID         kafka.TopicID
	Partitions []int32
}

// UsesTopicIDs reports whether topics of this version are named by id.
func (*FetchRequest) UsesTopicIDs(version int16) bool { return version >= fetchTopicIDs }

// Decode reads the body of a request.
func (f *FetchRequest) Decode(body []byte, version int16) error {
	r := NewReader(body, version >= fetchFlexible)
	f.ClusterID, f.RackID = nil, nil
	f.ReplicaID, f.ReplicaEpoch = kafka.NoBroker, -1
	if version <= 14 {
		f.ReplicaID = kafka.BrokerID(r.Int32())
	}
	f.MaxWaitMs = r.Int32()
	f.MinBytes = r.Int32()
	f.MaxBytes = r.Int32()
	f.IsolationLevel = r.Int8()
	f.SessionID, f.SessionEpoch = 0, -1
	if version >= fetchSessions {
		f.SessionID = r.Int32()
		f.SessionEpoch = r.Int32()
	}
	n := r.Array(4) // name or id, partitions
	f.Topics = f.Topics[:0]
	for i := 0; i < n && r.err == nil; i++ {
		f.Topics = extend(f.Topics)
		f.Topics[i].decode(&r, version)
	}
	f.Forgotten = f.Forgotten[:0]
	if version >= fetchSessions {
		n = r.Array(4)
		for i := 0; i < n && r.err == nil; i++ {
			f.Forgotten = extend(f.Forgotten)
			f.Forgotten[i].decode(&r, version)
		}
	}
	if version >= 11 {
		f.RackID = r.String()
	}
	f.decodeTags(&r, version)
	if r.err != nil {
		return fmt.Errorf("fetch request v%d: %w", version, r.err)
	}
	return nil
}

func (f *FetchRequest) decodeTags(r *Reader, version int16) {
	for n := r.TagCount(); n > 0 && r.err == nil; n-- {
		tag, field := r.Tag()
		switch {
		case tag == 0:
			f.ClusterID = field.NullableString()
		case tag == 1 && version >= 15:
			f.ReplicaID = kafka.BrokerID(field.Int32())
			f.ReplicaEpoch = field.Int64()
			field.SkipTags()
		}
		r.Join(&field)
	}
}

func (t *FetchTopic) decode(r *Reader, version int16) {
	t.Name, t.ID = nil, kafka.ZeroUUID
	if version >= fetchTopicIDs {
		t.ID = r.UUID()
	} else {
		t.Name = r.String()
	}
	n := r.Array(4 + 8 + 4) // index, offset, max bytes
	t.Partitions = t.Partitions[:0]
	for j := 0; j < n && r.err == nil; j++ {
		t.Partitions = extend(t.Partitions)
		t.Partitions[j].decode(r, version)
	}
	r.SkipTags()
}

func (p *FetchPartition) decode(r *Reader, version int16) {
	p.Index = r.Int32()
	p.CurrentLeaderEpoch = kafka.NoLeaderEpoch
	if version >= 9 {
		p.CurrentLeaderEpoch = kafka.LeaderEpoch(r.Int32())
	}
	p.FetchOffset = kafka.Offset(r.Int64())
	p.LastFetchedEpoch = kafka.NoLeaderEpoch
	if version >= 12 {
		p.LastFetchedEpoch = kafka.LeaderEpoch(r.Int32())
	}
	p.LogStartOffset = kafka.NoOffset
	if version >= 5 {
		p.LogStartOffset = kafka.Offset(r.Int64())
	}
	p.MaxBytes = r.Int32()
	p.ReplicaDirectory, p.HighWatermark = kafka.ZeroUUID, math.MaxInt64
	for n := r.TagCount(); n > 0 && r.err == nil; n-- {
		tag, field := r.Tag()
		switch {
		case tag == 0 && version >= 17:
			p.ReplicaDirectory = field.UUID()
		case tag == 1 && version >= 18:
			p.HighWatermark = kafka.Offset(field.Int64())
		}
		r.Join(&field)
	}
}

func (t *ForgottenTopic) decode(r *Reader, version int16) {
	t.Name, t.ID = nil, kafka.ZeroUUID
	if version >= fetchTopicIDs {
		t.ID = r.UUID()
	} else {
		t.Name = r.String()
	}
	n := r.Array(4)
	t.Partitions = t.Partitions[:0]
	for j := 0; j < n && r.err == nil; j++ {
		t.Partitions = append(t.Partitions, r.Int32())
	}
	r.SkipTags()
}

// Forget drops what aliases the frame and keeps the memory for the next Decode.
func (f *FetchRequest) Forget() {
	f.ClusterID, f.RackID = nil, nil
	for i := range f.Topics {
		f.Topics[i].Name = nil
	}
	for i := range f.Forgotten {
		f.Forgotten[i].Name = nil
	}
	f.Topics, f.Forgotten = f.Topics[:0], f.Forgotten[:0]
}

// FetchResponse is an answer, encoded by Encode. Its slices may be reused.
type FetchResponse struct {
	ThrottleMs    int32
	ErrorCode     kafka.ErrorCode // version 7 and up
	SessionID     int32
	Topics        []FetchTopicResponse
	NodeEndpoints []NodeEndpoint // version 16 and up; left out when empty
}

// FetchTopicResponse is the part of one topic, named as in the request.
type FetchTopicResponse struct {
	Name       []byte
	ID         kafka.TopicID
	Partitions []FetchPartitionResponse
}

// FetchPartitionResponse is what was read from one partition. Records are a
// file region, or bytes where there is none. Encode takes the region over.
type FetchPartitionResponse struct {
	Index                int32
	ErrorCode            kafka.ErrorCode
	HighWatermark        kafka.Offset
	LastStable           kafka.Offset
	LogStart             kafka.Offset
	Diverging            EpochEnd
	CurrentLeader        LeaderIDAndEpoch
	Snapshot             EpochEnd
	Aborted              []AbortedTransaction // nil is null
	PreferredReadReplica kafka.BrokerID
	Region               vfs.Region
	Inline               []byte
}

// EpochEnd is an epoch with its end offset. Known is false when the field is
// left out.
type EpochEnd struct {
	Known bool
	Epoch kafka.LeaderEpoch
	End   kafka.Offset
}

// AbortedTransaction tells a read_committed consumer whose records to skip.
type AbortedTransaction struct {
	ProducerID  kafka.ProducerID
	FirstOffset kafka.Offset
}

// Encode writes the body of the answer to a request of this version.
func (f *FetchResponse) Encode(c *Chunks, version int16) {
	c.Int32(f.ThrottleMs)
	if version >= fetchSessions {
		c.Int16(int16(f.ErrorCode))
		c.Int32(f.SessionID)
	}
	c.Array(len(f.Topics))
	for i := range f.Topics {
		t := &f.Topics[i]
		if version >= fetchTopicIDs {
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
	if version < fetchFlexible {
		return
	}
	c.endWithEndpoints(version >= 16, f.NodeEndpoints)
}

func (p *FetchPartitionResponse) encode(c *Chunks, version int16) {
	c.Int32(p.Index)
	c.Int16(int16(p.ErrorCode))
	c.Int64(int64(p.HighWatermark))
	c.Int64(int64(p.LastStable))
	if version >= 5 {
		c.Int64(int64(p.LogStart))
	}
	if p.Aborted == nil {
		c.Array(-1)
	} else {
		c.Array(len(p.Aborted))
	}
	for _, a := range p.Aborted {
		c.Int64(int64(a.ProducerID))
		c.Int64(int64(a.FirstOffset))
		c.NoTags()
	}
	if version >= 11 {
		c.Int32(int32(p.PreferredReadReplica))
	}
	c.Records(p.Region, p.Inline)
	p.Region = vfs.Region{}
	p.encodeTags(c)
}

func (p *FetchPartitionResponse) encodeTags(c *Chunks) {
	if !c.flex {
		return
	}
	n := uint32(0)
	for _, known := range [...]bool{p.Diverging.Known, p.CurrentLeader.Known, p.Snapshot.Known} {
		if known {
			n++
		}
	}
	c.Uvarint(n)
	if p.Diverging.Known {
		c.Uvarint(0)
		c.Uvarint(4 + 8 + 1)
		c.Int32(int32(p.Diverging.Epoch))
		c.Int64(int64(p.Diverging.End))
		c.NoTags()
	}
	if p.CurrentLeader.Known {
		c.currentLeader(1, p.CurrentLeader)
	}
	if p.Snapshot.Known {
		c.Uvarint(2)
		c.Uvarint(8 + 4 + 1)
		c.Int64(int64(p.Snapshot.End))
		c.Int32(int32(p.Snapshot.Epoch))
		c.NoTags()
	}
}
