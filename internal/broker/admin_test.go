package broker_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/node"
)

// admin is a client of kadm's on a node.
func admin(t testing.TB, n *node.Node) (*kadm.Client, context.Context) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(n.Addr("").String()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return kadm.NewClient(client), ctx
}

func value(s string) *string { return &s }

// TestTopicsLiveThroughTheAdminClient creates, describes, changes and deletes as
// an operator does.
func TestTopicsLiveThroughTheAdminClient(t *testing.T) {
	adm, ctx := admin(t, start(t, t.TempDir(), "num.partitions=3"))
	made, err := adm.CreateTopic(ctx, -1, -1, map[string]*string{"retention.ms": value("5000")}, "t")
	if err != nil {
		t.Fatal(err)
	}
	if retention := made.Configs["retention.ms"]; made.NumPartitions != 3 || made.ReplicationFactor != 1 || retention.MaybeValue() != "5000" || len(made.Configs) != 37 {
		t.Errorf("created %+v with %d configs", made, len(made.Configs))
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "t"); !errors.Is(err, kerr.TopicAlreadyExists) {
		t.Errorf("created again: %v", err)
	}
	if r, err := adm.CreatePartitions(ctx, 2, "t"); err != nil || r["t"].Err != nil {
		t.Errorf("two partitions more: %v, %v", r["t"].Err, err)
	}
	details, err := adm.ListTopics(ctx, "t")
	if err != nil || len(details["t"].Partitions) != 5 || kmsgID(details["t"].ID) != kmsgID(made.ID) {
		t.Errorf("listed %+v, %v", details["t"], err)
	}
	altered, err := adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: value("compact")},
		{Op: kadm.DeleteConfig, Name: "retention.ms"}}, "t")
	if err != nil || altered[0].Err != nil {
		t.Errorf("altered %+v, %v", altered, err)
	}
	if got := topicConfig(t, adm, ctx, "t", "cleanup.policy"); got != "delete,compact (1)" {
		t.Errorf("cleanup.policy is %s", got)
	}
	if got := topicConfig(t, adm, ctx, "t", "retention.ms"); got != "604800000 (5)" {
		t.Errorf("retention.ms is %s", got)
	}
	if r, err := adm.AlterTopicConfigsState(ctx, []kadm.AlterConfig{{Name: "segment.ms", Value: value("60000")}}, "t"); err != nil || r[0].Err != nil {
		t.Errorf("state: %+v, %v", r, err)
	}
	if got := topicConfig(t, adm, ctx, "t", "cleanup.policy"); got != "delete (5)" {
		t.Errorf("cleanup.policy is %s after the whole set was replaced", got)
	}
	if _, err := adm.DeleteTopic(ctx, "t"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := adm.DeleteTopic(ctx, "t"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("deleted again: %v", err)
	}
	again, err := adm.CreateTopic(ctx, 1, 1, nil, "t")
	if err != nil || again.ID == made.ID {
		t.Errorf("created anew as %+v, %v", again, err)
	}
	if got := topicConfig(t, adm, ctx, "t", "segment.ms"); got != "604800000 (5)" {
		t.Errorf("segment.ms of the new topic is %s", got)
	}
}

func kmsgID(id kadm.TopicID) [16]byte { return id }

// topicConfig is a topic's value with its source.
func topicConfig(t testing.TB, adm *kadm.Client, ctx context.Context, topic, key string) string {
	t.Helper()
	r, err := adm.DescribeTopicConfigs(ctx, topic)
	if err != nil || r[0].Err != nil {
		t.Fatal(err, r[0].Err)
	}
	for _, c := range r[0].Configs {
		if c.Key == key {
			return fmt.Sprintf("%s (%d)", c.MaybeValue(), c.Source)
		}
	}
	return "absent"
}

