package broker_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/wire"
)

// served asks for the list of APIs.
func served(c *conn) map[int16][2]int16 {
	q := kmsg.NewPtrApiVersionsRequest()
	list := map[int16][2]int16{}
	for _, k := range do[*kmsg.ApiVersionsResponse](c, q).ApiKeys {
		list[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
	}
	return list
}

func TestEveryAPIOfTheFirstReleaseIsAdvertised(t *testing.T) {
	got := served(dial(t, newNode(t)))
	want := map[int16][2]int16{
		0: {0, 13}, 1: {4, 18}, 2: {1, 11}, 3: {0, 13}, 8: {2, 10}, 9: {1, 10}, 10: {0, 6}, 11: {0, 9}, 12: {0, 4},
		13: {0, 5}, 14: {0, 5}, 15: {0, 6}, 16: {0, 5}, 18: {0, 5}, 19: {2, 7}, 20: {1, 6}, 21: {0, 2}, 22: {0, 5},
		23: {2, 4}, 32: {1, 4}, 33: {0, 2}, 35: {1, 5}, 37: {0, 3}, 42: {0, 3}, 44: {0, 1}, 47: {0, 0}, 60: {0, 2}, 61: {0, 0}, 75: {0, 0},
	}
	for key, versions := range want {
		if got[key] != versions {
			t.Errorf("%s: versions %v, want %v", kmsg.NameForKey(key), got[key], versions)
		}
	}
}

func TestAPIVersionsErrorsAreKafkas(t *testing.T) {
	n := newNode(t)
	c := dial(t, n)
	ask := func(version int16, change func(q *kmsg.ApiVersionsRequest)) *kmsg.ApiVersionsResponse {
		q := kmsg.NewPtrApiVersionsRequest()
		q.Version, q.ClientSoftwareName, q.ClientSoftwareVersion = version, "test", "1.0"
		change(q)
		return do[*kmsg.ApiVersionsResponse](c, q)
	}
	cluster := n.ClusterID()
	tests := []struct {
		name    string
		version int16
		change  func(q *kmsg.ApiVersionsRequest)
		code    int16
	}{
		{"no software name", 3, func(q *kmsg.ApiVersionsRequest) { q.ClientSoftwareName = "" }, 42},
		{"a name with a space", 3, func(q *kmsg.ApiVersionsRequest) { q.ClientSoftwareName = "a b" }, 42},
		{"a name that ends in a dash", 3, func(q *kmsg.ApiVersionsRequest) { q.ClientSoftwareName = "a-" }, 42},
		{"a version that begins with a dot", 4, func(q *kmsg.ApiVersionsRequest) { q.ClientSoftwareVersion = ".1" }, 42},
		{"a name of one letter", 3, func(q *kmsg.ApiVersionsRequest) { q.ClientSoftwareName = "a" }, 0},
		{"dots and dashes inside", 3, func(q *kmsg.ApiVersionsRequest) { q.ClientSoftwareVersion = "2.16.1-rdkafka-2.16.0" }, 0},
		{"the right cluster and node", 5, func(q *kmsg.ApiVersionsRequest) { q.ClusterID, q.NodeID = &cluster, 1 }, 0},
		{"another node", 5, func(q *kmsg.ApiVersionsRequest) { q.ClusterID, q.NodeID = &cluster, 2 }, 129},
		{"another cluster", 5, func(q *kmsg.ApiVersionsRequest) { q.ClusterID, q.NodeID = kmsg.StringPtr("x"), 1 }, 129},
		{"a cluster alone", 5, func(q *kmsg.ApiVersionsRequest) { q.ClusterID = &cluster }, 42},
		{"a node alone", 5, func(q *kmsg.ApiVersionsRequest) { q.NodeID = 1 }, 42},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := ask(tt.version, tt.change)
			if a.ErrorCode != tt.code || (len(a.ApiKeys) == 0) != (tt.code != 0) {
				t.Errorf("error %d with %d keys, want %d", a.ErrorCode, len(a.ApiKeys), tt.code)
			}
		})
	}
	for _, version := range []uint16{6, 99, 32767, 0xffff} {
		t.Run(fmt.Sprintf("version %d is answered in the form of version 0", int16(version)), func(t *testing.T) {
			b := []byte{0, 0, 0, 11, 0, 18, byte(version >> 8), byte(version), 0, 0, 0, 7, 0xff, 0xff, 0}
			c.write(b)
			want := []byte{0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, 5}
			if diff := cmp.Diff(want, c.read()); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("an unknown version without the tag byte closes the connection", func(t *testing.T) {
		c := dial(t, n)
		c.write([]byte{0, 0, 0, 10, 0, 18, 0, 99, 0, 0, 0, 7, 0xff, 0xff})
		c.wantClosed()
	})
	t.Run("version 3 hides features whose lowest level is 0", func(t *testing.T) {
		for _, f := range ask(3, func(*kmsg.ApiVersionsRequest) {}).SupportedFeatures {
			if f.MinVersion == 0 {
				t.Errorf("feature %s from level 0", f.Name)
			}
		}
		if n := len(ask(4, func(*kmsg.ApiVersionsRequest) {}).SupportedFeatures); n != 7 {
			t.Errorf("version 4 lists %d features, want 7", n)
		}
	})
}

func TestUnknownRequestsCloseTheConnection(t *testing.T) {
	n := newNode(t)
	for _, tt := range []struct {
		name         string
		key, version int16
	}{
		{"unknown key", 999, 0}, {"negative key", -1, 0}, {"retired key", 4, 0}, {"a controller's key", 52, 0}, {"key after the last", 95, 0},
		{"Metadata 99", 3, 99}, {"Metadata -1", 3, -1}, {"Fetch 3", 1, 3}, {"ListOffsets 0", 2, 0}, {"InitProducerId 6", 22, 6},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, n)
			b := []byte{0, 0, 0, 11, byte(tt.key >> 8), byte(tt.key), byte(tt.version >> 8), byte(tt.version), 0, 0, 0, 7, 0xff, 0xff, 0}
			c.write(b)
			c.wantClosed()
		})
	}
}

