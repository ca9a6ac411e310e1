package broker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/node"
	"github.com/varvelog/varve/internal/record"
)

func produceRequest(version int16, topics ...kmsg.ProduceRequestTopic) *kmsg.ProduceRequest {
	q := kmsg.NewPtrProduceRequest()
	q.Version, q.Acks, q.TimeoutMillis, q.Topics = version, -1, 1000, topics
	return q
}

func to(topic string, partition int32, records []byte) kmsg.ProduceRequestTopic {
	return kmsg.ProduceRequestTopic{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: records}}}
}

// changed is a batch of one record with some bytes replaced; its checksum is made
// to fit unless the change is outside of what it covers.
func changed(t testing.TB, at int, with ...byte) []byte {
	b := bytes.Clone(oneRecord(t))
	copy(b[at:], with)
	if at >= 21 {
		binary.BigEndian.PutUint32(b[17:], record.Batch(b).ComputeCRC())
	}
	return b
}

func TestProducedBatchesAreJudgedAsByKafka(t *testing.T) {
	one := oneRecord(t)
	large := bytes.Clone(one)
	large = append(large, make([]byte, 2000)...)
	binary.BigEndian.PutUint32(large[8:], uint32(len(large)-12))
	binary.BigEndian.PutUint32(large[17:], record.Batch(large).ComputeCRC())
	const none, start = -1, 0 // of the log start offset
	tests := []struct {
		name     string
		version  int16
		records  []byte
		code     kafka.ErrorCode
		logStart int64
		message  string
	}{
		{"null records", 9, nil, kafka.ErrInvalidRecord, none, ""},
		{"no records", 9, []byte{}, kafka.ErrInvalidRecord, none, ""},
		{"five bytes of garbage", 9, []byte("12345"), kafka.ErrInvalidRecord, none, ""},
		{"a batch that is cut", 9, one[:60], kafka.ErrInvalidRecord, none, ""},
		{"a length beyond the buffer", 9, changed(t, 8, 0, 0, 1, 0), kafka.ErrInvalidRecord, none, ""},
		{"two batches", 9, append(bytes.Clone(one), one...), kafka.ErrInvalidRecord, none, ""},
		{"magic 0", 9, changed(t, 16, 0), kafka.ErrInvalidRecord, none, ""},
		{"magic 1", 9, changed(t, 16, 1), kafka.ErrInvalidRecord, none, ""},
		{"magic 3", 9, changed(t, 16, 3), kafka.ErrCorruptMessage, none, "Invalid magic found in record: 3"},
		{"magic -1", 9, changed(t, 16, 0xff), kafka.ErrCorruptMessage, none, "Invalid magic found in record: -1"},
		{"a length below 14", 9, changed(t, 8, 0, 0, 0, 13), kafka.ErrCorruptMessage, none, "Record size 13 is less than the minimum record overhead (14)"},
		{"a length of 48", 9, changed(t, 8, 0, 0, 0, 48), kafka.ErrCorruptMessage, none, ""},
		{"a wrong checksum", 9, changed(t, 17, 1, 2, 3, 4), kafka.ErrCorruptMessage, none, ""},
		{"garbage behind the batch", 9, append(bytes.Clone(one), 1, 2, 3), kafka.None, start, ""},
		{"a partial batch behind the batch", 9, append(bytes.Clone(one), one[:50]...), kafka.None, start, ""},
		{"a base offset other than 0", 9, changed(t, 0, 0, 0, 0, 0, 0, 0, 0, 5), kafka.ErrInvalidRecord, start, ""},
		{"a control batch", 9, changed(t, 22, 0x20), kafka.ErrInvalidRecord, start, ""},
		{"an unknown codec", 9, changed(t, 22, 5), kafka.ErrUnknownServerError, start, ""},
		{"a payload that does not decompress", 9, changed(t, 22, 1), kafka.ErrUnknownServerError, start, ""},
		{"zstd in version 6", 6, changed(t, 22, 4), kafka.ErrUnsupportedCompressionType, none, ""},
		{"a transactional batch without a transactional id", 9, changed(t, 22, 0x10), kafka.ErrTransactionalIDAuthorizationFailed, none, ""},
		{"a batch above max.message.bytes", 9, large, kafka.ErrMessageTooLarge, none, ""},
		{"a sound batch in version 3", 3, one, kafka.None, none, ""},
		{"a sound batch in version 5", 5, one, kafka.None, start, ""},
	}
	c := dial(t, newNode(t))
	createTopic(c, "t", 1, "max.message.bytes=1000")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := do[*kmsg.ProduceResponse](c, produceRequest(tt.version, to("t", 0, tt.records))).Topics[0].Partitions[0]
			if a.ErrorCode != int16(tt.code) {
				t.Fatalf("error %v, want %v", kafka.ErrorCode(a.ErrorCode), tt.code)
			}
			if (a.BaseOffset == -1) != (tt.code != kafka.None) {
				t.Errorf("base offset %d with %v", a.BaseOffset, tt.code)
			}
			if a.LogStartOffset != tt.logStart {
				t.Errorf("log start offset %d, want %d", a.LogStartOffset, tt.logStart)
			}
			message := ""
			if a.ErrorMessage != nil {
				message = *a.ErrorMessage
			}
			if message != tt.message || len(a.ErrorRecords) != 0 {
				t.Errorf("message %q and %d record errors, want %q and none", message, len(a.ErrorRecords), tt.message)
			}
		})
	}
}

