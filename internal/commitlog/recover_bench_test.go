package commitlog

import (
	"runtime"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// BenchmarkRecoverManySegments recovers a log of 1,000 segments that were never
// flushed, and says how much more memory is in use behind it than before.
func BenchmarkRecoverManySegments(b *testing.B) {
	o := Options{FS: vfs.OS(), Dir: b.TempDir(), Partition: kafka.TopicPartition{Topic: "many"}, Config: DefaultConfig(), Now: time.Now}
	o.Config.SegmentIndexBytes = 4096
	l, err := Open(o)
	if err != nil {
		b.Fatal(err)
	}
	var builder record.Builder
	for i := range 1000 {
		build := record.NewBuildOptions()
		build.ProducerID, build.ProducerEpoch, build.BaseSequence = 1, 0, kafka.Sequence(i)
		builder.Reset(build)
		builder.Append(kafka.Timestamp(time.Now().UnixMilli()), nil, make([]byte, 64<<10), nil)
		batch, err := builder.Finish()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := l.AppendAsLeader(batch, 0, AppendOptions{}); err != nil {
			b.Fatal(err)
		}
		if err := l.Roll(); err != nil {
			b.Fatal(err)
		}
	}
	size := l.Size()
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	b.ReportAllocs()
	var held uint64
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		l, err := Open(o)
		if err != nil {
			b.Fatal(err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		held = max(held, after.HeapAlloc-min(after.HeapAlloc, before.HeapAlloc))
		if l.EndOffset() != 1000 {
			b.Fatalf("the log ends at %d, want 1000", l.EndOffset())
		}
		if err := l.Abandon(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(held)/1000, "heap-B/segment")
}
