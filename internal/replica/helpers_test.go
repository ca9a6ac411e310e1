package replica

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// node is a broker's data directory, metadata and partitions.
type node struct {
	t     testing.TB
	disk  vfs.FS
	dirs  *logdir.Manager
	m     *Manager
	image *metadata.Image
}

func newNode(t testing.TB, disk vfs.FS, dirs ...string) *node {
	t.Helper()
	if len(dirs) == 0 {
		dirs = []string{"/data"}
	}
	for i, dir := range dirs {
		if _, err := disk.Stat(dir + "/" + checkpoint.MetaFile); err == nil {
			continue
		}
		meta := checkpoint.MetaProperties{Version: 1, NodeID: 1, ClusterID: "test", DirectoryID: kafka.UUID{15: byte(101 + i)}}
		must(t, disk.MkdirAll(dir, 0o755), checkpoint.WriteMeta(disk, dir+"/"+checkpoint.MetaFile, meta, start), disk.SyncDir(filepath.Dir(dir)))
	}
	n := &node{t: t, disk: disk, image: metadata.NewImage()}
	n.load(dirs)
	must(t, n.m.ApplyImage(n.image))
	return n
}

func (n *node) load(dirs []string) {
	n.t.Helper()
	var err error
	n.dirs, err = logdir.Open(logdir.Options{
		FS: n.disk, Dirs: dirs, NodeID: 1, FileDeleteDelay: time.Hour,
		Now:       func() time.Time { return start },
		OnOffline: func(o logdir.Offline, _ int) { n.m.Offline(o) },
	})
	must(n.t, err)
	n.m = NewManager(Options{Dirs: n.dirs, NodeID: 1})
	must(n.t, n.dirs.Load(logdir.LoadOptions{Image: n.image, Config: func(topic string) commitlog.Config {
		return logdir.LogConfig(n.m.TopicSettings(n.image, topic))
	}}))
	n.t.Cleanup(func() { n.dirs.Close(1) })
}

// apply commits records and has the partitions follow.
func (n *node) apply(records ...metadata.Record) error {
	n.t.Helper()
	d := metadata.NewDelta(n.image)
	for _, r := range records {
		must(n.t, d.Apply(r))
	}
	n.image = d.Finish(n.image.End+1, 1, 0)
	return n.m.Apply(n.image, d)
}

func topicID(name string) kafka.TopicID {
	var id kafka.TopicID
	copy(id[:15], name)
	id[15] = 0xff
	return id
}

func topicRecord(name string) metadata.Record {
	return &metadata.TopicRecord{Name: name, TopicID: topicID(name)}
}

// partitionRecord is a partition that node 1 leads alone in epoch 0.
func partitionRecord(topic string, partition int32) *metadata.PartitionRecord {
	return &metadata.PartitionRecord{
		TopicID: topicID(topic), PartitionID: partition,
		Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1,
	}
}

func leaderRecord(topic string, leader kafka.BrokerID) metadata.Record {
	return &metadata.PartitionChangeRecord{TopicID: topicID(topic), Leader: leader, LeaderRecoveryState: metadata.RecoveryUnchanged}
}

// smallIndexes keeps the maps of a memory disk small.
func smallIndexes(topic string) metadata.Record {
	value := "4096"
	return &metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: topic, Name: "segment.index.bytes", Value: &value}
}

func setting(topic, key, value string) metadata.Record {
	return &metadata.ConfigRecord{ResourceType: metadata.ResourceTopic, ResourceName: topic, Name: key, Value: &value}
}

// topic makes a topic of one partition that node 1 leads.
func (n *node) topic(name string, settings ...metadata.Record) *Partition {
	n.t.Helper()
	must(n.t, n.apply(append(settings, smallIndexes(name), topicRecord(name), partitionRecord(name, 0))...))
	return n.get(name)
}

func (n *node) get(name string) *Partition {
	n.t.Helper()
	p := n.m.Get(kafka.TopicPartition{Topic: name})
	if p == nil {
		n.t.Fatalf("no partition %s-0", name)
	}
	return p
}

func newTopicNode(t testing.TB) (*node, *Partition) {
	n := newNode(t, memfs.New())
	return n, n.topic("orders")
}

// batch is a batch of n records with values of size bytes.
func batch(t testing.TB, n, size int) []byte {
	t.Helper()
	var b record.Builder
	b.Reset(record.NewBuildOptions())
	for range n {
		b.Append(kafka.TimestampOf(start), nil, make([]byte, size), nil)
	}
	out, err := b.Finish()
	must(t, err)
	return append([]byte(nil), out...)
}

func produce(t testing.TB, p *Partition, n int) AppendInfo {
	t.Helper()
	info, err := p.Append(batch(t, n, 10), AppendOptions{Acks: -1})
	must(t, err)
	return info
}

func readOptions(offset kafka.Offset, bound commitlog.Bound) ReadOptions {
	return ReadOptions{
		ReadOptions:      commitlog.ReadOptions{MaxBytes: 1 << 20, Bound: bound, MinOneBatch: true},
		Offset:           offset,
		CurrentEpoch:     kafka.NoLeaderEpoch,
		LastFetchedEpoch: kafka.NoLeaderEpoch,
	}
}

// fetch reads and gives the region back; only its length matters here.
func fetch(t testing.TB, p *Partition, o ReadOptions) ReadInfo {
	t.Helper()
	info, err := p.Read(o)
	must(t, err)
	if info.Region.Release != nil {
		info.Region.Release()
	}
	return info
}
