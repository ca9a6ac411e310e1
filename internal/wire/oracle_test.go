package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// The oracle is kmsg, whose codec shares no code with this package: what it
// encodes is decoded here and encoded again by it, and must be the same bytes.

// gen makes random messages. Fields that a version does not have stay at their
// defaults.
type gen struct{ *rand.Rand }

func (g gen) name() string {
	b := make([]byte, 1+g.IntN(12))
	for i := range b {
		b[i] = byte('a' + g.IntN(26))
	}
	return string(b)
}

func (g gen) nullable() *string {
	if g.IntN(3) == 0 {
		return nil
	}
	s := ""
	if g.IntN(4) > 0 {
		s = g.name()
	}
	return &s
}

func (g gen) bytes() []byte {
	b := make([]byte, g.IntN(200))
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func (g gen) id() (u [16]byte) {
	for i := range u {
		u[i] = byte(g.Uint32())
	}
	return u
}

func (g gen) produceRequest(version int16) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version = version
	r.TransactionID, r.Acks, r.TimeoutMillis = g.nullable(), int16(g.IntN(3)-1), int32(g.Uint32())
	for range g.IntN(4) {
		t := kmsg.NewProduceRequestTopic()
		if version >= 13 {
			t.TopicID = g.id()
		} else {
			t.Topic = g.name()
		}
		for range g.IntN(4) {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition = int32(g.Uint32())
			if g.IntN(5) > 0 {
				p.Records = g.bytes()
			}
			t.Partitions = append(t.Partitions, p)
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}

// toKmsg is the decoded request in the oracle's form.
func (p *ProduceRequest) toKmsg(version int16) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Version, r.TransactionID, r.Acks, r.TimeoutMillis = version, ptr(p.TransactionalID), p.Acks, p.TimeoutMs
	for _, t := range p.Topics {
		kt := kmsg.NewProduceRequestTopic()
		kt.Topic, kt.TopicID = string(t.Name), t.ID
		for _, part := range t.Partitions {
			kp := kmsg.NewProduceRequestTopicPartition()
			kp.Partition, kp.Records = part.Index, part.Records
			kt.Partitions = append(kt.Partitions, kp)
		}
		r.Topics = append(r.Topics, kt)
	}
	return r
}

func ptr(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

func (g gen) fetchRequest(version int16) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version = version
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.IsolationLevel = int32(g.Uint32()), int32(g.Uint32()), int32(g.Uint32()), int8(g.IntN(2))
	if version <= 14 {
		r.ReplicaID = int32(g.IntN(5) - 2)
	} else if g.IntN(2) == 0 {
		r.ReplicaState.ID, r.ReplicaState.Epoch = int32(g.IntN(9)), int64(g.IntN(100))
	}
	if version >= 7 {
		r.SessionID, r.SessionEpoch = int32(g.Uint32()), int32(g.Uint32())
	}
	if version >= 11 {
		r.Rack = g.name()
	}
	if version >= 12 {
		r.ClusterID = g.nullable()
	}
	for range g.IntN(4) {
		t := kmsg.NewFetchRequestTopic()
		if version >= 13 {
			t.TopicID = g.id()
		} else {
			t.Topic = g.name()
		}
		for range g.IntN(4) {
			t.Partitions = append(t.Partitions, g.fetchPartition(version))
		}
		r.Topics = append(r.Topics, t)
	}
	for range g.IntN(3) {
		if version < 7 {
			break
		}
		t := kmsg.NewFetchRequestForgottenTopic()
		if version >= 13 {
			t.TopicID = g.id()
		} else {
			t.Topic = g.name()
		}
		for range g.IntN(4) {
			t.Partitions = append(t.Partitions, int32(g.IntN(100)))
		}
		r.ForgottenTopics = append(r.ForgottenTopics, t)
	}
	return r
}

func (g gen) fetchPartition(version int16) kmsg.FetchRequestTopicPartition {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = int32(g.Uint32()), int64(g.Uint64()), int32(g.Uint32())
	if version >= 5 {
		p.LogStartOffset = int64(g.Uint64())
	}
	if version >= 9 {
		p.CurrentLeaderEpoch = int32(g.Uint32())
	}
	if version >= 12 {
		p.LastFetchedEpoch = int32(g.Uint32())
	}
	if version >= 17 && g.IntN(2) == 0 {
		p.ReplicaDirectoryID = g.id()
	}
	if version >= 18 && g.IntN(2) == 0 {
		p.HighWatermark = int64(g.Uint32())
	}
	return p
}

func (f *FetchRequest) toKmsg(version int16) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.Version, r.ClusterID = version, ptr(f.ClusterID)
	if version <= 14 {
		r.ReplicaID = int32(f.ReplicaID)
	} else {
		r.ReplicaState.ID, r.ReplicaState.Epoch = int32(f.ReplicaID), f.ReplicaEpoch
	}
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.IsolationLevel = f.MaxWaitMs, f.MinBytes, f.MaxBytes, f.IsolationLevel
	r.SessionID, r.SessionEpoch, r.Rack = f.SessionID, f.SessionEpoch, string(f.RackID)
	for _, t := range f.Topics {
		kt := kmsg.NewFetchRequestTopic()
		kt.Topic, kt.TopicID = string(t.Name), t.ID
		for _, p := range t.Partitions {
			kp := kmsg.NewFetchRequestTopicPartition()
			kp.Partition, kp.CurrentLeaderEpoch, kp.FetchOffset = p.Index, int32(p.CurrentLeaderEpoch), int64(p.FetchOffset)
			kp.LastFetchedEpoch, kp.LogStartOffset, kp.PartitionMaxBytes = int32(p.LastFetchedEpoch), int64(p.LogStartOffset), p.MaxBytes
			kp.ReplicaDirectoryID, kp.HighWatermark = p.ReplicaDirectory, int64(p.HighWatermark)
			kt.Partitions = append(kt.Partitions, kp)
		}
		r.Topics = append(r.Topics, kt)
	}
	for _, t := range f.Forgotten {
		kt := kmsg.NewFetchRequestForgottenTopic()
		kt.Topic, kt.TopicID, kt.Partitions = string(t.Name), t.ID, t.Partitions
		r.ForgottenTopics = append(r.ForgottenTopics, kt)
	}
	return r
}

