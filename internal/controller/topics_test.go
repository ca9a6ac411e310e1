package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

func str(s string) *string { return &s }

func assigned(lists ...[]kafka.BrokerID) NewTopic {
	t := NewTopic{Name: "new", Partitions: -1, ReplicationFactor: -1}
	for i, replicas := range lists {
		t.Assignments = append(t.Assignments, Assignment{int32(i), replicas})
	}
	return t
}

func TestCreateTopicsChecks(t *testing.T) {
	long := strings.Repeat("x", 250)
	one := []kafka.BrokerID{1}
	tests := []struct {
		name  string
		topic NewTopic
		want  string
	}{
		{"defaults", topic("new", -1), "0"},
		{"two underscores in front", topic("__mine", 1), "0"},
		{"the longest name", topic(long[1:], 1), "0"},
		{"empty name", topic("", 1), "17 Topic name is invalid: the empty string is not allowed"},
		{"dot", topic(".", 1), "17 Topic name is invalid: '.' is not allowed"},
		{"dots", topic("..", 1), "17 Topic name is invalid: '..' is not allowed"},
		{"too long", topic(long, 1), "17 Topic name is invalid: the length of '" + long + "' is longer than the max allowed length 249"},
		{"bad character", topic("a b", 1), "17 Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		{"exists", topic("old", 1), "36 Topic 'old' already exists."},
		{"collides", topic("with_dot", 1), "17 Topic 'with_dot' collides with existing topic: with.dot"},
		{"the metadata topic", topic("__cluster_metadata", 1), "42 Creation of internal topic __cluster_metadata is prohibited."},
		{"no replicas", NewTopic{Name: "new", Partitions: 1}, "38 Replication factor must be larger than 0, or -1 to use the default value."},
		{"negative replicas", NewTopic{Name: "new", Partitions: 1, ReplicationFactor: -2}, "38 Replication factor must be larger than 0, or -1 to use the default value."},
		{"no partitions", topic("new", 0), "37 Number of partitions was set to an invalid non-positive value."},
		{"negative partitions", topic("new", -2), "37 Number of partitions was set to an invalid non-positive value."},
		{"more replicas than brokers", NewTopic{Name: "new", Partitions: 1, ReplicationFactor: 3},
			"38 Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered or some brokers have all their log directories cordoned."},
		{"assignment", assigned(one, one), "0"},
		{"assignment and replication factor", NewTopic{Name: "new", Partitions: -1, ReplicationFactor: 1, Assignments: []Assignment{{0, one}}},
			"42 A manual partition assignment was specified, but replication factor was not set to -1."},
		{"assignment and partitions", NewTopic{Name: "new", Partitions: 1, ReplicationFactor: -1, Assignments: []Assignment{{0, one}}},
			"42 A manual partition assignment was specified, but numPartitions was not set to -1."},
		{"assignment without replicas", assigned(nil), "39 The manual partition assignment includes an empty replica list."},
		{"assignment to an unknown broker", assigned([]kafka.BrokerID{2}), "39 The manual partition assignment includes broker 2, but no such broker is registered."},
		{"assignment to a broker twice", assigned([]kafka.BrokerID{1, 1}), "39 The manual partition assignment includes the broker 1 more than once."},
		{"assignment that begins at 1", NewTopic{Name: "new", Partitions: -1, ReplicationFactor: -1, Assignments: []Assignment{{1, one}}},
			"39 partitions should be a consecutive 0-based integer sequence"},
		{"assignment of one partition twice", NewTopic{Name: "new", Partitions: -1, ReplicationFactor: -1, Assignments: []Assignment{{0, one}, {0, one}}},
			"39 Found multiple manual partition assignments for partition 0"},
		{"unknown config", topic("new", 1, "nope", "1"), "40 Unknown topic config name: nope"},
		{"null config", NewTopic{Name: "new", Partitions: 1, ReplicationFactor: -1, Configs: []Setting{{"retention.ms", nil}}},
			"40 Null value not supported for topic configs: retention.ms"},
		{"too many partitions", topic("new", 10001), "44 Excessively large number of partitions per request."},
		{"as many partitions as allowed", topic("new", 10000), "0"},
	}
	c := newCluster(t, "num.partitions=3\n")
	c.create(topic("old", 1), topic("with.dot", 1))
	end := c.Image().End
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			results, err := c.CreateTopics([]NewTopic{tt.topic}, true)
			if err != nil {
				t.Fatal(err)
			}
			if got := errorText(results[0].Err); got != tt.want {
				t.Errorf("CreateTopics = %s, want %s", got, tt.want)
			}
		})
	}
	if c.Image().End != end {
		t.Error("validation wrote records")
	}
	bad := topic("bad", 1, "cleanup.policy", "x")
	results, err := c.CreateTopics([]NewTopic{bad}, true)
	if err != nil || results[0].Err == nil || results[0].Err.Code != kafka.ErrInvalidConfig {
		t.Errorf("bad value: %+v, %v", results, err)
	}
}