// TestEveryCutOfEveryRequestClosesTheConnection sends what the oracle encodes of
// each served API and version, without its last byte.
func TestEveryCutOfEveryRequestClosesTheConnection(t *testing.T) {
	n := newNode(t)
	for key, versions := range served(dial(t, n)) {
		for version := max(versions[0], map[int16]int16{0: 3}[key]); version <= versions[1]; version++ {
			q := kmsg.RequestForKey(key)
			q.SetVersion(version)
			b := frame(q, 1, "test")
			if len(b) == 18 || key == wire.APIVersionsKey && version < 3 {
				continue // no body to cut
			}
			b = b[:len(b)-1]
			binary.BigEndian.PutUint32(b, uint32(len(b)-4))
			c := dial(t, n)
			c.write(b)
			c.wantClosed()
			c.Close()
		}
	}
	if _, ok := served(dial(t, n))[3]; !ok {
		t.Error("the broker does not serve any more")
	}
}

func TestMetadataIsAnsweredAsByKafka(t *testing.T) {
	n := newNode(t)
	c := dial(t, n)
	a, b := createTopic(c, "a", 1), createTopic(c, "b", 2)
	named := func(names ...string) []kmsg.MetadataRequestTopic {
		list := []kmsg.MetadataRequestTopic{}
		for _, name := range names {
			list = append(list, kmsg.MetadataRequestTopic{Topic: &name})
		}
		return list
	}
	ids := func(ids ...[16]byte) []kmsg.MetadataRequestTopic {
		var list []kmsg.MetadataRequestTopic
		for _, id := range ids {
			list = append(list, kmsg.MetadataRequestTopic{TopicID: id})
		}
		return list
	}
	idAndName := ids(a)
	idAndName[0].Topic = kmsg.StringPtr("b")
	tests := []struct {
		name    string
		version int16
		topics  []kmsg.MetadataRequestTopic
		auto    bool
		want    []string
	}{
		{"version 0, an empty list is all", 0, named(), false, []string{"a 0", "b 0"}},
		{"version 1, null is all", 1, nil, false, []string{"a 0", "b 0"}},
		{"version 1, an empty list is none", 1, named(), false, nil},
		{"an unknown name", 4, named("absent"), false, []string{"absent 3"}},
		{"illegal names", 4, named("", ".", "..", "a/b", strings.Repeat("x", 250)), true, []string{" 17", ". 17", ".. 17", "a/b 17", strings.Repeat("x", 250) + " 17"}},
		{"the metadata topic is never created", 4, named("__cluster_metadata"), true, []string{"__cluster_metadata 3"}},
		{"names twice", 9, named("a", "a", "absent", "absent"), false, []string{"a 0", "absent 3"}},
		{"by id", 12, ids(b, a), false, []string{"a 0", "b 0"}},
		{"an id twice", 12, ids(a, a), false, []string{"a 0"}},
		{"an unknown id", 12, ids([16]byte{9}), false, []string{"null 100"}},
		{"ids and names mixed, ids win", 12, append(ids(a), named("b")...), false, []string{"a 0"}},
		{"id and name of one topic, the id wins", 12, idAndName, false, []string{"a 0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := kmsg.NewPtrMetadataRequest()
			q.Version, q.Topics, q.AllowAutoTopicCreation = tt.version, tt.topics, tt.auto
			answer := do[*kmsg.MetadataResponse](c, q)
			var got []string
			for _, topic := range answer.Topics {
				name := "null"
				if topic.Topic != nil {
					name = *topic.Topic
				}
				got = append(got, fmt.Sprintf("%s %d", name, topic.ErrorCode))
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if len(answer.Brokers) != 1 || answer.Brokers[0].NodeID != 1 || (tt.version > 0 && answer.ControllerID != 1) {
				t.Errorf("brokers %+v, controller %d", answer.Brokers, answer.ControllerID)
			}
		})
	}
	for _, tt := range []struct {
		name    string
		version int16
		topics  []kmsg.MetadataRequestTopic
		code    int16
	}{
		{"an id in version 10 fails the request", 10, ids(a), 42},
		{"neither id nor name fails the request", 12, []kmsg.MetadataRequestTopic{{}}, -1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q := kmsg.NewPtrMetadataRequest()
			q.Version, q.Topics = tt.version, tt.topics
			answer := do[*kmsg.MetadataResponse](c, q)
			if len(answer.Brokers) != 0 || answer.ControllerID != -1 || len(answer.Topics) != 1 || answer.Topics[0].ErrorCode != tt.code {
				t.Errorf("answer %+v, want no brokers and error %d", answer, tt.code)
			}
		})
	}
	t.Run("an unknown name is created where that is allowed", func(t *testing.T) {
		for i, version := range []int16{3, 12} {
			name := fmt.Sprintf("new%d", i)
			q := kmsg.NewPtrMetadataRequest()
			q.Version, q.Topics, q.AllowAutoTopicCreation = version, named(name), true
			if code := do[*kmsg.MetadataResponse](c, q).Topics[0].ErrorCode; code != 3 {
				t.Errorf("first answer: error %d, want 3", code)
			}
			if code := do[*kmsg.MetadataResponse](c, q).Topics[0].ErrorCode; code != 0 {
				t.Errorf("second answer: error %d, want none", code)
			}
		}
	})
	t.Run("operations are told when asked for", func(t *testing.T) {
		q := kmsg.NewPtrMetadataRequest()
		q.Version, q.Topics, q.IncludeTopicAuthorizedOperations, q.IncludeClusterAuthorizedOperations = 9, named("a"), true, true
		answer := do[*kmsg.MetadataResponse](c, q)
		if answer.AuthorizedOperations != 8096 || answer.Topics[0].AuthorizedOperations != 3576 {
			t.Errorf("operations %d and %d, want 8096 and 3576", answer.AuthorizedOperations, answer.Topics[0].AuthorizedOperations)
		}
	})
}