func TestDynamicBrokerConfigsAreDescribedAndSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	first := startNode(t, dir)
	adm, ctx := admin(t, first)
	set := []kadm.AlterConfig{{Name: "log.retention.ms", Value: value("86400000")}}
	if r, err := adm.AlterBrokerConfigs(ctx, set); err != nil || r[0].Err != nil {
		t.Fatalf("cluster default: %+v, %v", r, err)
	}
	if r, err := adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: "log.cleaner.threads", Value: value("2")}}, 1); err != nil || r[0].Err != nil {
		t.Fatalf("own: %+v, %v", r, err)
	}
	if r, err := adm.AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: "log.dirs", Value: value("/x")}}, 1); err != nil || !errors.Is(r[0].Err, kerr.InvalidRequest) ||
		r[0].ErrMessage != "Cannot update these configs dynamically: [log.dirs]" {
		t.Errorf("read-only key: %+v, %v", r, err)
	}
	if _, err := adm.CreateTopic(ctx, 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	stopNode(t, first)
	adm, ctx = admin(t, start(t, dir, "node.id=1"))
	if got := topicConfig(t, adm, ctx, "t", "retention.ms"); got != "86400000 (3)" {
		t.Errorf("retention.ms of a topic is %s", got)
	}
	r, err := adm.DescribeBrokerConfigs(ctx, 1)
	if err != nil || len(r[0].Configs) < 350 {
		t.Fatalf("%d broker configs, %v", len(r[0].Configs), err)
	}
	for _, c := range r[0].Configs {
		switch c.Key {
		case "log.cleaner.threads":
			if c.MaybeValue() != "2" || c.Source != kmsg.ConfigSourceDynamicBrokerConfig {
				t.Errorf("log.cleaner.threads is %s (%d)", c.MaybeValue(), c.Source)
			}
		case "ssl.key.password":
			if !c.Sensitive || c.Value != nil {
				t.Errorf("a password is shown: %+v", c)
			}
		}
	}
	defaults, err := adm.DescribeBrokerConfigs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range defaults[0].Configs {
		names = append(names, c.Key)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"log.retention.ms", "min.insync.replicas"}) {
		t.Errorf("dynamic defaults %q", names)
	}
}

// startNode is start without the stop at the end of the test.
func startNode(t testing.TB, dir string) *node.Node {
	t.Helper()
	cfg, _, err := config.Load(config.Sources{Flags: []config.Setting{{Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0"}, {Key: "node.id", Value: "1"}}, DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(context.Background(), cfg, node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func stopNode(t testing.TB, n *node.Node) {
	t.Helper()
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestDescribeConfigsAnswersEveryResourceType(t *testing.T) {
	c := dial(t, start(t, t.TempDir(), "node.id=1"))
	createTopic(c, "t", 1, "retention.ms=7")
	tests := []struct {
		name     string
		typ      kmsg.ConfigResourceType
		resource string
		keys     []string
		code     int16
		message  string
		configs  int // -1: not looked at
	}{
		{"all of a topic", 2, "t", nil, 0, "", 37},
		{"an empty list asks for all", 2, "t", []string{}, 0, "", 37},
		{"keys of a topic, an unknown one left out", 2, "t", []string{"retention.ms", "nope"}, 0, "", 1},
		{"an unknown topic", 2, "u", nil, 3, "", 0},
		{"an illegal topic", 2, "a b", nil, 17, "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", 0},
		{"the broker", 4, "1", nil, 0, "", -1},
		{"the dynamic defaults", 4, "", nil, 0, "", 1},
		{"another broker", 4, "2", nil, 42, "Unexpected broker id, expected 1 or empty string, but received 2", 0},
		{"a broker that is no number", 4, "x", nil, 42, "Broker id must be an integer, but it is: x", 0},
		{"the loggers", 8, "1", nil, 0, "", 1},
		{"the loggers of another broker", 8, "2", nil, 42, "Unexpected broker id, expected 1, but received 2", 0},
		{"the loggers of no broker", 8, "", nil, 42, "Broker id must not be empty", 0},
		{"a group that does not exist", 32, "g", nil, 0, "", 21},
		{"no group", 32, "", nil, 42, "Group name must not be empty", 0},
		{"client metrics", 16, "m", nil, 0, "", 3},
		{"no client metrics", 16, "", nil, 42, "Client metrics subscription name must not be empty", 0},
		{"no type", 0, "x", nil, 42, "Unsupported resource type: UNKNOWN", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := kmsg.NewPtrDescribeConfigsRequest()
			q.Version, q.IncludeSynonyms, q.IncludeDocumentation = 4, true, true
			q.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: tt.typ, ResourceName: tt.resource, ConfigNames: tt.keys}}
			a := do[*kmsg.DescribeConfigsResponse](c, q).Resources[0]
			if a.ErrorCode != tt.code || a.ErrorMessage == nil || *a.ErrorMessage != tt.message || tt.configs >= 0 && len(a.Configs) != tt.configs {
				t.Errorf("answer %d %q with %d configs, want %d %q with %d", a.ErrorCode, *a.ErrorMessage, len(a.Configs), tt.code, tt.message, tt.configs)
			}
			for _, e := range a.Configs {
				if e.Documentation == nil || e.ConfigType == 0 {
					t.Errorf("%s has no type or documentation: %+v", e.Name, e)
				}
			}
		})
	}
}

func TestTheLogLevelIsChangedAndNotStored(t *testing.T) {
	var level slog.LevelVar
	cfg, _, err := config.Load(config.Sources{Flags: []config.Setting{{Key: "listeners", Value: "PLAINTEXT://127.0.0.1:0"}, {Key: "node.id", Value: "1"}}, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(context.Background(), cfg, node.Options{LogLevel: &level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopNode(t, n) })
	c := dial(t, n)
	tests := []struct {
		op        int8
		name, val string
		code      int16
		want      slog.Level
	}{
		{0, "root", "DEBUG", 0, slog.LevelDebug},
		{0, "root", "LOUD", 40, slog.LevelDebug},
		{0, "nobody", "INFO", 40, slog.LevelDebug},
		{1, "root", "", 42, slog.LevelDebug},
		{2, "root", "INFO", 42, slog.LevelDebug},
		{0, "root", "WARN", 0, slog.LevelWarn},
	}
	end := n.Controller().Image().End
	for _, tt := range tests {
		q := kmsg.NewPtrIncrementalAlterConfigsRequest()
		q.Version = 1
		q.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: 8, ResourceName: "1",
			Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: tt.name, Op: kmsg.IncrementalAlterConfigOp(tt.op), Value: &tt.val}}}}
		a := do[*kmsg.IncrementalAlterConfigsResponse](c, q).Resources[0]
		if a.ErrorCode != tt.code || level.Level() != tt.want {
			t.Errorf("%s=%s (%d): error %d, level %v, want %d, %v", tt.name, tt.val, tt.op, a.ErrorCode, level.Level(), tt.code, tt.want)
		}
	}
	if n.Controller().Image().End != end {
		t.Error("a log level was written to the metadata log")
	}
}

