package replica

import (
	"errors"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func TestLookups(t *testing.T) {
	n := newNode(t, memfs.New())
	must(t, n.apply(topicRecord("orders"), smallIndexes("orders"), partitionRecord("orders", 0), partitionRecord("orders", 2)))
	p := n.m.Get(kafka.TopicPartition{Topic: "orders", Partition: 2})
	if p == nil || p.Name().Partition != 2 || p.TopicID() != topicID("orders") {
		t.Fatalf("Get = %+v", p)
	}
	for name, got := range map[string]*Partition{
		"by id":    n.m.GetByID(topicID("orders"), 2),
		"by topic": n.m.Topic("orders").Partition(2),
		"by bytes": n.m.TopicBytes([]byte("orders")).Partition(2),
	} {
		if got != p {
			t.Errorf("%s: %p, want %p", name, got, p)
		}
	}
	for _, number := range []int32{-1, 1, 3, 1 << 30} {
		if got := n.m.GetByID(topicID("orders"), number); got != nil {
			t.Errorf("partition %d: %+v", number, got)
		}
	}
	if n.m.Topic("users") != nil || n.m.TopicByID(topicID("users")) != nil || n.m.Get(kafka.TopicPartition{Topic: "users"}) != nil {
		t.Error("an unknown topic was found")
	}
	if got := len(n.m.Partitions()); got != 2 {
		t.Errorf("%d partitions, want 2", got)
	}
}

func TestPartitionsAreAdded(t *testing.T) {
	n := newNode(t, memfs.New())
	p := n.topic("orders")
	produce(t, p, 1)
	must(t, n.apply(partitionRecord("orders", 1), partitionRecord("orders", 2)))
	if n.get("orders") != p {
		t.Error("the first partition was made anew")
	}
	for _, number := range []int32{1, 2} {
		produce(t, n.m.GetByID(topicID("orders"), number), 1)
	}
}

func TestOnlyOwnReplicasAreKept(t *testing.T) {
	n := newNode(t, memfs.New())
	other := partitionRecord("orders", 1)
	other.Replicas, other.ISR, other.Leader = []kafka.BrokerID{2}, []kafka.BrokerID{2}, 2
	must(t, n.apply(topicRecord("orders"), smallIndexes("orders"), partitionRecord("orders", 0), other))
	if n.m.GetByID(topicID("orders"), 1) != nil {
		t.Error("a partition of another broker was made")
	}
}

func TestDeleteAndCreateAgain(t *testing.T) {
	disk := memfs.New()
	n := newNode(t, disk)
	p := n.topic("orders")
	produce(t, p, 3)
	must(t, n.apply(&metadata.RemoveTopicRecord{TopicID: topicID("orders")}))
	if n.m.Topic("orders") != nil || n.m.TopicByID(topicID("orders")) != nil {
		t.Error("the deleted topic is found")
	}
	if _, err := p.Append(batch(t, 1, 10), AppendOptions{}); !errors.Is(err, ErrUnknownPartition) {
		t.Errorf("Append to a deleted partition = %v, want ErrUnknownPartition", err)
	}
	if _, err := p.Read(readOptions(0, 0)); !errors.Is(err, ErrUnknownPartition) {
		t.Errorf("Read of a deleted partition = %v, want ErrUnknownPartition", err)
	}
	second := kafka.TopicID{0: 9, 15: 9}
	record := partitionRecord("orders", 0)
	record.TopicID = second
	must(t, n.apply(smallIndexes("orders"), &metadata.TopicRecord{Name: "orders", TopicID: second}, record))
	fresh := n.get("orders")
	if fresh == p || fresh.Log().EndOffset() != 0 || n.m.GetByID(second, 0) != fresh {
		t.Errorf("the new topic is %+v", fresh)
	}
	list, err := disk.ReadDir("/data")
	must(t, err)
	deleted := 0
	for _, e := range list {
		if strings.HasSuffix(e.Name(), "-delete") {
			deleted++
		}
	}
	if deleted != 1 {
		t.Errorf("%d -delete directories, want 1", deleted)
	}
}

// Deletion and creation under one name in one batch of metadata.
func TestRecreateInOneChange(t *testing.T) {
	n := newNode(t, memfs.New())
	produce(t, n.topic("orders"), 3)
	second := kafka.TopicID{0: 9, 15: 9}
	record := partitionRecord("orders", 0)
	record.TopicID = second
	must(t, n.apply(&metadata.RemoveTopicRecord{TopicID: topicID("orders")},
		smallIndexes("orders"), &metadata.TopicRecord{Name: "orders", TopicID: second}, record))
	if p := n.get("orders"); p.TopicID() != second || p.Log().EndOffset() != 0 {
		t.Errorf("partition = %v, end %d", p.TopicID(), p.Log().EndOffset())
	}
}

func TestApplyImage(t *testing.T) {
	n := newNode(t, memfs.New())
	n.topic("gone")
	kept := n.topic("kept")
	d := metadata.NewDelta(n.image)
	must(t, d.Apply(&metadata.RemoveTopicRecord{TopicID: topicID("gone")}), d.Apply(topicRecord("new")), d.Apply(smallIndexes("new")), d.Apply(partitionRecord("new", 0)))
	n.image = d.Finish(n.image.End+1, 1, 0)
	must(t, n.m.ApplyImage(n.image))
	if n.m.Topic("gone") != nil || n.get("kept") != kept {
		t.Error("topics do not follow the image")
	}
	produce(t, n.get("new"), 1)
}

func TestSettingsFollowTheMetadata(t *testing.T) {
	n := newNode(t, memfs.New())
	p := n.topic("orders", setting("orders", "retention.ms", "1000"))
	if got := p.Log().Config().RetentionMs; got != 1000 {
		t.Errorf("retention.ms = %d, want 1000", got)
	}
	must(t, n.apply(setting("orders", "retention.ms", "2000"), setting("orders", "not.a.key", "x"), setting("orders", "flush.ms", "not a number")))
	if got := p.Log().Config().RetentionMs; got != 2000 {
		t.Errorf("retention.ms = %d, want 2000: one bad setting must not disable the others", got)
	}
	must(t, n.apply(&metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: "orders", Name: "retention.ms"}))
	if got := p.Log().Config().RetentionMs; got != 604_800_000 {
		t.Errorf("retention.ms = %d after it was removed, want the default", got)
	}
	n.m.RefreshConfigs(n.image)
}
