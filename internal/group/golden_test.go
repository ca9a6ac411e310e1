package group_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
)

// logged is a record of a partition that Apache Kafka wrote.
type logged struct {
	group.Logged
	marker  bool // an end of transaction
	commit  bool
	decoded *golden.Decoded // what Kafka's own decoder printed, if it did
}

// offsetsPartitions returns the records of every partition of
// __consumer_offsets in the golden directories.
func offsetsPartitions(t testing.TB) map[string][]logged {
	t.Helper()
	all := map[string][]logged{}
	for _, name := range golden.Names(t) {
		c := golden.Load(t, name)
		for i := range c.Stages {
			s := &c.Stages[i]
			dir := ""
			for _, p := range s.Partitions {
				if p.Topic != kafka.ConsumerOffsetsTopic {
					continue
				}
				if dir == "" {
					dir = s.Unpack(t)
				}
				for _, seg := range p.Segments {
					if seg.Log == nil || len(seg.Log.Batches) == 0 {
						continue
					}
					key := fmt.Sprintf("%s/%s/%s", name, s.Name, p.Dir)
					path := filepath.Join(dir, p.Dir, fmt.Sprintf("%020d.log%s", seg.Base, seg.Suffix))
					all[key] = append(all[key], readLog(t, path, seg.Log)...)
				}
			}
		}
	}
	if len(all) < 10 {
		t.Fatalf("%d partitions of __consumer_offsets in the golden data, want more", len(all))
	}
	return all
}

func readLog(t testing.TB, path string, l *golden.Log) []logged {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b = b[:l.FramedBytes]
	decoded := map[int64]*golden.Decoded{}
	for i := range l.Decoded {
		decoded[l.Decoded[i].Offset] = &l.Decoded[i]
	}
	var list []logged
	for len(b) > 0 {
		size, ok, err := record.NextBatch(b)
		if err != nil || !ok {
			t.Fatalf("%s: NextBatch = %v, %v", path, ok, err)
		}
		batch := record.Batch(b[:size])
		b = b[size:]
		var it record.Iterator
		if err := it.Reset(batch, new(record.Decompressor)); err != nil {
			t.Fatal(err)
		}
		for it.Next() {
			r := it.Record()
			e := logged{decoded: decoded[int64(r.Offset)]}
			e.Key, e.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
			e.Offset, e.Producer, e.Now = r.Offset, kafka.NoProducerID, r.Timestamp
			if batch.IsTransactional() {
				e.Producer = batch.ProducerID()
			}
			if batch.IsControl() {
				c, err := record.ParseControl(r.Key)
				if err != nil {
					t.Fatal(err)
				}
				e.marker, e.commit = true, c == record.CommitMarker
			}
			list = append(list, e)
		}
		if it.Err() != nil {
			t.Fatal(it.Err())
		}
	}
	return list
}

func TestRecordsOfKafkaDecodeToWhatItsToolPrintsAndEncodeToTheSameBytes(t *testing.T) {
	types := map[group.KeyType]int{}
	for name, records := range offsetsPartitions(t) {
		for _, r := range records {
			if r.marker {
				continue
			}
			k, err := group.DecodeKey(r.Key)
			if err != nil {
				t.Errorf("%s offset %d: DecodeKey: %v", name, r.Offset, err)
				continue
			}
			types[k.Type]++
			if got := k.AppendTo(nil); !bytes.Equal(got, r.Key) {
				t.Errorf("%s offset %d: key encodes to %x, want %x", name, r.Offset, got, r.Key)
			}
			if r.decoded == nil {
				continue
			}
			var key struct {
				Type string
				Data struct {
					Group, GroupID, Topic, MemberID, RegularExpression string
					Partition                                          int32
				}
			}
			if err := json.Unmarshal(r.decoded.Key, &key); err != nil {
				continue // a type that the tool of this release does not know
			}
			want := group.Key{Group: key.Data.Group + key.Data.GroupID, Topic: key.Data.Topic, Partition: key.Data.Partition,
				Member: key.Data.MemberID + key.Data.RegularExpression}
			n, _ := strconv.Atoi(key.Type)
			want.Type = group.KeyType(n)
			if k != want {
				t.Errorf("%s offset %d: DecodeKey = %+v, want %+v", name, r.Offset, k, want)
			}
			checkValue(t, fmt.Sprintf("%s offset %d", name, r.Offset), k, r)
		}
	}
	for _, want := range []group.KeyType{1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16} {
		if types[want] == 0 {
			t.Errorf("no record of type %d in the golden data", want)
		}
	}
}