func TestTopicsAreNamedByNameOrIDToBeDeleted(t *testing.T) {
	c := dial(t, start(t, t.TempDir()))
	ids := map[string][16]byte{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		ids[name] = createTopic(c, name, 1)
	}
	q := kmsg.NewPtrDeleteTopicsRequest()
	q.Version, q.TimeoutMillis = 6, 5000
	add := func(name string, id [16]byte) {
		t := kmsg.NewDeleteTopicsRequestTopic()
		if name != "" {
			t.Topic = &name
		}
		t.TopicID = id
		q.Topics = append(q.Topics, t)
	}
	none := [16]byte{}
	add("a", none)
	add("", ids["b"])
	add("both", ids["c"])
	add("", none)
	add("twice", none)
	add("twice", none)
	add("", [16]byte{1})
	add("", [16]byte{2})
	add("", [16]byte{2})
	add("unknown", none)
	add("d", none)
	add("", ids["d"])
	var got []string
	for _, a := range do[*kmsg.DeleteTopicsResponse](c, q).Topics {
		name := "null"
		if a.Topic != nil {
			name = *a.Topic
		}
		got = append(got, fmt.Sprint(name, " ", a.ErrorCode))
	}
	slices.Sort(got)
	want := []string{"a 0", "b 0", "both 42", "d 42", "null 100", "null 42", "null 42", "twice 42", "unknown 3"}
	if !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want)
	}
	left := kmsg.NewPtrMetadataRequest()
	left.Version = 12
	var names []string
	for _, topic := range do[*kmsg.MetadataResponse](c, left).Topics {
		names = append(names, *topic.Topic)
	}
	if slices.Sort(names); !slices.Equal(names, []string{"c", "d", "e"}) {
		t.Errorf("topics left: %q", names)
	}
}

func TestDeletionCanBeTurnedOff(t *testing.T) {
	c := dial(t, start(t, t.TempDir(), "delete.topic.enable=false"))
	createTopic(c, "t", 1)
	for version, want := range map[int16]int16{1: 42, 3: 73, 6: 73} {
		q := kmsg.NewPtrDeleteTopicsRequest()
		q.Version, q.TimeoutMillis, q.TopicNames = version, 5000, []string{"t"}
		if version == 6 {
			q.TopicNames, q.Topics = nil, []kmsg.DeleteTopicsRequestTopic{{Topic: value("t")}}
		}
		if a := do[*kmsg.DeleteTopicsResponse](c, q).Topics[0]; a.ErrorCode != want {
			t.Errorf("v%d: error %d, want %d", version, a.ErrorCode, want)
		}
	}
}

func TestNothingIsCreatedWithoutTime(t *testing.T) {
	c := dial(t, start(t, t.TempDir()))
	for _, timeout := range []int32{0, -1} {
		q := kmsg.NewPtrCreateTopicsRequest()
		q.Version, q.TimeoutMillis = 7, timeout
		q.Topics = []kmsg.CreateTopicsRequestTopic{{Topic: "t", NumPartitions: 1, ReplicationFactor: 1}}
		if a := do[*kmsg.CreateTopicsResponse](c, q).Topics[0]; a.ErrorCode != 7 || a.Configs == nil || len(a.Configs) != 0 {
			t.Errorf("timeout %d: %+v", timeout, a)
		}
	}
	if n := c.node.Controller().Image().Topics.Len(); n != 0 {
		t.Errorf("%d topics were created", n)
	}
}