func TestProducedPartitionsAreJudgedAsByKafka(t *testing.T) {
	one := oneRecord(t)
	c := dial(t, newNode(t))
	findGroup(c)
	id := createTopic(c, "t", 2)
	code := func(a *kmsg.ProduceResponse) []int16 {
		var list []int16
		for _, topic := range a.Topics {
			for _, p := range topic.Partitions {
				list = append(list, p.ErrorCode)
			}
		}
		return list
	}
	acks2 := produceRequest(9, to("t", 0, one))
	acks2.Acks = 2
	negative := produceRequest(9, to("t", 0, one))
	negative.TimeoutMillis = -7
	unknownID := to("", 0, one)
	unknownID.TopicID = [16]byte{1}
	knownID := to("", 0, one)
	knownID.TopicID = id
	txn := produceRequest(9, to("t", 0, changed(t, 22, 0x10)))
	txn.TransactionID = kmsg.StringPtr("tx")
	txn11 := produceRequest(11, to("t", 0, changed(t, 22, 0x10)))
	txn11.TransactionID = kmsg.StringPtr("tx")
	twice := to("t", 0, one)
	twice.Partitions = append(twice.Partitions, twice.Partitions[0])
	many := to("t", 0, one)
	for range 200 {
		many.Partitions = append(many.Partitions, kmsg.ProduceRequestTopicPartition{Partition: 1, Records: one})
	}
	crowd := []kmsg.ProduceRequestTopic{{Topic: "t"}, to("t", 0, one)}
	crowded := []int16{0, 0}
	for i := range 200 {
		crowd = append(crowd, to(fmt.Sprintf("absent%d", i), 0, one))
		crowded = append(crowded, 3)
	}
	crowd = append(crowd, to("t", 1, one), kmsg.ProduceRequestTopic{Topic: "u"})
	tests := []struct {
		name string
		q    *kmsg.ProduceRequest
		as   string
		want []int16
	}{
		{"an unknown topic", produceRequest(9, to("absent", 0, one)), "test", []int16{3}},
		{"an unknown partition", produceRequest(9, to("t", 2, one)), "test", []int16{3}},
		{"an illegal topic name is unknown too", produceRequest(9, to("../t", 0, one)), "test", []int16{3}},
		{"an unknown topic id", produceRequest(13, unknownID), "test", []int16{100}},
		{"a known topic id", produceRequest(13, knownID), "test", []int16{0}},
		{"acks of 2", acks2, "test", []int16{21}},
		{"a negative timeout", negative, "test", []int16{0}},
		{"an internal topic", produceRequest(9, to("__consumer_offsets", 0, one)), "test", []int16{17}},
		{"an internal topic by the admin client", produceRequest(9, to("__consumer_offsets", 0, one)), "__admin_client", []int16{0}},
		{"a transaction that nobody began", txn, "test", []int16{48}},
		{"a transaction that nobody began, version 11", txn11, "test", []int16{120}},
		{"no topics", produceRequest(9), "test", nil},
		{"a topic without partitions", produceRequest(9, kmsg.ProduceRequestTopic{Topic: "t"}), "test", nil},
		{"a partition twice is appended once", produceRequest(9, twice), "test", []int16{0}},
		{"a partition two hundred times is appended once", produceRequest(9, many), "test", []int16{0, 0}},
		{"a topic twice is answered as one", produceRequest(9, to("t", 0, one), to("t", 1, one)), "test", []int16{0, 0}},
		{"a topic twice among hundreds is answered as one", produceRequest(9, crowd...), "test", crowded},
		{"failures do not touch others", produceRequest(9, to("absent", 0, one), to("t", 1, one)), "test", []int16{3, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c.sendAs(tt.q, tt.as)
			a := c.receive(tt.q).(*kmsg.ProduceResponse)
			if diff := cmp.Diff(tt.want, code(a)); diff != "" {
				t.Errorf("codes (-want +got)\n%s", diff)
			}
			names := map[string]int{}
			for _, topic := range a.Topics {
				names[topic.Topic]++
			}
			for name, n := range names {
				if n > 1 {
					t.Errorf("topic %q is answered %d times, want once", name, n)
				}
			}
		})
	}
	end := func(partition int32) int64 {
		q := kmsg.NewPtrListOffsetsRequest()
		q.Version, q.ReplicaID = 7, -1
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = partition, -1
		q.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		return do[*kmsg.ListOffsetsResponse](c, q).Topics[0].Partitions[0].Offset
	}
	if p0, p1 := end(0), end(1); p0 != 6 || p1 != 4 {
		t.Errorf("ends %d and %d, want 6 and 4: one record for each success", p0, p1)
	}
}

