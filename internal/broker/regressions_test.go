package broker_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/node"
	"github.com/varvelog/varve/internal/record"
)

// The tests of this file are public bugs of Kafka and its relatives, one each,
// by the name under which the story can be looked up; docs/regressions.md has
// the whole list.

// heapInUse is the heap after a collection, in bytes.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

func wantSmallGrowth(t *testing.T, before int64) {
	t.Helper()
	if grown := heapInUse() - before; grown > 24<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

func apiVersions() *kmsg.ApiVersionsRequest {
	q := kmsg.NewPtrApiVersionsRequest()
	q.ClientSoftwareName, q.ClientSoftwareVersion = "test", "1"
	return q
}

func wantServed(t *testing.T, n *node.Node) {
	t.Helper()
	if a := do[*kmsg.ApiVersionsResponse](dial(t, n), apiVersions()); a.ErrorCode != 0 {
		t.Errorf("ApiVersions: error %d", a.ErrorCode)
	}
}

func TestKAFKA7639TenThousandRequestsInOneGo(t *testing.T) {
	n := start(t, t.TempDir())
	c := dial(t, n)
	before := heapInUse()
	const requests = 10_000
	go func() {
		var all []byte
		for i := range int32(requests) {
			all = append(all, frame(apiVersions(), i, "test")...)
		}
		c.Write(all)
	}()
	for i := range int32(requests) {
		b := c.read()
		if id := int32(binary.BigEndian.Uint32(b)); id != i {
			t.Fatalf("answer to %d, want the one to %d", id, i)
		}
		if i == requests/2 {
			wantSmallGrowth(t, before)
		}
	}
}

func TestKAFKA5062ArbitraryBytesOnThePort(t *testing.T) {
	n := start(t, t.TempDir())
	before := heapInUse()
	rng := rand.New(rand.NewPCG(5062, 1))
	for range 100 {
		c := dial(t, n)
		b := make([]byte, 1+rng.IntN(5000))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		c.Write(b)
		c.Conn.(*net.TCPConn).CloseWrite()
		io.Copy(io.Discard, c)
		c.Close()
	}
	wantServed(t, n)
	wantSmallGrowth(t, before)
}

func TestRedpanda8513ASmallFrameThatAsksForALargeArray(t *testing.T) {
	n := start(t, t.TempDir())
	before := heapInUse()
	for _, count := range []uint32{math.MaxInt32, 1 << 30, 1 << 20, math.MaxUint32 - 1} {
		for _, api := range []kmsg.Key{kmsg.Metadata, kmsg.Produce, kmsg.Fetch, kmsg.ListOffsets, kmsg.CreateTopics, kmsg.JoinGroup, kmsg.OffsetFetch} {
			q := api.Request()
			b := make([]byte, 4)
			b = binary.BigEndian.AppendUint16(b, uint16(api))
			b = binary.BigEndian.AppendUint16(b, uint16(q.MaxVersion()))
			b = binary.BigEndian.AppendUint32(b, 1)
			b = append(b, 0, 0)
			for range 5 {
				b = binary.BigEndian.AppendUint32(b, count)
			}
			binary.BigEndian.PutUint32(b, uint32(len(b)-4))
			c := dial(t, n)
			c.write(b)
			c.Conn.(*net.TCPConn).CloseWrite()
			c.wantClosed()
			c.Close()
		}
	}
	wantServed(t, n)
	wantSmallGrowth(t, before)
}

func TestYDB50358CountsInsideRecordsAreRefusedBeforeMemoryIsTaken(t *testing.T) {
	n := start(t, t.TempDir())
	c := dial(t, n)
	createTopic(c, "plain", 1)
	createTopic(c, "packed", 1, "compression.type=zstd")
	before := heapInUse()
	build := func(body []byte, count uint32) []byte {
		var w record.Builder
		w.Reset(record.NewBuildOptions())
		w.Append(0, nil, []byte("v"), nil)
		b, err := w.Finish()
		if err != nil {
			t.Fatal(err)
		}
		b = append(append([]byte(nil), b[:record.HeaderSize]...), body...)
		binary.BigEndian.PutUint32(b[8:], uint32(len(b)-record.LogOverhead))
		binary.BigEndian.PutUint32(b[57:], count)
		binary.BigEndian.PutUint32(b[17:], record.Batch.ComputeCRC(b))
		return b
	}
	varint := func(v int64) []byte { return binary.AppendVarint(nil, v) }
	rec := func(parts ...[]byte) []byte {
		body := []byte{0, 0, 0} // attributes, timestamp and offset deltas
		for _, p := range parts {
			body = append(body, p...)
		}
		return append(varint(int64(len(body))), body...)
	}
	null, huge := varint(-1), varint(math.MaxInt32)
	for name, b := range map[string][]byte{
		"a key longer than the record":           build(rec(huge, null, varint(0)), 1),
		"a value longer than the record":         build(rec(null, huge, varint(0)), 1),
		"more headers than bytes":                build(rec(null, null, huge), 1),
		"a negative count of headers":            build(rec(null, null, varint(-5)), 1),
		"a header key longer than the record":    build(rec(null, null, varint(1), huge), 1),
		"a record longer than the batch":         build(append(huge, 0, 0, 0), 1),
		"a record of negative length":            build(varint(-40), 1),
		"more records than the batch holds":      build(rec(null, null, varint(0)), math.MaxInt32),
		"a count of records that is negative":    build(rec(null, null, varint(0)), math.MaxUint32),
		"a varint without an end":                build(rec([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), 1),
		"bytes left over behind the last record": build(append(rec(null, null, varint(0)), 1, 2, 3), 1),
	} {
		for _, topic := range []string{"plain", "packed"} {
			q := produceRequest(7, to(topic, 0, b))
			a := do[*kmsg.ProduceResponse](c, q)
			switch code := kafka.ErrorCode(a.Topics[0].Partitions[0].ErrorCode); code {
			case kafka.ErrCorruptMessage, kafka.ErrInvalidRecord:
			default:
				t.Errorf("%s, topic %s: %v, want CORRUPT_MESSAGE or INVALID_RECORD", name, topic, code)
			}
		}
	}
	wantSmallGrowth(t, before)
	for _, topic := range []string{"plain", "packed"} {
		q := kmsg.NewPtrListOffsetsRequest()
		q.Version, q.ReplicaID = 4, -1
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp, p.CurrentLeaderEpoch = -1, -1
		q.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		if end := do[*kmsg.ListOffsetsResponse](c, q).Topics[0].Partitions[0].Offset; end != 0 {
			t.Errorf("topic %s ends at %d: something was stored", topic, end)
		}
	}
}

func TestCVE20181288AFetchWithAReplicaIDChangesNothing(t *testing.T) {
	n := start(t, t.TempDir())
	c := dial(t, n)
	createTopic(c, "t", 1)
	for _, replica := range []int32{0, 7, math.MaxInt32} {
		q := kmsg.NewPtrFetchRequest()
		q.Version, q.ReplicaID, q.MaxBytes, q.SessionEpoch = 11, replica, 1<<20, -1
		p := kmsg.NewFetchRequestTopicPartition()
		p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = 1<<40, 1<<20, -1
		q.Topics = []kmsg.FetchRequestTopic{{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{p}}}
		a := do[*kmsg.FetchResponse](c, q)
		if len(a.Topics) > 0 && a.Topics[0].Partitions[0].ErrorCode == 0 {
			t.Errorf("replica %d: no error for an offset far above the end", replica)
		}
	}
	q := kmsg.NewPtrMetadataRequest()
	q.Version = 9
	q.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("t")}}
	if p := do[*kmsg.MetadataResponse](c, q).Topics[0].Partitions[0]; len(p.ISR) != 1 || len(p.Replicas) != 1 || p.ErrorCode != 0 {
		t.Errorf("partition %+v, want one replica in sync", p)
	}
}