func TestRepeatedTopicsOfCreatePartitionsAreRefused(t *testing.T) {
	c := dial(t, start(t, t.TempDir()))
	createTopic(c, "t", 1)
	createTopic(c, "u", 1)
	q := kmsg.NewPtrCreatePartitionsRequest()
	q.Version, q.TimeoutMillis = 3, 5000
	for _, name := range []string{"t", "u", "t"} {
		q.Topics = append(q.Topics, kmsg.CreatePartitionsRequestTopic{Topic: name, Count: 2})
	}
	var got []string
	for _, a := range do[*kmsg.CreatePartitionsResponse](c, q).Topics {
		got = append(got, fmt.Sprint(a.Topic, " ", a.ErrorCode, " ", a.ErrorMessage == nil))
	}
	if want := []string{"t 42 false", "u 0 true"}; !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want)
	}
}

func TestProducerIDsAreNeverGivenTwice(t *testing.T) {
	dir := t.TempDir()
	seen := map[int64]bool{}
	for range 2 {
		n := startNode(t, dir)
		c := dial(t, n)
		for i := range 1100 { // more than a block
			q := kmsg.NewPtrInitProducerIDRequest()
			q.Version = int16(i % 6)
			a := do[*kmsg.InitProducerIDResponse](c, q)
			if a.ErrorCode != 0 || a.ProducerEpoch != 0 || seen[a.ProducerID] {
				t.Fatalf("answer %+v, seen before: %v", a, seen[a.ProducerID])
			}
			seen[a.ProducerID] = true
		}
		c.Close()
		stopNode(t, n)
	}
	if seen[2000] != true || seen[1999] {
		t.Error("the second run does not begin with a new block")
	}
}

func TestTransactionalIDsAreRefused(t *testing.T) {
	c := dial(t, start(t, t.TempDir()))
	for id, want := range map[string]int16{"": 42, "tx": 35} {
		q := kmsg.NewPtrInitProducerIDRequest()
		q.Version, q.TransactionalID = 5, &id
		if a := do[*kmsg.InitProducerIDResponse](c, q); a.ErrorCode != want || a.ProducerID != -1 || a.ProducerEpoch != -1 {
			t.Errorf("transactional id %q: %+v, want error %d", id, a, want)
		}
	}
}

// TestAdminRequestsOfClientsAreAnsweredAsByKafka replays what real clients asked
// Apache Kafka 4.4.0 about topics and configs.
func TestAdminRequestsOfClientsAreAnsweredAsByKafka(t *testing.T) {
	apis := map[string]bool{"CreateTopics": true, "DeleteTopics": true, "CreatePartitions": true, "DescribeConfigs": true,
		"AlterConfigs": true, "IncrementalAlterConfigs": true}
	for _, client := range []string{"java", "kafkajs", "librdkafka", "sarama", "java-tools"} {
		t.Run(client, func(t *testing.T) {
			// As the captured broker was set up.
			c := dial(t, start(t, t.TempDir(), "node.id=1", "log.retention.ms=-1"))
			if client == "java-tools" || client == "librdkafka" {
				createTopic(c, "wire", 2, "retention.ms=1000000")
			}
			compared := 0
			for _, p := range pairs(t, client) {
				if !apis[p.API] {
					continue
				}
				sent, err := base64.StdEncoding.DecodeString(p.Request)
				if err != nil {
					t.Fatal(err)
				}
				if strings.Contains(string(sent), "__transaction_state") {
					continue // internal topics that are not here
				}
				want, err := base64.StdEncoding.DecodeString(p.Response)
				if err != nil {
					t.Fatal(err)
				}
				compared++
				c.write(sent)
				compare(t, p, want[4:], c.read())
			}
			if compared == 0 {
				t.Error("nothing was compared")
			}
		})
	}
}

func TestAdminRequestsSurviveNonsense(t *testing.T) {
	n := start(t, t.TempDir())
	for key, versions := range map[int16][2]int16{19: {2, 7}, 20: {1, 6}, 22: {0, 5}, 32: {1, 4}, 33: {0, 2}, 37: {0, 3}, 44: {0, 1}} {
		for version := versions[0]; version <= versions[1]; version++ {
			q := kmsg.RequestForKey(key)
			q.SetVersion(version)
			whole := frame(q, 1, "test")
			for cut := 14; cut < len(whole); cut++ {
				b := append([]byte{0, 0, 0, byte(cut - 4)}, whole[4:cut]...)
				conn, err := net.Dial("tcp", n.Addr("").String())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Write(b); err != nil {
					t.Fatal(err)
				}
				conn.Close()
			}
		}
	}
	createTopic(dial(t, n), "after", 1)
}