func TestTopicsAreNotCreatedWhenForbidden(t *testing.T) {
	c := dial(t, start(t, t.TempDir(), "auto.create.topics.enable=false"))
	q := kmsg.NewPtrMetadataRequest()
	q.Version, q.AllowAutoTopicCreation = 9, true
	q.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("new")}}
	for range 2 {
		if code := do[*kmsg.MetadataResponse](c, q).Topics[0].ErrorCode; code != 3 {
			t.Errorf("error %d, want 3", code)
		}
	}
}

func TestFindCoordinatorIsAnsweredAsByKafka(t *testing.T) {
	c := dial(t, newNode(t))
	q := kmsg.NewPtrFindCoordinatorRequest()
	q.Version, q.CoordinatorKey = 1, "g"
	a := do[*kmsg.FindCoordinatorResponse](c, q)
	if a.ErrorCode != 15 || a.NodeID != -1 || a.Host != "" || a.Port != -1 || *a.ErrorMessage != "The coordinator is not available." {
		t.Errorf("the first answer is %+v, want error 15 and no node", a)
	}
	findGroup(c)
	q = kmsg.NewPtrFindCoordinatorRequest()
	q.Version, q.CoordinatorKeys = 4, []string{"b", "", "b"}
	a = do[*kmsg.FindCoordinatorResponse](c, q)
	var keys []string
	for _, k := range a.Coordinators {
		keys = append(keys, k.Key)
		if k.ErrorCode != 0 || k.NodeID != 1 || k.Port == 0 || k.ErrorMessage == nil || *k.ErrorMessage != "" {
			t.Errorf("coordinator %+v", k)
		}
	}
	if diff := cmp.Diff([]string{"b", "", "b"}, keys); diff != "" {
		t.Error(diff)
	}
	q.CoordinatorKeys = nil
	if a = do[*kmsg.FindCoordinatorResponse](c, q); len(a.Coordinators) != 0 {
		t.Errorf("%d coordinators of no keys", len(a.Coordinators))
	}
	q.Version, q.CoordinatorKeys, q.CoordinatorType = 6, []string{"x"}, 2
	if a = do[*kmsg.FindCoordinatorResponse](c, q); a.Coordinators[0].ErrorCode != 42 {
		t.Errorf("a share key of another shape: error %d, want 42", a.Coordinators[0].ErrorCode)
	}
}