func TestCVE202325194NoCodeOrFileByDynamicConfiguration(t *testing.T) {
	n := startNode(t, t.TempDir())
	defer stopNode(t, n)
	adm, ctx := admin(t, n)
	for key, val := range map[string]string{
		"metric.reporters":                                     "com.example.Reporter",
		"principal.builder.class":                              "com.example.Builder",
		"authorizer.class.name":                                "com.example.Authorizer",
		"ssl.engine.factory.class":                             "com.example.Factory",
		"sasl.login.class":                                     "com.example.Login",
		"listener.name.plaintext.ssl.keystore.location":        "/etc/passwd",
		"listener.name.plaintext.plain.sasl.jaas.config":       `com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://x";`,
		"listener.name.plaintext.oauthbearer.sasl.jaas.config": `org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required url="file:///etc/passwd";`,
	} {
		r, err := adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: key, Value: &val}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if r[0].Err == nil {
			t.Errorf("%s=%s was accepted", key, val)
		}
	}
}

// openFiles counts this process's descriptors and maps of files below dir.
func openFiles(t *testing.T, dir string) (files, maps int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if name, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && len(name) > len(dir) && name[:len(dir)] == dir {
			files++
		}
	}
	raw, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+len(dir) <= len(raw); i++ {
		if string(raw[i:i+len(dir)]) == dir {
			maps++
		}
	}
	return files, maps
}

func TestKafkaRest260CreatedAndDeletedTopicsLeaveNothingOpen(t *testing.T) {
	dir := t.TempDir()
	n := start(t, dir, "log.segment.delete.delay.ms=0")
	c := dial(t, n)
	createTopic(c, "stays", 1)
	round := func(name string) {
		q := kmsg.NewPtrDeleteTopicsRequest()
		q.Version, q.TimeoutMillis = 5, 10_000
		for i := range 40 {
			topic := fmt.Sprintf("%s-%d", name, i)
			createTopic(c, topic, 4)
			var w record.Builder
			w.Reset(record.NewBuildOptions())
			w.Append(0, nil, []byte("v"), nil)
			b, err := w.Finish()
			if err != nil {
				t.Fatal(err)
			}
			do[*kmsg.ProduceResponse](c, produceRequest(7, to(topic, int32(i%4), b)))
			q.TopicNames = append(q.TopicNames, topic)
		}
		for _, a := range do[*kmsg.DeleteTopicsResponse](c, q).Topics {
			if a.ErrorCode != 0 {
				t.Errorf("delete %s: error %d", *a.Topic, a.ErrorCode)
			}
		}
	}
	files, maps := openFiles(t, dir)
	round("first")
	// Unlinking is behind the answer, by timers of no delay.
	var nowFiles, nowMaps int
	for range 2000 {
		// The metadata log has its indexes mapped from its first records on.
		if nowFiles, nowMaps = openFiles(t, dir); nowFiles <= files && nowMaps <= maps+2 {
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d files and %d maps are open, %d and %d were before", nowFiles, nowMaps, files, maps)
}
