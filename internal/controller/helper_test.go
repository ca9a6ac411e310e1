package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/quorum"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// cluster is one node over several runs on one disk.
type cluster struct {
	t     testing.TB
	disk  vfs.FS
	dirs  int // data directories
	props string
	*Controller
	epoch int64 // of this run's registration
	ids   byte
}

// newCluster formats a node and starts it.
func newCluster(t testing.TB, props string) *cluster {
	t.Helper()
	c := &cluster{t: t, disk: memfs.New(), dirs: 1, props: props}
	c.format(nil)
	c.start(Unclean)
	return c
}

func (c *cluster) format(features []metadata.FeatureLevelRecord) {
	c.t.Helper()
	dirs := []string{"/data"}
	for i := 1; i < c.dirs; i++ {
		dirs = append(dirs, fmt.Sprint("/data", i))
	}
	err := quorum.Format(quorum.FormatOptions{FS: c.disk, Dirs: dirs, NodeID: 1, ClusterID: "c", Features: features, Now: testTime, NewID: c.newID})
	if err != nil {
		c.t.Fatal(err)
	}
}

// newID makes ids that rise, so that topics are ordered as they were made.
func (c *cluster) newID() kafka.UUID {
	c.ids++
	return kafka.UUID{0: c.ids, 15: 200}
}