func checkValue(t *testing.T, name string, k group.Key, r logged) {
	t.Helper()
	if r.Value == nil || k.Type > group.GroupMetadataKey {
		return
	}
	var printed struct {
		Version string
		Data    map[string]any
	}
	if err := json.Unmarshal(r.decoded.Value, &printed); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	var encoded []byte
	var got map[string]any
	if k.Type == group.GroupMetadataKey {
		v, err := group.DecodeGroup(r.Value)
		if err != nil {
			t.Errorf("%s: DecodeGroup: %v", name, err)
			return
		}
		encoded, got = v.AppendTo(nil), groupFields(&v)
		members, _ := printed.Data["members"].([]any)
		for _, m := range members { // the tool prints what clients put in there
			delete(m.(map[string]any), "subscription")
			delete(m.(map[string]any), "assignment")
		}
	} else {
		v, err := group.DecodeOffset(r.Value)
		if err != nil {
			t.Errorf("%s: DecodeOffset: %v", name, err)
			return
		}
		encoded, got = v.AppendTo(nil), offsetFields(&v)
	}
	if !bytes.Equal(encoded, r.Value) {
		t.Errorf("%s: value encodes to %x, want %x", name, encoded, r.Value)
	}
	if diff := cmp.Diff(printed.Data, got); diff != "" {
		t.Errorf("%s: decoded value differs from Kafka's (-kafka +got):\n%s", name, diff)
	}
}

func offsetFields(v *kmsg.OffsetCommitValue) map[string]any {
	f := map[string]any{"offset": float64(v.Offset), "metadata": v.Metadata, "commitTimestamp": float64(v.CommitTimestamp)}
	if v.Version >= 3 {
		f["leaderEpoch"] = float64(v.LeaderEpoch)
	}
	if v.Version == 1 {
		f["expireTimestamp"] = float64(v.ExpireTimestamp)
	}
	if v.Version >= 4 && v.TopicID != [16]byte{} {
		f["topicId"] = kafka.UUID(v.TopicID).String()
	}
	return f
}

func groupFields(v *kmsg.GroupMetadataValue) map[string]any {
	null := func(s *string) any {
		if s == nil {
			return nil
		}
		return *s
	}
	members := []any{}
	for _, m := range v.Members {
		members = append(members, map[string]any{
			"memberId": m.MemberID, "groupInstanceId": null(m.InstanceID), "clientId": m.ClientID, "clientHost": m.ClientHost,
			"rebalanceTimeout": float64(m.RebalanceTimeoutMillis), "sessionTimeout": float64(m.SessionTimeoutMillis),
		})
	}
	return map[string]any{
		"protocolType": v.ProtocolType, "generation": float64(v.Generation), "protocol": null(v.Protocol), "leader": null(v.Leader),
		"currentStateTimestamp": float64(v.CurrentStateTimestamp), "members": members,
	}
}

// machines replays the partitions of the case with groups of every kind.
func machines(t *testing.T, now kafka.Timestamp) map[string]*group.Machine {
	t.Helper()
	all := map[string]*group.Machine{}
	for name, records := range offsetsPartitions(t) {
		m := group.New(group.DefaultConfig())
		for _, r := range records {
			if r.marker {
				m.ReplayEndTransaction(r.Producer, r.commit)
				continue
			}
			if err := m.Replay(r.Logged); err != nil && !errors.Is(err, group.ErrUnknownRecord) {
				t.Errorf("%s offset %d: Replay: %v", name, r.Offset, err)
			}
		}
		m.Loaded(now)
		all[name] = m
	}
	return all
}

func TestReplayOfKafkasGroupsFindsWhatKafkaHad(t *testing.T) {
	var listed, offsets []string
	for name, m := range machines(t, 1796032520000) {
		if !strings.HasPrefix(name, "07-groups") {
			continue
		}
		for _, g := range m.ListGroups(nil, nil) {
			listed = append(listed, fmt.Sprintf("%s %q %s %s", g.Group, g.ProtocolType, g.GroupState, g.GroupType))
			r := kmsg.NewOffsetFetchRequestGroup()
			r.Group = g.Group
			fx := m.OffsetFetch(group.Context{Waiter: 1}, &r, true).Then(group.Outcome{})
			for _, topic := range fx.Replies[0].Response.(*kmsg.OffsetFetchResponse).Groups[0].Topics {
				for _, p := range topic.Partitions {
					offsets = append(offsets, fmt.Sprintf("%s %s-%d %d %d %q %d", g.Group, topic.Topic, p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata, p.ErrorCode))
				}
			}
		}
	}
	for file, got := range map[string][]string{"groups.txt": listed, "offsets.txt": offsets} {
		want, err := os.ReadFile(filepath.Join("testdata/golden", file))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), sortedLines(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

func sortedLines(lines []string) string {
	return strings.Join(slices.Sorted(slices.Values(lines)), "\n") + "\n"
}
