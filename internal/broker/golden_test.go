package broker_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/logtest/golden"
)

// TestProduceIsAnsweredAsByKafka replays Produce requests that were sent to
// Apache Kafka 4.4.0, odd and damaged ones among them: the answers are the same
// bytes.
func TestProduceIsAnsweredAsByKafka(t *testing.T) {
	var requests []struct {
		Topic, What       string
		Request, Response []byte
		Error             int16
	}
	golden.JSON(t, filepath.Join(golden.Root(t), "12-produce-4.4.0", "requests.json"), &requests)
	var topics []struct {
		Topic      string
		Partitions int32
		Configs    map[string]json.Number
	}
	raw := strings.NewReplacer(`"compact"`, `"0"`).Replace(string(golden.Load(t, "12-produce-4.4.0").Topics))
	if err := json.Unmarshal([]byte(raw), &topics); err != nil {
		t.Fatal(err)
	}
	c := dial(t, start(t, t.TempDir()))
	for _, topic := range topics {
		var configs []string
		for key, value := range topic.Configs {
			text := value.String()
			if key == "cleanup.policy" {
				text = "compact"
			}
			configs = append(configs, key+"="+text)
		}
		createTopic(c, topic.Topic, topic.Partitions, configs...)
	}
	clock := regexp.MustCompile(`\[-?\d+, \d+\]`) // a range in a message follows the broker's clock
	for i, q := range requests {
		c.write(q.Request)
		got := c.read()
		want := q.Response[4:]
		if got, want := clock.ReplaceAll(got, nil), clock.ReplaceAll(want, nil); !bytes.Equal(got, want) {
			t.Errorf("request %d (%s, %s)\n got %x\nwant %x", i, q.Topic, q.What, got, want)
		}
	}
}

// TestReadsAreAnsweredAsByKafka asks brokers on Kafka's own directories what
// Apache Kafka 4.4.0, started on them, was asked.
func TestReadsAreAnsweredAsByKafka(t *testing.T) {
	for _, name := range []string{"02", "05", "06", "08"} {
		t.Run(name, func(t *testing.T) {
			var g goldenReads
			golden.JSON(t, filepath.Join(golden.Root(t), "13-reads-4.4.0", name+".json"), &g)
			stage := golden.Load(t, g.Case).Stage(t, g.Stage)
			n := start(t, stage.Unpack(t), "node.id=1")
			c := dial(t, n)
			for i, r := range g.Reads {
				got := r.ask(c)
				want := r.Answer
				// Each start of a broker begins leader epochs of its own.
				if want.LeaderEpoch != nil && got.LeaderEpoch != nil && *want.LeaderEpoch > 0 && *got.LeaderEpoch > 0 {
					got.LeaderEpoch = want.LeaderEpoch
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("read %d: %s (-want +got)\n%s", i, r, diff)
				}
			}
			if len(g.Reads) < 300 {
				t.Errorf("%d reads, want hundreds", len(g.Reads))
			}
		})
	}
}

type goldenReads struct {
	Case, Stage string
	Reads       []goldenRead
}

type goldenRead struct {
	API, Topic    string
	Partition     int32
	Offset        int64
	MaxBytes      int32 `json:"max_bytes"`
	TotalMaxBytes int32 `json:"total_max_bytes"`
	Isolation     int8
	Timestamp     int64
	Epoch         int32
	Answer        goldenAnswer
}

type goldenAnswer struct {
	Error       int16
	HW          *int64
	LSO         *int64
	LogStart    *int64 `json:"log_start"`
	Aborted     [][2]int64
	Size        *int
	FirstBase   *int64 `json:"first_base"`
	SHA256      string
	Timestamp   *int64
	Offset      *int64
	LeaderEpoch *int32 `json:"leader_epoch"`
	Epoch       *int32
	EndOffset   *int64 `json:"end_offset"`
}

func (r goldenRead) String() string {
	return fmt.Sprintf("%s %s-%d offset %d max %d of %d isolation %d timestamp %d epoch %d",
		r.API, r.Topic, r.Partition, r.Offset, r.MaxBytes, r.TotalMaxBytes, r.Isolation, r.Timestamp, r.Epoch)
}

func (r goldenRead) ask(c *conn) goldenAnswer {
	switch r.API {
	case "fetch":
		return r.fetch(c)
	case "list_offsets":
		q := kmsg.NewPtrListOffsetsRequest()
		q.Version, q.ReplicaID, q.IsolationLevel = 7, -1, r.Isolation
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = r.Partition, r.Timestamp
		q.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: r.Topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		a := do[*kmsg.ListOffsetsResponse](c, q).Topics[0].Partitions[0]
		return goldenAnswer{Error: a.ErrorCode, Timestamp: &a.Timestamp, Offset: &a.Offset, LeaderEpoch: &a.LeaderEpoch}
	}
	q := kmsg.NewPtrOffsetForLeaderEpochRequest()
	q.Version, q.ReplicaID = 3, -1
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.LeaderEpoch = r.Partition, r.Epoch
	q.Topics = []kmsg.OffsetForLeaderEpochRequestTopic{{Topic: r.Topic, Partitions: []kmsg.OffsetForLeaderEpochRequestTopicPartition{p}}}
	a := do[*kmsg.OffsetForLeaderEpochResponse](c, q).Topics[0].Partitions[0]
	return goldenAnswer{Error: a.ErrorCode, Epoch: &a.LeaderEpoch, EndOffset: &a.EndOffset}
}

func (r goldenRead) fetch(c *conn) goldenAnswer {
	q := kmsg.NewPtrFetchRequest()
	q.Version, q.ReplicaID, q.MaxBytes, q.IsolationLevel, q.SessionEpoch = 11, -1, r.TotalMaxBytes, r.Isolation, -1
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = r.Partition, r.Offset, r.MaxBytes
	q.Topics = []kmsg.FetchRequestTopic{{Topic: r.Topic, Partitions: []kmsg.FetchRequestTopicPartition{p}}}
	a := do[*kmsg.FetchResponse](c, q).Topics[0].Partitions[0]
	size := len(a.RecordBatches)
	got := goldenAnswer{Error: a.ErrorCode, HW: &a.HighWatermark, LSO: &a.LastStableOffset, LogStart: &a.LogStartOffset, Size: &size}
	if a.AbortedTransactions != nil {
		got.Aborted = [][2]int64{}
	}
	for _, x := range a.AbortedTransactions {
		got.Aborted = append(got.Aborted, [2]int64{x.ProducerID, x.FirstOffset})
	}
	if size > 0 {
		base := int64(binary.BigEndian.Uint64(a.RecordBatches))
		sum := sha256.Sum256(a.RecordBatches)
		got.FirstBase, got.SHA256 = &base, hex.EncodeToString(sum[:])
	}
	return got
}