func TestRequestsOfEveryVersionDecodeAsTheOracleEncodesThem(t *testing.T) {
	g := gen{rand.New(rand.NewPCG(1, 2))}
	var produce ProduceRequest
	for version := int16(ProduceMinVersion); version <= ProduceMaxVersion; version++ {
		for range 200 {
			want := g.produceRequest(version).AppendTo(nil)
			if err := produce.Decode(want, version); err != nil {
				t.Fatalf("produce v%d: %v", version, err)
			}
			if got := produce.toKmsg(version).AppendTo(nil); !bytes.Equal(got, want) {
				t.Fatalf("produce v%d\n got %x\nwant %x", version, got, want)
			}
		}
	}
	var fetch FetchRequest
	for version := int16(FetchMinVersion); version <= FetchMaxVersion; version++ {
		for range 200 {
			want := g.fetchRequest(version).AppendTo(nil)
			if err := fetch.Decode(want, version); err != nil {
				t.Fatalf("fetch v%d: %v", version, err)
			}
			if got := fetch.toKmsg(version).AppendTo(nil); !bytes.Equal(got, want) {
				t.Fatalf("fetch v%d\n got %x\nwant %x", version, got, want)
			}
		}
	}
}

func TestEveryCutOfARequestIsMalformed(t *testing.T) {
	g := gen{rand.New(rand.NewPCG(3, 4))}
	var produce ProduceRequest
	for version := int16(ProduceMinVersion); version <= ProduceMaxVersion; version++ {
		b := g.produceRequest(version).AppendTo(nil)
		for n := range b {
			if err := produce.Decode(b[:n], version); err == nil {
				t.Fatalf("produce v%d: first %d of %d bytes decode", version, n, len(b))
			}
		}
	}
	var fetch FetchRequest
	for version := int16(FetchMinVersion); version <= FetchMaxVersion; version++ {
		b := g.fetchRequest(version).AppendTo(nil)
		for n := range b {
			if err := fetch.Decode(b[:n], version); err == nil {
				t.Fatalf("fetch v%d: first %d of %d bytes decode", version, n, len(b))
			}
		}
	}
}