func TestAcksNoneHasNoAnswer(t *testing.T) {
	n := newNode(t)
	c := dial(t, n)
	createTopic(c, "t", 1)
	q := produceRequest(9, to("t", 0, oneRecord(t)))
	q.Acks = 0
	c.send(q)
	q.Acks = 1
	a := do[*kmsg.ProduceResponse](c, q)
	if base := a.Topics[0].Partitions[0].BaseOffset; base != 1 {
		t.Errorf("the next record is at %d, want 1", base)
	}
	for _, bad := range []*kmsg.ProduceRequest{produceRequest(9, to("absent", 0, oneRecord(t))), produceRequest(9, to("t", 0, changed(t, 17, 1)))} {
		c := dial(t, n)
		bad.Acks = 0
		c.send(bad)
		c.wantClosed()
	}
}

func TestOldAndMalformedProduceRequestsCloseTheConnection(t *testing.T) {
	n := newNode(t)
	for version := range int16(3) {
		c := dial(t, n)
		c.send(produceRequest(version, to("t", 0, oneRecord(t))))
		c.wantClosed()
	}
	c := dial(t, n)
	b := frame(produceRequest(9, to("t", 0, oneRecord(t))), 1, "test")
	b = b[:len(b)-20]
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	c.write(b)
	c.wantClosed()
}

func TestRefusedRecordsAreNamed(t *testing.T) {
	c := dial(t, newNode(t))
	createTopic(c, "compacted", 1, "cleanup.policy=compact")
	b := bytes.Clone(oneRecord(t))
	// The record is: length, attributes, timestamp and offset deltas, key length (1), key …
	b[65] = 1 // key length -1; the rest of the record becomes its value
	b = append(b[:66], 6, 'v', 'a', 'l', 0)
	b[61] = byte(2 * (len(b) - 62))
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
	binary.BigEndian.PutUint32(b[17:], record.Batch(b).ComputeCRC())
	a := do[*kmsg.ProduceResponse](c, produceRequest(9, to("compacted", 0, b))).Topics[0].Partitions[0]
	if a.ErrorCode != 87 || len(a.ErrorRecords) != 1 || a.ErrorRecords[0].RelativeOffset != 0 || a.ErrorRecords[0].ErrorMessage == nil || a.ErrorMessage == nil {
		t.Fatalf("answer %+v, want error 87 with record 0 and messages", a)
	}
	if !strings.Contains(*a.ErrorRecords[0].ErrorMessage, "Compacted topic cannot accept message without key") {
		t.Errorf("message %q", *a.ErrorRecords[0].ErrorMessage)
	}
}

// newNode is a node in a new directory.
func newNode(t testing.TB) *node.Node {
	t.Helper()
	return start(t, t.TempDir(), "node.id=1", "offsets.topic.num.partitions=2")
}