func TestCreateTopicsAnswersEachTopicOnce(t *testing.T) {
	c := newCluster(t, "")
	results, err := c.CreateTopics([]NewTopic{topic("b", 1), topic("dup", 1), topic("bad name", 1), topic("dup", 2), topic("a", 2), topic("x.y", 1), topic("x_y", 1)}, false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, fmt.Sprint(r.Name, " ", strings.Fields(errorText(r.Err))[0], " ", r.Partitions, " ", !r.ID.IsZero()))
	}
	want := []string{"b 0 1 true", "bad name 17 0 false", "a 0 2 true", "x.y 0 1 true", "x_y 17 0 false", "dup 42 0 false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers:\n%s", diff)
	}
	if c.Image().Topics.Len() != 3 {
		t.Errorf("%d topics, want 3", c.Image().Topics.Len())
	}
}

func config1(name, value string) string {
	return fmt.Sprintf(`{"type":"CONFIG_RECORD","version":0,"data":{"resourceType":2,"resourceName":"t","name":%q,"value":%s}}`, name, value)
}

const (
	topicT     = `{"type":"TOPIC_RECORD","version":0,"data":{"name":"t","topicId":"AAAAAAAAAAAAAAAAAAAAAA"}}`
	clearElrT  = `{"type":"CLEAR_ELR_RECORD","version":0,"data":{"topicName":"t"}}`
	partitionN = `{"type":"PARTITION_RECORD","version":2,"data":{"partitionId":%d,"topicId":"AAAAAAAAAAAAAAAAAAAAAA","replicas":[1],"isr":[1],"removingReplicas":[],"addingReplicas":[],"leader":1,"leaderEpoch":0,"partitionEpoch":0,"directories":["AQAAAAAAAAAAAAAAAAAAAA"]}}`
)