func (g gen) produceResponse(version int16) (*ProduceResponse, *kmsg.ProduceResponse) {
	ours := &ProduceResponse{ThrottleMs: int32(g.IntN(1000))}
	theirs := kmsg.NewPtrProduceResponse()
	theirs.Version, theirs.ThrottleMillis = version, ours.ThrottleMs
	for range g.IntN(4) {
		topic := ProduceTopicResponse{Name: []byte(g.name()), ID: g.id()}
		kt := kmsg.NewProduceResponseTopic()
		kt.Topic, kt.TopicID = string(topic.Name), topic.ID
		for range g.IntN(4) {
			p := ProducePartitionResponse{
				Index: int32(g.Uint32()), ErrorCode: kafka.ErrorCode(g.IntN(100) - 1), BaseOffset: kafka.Offset(g.Uint64()),
				LogAppendTime: kafka.Timestamp(g.Uint64()), LogStart: kafka.Offset(g.Uint64()), ErrorMessage: raw(g.nullable()),
			}
			kp := kmsg.NewProduceResponseTopicPartition()
			kp.Partition, kp.ErrorCode, kp.BaseOffset = p.Index, int16(p.ErrorCode), int64(p.BaseOffset)
			kp.LogAppendTime, kp.LogStartOffset, kp.ErrorMessage = int64(p.LogAppendTime), int64(p.LogStart), ptr(p.ErrorMessage)
			for range g.IntN(3) {
				e := RecordError{BatchIndex: int32(g.IntN(50)), Message: raw(g.nullable())}
				ke := kmsg.NewProduceResponseTopicPartitionErrorRecord()
				ke.RelativeOffset, ke.ErrorMessage = e.BatchIndex, ptr(e.Message)
				p.RecordErrors, kp.ErrorRecords = append(p.RecordErrors, e), append(kp.ErrorRecords, ke)
			}
			if version >= 10 && g.IntN(2) == 0 {
				p.CurrentLeader = LeaderIDAndEpoch{Known: true, ID: kafka.BrokerID(g.IntN(9)), Epoch: kafka.LeaderEpoch(g.IntN(99))}
				kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = int32(p.CurrentLeader.ID), int32(p.CurrentLeader.Epoch)
			}
			topic.Partitions, kt.Partitions = append(topic.Partitions, p), append(kt.Partitions, kp)
		}
		ours.Topics, theirs.Topics = append(ours.Topics, topic), append(theirs.Topics, kt)
	}
	for range g.IntN(3) {
		if version < 10 {
			break
		}
		n := g.endpoint()
		kb := kmsg.NewProduceResponseBroker()
		kb.NodeID, kb.Host, kb.Port, kb.Rack = int32(n.NodeID), string(n.Host), n.Port, ptr(n.Rack)
		ours.NodeEndpoints, theirs.Brokers = append(ours.NodeEndpoints, n), append(theirs.Brokers, kb)
	}
	return ours, theirs
}

func (g gen) endpoint() NodeEndpoint {
	return NodeEndpoint{NodeID: kafka.BrokerID(g.IntN(9)), Host: []byte(strings.Repeat(g.name(), 1+g.IntN(20))), Port: int32(g.IntN(65536)), Rack: raw(g.nullable())}
}

func raw(s *string) []byte {
	if s == nil {
		return nil
	}
	return append([]byte{}, *s...)
}

func (g gen) fetchResponse(version int16) (*FetchResponse, *kmsg.FetchResponse) {
	ours := &FetchResponse{ThrottleMs: int32(g.IntN(1000)), ErrorCode: kafka.ErrorCode(g.IntN(100) - 1), SessionID: int32(g.Uint32())}
	theirs := kmsg.NewPtrFetchResponse()
	theirs.Version, theirs.ThrottleMillis, theirs.ErrorCode, theirs.SessionID = version, ours.ThrottleMs, int16(ours.ErrorCode), ours.SessionID
	for range g.IntN(4) {
		topic := FetchTopicResponse{Name: []byte(g.name()), ID: g.id()}
		kt := kmsg.NewFetchResponseTopic()
		kt.Topic, kt.TopicID = string(topic.Name), topic.ID
		for range g.IntN(4) {
			p, kp := g.fetchPartitionResponse(version)
			topic.Partitions, kt.Partitions = append(topic.Partitions, p), append(kt.Partitions, kp)
		}
		ours.Topics, theirs.Topics = append(ours.Topics, topic), append(theirs.Topics, kt)
	}
	for range g.IntN(3) {
		if version < 16 {
			break
		}
		n := g.endpoint()
		kb := kmsg.NewFetchResponseBroker()
		kb.NodeID, kb.Host, kb.Port, kb.Rack = int32(n.NodeID), string(n.Host), n.Port, ptr(n.Rack)
		ours.NodeEndpoints, theirs.Brokers = append(ours.NodeEndpoints, n), append(theirs.Brokers, kb)
	}
	return ours, theirs
}

