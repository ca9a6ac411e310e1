package logdir

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

const testCluster = "MkU3OEVBNTcwNTJENDM2Qg"

// start is when the test's clock stands.
var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// logLines collects what is logged.
type logLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logLines) contains(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), s)
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// options are those of a broker with these directories: node 1, no background
// tasks, predictable ids.
func options(disk vfs.FS, dirs ...string) Options {
	var ids byte
	return Options{
		FS: disk, Dirs: dirs, NodeID: 1,
		FileDeleteDelay: time.Minute,
		Now:             func() time.Time { return start },
		NewID: func() kafka.UUID {
			ids++
			return kafka.UUID{0: 0xab, 15: ids}
		},
		Jitter: func(int64) int64 { return 0 },
	}
}

func logTo(o Options, l *logLines) Options {
	o.Logger = slog.New(slog.NewTextHandler(l, nil))
	return o
}

// format makes directories with the ids 101, 102, ...
func format(t testing.TB, disk vfs.FS, dirs ...string) {
	t.Helper()
	for i, dir := range dirs {
		meta := checkpoint.MetaProperties{Version: 1, NodeID: 1, ClusterID: testCluster, DirectoryID: kafka.UUID{15: byte(101 + i)}}
		must(t, disk.MkdirAll(dir, 0o755), checkpoint.WriteMeta(disk, filepath.Join(dir, checkpoint.MetaFile), meta, start))
		must(t, disk.SyncDir(filepath.Dir(dir)))
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// testConfig keeps files small: a memory disk holds whole maps.
func testConfig(string) commitlog.Config {
	c := commitlog.DefaultConfig()
	c.SegmentIndexBytes = 4096
	return c
}

// load opens and loads, or ends the test.
func load(t testing.TB, o Options, image *metadata.Image) *Manager {
	t.Helper()
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Load(LoadOptions{Image: image, Config: testConfig}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.abandon)
	return m
}

// abandon ends a manager as the death of the process would, but for its
// goroutines and maps.
func (m *Manager) abandon() {
	m.closed.Store(true)
	m.stopCleaner()
	m.jobs.stop()
	for _, p := range m.partitions(nil) {
		_ = p.log.Abandon()
	}
	m.unlock()
}

func tpOf(topic string, partition int32) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: topic, Partition: partition}
}

func create(t testing.TB, m *Manager, topic string, partition int32) *commitlog.Log {
	t.Helper()
	log, err := m.Create(NewPartition{Partition: tpOf(topic, partition), TopicID: topicID(topic), Config: testConfig(topic)})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// topicID makes an id out of a name.
func topicID(name string) kafka.TopicID {
	var id kafka.TopicID
	copy(id[:15], name)
	id[15] = 0xff
	return id
}

// appendRecords appends one batch of n records and commits it.
func appendRecords(t testing.TB, log *commitlog.Log, n int) {
	t.Helper()
	must(t, tryAppend(log, n))
}

func tryAppend(log *commitlog.Log, n int) error {
	var b record.Builder
	b.Reset(record.NewBuildOptions())
	for range n {
		b.Append(kafka.TimestampOf(start), nil, []byte("some value of a record"), nil)
	}
	batch, err := b.Finish()
	if err != nil {
		return err
	}
	if _, err := log.AppendAsLeader(batch, 0, commitlog.AppendOptions{}); err != nil {
		return err
	}
	log.MaybeIncrementHighWatermark(log.EndOffset())
	return nil
}

// imageOf is a metadata image with one partition 0 of each topic on node 1.
func imageOf(t testing.TB, topics ...string) *metadata.Image {
	t.Helper()
	d := metadata.NewDelta(metadata.NewImage())
	for _, name := range topics {
		must(t, d.Apply(&metadata.TopicRecord{Name: name, TopicID: topicID(name)}))
		must(t, d.Apply(&metadata.PartitionRecord{
			TopicID: topicID(name), PartitionID: 0, Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1,
		}))
	}
	return d.Finish(1, 1, 0)
}

func names(t testing.TB, disk vfs.FS, dir string) []string {
	t.Helper()
	list, err := disk.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	slices.Sort(out)
	return out
}

func exists(disk vfs.FS, name string) bool {
	_, err := disk.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}

func writeFile(t testing.TB, disk vfs.FS, name, content string) {
	t.Helper()
	f, err := disk.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(content), 0)
	must(t, err, f.Sync(), f.Close(), disk.SyncDir(filepath.Dir(name)))
}

func readFile(t testing.TB, disk vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(disk, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
