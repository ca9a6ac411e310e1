package broker_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/wire"
)

// pair is a request that was sent to Apache Kafka 4.4.0, with its answer.
type pair struct {
	Client, API       string
	Key, Version      int16
	Request, Response string
	Closed            bool
}

func pairs(t testing.TB, client string) []pair {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(golden.Root(t), "wire", client+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var list []pair
	for line := range strings.Lines(string(b)) {
		var p pair
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// capturedTopic is the id of the topic "wire" in the captured frames.
const capturedTopic = "00c0e38ef5e7432a8fb7134c16d0aca9"

// TestRawRequestsAreAnsweredAsByKafka sends one request of each API and version
// to a broker whose topic is in the state of the captured one.
func TestRawRequestsAreAnsweredAsByKafka(t *testing.T) {
	c := dial(t, start(t, t.TempDir(), "node.id=1", "group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=3"))
	ours := createTopic(c, "wire", 2, "retention.ms=1000000")
	for range 31 {
		produceOne(c, "wire", 0)
	}
	for range 7 {
		produceOne(c, "wire", 1)
	}
	findGroup(c) // creates the offsets topic
	deleteRecords(c, "wire", 0, 2)
	deleteRecords(c, "wire", 1, 4)
	theirs, err := hex.DecodeString(capturedTopic)
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for _, p := range pairs(t, "raw") {
		if !replayed[p.API] {
			continue
		}
		sent, err := base64.StdEncoding.DecodeString(p.Request)
		if err != nil {
			t.Fatal(err)
		}
		fresh := dial(t, c.node)
		fresh.write(bytes.ReplaceAll(sent, theirs, ours[:]))
		counts[p.API]++
		if p.Closed {
			fresh.wantClosed()
			continue
		}
		want, err := base64.StdEncoding.DecodeString(p.Response)
		if err != nil {
			t.Fatal(err)
		}
		got := fresh.read()
		fresh.Close()
		if p.API == "ApiVersions" {
			want = onlyServed(t, p.Version, want[4:], got)
		} else {
			want = want[4:]
		}
		compare(t, p, want, got)
	}
	for api := range replayed {
		if counts[api] == 0 {
			t.Errorf("no request of %s was captured", api)
		}
	}
}

// replayed are the APIs whose answers are compared here.
var replayed = map[string]bool{
	"Produce": true, "Fetch": true, "ListOffsets": true, "Metadata": true, "FindCoordinator": true,
	"ApiVersions": true, "DeleteRecords": true, "OffsetForLeaderEpoch": true, "InitProducerId": true,
	"CreateTopics": true, "DeleteTopics": true, "CreatePartitions": true,
	"DescribeConfigs": true, "AlterConfigs": true, "IncrementalAlterConfigs": true,
	"DescribeCluster": true, "DescribeTopicPartitions": true, "DescribeLogDirs": true,
}

// compare compares two answers but for what belongs to their brokers: ids,
// ports, times and sizes.
func compare(t *testing.T, p pair, want, got []byte) {
	t.Helper()
	if diff := cmp.Diff(plain(t, p, want), plain(t, p, got)); diff != "" {
		t.Errorf("%s %s v%d (-want +got)\n%s", p.Client, p.API, p.Version, diff)
	}
}

// plain is an answer without what belongs to its broker.
func plain(t testing.TB, p pair, b []byte) any {
	t.Helper()
	a := kmsg.ResponseForKey(p.Key)
	a.SetVersion(p.Version)
	body := b[4:]
	if wire.FlexibleResponseHeader(p.Key, p.Version) {
		body = body[1:]
	}
	if err := a.ReadFrom(body); err != nil {
		t.Fatalf("%s %s v%d: %v", p.Client, p.API, p.Version, err)
	}
	// What decodes is compared as text; nil and empty stay apart.
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return strip(v, "")
}

var brokersOwn = map[string]bool{
	"TopicID": true, "Port": true, "ClusterID": true, "LastTimestamp": true, "Dir": true, "Size": true,
	"TotalBytes": true, "UsableBytes": true, "ProducerID": true, "FinalizedFeaturesEpoch": true,
	"LeaderEpoch": true, "UnknownTags": true, "SessionID": true,
}

func strip(v any, key string) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			if brokersOwn[k] {
				delete(x, k)
				continue
			}
			x[k] = strip(e, k)
		}
	case []any:
		x = slices.DeleteFunc(x, func(e any) bool {
			m, ok := e.(map[string]any)
			topic, _ := m["Topic"].(string)
			// Which internal topics there are differs; the captured broker was
			// formatted without the feature streams.version.
			return ok && (strings.HasPrefix(topic, "__") || key == "FinalizedFeatures" && m["Name"] == "streams.version")
		})
		v = x
		for i := range x {
			x[i] = strip(x[i], key)
		}
		switch key {
		case "Topics", "Configs", "Partitions", "SupportedFeatures", "FinalizedFeatures", "ConfigSynonyms":
			slices.SortFunc(x, func(a, b any) int {
				i, _ := json.Marshal(a)
				j, _ := json.Marshal(b)
				return bytes.Compare(i, j)
			})
		}
	}
	return v
}

// oneRecord is a batch of one record.
func oneRecord(t testing.TB) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString("AAAAAAAAAAAAAAA7/////wL+bnvcAAAAAAAAAAABl3Qg3AMAAAGXdCDcA///////////////////AAAAARIAAAACawR2MwA=")
	if err != nil {
		t.Fatal(err)
	}
	if err := record.Batch(b).Check(); err != nil {
		t.Fatal(err)
	}
	return b
}

func produceOne(c *conn, topic string, partition int32) int64 {
	c.t.Helper()
	q := kmsg.NewPtrProduceRequest()
	q.Version, q.Acks, q.TimeoutMillis = 9, -1, 1000
	q.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: partition, Records: oneRecord(c.t)}}}}
	a := do[*kmsg.ProduceResponse](c, q).Topics[0].Partitions[0]
	if a.ErrorCode != 0 {
		c.t.Fatalf("produce to %s-%d: error %d", topic, partition, a.ErrorCode)
	}
	return a.BaseOffset
}

func deleteRecords(c *conn, topic string, partition int32, offset int64) {
	c.t.Helper()
	q := kmsg.NewPtrDeleteRecordsRequest()
	q.Version = 2
	q.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: offset}}}}
	if a := do[*kmsg.DeleteRecordsResponse](c, q).Topics[0].Partitions[0]; a.ErrorCode != 0 {
		c.t.Fatalf("delete records of %s-%d: error %d", topic, partition, a.ErrorCode)
	}
}

func findGroup(c *conn) {
	c.t.Helper()
	q := kmsg.NewPtrFindCoordinatorRequest()
	q.CoordinatorKey = "g"
	for {
		if a := do[*kmsg.FindCoordinatorResponse](c, q); a.ErrorCode != 15 {
			return
		}
	}
}

// onlyServed takes out of Kafka's list the APIs that are not served here yet.
// What is served is in the list with the same versions.
func onlyServed(t testing.TB, version int16, want, got []byte) []byte {
	t.Helper()
	theirs := decode(t, wire.APIVersionsKey, version, want).(*kmsg.ApiVersionsResponse)
	ours := decode(t, wire.APIVersionsKey, version, got).(*kmsg.ApiVersionsResponse)
	theirs.ApiKeys = slices.DeleteFunc(theirs.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		return !slices.ContainsFunc(ours.ApiKeys, func(o kmsg.ApiVersionsResponseApiKey) bool { return o.ApiKey == k.ApiKey })
	})
	return theirs.AppendTo(bytes.Clone(want[:4]))
}