// records is a file of the oracle's record bytes, whose region a response sends.
type records struct {
	vfs.File
	b []byte
}

func (g gen) fetchPartitionResponse(version int16) (FetchPartitionResponse, kmsg.FetchResponseTopicPartition) {
	b := g.bytes()
	p := FetchPartitionResponse{
		Index: int32(g.Uint32()), ErrorCode: kafka.ErrorCode(g.IntN(100) - 1), HighWatermark: kafka.Offset(g.Uint64()),
		LastStable: kafka.Offset(g.Uint64()), LogStart: kafka.Offset(g.Uint64()), PreferredReadReplica: kafka.BrokerID(g.IntN(5) - 1),
	}
	if g.IntN(2) == 0 {
		p.Inline = b
	} else {
		p.Region = vfs.Region{File: &records{b: b}, Length: int64(len(b))}
	}
	kp := kmsg.NewFetchResponseTopicPartition()
	kp.Partition, kp.ErrorCode, kp.HighWatermark = p.Index, int16(p.ErrorCode), int64(p.HighWatermark)
	kp.LastStableOffset, kp.LogStartOffset, kp.PreferredReadReplica = int64(p.LastStable), int64(p.LogStart), int32(p.PreferredReadReplica)
	kp.RecordBatches = b
	if g.IntN(2) == 0 {
		p.Aborted, kp.AbortedTransactions = []AbortedTransaction{}, []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
		for range g.IntN(3) {
			a := AbortedTransaction{ProducerID: kafka.ProducerID(g.IntN(99)), FirstOffset: kafka.Offset(g.IntN(99))}
			ka := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			ka.ProducerID, ka.FirstOffset = int64(a.ProducerID), int64(a.FirstOffset)
			p.Aborted, kp.AbortedTransactions = append(p.Aborted, a), append(kp.AbortedTransactions, ka)
		}
	}
	if version >= 12 && g.IntN(2) == 0 {
		p.Diverging = EpochEnd{true, kafka.LeaderEpoch(g.IntN(99)), kafka.Offset(g.IntN(99))}
		kp.DivergingEpoch.Epoch, kp.DivergingEpoch.EndOffset = int32(p.Diverging.Epoch), int64(p.Diverging.End)
	}
	if version >= 12 && g.IntN(2) == 0 {
		p.CurrentLeader = LeaderIDAndEpoch{true, kafka.BrokerID(g.IntN(9)), kafka.LeaderEpoch(g.IntN(99))}
		kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = int32(p.CurrentLeader.ID), int32(p.CurrentLeader.Epoch)
	}
	if version >= 12 && g.IntN(2) == 0 {
		p.Snapshot = EpochEnd{true, kafka.LeaderEpoch(g.IntN(99)), kafka.Offset(g.IntN(99))}
		kp.SnapshotID.Epoch, kp.SnapshotID.EndOffset = int32(p.Snapshot.Epoch), int64(p.Snapshot.End)
	}
	return p, kp
}

// flat is everything in the chunks, regions read from their records.
func flat(c *Chunks) []byte {
	var b []byte
	at := 0
	for _, p := range c.Regions() {
		b = append(b, c.Bytes()[at:p.At]...)
		b = append(b, p.Region.File.(*records).b[:p.Region.Length]...)
		at = p.At
	}
	return append(b, c.Bytes()[at:]...)
}