// TestOperationsWriteKafkasRecords follows the table of metadata.md 6.2.
func TestOperationsWriteKafkasRecords(t *testing.T) {
	c := newCluster(t, "")
	end := c.Image().End
	step := func(name string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, batches(logRecords(t, c.disk, end))); diff != "" {
			t.Errorf("%s: Kafka's records (-) and these (+):\n%s", name, diff)
		}
		end = c.Image().End
	}
	noErrors := func(errs []*Error, err error) {
		t.Helper()
		for _, e := range errs {
			if e != nil {
				t.Error(e)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	id := c.create(topic("t", 2, "retention.ms", "2000000", "min.insync.replicas", "1", "cleanup.policy", "compact,delete"))[0].ID
	step("create", strings.Join([]string{topicT, config1("cleanup.policy", `"compact,delete"`), config1("min.insync.replicas", `"1"`),
		config1("retention.ms", `"2000000"`), clearElrT, fmt.Sprintf(partitionN, 0), fmt.Sprintf(partitionN, 1)}, "\n"))

	noErrors(c.CreatePartitions([]MorePartitions{{Topic: "t", Count: 4}}, false))
	step("add partitions", fmt.Sprintf(partitionN, 2)+"\n"+fmt.Sprintf(partitionN, 3))

	res := metadata.ConfigResource{Type: metadata.ResourceTopic, Name: "t"}
	noErrors(c.IncrementalAlterConfigs([]ResourceChanges{{res, []ConfigChange{
		{"retention.ms", OpDelete, nil}, {"min.insync.replicas", OpSet, str("2")}, {"max.message.bytes", OpSet, str("2000000")},
		{"cleanup.policy", OpSubtract, str("compact")}, {"segment.ms", OpDelete, nil}}}}, false))
	step("incremental alter", strings.Join([]string{config1("cleanup.policy", `"delete"`), config1("max.message.bytes", `"2000000"`),
		config1("min.insync.replicas", `"2"`), config1("retention.ms", "null"), clearElrT}, "\n"))

	noErrors(c.IncrementalAlterConfigs([]ResourceChanges{{res, []ConfigChange{{"max.message.bytes", OpSet, str("2000000")}}}, {metadata.ConfigResource{Type: metadata.ResourceGroup, Name: "g"}, nil}}, false))
	noErrors(c.IncrementalAlterConfigs([]ResourceChanges{{res, []ConfigChange{{"retention.ms", OpSet, str("5")}}}}, true))
	step("set to the current value, nothing, and validate only")

	noErrors(c.AlterConfigs([]ResourceConfigs{{res, []Setting{{"segment.ms", str("60000")}, {"max.message.bytes", str("2000000")}}}}, false))
	step("full set", strings.Join([]string{config1("segment.ms", `"60000"`), config1("cleanup.policy", "null"), config1("min.insync.replicas", "null"), clearElrT}, "\n"))

	noErrors(c.IncrementalAlterConfigs([]ResourceChanges{{metadata.ConfigResource{Type: metadata.ResourceBroker}, []ConfigChange{{"min.insync.replicas", OpSet, str("2")}}}}, false))
	step("cluster default", `{"type":"CONFIG_RECORD","version":0,"data":{"resourceType":4,"resourceName":"","name":"min.insync.replicas","value":"2"}}`+"\n"+
		`{"type":"CLEAR_ELR_RECORD","version":0,"data":{"topicName":""}}`)

	noErrors(c.IncrementalAlterConfigs([]ResourceChanges{{metadata.ConfigResource{Type: metadata.ResourceBroker, Name: "1"}, []ConfigChange{{"log.cleaner.threads", OpDelete, nil}}}}, false))
	step("unset key of a broker deleted", `{"type":"CONFIG_RECORD","version":0,"data":{"resourceType":4,"resourceName":"1","name":"log.cleaner.threads","value":null}}`)

	noErrors(c.DeleteTopics([]kafka.TopicID{id}))
	step("delete", fmt.Sprintf(`{"type":"REMOVE_TOPIC_RECORD","version":0,"data":{"topicId":%q}}`, id))
	if len(c.Image().Config(res)) != 0 {
		t.Error("the configs of a deleted topic are still there")
	}
	// A topic of the same name is new.
	if again := c.create(topic("t", 1))[0]; again.ID == id || len(c.Image().Config(res)) != 0 {
		t.Errorf("created again as %+v", again)
	}
}

func TestInternalTopicsHaveTheirOwnSettings(t *testing.T) {
	c := newCluster(t, "offsets.topic.num.partitions=2\ntransaction.state.log.num.partitions=1\nshare.coordinator.state.topic.num.partitions=1\nnum.partitions=5000\n")
	results, err := c.EnsureTopics([]string{kafka.ConsumerOffsetsTopic, kafka.TransactionStateTopic, kafka.ShareGroupStateTopic, "mine", "bad name", kafka.ClusterMetadataTopic})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		got = append(got, fmt.Sprint(r.Name, " ", r.Partitions, " ", r.ReplicationFactor, " ", strings.SplitN(errorText(r.Err), " ", 2)[0]))
	}
	want := []string{"__consumer_offsets 2 1 0", "__transaction_state 1 1 0", "__share_group_state 1 1 0", "mine 1000 1 0", "bad name 0 0 17", "__cluster_metadata 0 0 42"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers:\n%s", diff)
	}
	var configs []string
	for _, e := range logRecords(t, c.disk, 0) {
		if strings.Contains(e.text, "CONFIG_RECORD") || strings.Contains(e.text, "CLEAR_ELR") {
			r := strings.NewReplacer(`{"type":"CONFIG_RECORD","version":0,"data":{"resourceType":2,"resourceName":`, "", `"name":`, "", `"value":`, "", "}", "", `"`, "")
			configs = append(configs, r.Replace(e.text))
		}
	}
	wantConfigs := []string{
		"__consumer_offsets,compression.type,producer", "__consumer_offsets,cleanup.policy,compact", "__consumer_offsets,segment.bytes,104857600",
		"__transaction_state,compression.type,uncompressed", "__transaction_state,cleanup.policy,compact", "__transaction_state,min.insync.replicas,1",
		"__transaction_state,segment.bytes,104857600", "__transaction_state,unclean.leader.election.enable,false", "{type:CLEAR_ELR_RECORD,version:0,data:{topicName:__transaction_state",
		"__share_group_state,compression.type,producer", "__share_group_state,cleanup.policy,delete", "__share_group_state,min.insync.replicas,1",
		"__share_group_state,segment.bytes,104857600", "__share_group_state,retention.ms,-1", "{type:CLEAR_ELR_RECORD,version:0,data:{topicName:__share_group_state",
	}
	if diff := cmp.Diff(wantConfigs, configs[1:]); diff != "" { // the first is the cluster's min.insync.replicas
		t.Errorf("configs:\n%s", diff)
	}
	again, err := c.EnsureTopics([]string{"mine", "mine"})
	if err != nil || again[0].Err == nil || again[0].Err.Code != kafka.ErrTopicAlreadyExists {
		t.Errorf("EnsureTopics again = %+v, %v", again, err)
	}
	c = newCluster(t, "offsets.topic.replication.factor=3\n")
	if r, err := c.EnsureTopics([]string{kafka.ConsumerOffsetsTopic}); err != nil || r[0].Err == nil || r[0].Err.Code != kafka.ErrInvalidReplicationFactor {
		t.Errorf("with a factor of 3 asked for: %+v, %v", r, err)
	}
}

func TestCreatePartitionsChecks(t *testing.T) {
	c := newCluster(t, "")
	c.create(topic("t", 2))
	one := []kafka.BrokerID{1}
	tests := []struct {
		name string
		more MorePartitions
		want string
	}{
		{"more", MorePartitions{"t", 3, nil}, "0"},
		{"assigned", MorePartitions{"t", 3, [][]kafka.BrokerID{one}}, "0"},
		{"unknown topic", MorePartitions{"u", 3, nil}, "3 This server does not host this topic-partition."},
		{"as many", MorePartitions{"t", 2, nil}, "37 Topic already has 2 partition(s)."},
		{"fewer", MorePartitions{"t", 1, nil}, "37 The topic t currently has 2 partition(s); 1 would not be an increase."},
		{"too few assignments", MorePartitions{"t", 4, [][]kafka.BrokerID{one}}, "39 Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."},
		{"an empty list of assignments", MorePartitions{"t", 4, [][]kafka.BrokerID{}}, "39 Attempted to add 2 additional partition(s), but only 0 assignment(s) were specified."},
		{"an unknown broker", MorePartitions{"t", 3, [][]kafka.BrokerID{{5}}}, "39 The manual partition assignment includes broker 5, but no such broker is registered."},
		{"another number of replicas", MorePartitions{"t", 3, [][]kafka.BrokerID{{}}}, "39 The manual partition assignment includes an empty replica list."},
		{"too many", MorePartitions{"t", 2_000_000_000, nil}, "44 Unable to perform excessively large batch operation."},
	}
	for _, tt := range tests {
		errs, err := c.CreatePartitions([]MorePartitions{tt.more}, true)
		if err != nil {
			t.Fatal(err)
		}
		if got := errorText(errs[0]); got != tt.want {
			t.Errorf("%s: CreatePartitions = %s, want %s", tt.name, got, tt.want)
		}
	}
	if errs, err := c.DeleteTopics([]kafka.TopicID{{9}}); err != nil || errs[0] == nil || errs[0].Code != kafka.ErrUnknownTopicID {
		t.Errorf("DeleteTopics of an unknown id = %v, %v", errs, err)
	}
}

func TestNothingIsPlacedOnAFencedBroker(t *testing.T) {
	c := newCluster(t, "")
	c.create(topic("t", 1))
	if err := c.ControlledShutdown(); err != nil {
		t.Fatal(err)
	}
	results, err := c.CreateTopics([]NewTopic{topic("u", 1), assigned([]kafka.BrokerID{1})}, false)
	if err != nil || results[0].Err == nil || results[0].Err.Code != kafka.ErrInvalidReplicationFactor || results[1].Err == nil || results[1].Err.Code != kafka.ErrInvalidReplicaAssignment {
		t.Errorf("CreateTopics = %v %v, %v", results[0].Err, results[1].Err, err)
	}
	errs, err := c.CreatePartitions([]MorePartitions{{"t", 2, nil}}, false)
	if err != nil || errs[0] == nil || errs[0].Code != kafka.ErrInvalidReplicationFactor {
		t.Errorf("CreatePartitions = %v, %v", errs, err)
	}
}

func TestAlterConfigsChecks(t *testing.T) {
	resource := func(t metadata.ResourceType, name string) metadata.ConfigResource {
		return metadata.ConfigResource{Type: t, Name: name}
	}
	tp, br, cm, gr := metadata.ResourceTopic, metadata.ResourceBroker, metadata.ResourceClientMetrics, metadata.ResourceGroup
	set := func(name, value string) ConfigChange { return ConfigChange{name, OpSet, &value} }
	tests := []struct {
		name    string
		res     metadata.ConfigResource
		changes []ConfigChange
		want    string
	}{
		{"nothing", resource(tp, "t"), nil, "0"},
		{"a topic's key", resource(tp, "t"), []ConfigChange{set("retention.ms", "1")}, "0"},
		{"an unknown topic key deleted", resource(tp, "t"), []ConfigChange{{"nope", OpDelete, nil}}, "0"},
		{"an unknown topic key", resource(tp, "t"), []ConfigChange{set("nope", "1")}, "40 Unknown topic config name: nope"},
		{"a key twice", resource(tp, "t"), []ConfigChange{set("retention.ms", "1"), set("retention.ms", "2")}, "42 Error due to duplicate config keys"},
		{"null", resource(tp, "t"), []ConfigChange{{"retention.ms", OpSet, nil}}, "42 Null value not supported for : retention.ms"},
		{"an unknown operation", resource(tp, "t"), []ConfigChange{{"retention.ms", 4, str("1")}}, "42 Unknown operations type 4"},
		{"append to a number", resource(tp, "t"), []ConfigChange{{"retention.ms", OpAppend, str("1")}}, "40 Can't APPEND to key retention.ms because its type is not LIST."},
		{"append to a list", resource(tp, "t"), []ConfigChange{{"cleanup.policy", OpAppend, str("compact")}}, "0"},
		{"rules over several keys", resource(tp, "t"), []ConfigChange{set("min.compaction.lag.ms", "9"), set("max.compaction.lag.ms", "8")},
			"40 conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)"},
		{"an unknown topic", resource(tp, "u"), []ConfigChange{set("retention.ms", "1")}, "3 The topic 'u' does not exist."},
		{"no topic", resource(tp, ""), []ConfigChange{set("retention.ms", "1")}, "42 Default topic resources are not allowed."},
		{"an illegal topic", resource(tp, "a b"), nil, "17 Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		{"a broker's key", resource(br, "1"), []ConfigChange{set("log.cleaner.threads", "2")}, "0"},
		{"a cluster default", resource(br, ""), []ConfigChange{set("log.retention.ms", "1")}, "0"},
		{"an unknown broker key", resource(br, ""), []ConfigChange{set("nope", "1")}, "0"},
		{"a read-only key", resource(br, "1"), []ConfigChange{set("log.dirs", "/x")}, "42 Cannot update these configs dynamically: [log.dirs]"},
		{"a key of one broker for all", resource(br, ""), []ConfigChange{set("listeners", "PLAINTEXT://127.0.0.1:1")},
			"42 Cannot update these configs at default cluster level, broker id must be specified: [listeners]"},
		{"another broker", resource(br, "2"), []ConfigChange{set("log.cleaner.threads", "2")}, "42 Unexpected broker id, expected 1, but received 2"},
		{"a broker that is no number", resource(br, "x"), nil, "42 Node id must be an integer, but it is: x"},
		{"min.insync.replicas of one broker", resource(br, "1"), []ConfigChange{set("min.insync.replicas", "1")}, "40 Broker-level min.insync.replicas cannot be altered while ELR is enabled."},
		{"min.insync.replicas of the cluster removed", resource(br, ""), []ConfigChange{{"min.insync.replicas", OpDelete, nil}}, "40 Cluster-level min.insync.replicas cannot be removed while ELR is enabled."},
		{"a group", resource(gr, "g"), []ConfigChange{set("consumer.session.timeout.ms", "50000")}, "0"},
		{"a group's value out of range", resource(gr, "g"), []ConfigChange{set("consumer.session.timeout.ms", "1")}, "40"},
		{"no group", resource(gr, ""), nil, "42 Default group resources are not allowed."},
		{"client metrics", resource(cm, "m"), []ConfigChange{set("interval.ms", "5000")}, "0"},
		{"client metrics too often", resource(cm, "m"), []ConfigChange{set("interval.ms", "99")}, "42"},
		{"an unknown type", resource(3, "x"), nil, "42 Unknown resource type 3"},
	}
	c := newCluster(t, "")
	c.create(topic("t", 1))
	end := c.Image().End
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			errs, err := c.IncrementalAlterConfigs([]ResourceChanges{{tt.res, tt.changes}}, true)
			if err != nil {
				t.Fatal(err)
			}
			if got := errorText(errs[0]); got != tt.want && !(len(tt.want) == 2 && strings.HasPrefix(got, tt.want+" ")) {
				t.Errorf("IncrementalAlterConfigs = %s, want %s", got, tt.want)
			}
		})
	}
	res := resource(tp, "t")
	errs, err := c.IncrementalAlterConfigs([]ResourceChanges{{res, []ConfigChange{set("retention.ms", "1")}}, {res, nil}}, false)
	if err != nil || errs[0] == nil || errs[0].Code != kafka.ErrInvalidRequest || errs[1] == nil {
		t.Errorf("a resource twice: %v, %v", errs, err)
	}
	errs, err = c.AlterConfigs([]ResourceConfigs{{res, []Setting{{"retention.ms", nil}}}, {resource(br, ""), nil}}, false)
	if err != nil || errorText(errs[0]) != "42 Null value not supported for : retention.ms" || errs[1] == nil {
		t.Errorf("AlterConfigs with null, and without min.insync.replicas: %v, %v", errs, err)
	}
	if c.Image().End != end {
		t.Error("refused changes wrote records")
	}
}