func (c *cluster) config() *config.Broker {
	c.t.Helper()
	b, _, err := config.Load(config.Sources{Files: []config.File{{Path: "server.properties", Data: []byte("process.roles=broker,controller\nnode.id=1\n" +
		"listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\ncontroller.quorum.voters=1@127.0.0.1:9093\n" +
		"log.dirs=/data\n" + c.props)}}})
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// open opens the quorum without writing what a controller writes.
func (c *cluster) open() error {
	meta, err := checkpoint.ReadMeta(c.disk, "/data/"+checkpoint.MetaFile)
	if err != nil {
		return err
	}
	logDirs := []kafka.UUID{meta.DirectoryID}
	for i := 1; i < c.dirs; i++ {
		m, err := checkpoint.ReadMeta(c.disk, fmt.Sprint("/data", i, "/", checkpoint.MetaFile))
		if err != nil {
			return err
		}
		logDirs = append(logDirs, m.DirectoryID)
	}
	q, err := quorum.Open(quorum.Options{FS: c.disk, Dir: "/data", NodeID: 1, DirectoryID: meta.DirectoryID, Now: func() time.Time { return testTime }})
	if err != nil {
		return err
	}
	conf := c.config()
	c.Controller = New(q, Config{
		Broker:              func() *config.Broker { return conf },
		BrokerEndpoints:     []metadata.Endpoint{{Name: "PLAINTEXT", Host: "127.0.0.1", Port: 9092}},
		ControllerEndpoints: []metadata.Endpoint{{Name: "CONTROLLER", Host: "127.0.0.1", Port: 9093}},
		LogDirs:             logDirs,
		NewID:               c.newID,
	})
	return nil
}

// start runs what a node runs; previous is what its clean markers say.
func (c *cluster) start(previous int64) {
	c.t.Helper()
	if err := c.tryStart(previous); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) tryStart(previous int64) error {
	if err := c.open(); err != nil {
		return err
	}
	if err := c.Bootstrap(); err != nil {
		return err
	}
	epoch, err := c.Register(previous)
	if err != nil {
		return err
	}
	c.epoch = epoch
	return c.Unfence()
}

// stop is a clean stop.
func (c *cluster) stop() {
	c.t.Helper()
	for _, step := range []func() error{c.ControlledShutdown, c.Fence, c.Quorum().Close} {
		if err := step(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// create makes a topic that must be accepted.
func (c *cluster) create(topics ...NewTopic) []CreatedTopic {
	c.t.Helper()
	results, err := c.CreateTopics(topics, false)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil {
			c.t.Fatalf("create %s: %v", r.Name, r.Err)
		}
	}
	return results
}

func topic(name string, partitions int32, pairs ...string) NewTopic {
	return NewTopic{Name: name, Partitions: partitions, ReplicationFactor: -1, Configs: settings(pairs...)}
}

// entry is one record of the metadata log.
type entry struct {
	offset, base kafka.Offset // base: of its batch
	text         string
}

// logRecords reads the metadata log from an offset on, without NoOps.
func logRecords(t testing.TB, disk vfs.FS, from kafka.Offset) []entry {
	t.Helper()
	file, err := vfs.ReadFile(disk, "/data/"+quorum.DirName+"/00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	var list []entry
	var it record.Iterator
	for at := 0; at < len(file); {
		n, ok, err := record.NextBatch(file[at:])
		if err != nil || !ok {
			t.Fatalf("byte %d: %v", at, err)
		}
		b := record.Batch(file[at : at+n])
		if err := it.Reset(b, nil); err != nil {
			t.Fatal(err)
		}
		for it.Next() {
			r := it.Record()
			if r.Offset < from {
				continue
			}
			if b.IsControl() {
				list = append(list, entry{r.Offset, b.BaseOffset(), "LEADER_CHANGE"})
				continue
			}
			m, version, err := metadata.DecodeRecord(r.Value)
			if err != nil {
				t.Fatal(err)
			}
			if m.Type() != metadata.TypeNoOp {
				list = append(list, entry{r.Offset, b.BaseOffset(), summary(m, version)})
			}
		}
		at += n
	}
	return list
}

// summary is a record without what differs from run to run: ids, epochs,
// addresses and the order of features.
func summary(m metadata.Record, version int16) string {
	switch r := m.(type) {
	case *metadata.RegisterControllerRecord:
		return fmt.Sprintf("REGISTER_CONTROLLER v%d", version)
	case *metadata.RegisterBrokerRecord:
		return fmt.Sprintf("REGISTER_BROKER v%d fenced %v dirs %d cordoned %v", version, r.Fenced, len(r.LogDirs), r.CordonedLogDirs != nil)
	case *metadata.BrokerRegistrationChangeRecord:
		r.BrokerEpoch = 0
	case *metadata.PartitionChangeRecord:
		r.TopicID, r.PartitionID = kafka.UUID{}, 0
	case *metadata.PartitionRecord:
		r.TopicID = kafka.UUID{}
		for i := range r.Directories {
			if r.Directories[i] != kafka.DirUnassigned {
				r.Directories[i] = kafka.UUID{1}
			}
		}
	case *metadata.TopicRecord:
		r.TopicID = kafka.UUID{}
	}
	return string(metadata.AppendJSON(nil, m, version))
}

// batches renders records as one text a batch.
func batches(list []entry) []string {
	var out []string
	base := kafka.Offset(-1)
	for _, e := range list {
		if e.base != base {
			out = append(out, e.text)
			base = e.base
		} else {
			out[len(out)-1] += "\n" + e.text
		}
	}
	return out
}

// collapse makes repeated lines of a batch one: "… ×6".
func collapse(batches []string) []string {
	out := make([]string, len(batches))
	for i, b := range batches {
		var lines []string
		var counts []int
		for line := range strings.SplitSeq(b, "\n") {
			if n := len(lines); n > 0 && lines[n-1] == line {
				counts[n-1]++
				continue
			}
			lines, counts = append(lines, line), append(counts, 1)
		}
		for j := range lines {
			if counts[j] > 1 {
				lines[j] += fmt.Sprintf(" ×%d", counts[j])
			}
		}
		out[i] = strings.Join(lines, "\n")
	}
	return out
}

func state(i *metadata.Image) string {
	var b strings.Builder
	for r := range i.SnapshotRecords() {
		b.Write(metadata.AppendJSON(nil, r, metadata.RecordVersion(r, i.Feature(metadata.MetadataVersion))))
		b.WriteByte('\n')
	}
	return b.String()
}

func errorText(err *Error) string {
	if err == nil {
		return "0"
	}
	return fmt.Sprintf("%d %s", err.Code, err.Message)
}