func TestResponsesOfEveryVersionEncodeAsTheOracleDoes(t *testing.T) {
	g := gen{rand.New(rand.NewPCG(5, 6))}
	check := func(key, version int16, encode func(c *Chunks), theirs kmsg.Response) {
		t.Helper()
		var c Chunks
		c.Begin(-7, FlexibleResponseHeader(key, version), FlexibleRequest(key, version))
		encode(&c)
		c.End()
		want := []byte{0, 0, 0, 0, 0xff, 0xff, 0xff, 0xf9}
		if theirs.IsFlexible() {
			want = append(want, 0)
		}
		want = theirs.AppendTo(want)
		want[0], want[1], want[2], want[3] = byte((len(want)-4)>>24), byte((len(want)-4)>>16), byte((len(want)-4)>>8), byte(len(want)-4)
		if got := flat(&c); !bytes.Equal(got, want) || c.Size() != int64(len(want)) {
			t.Fatalf("key %d v%d\n got %x\nwant %x", key, version, got, want)
		}
	}
	for version := int16(ProduceMinVersion); version <= ProduceMaxVersion; version++ {
		for range 200 {
			ours, theirs := g.produceResponse(version)
			check(ProduceKey, version, func(c *Chunks) { ours.Encode(c, version) }, theirs)
		}
	}
	for version := int16(FetchMinVersion); version <= FetchMaxVersion; version++ {
		for range 200 {
			ours, theirs := g.fetchResponse(version)
			check(FetchKey, version, func(c *Chunks) { ours.Encode(c, version) }, theirs)
		}
	}
}

func TestFlexibleVersionsAreTheOracles(t *testing.T) {
	for key := int16(0); key <= 94; key++ {
		r := kmsg.RequestForKey(key)
		if r == nil || key >= 4 && key <= 7 {
			continue // kmsg does not know it, or 4.4 retired it
		}
		for version := int16(0); version <= r.MaxVersion(); version++ {
			r.SetVersion(version)
			if got := FlexibleRequest(key, version); got != r.IsFlexible() {
				t.Errorf("FlexibleRequest(%s, %d) = %v, want %v", kmsg.NameForKey(key), version, got, r.IsFlexible())
			}
		}
	}
	for _, tt := range []struct {
		key, version int16
		want         bool
	}{{APIVersionsKey, -1, true}, {APIVersionsKey, 32767, true}, {APIVersionsKey, 2, false}, {999, 0, false}, {-1, 0, false}, {4, 3, false}} {
		if got := FlexibleRequest(tt.key, tt.version); got != tt.want {
			t.Errorf("FlexibleRequest(%d, %d) = %v, want %v", tt.key, tt.version, got, tt.want)
		}
	}
}

// pair is one captured request with its answer.
type pair struct {
	Client            string
	API               string
	Key, Version      int16
	Request, Response string
}

// capture reads the frames that clients exchanged with Apache Kafka 4.4.0.
func capture(t testing.TB) []pair {
	t.Helper()
	files, err := filepath.Glob("../../testdata/golden/wire/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("captured frames: %v, %d files", err, len(files))
	}
	var pairs []pair
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var p pair
			if err := json.Unmarshal([]byte(line), &p); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			pairs = append(pairs, p)
		}
	}
	return pairs
}

func frameOf(t testing.TB, s string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	size, ok := FrameSize(b)
	if !ok || int(size) != len(b)-SizePrefix {
		t.Fatalf("frame of %d bytes says %d", len(b), size)
	}
	return b[SizePrefix:]
}

func TestCapturedRequestsDecode(t *testing.T) {
	counts := map[string]int{}
	var produce ProduceRequest
	var fetch FetchRequest
	for _, p := range capture(t) {
		if strings.HasPrefix(p.API, "SaslToken") || p.Request == "" {
			continue
		}
		frame := frameOf(t, p.Request)
		h, body, err := ParseRequestHeader(frame, FlexibleRequest)
		if err != nil {
			t.Fatalf("%s %s v%d: %v", p.Client, p.API, p.Version, err)
		}
		if h.Key != p.Key || h.Version != p.Version {
			t.Fatalf("%s %s v%d: header says key %d v%d", p.Client, p.API, p.Version, h.Key, h.Version)
		}
		var again []byte
		switch h.Key {
		case ProduceKey:
			if err := produce.Decode(body, h.Version); err != nil {
				t.Fatalf("%s %s v%d: %v", p.Client, p.API, p.Version, err)
			}
			again = produce.toKmsg(h.Version).AppendTo(nil)
		case FetchKey:
			if err := fetch.Decode(body, h.Version); err != nil {
				t.Fatalf("%s %s v%d: %v", p.Client, p.API, p.Version, err)
			}
			again = fetch.toKmsg(h.Version).AppendTo(nil)
		default:
			continue
		}
		if !bytes.Equal(again, body) {
			t.Errorf("%s %s v%d\n got %x\nwant %x", p.Client, p.API, p.Version, again, body)
		}
		counts[p.API]++
	}
	if counts["Produce"] < 11 || counts["Fetch"] < 15 {
		t.Errorf("captured %v, want every version of Produce and Fetch", counts)
	}
}