func TestDescribeClusterRefusesOtherEndpointTypes(t *testing.T) {
	c := dial(t, newNode(t))
	for endpointType, code := range map[int8]int16{1: 0, 2: 114, 3: 115} {
		q := kmsg.NewPtrDescribeClusterRequest()
		q.Version, q.EndpointType = 1, endpointType
		a := do[*kmsg.DescribeClusterResponse](c, q)
		if a.ErrorCode != code || (a.ClusterID == "") != (code != 0) {
			t.Errorf("type %d: error %d, cluster %q, want %d", endpointType, a.ErrorCode, a.ClusterID, code)
		}
	}
}

func TestDescribeTopicPartitionsIsCutWithACursor(t *testing.T) {
	c := dial(t, newNode(t))
	createTopic(c, "a", 2)
	createTopic(c, "b", 3)
	createTopic(c, "c", 1)
	ask := func(limit int32, cursor *kmsg.DescribeTopicPartitionsRequestCursor, names ...string) string {
		q := kmsg.NewPtrDescribeTopicPartitionsRequest()
		q.ResponsePartitionLimit, q.Cursor = limit, cursor
		for _, name := range names {
			q.Topics = append(q.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		a := do[*kmsg.DescribeTopicPartitionsResponse](c, q)
		var b strings.Builder
		for _, t := range a.Topics {
			fmt.Fprintf(&b, "%s %d [", *t.Topic, t.ErrorCode)
			for _, p := range t.Partitions {
				fmt.Fprint(&b, p.Partition)
			}
			b.WriteString("] ")
		}
		if a.NextCursor != nil {
			fmt.Fprintf(&b, "next %s-%d", a.NextCursor.Topic, a.NextCursor.Partition)
		}
		return strings.TrimSpace(b.String())
	}
	at := func(topic string, partition int32) *kmsg.DescribeTopicPartitionsRequestCursor {
		return &kmsg.DescribeTopicPartitionsRequestCursor{Topic: topic, Partition: partition}
	}
	for _, tt := range []struct{ name, got, want string }{
		{"all", ask(2000, nil), "a 0 [01] b 0 [012] c 0 [0]"},
		{"sorted, each once, unknown ones with an error", ask(2000, nil, "c", "x", "a", "c"), "a 0 [01] c 0 [0] x 3 []"},
		{"an illegal name", ask(2000, nil, "../x"), "../x 17 []"},
		{"cut inside a topic", ask(3, nil), "a 0 [01] b 0 [0] next b-1"},
		{"cut between topics", ask(2, nil), "a 0 [01] next b-0"},
		{"a limit below 1 is 1", ask(-5, nil), "a 0 [0] next a-1"},
		{"from a cursor", ask(3, at("b", 1)), "b 0 [12] c 0 [0]"},
		{"from a cursor whose topic is gone", ask(3, at("bb", 4)), "c 0 [0]"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

func TestListOffsetsIsAnsweredAsByKafka(t *testing.T) {
	c := dial(t, newNode(t))
	createTopic(c, "t", 1)
	for range 4 {
		produceOne(c, "t", 0)
	}
	deleteRecords(c, "t", 0, 1)
	ask := func(version int16, isolation int8, timestamps ...int64) string {
		q := kmsg.NewPtrListOffsetsRequest()
		q.Version, q.ReplicaID, q.IsolationLevel = version, -1, isolation
		t := kmsg.ListOffsetsRequestTopic{Topic: "t"}
		for _, ts := range timestamps {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Timestamp = ts
			t.Partitions = append(t.Partitions, p)
		}
		q.Topics = append(q.Topics, t)
		var list []string
		for _, p := range do[*kmsg.ListOffsetsResponse](c, q).Topics[0].Partitions {
			list = append(list, fmt.Sprintf("error %d timestamp %d offset %d epoch %d", p.ErrorCode, p.Timestamp, p.Offset, p.LeaderEpoch))
		}
		return strings.Join(list, "; ")
	}
	const ts = 1750000000003
	for _, tt := range []struct{ name, got, want string }{
		{"latest", ask(11, 0, -1), "error 0 timestamp -1 offset 4 epoch 0"},
		{"latest stable", ask(11, 1, -1), "error 0 timestamp -1 offset 4 epoch 0"},
		{"earliest", ask(11, 0, -2), "error 0 timestamp -1 offset 1 epoch 0"},
		{"largest timestamp, whatever the log start", ask(7, 0, -3), fmt.Sprintf("error 0 timestamp %d offset 0 epoch 0", int64(ts))},
		{"earliest local", ask(8, 0, -4), "error 0 timestamp -1 offset 1 epoch 0"},
		{"latest tiered", ask(9, 0, -5), "error 0 timestamp -1 offset -1 epoch -1"},
		{"earliest pending upload", ask(11, 0, -6), "error 0 timestamp -1 offset -1 epoch -1"},
		{"a time that is there", ask(11, 0, ts), fmt.Sprintf("error 0 timestamp %d offset 1 epoch 0", int64(ts))},
		{"a time after the last", ask(11, 0, ts+1), "error 0 timestamp -1 offset -1 epoch -1"},
		{"largest timestamp in version 6", ask(6, 0, -3), "error 35 timestamp -1 offset -1 epoch -1"},
		{"earliest local in version 7", ask(7, 0, -4), "error 35 timestamp -1 offset -1 epoch -1"},
		{"latest tiered in version 8", ask(8, 0, -5), "error 35 timestamp -1 offset -1 epoch -1"},
		{"pending upload in version 10", ask(10, 0, -6), "error 35 timestamp -1 offset -1 epoch -1"},
		{"another negative timestamp", ask(11, 0, -7), "error 35 timestamp -1 offset -1 epoch -1"},
		{"version 1 has no epoch", ask(1, 0, -1), "error 0 timestamp -1 offset 4 epoch -1"},
		{"an unknown isolation level", ask(11, 2, -1), "error -1 timestamp -1 offset -1 epoch -1"},
		{"a partition twice", ask(11, 0, -1, -2), "error 42 timestamp -1 offset -1 epoch -1"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

func TestDeleteRecordsIsAnsweredAsByKafka(t *testing.T) {
	c := dial(t, newNode(t))
	findGroup(c)
	createTopic(c, "t", 1)
	createTopic(c, "compacted", 1, "cleanup.policy=compact")
	for range 3 {
		produceOne(c, "t", 0)
	}
	for _, tt := range []struct {
		name, topic string
		partition   int32
		offset      int64
		low         int64
		code        int16
	}{
		{"to an offset", "t", 0, 1, 1, 0},
		{"below the start changes nothing", "t", 0, 0, 1, 0},
		{"beyond the high watermark", "t", 0, 4, -1, 1},
		{"below -1", "t", 0, -2, -1, 1},
		{"to the high watermark", "t", 0, -1, 3, 0},
		{"an unknown partition", "t", 1, 0, -1, 3},
		{"an unknown topic", "absent", 0, 0, -1, 3},
		{"an internal topic", "__consumer_offsets", 0, 0, -1, 17},
		{"a compacted topic", "compacted", 0, 0, -1, 44},
	} {
		q := kmsg.NewPtrDeleteRecordsRequest()
		q.Version = 2
		q.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: tt.topic, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: tt.partition, Offset: tt.offset}}}}
		a := do[*kmsg.DeleteRecordsResponse](c, q).Topics[0].Partitions[0]
		if a.LowWatermark != tt.low || a.ErrorCode != tt.code {
			t.Errorf("%s: %d and error %d, want %d and %d", tt.name, a.LowWatermark, a.ErrorCode, tt.low, tt.code)
		}
	}
}

func TestDescribeProducersAndLogDirs(t *testing.T) {
	c := dial(t, newNode(t))
	createTopic(c, "t", 1)
	produceOne(c, "t", 0)
	q := kmsg.NewPtrDescribeProducersRequest()
	q.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: "t", Partitions: []int32{0, 1}}}
	parts := do[*kmsg.DescribeProducersResponse](c, q).Topics[0].Partitions
	if parts[0].ErrorCode != 0 || len(parts[0].ActiveProducers) != 0 || parts[1].ErrorCode != 3 {
		t.Errorf("producers %+v, want none, and error 3", parts)
	}
	for _, tt := range []struct {
		name   string
		topics []kmsg.DescribeLogDirsRequestTopic
		want   int
	}{
		{"null is all", nil, 1},
		{"an empty list is the directories", []kmsg.DescribeLogDirsRequestTopic{}, 0},
		{"unknown partitions are left out", []kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{0, 7}}}, 1},
	} {
		q := kmsg.NewPtrDescribeLogDirsRequest()
		q.Version, q.Topics = 4, tt.topics
		a := do[*kmsg.DescribeLogDirsResponse](c, q)
		if len(a.Dirs) != 1 || len(a.Dirs[0].Topics) != tt.want || a.Dirs[0].TotalBytes <= 0 {
			t.Errorf("%s: %+v", tt.name, a)
		}
		if tt.want == 1 && (len(a.Dirs[0].Topics[0].Partitions) != 1 || a.Dirs[0].Topics[0].Partitions[0].Size != int64(len(oneRecord(t)))) {
			t.Errorf("%s: %+v", tt.name, a.Dirs[0].Topics)
		}
	}
}

func TestCountsThatLieCloseTheConnection(t *testing.T) {
	n := newNode(t)
	// DescribeGroups v0: an array of strings. Kafka 4.4 serves a million of them
	// and closes for one more.
	groups := func(count uint32, sent int) []byte {
		b := []byte{0, 0, 0, 0, 0, 15, 0, 0, 0, 0, 0, 1, 0xff, 0xff}
		b = binary.BigEndian.AppendUint32(b, count)
		b = append(b, make([]byte, 2*sent)...)
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		return b
	}
	for _, tt := range []struct {
		name  string
		count uint32
		sent  int
	}{
		{"2³¹−1 of none", 0x7fffffff, 0},
		{"twice what was sent", 2000, 1000},
		{"one more than a million", 1_000_001, 1_000_001},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := dial(t, n)
			go c.Write(groups(tt.count, tt.sent))
			c.wantClosed()
		})
	}
	// 10,001 tagged fields in the request header.
	c := dial(t, n)
	b := append([]byte{0, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0x91, 0x4e}, make([]byte, 20_002)...)
	b = append(b, 0, 0)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	c.write(b)
	c.wantClosed()
}
