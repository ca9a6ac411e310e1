package logdir

import (
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
)

// BenchmarkCreate50 makes a topic like __consumer_offsets on the real disk.
func BenchmarkCreate50(b *testing.B) {
	root := b.TempDir()
	format(b, vfs.OS(), filepath.Join(root, "data"))
	m := load(b, options(vfs.OS(), filepath.Join(root, "data")), nil)
	b.ReportAllocs()
	topic := 0
	for b.Loop() {
		topic++
		list := make([]NewPartition, 50)
		name := string([]byte{'t', byte('a' + topic/26%26), byte('a' + topic%26)})
		for i := range list {
			list[i] = NewPartition{Partition: tpOf(name, int32(i)), TopicID: topicID(name), Config: testConfig(name)}
		}
		for _, c := range m.CreateAll(list) {
			must(b, c.Err)
		}
	}
}

// BenchmarkLoad1000 opens a thousand cleanly closed partitions of one batch.
func BenchmarkLoad1000(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "data")
	format(b, vfs.OS(), dir)
	m := load(b, options(vfs.OS(), dir), nil)
	list := make([]NewPartition, 1000)
	for i := range list {
		list[i] = NewPartition{Partition: tpOf("orders", int32(i)), TopicID: topicID("orders"), Config: testConfig("")}
	}
	for _, c := range m.CreateAll(list) {
		must(b, c.Err)
		appendRecords(b, c.Log, 1)
	}
	must(b, m.Close(1))
	b.ReportAllocs()
	for b.Loop() {
		m, err := Open(options(vfs.OS(), dir))
		must(b, err)
		must(b, m.Load(LoadOptions{Config: testConfig}))
		b.StopTimer()
		must(b, m.Close(1))
		b.StartTimer()
	}
}