func TestCapturedResponsesEncodeTheSame(t *testing.T) {
	checked := 0
	for _, p := range capture(t) {
		if p.Response == "" || p.Key != ProduceKey && p.Key != FetchKey {
			continue
		}
		frame := frameOf(t, p.Response)
		header := 4
		if FlexibleResponseHeader(p.Key, p.Version) {
			header = 5
		}
		var c Chunks
		c.Begin(0, false, FlexibleRequest(p.Key, p.Version))
		if p.Key == ProduceKey {
			theirs := kmsg.NewPtrProduceResponse()
			theirs.Version = p.Version
			if err := theirs.ReadFrom(frame[header:]); err != nil {
				t.Fatal(err)
			}
			produceFromKmsg(theirs).Encode(&c, p.Version)
		} else {
			theirs := kmsg.NewPtrFetchResponse()
			theirs.Version = p.Version
			if err := theirs.ReadFrom(frame[header:]); err != nil {
				t.Fatal(err)
			}
			fetchFromKmsg(theirs).Encode(&c, p.Version)
		}
		if got := flat(&c)[8:]; !bytes.Equal(got, frame[header:]) {
			t.Errorf("%s %s v%d\n got %x\nwant %x", p.Client, p.API, p.Version, got, frame[header:])
		}
		checked++
	}
	if checked < 26 {
		t.Errorf("checked %d responses, want one of each version at least", checked)
	}
}

func produceFromKmsg(k *kmsg.ProduceResponse) *ProduceResponse {
	r := &ProduceResponse{ThrottleMs: k.ThrottleMillis}
	for _, kt := range k.Topics {
		t := ProduceTopicResponse{Name: []byte(kt.Topic), ID: kt.TopicID}
		for _, kp := range kt.Partitions {
			p := ProducePartitionResponse{
				Index: kp.Partition, ErrorCode: kafka.ErrorCode(kp.ErrorCode), BaseOffset: kafka.Offset(kp.BaseOffset),
				LogAppendTime: kafka.Timestamp(kp.LogAppendTime), LogStart: kafka.Offset(kp.LogStartOffset), ErrorMessage: raw(kp.ErrorMessage),
			}
			for _, e := range kp.ErrorRecords {
				p.RecordErrors = append(p.RecordErrors, RecordError{e.RelativeOffset, raw(e.ErrorMessage)})
			}
			t.Partitions = append(t.Partitions, p)
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}

func fetchFromKmsg(k *kmsg.FetchResponse) *FetchResponse {
	r := &FetchResponse{ThrottleMs: k.ThrottleMillis, ErrorCode: kafka.ErrorCode(k.ErrorCode), SessionID: k.SessionID}
	for _, kt := range k.Topics {
		t := FetchTopicResponse{Name: []byte(kt.Topic), ID: kt.TopicID}
		for _, kp := range kt.Partitions {
			p := FetchPartitionResponse{
				Index: kp.Partition, ErrorCode: kafka.ErrorCode(kp.ErrorCode), HighWatermark: kafka.Offset(kp.HighWatermark),
				LastStable: kafka.Offset(kp.LastStableOffset), LogStart: kafka.Offset(kp.LogStartOffset),
				PreferredReadReplica: kafka.BrokerID(kp.PreferredReadReplica), Inline: kp.RecordBatches,
			}
			if kp.AbortedTransactions != nil {
				p.Aborted = []AbortedTransaction{}
			}
			for _, a := range kp.AbortedTransactions {
				p.Aborted = append(p.Aborted, AbortedTransaction{kafka.ProducerID(a.ProducerID), kafka.Offset(a.FirstOffset)})
			}
			if l := kp.CurrentLeader; l.LeaderID != -1 || l.LeaderEpoch != -1 {
				p.CurrentLeader = LeaderIDAndEpoch{true, kafka.BrokerID(l.LeaderID), kafka.LeaderEpoch(l.LeaderEpoch)}
			}
			if d := kp.DivergingEpoch; d.Epoch != -1 || d.EndOffset != -1 {
				p.Diverging = EpochEnd{true, kafka.LeaderEpoch(d.Epoch), kafka.Offset(d.EndOffset)}
			}
			t.Partitions = append(t.Partitions, p)
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}
