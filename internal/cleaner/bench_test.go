package cleaner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// BenchmarkRound compacts 64 MiB of records of 100 bytes in batches of 16 KiB,
// of which a tenth are the newest of their key. MB/s counts the bytes once.
func BenchmarkRound(b *testing.B) {
	for _, codec := range []record.Codec{record.None, record.LZ4} {
		b.Run(codec.String(), func(b *testing.B) {
			var bytes int64
			for b.Loop() {
				b.StopTimer()
				l := benchLog(b, codec)
				bytes = l.Size()
				v, segs, err := look(l, kafka.NoOffset)
				must(b, err)
				r := newRound(l, l.Generation(), segs, v.extentOf(kafka.NoOffset, 0), 0, &memory{mapBytes: 128 << 20, load: 0.9, bufferBytes: 256 << 10})
				b.StartTimer()
				must(b, r.run())
				b.StopTimer()
				must(b, l.Delete())
				b.StartTimer()
			}
			b.SetBytes(bytes)
		})
	}
}

func benchLog(b *testing.B, codec record.Codec) *commitlog.Log {
	cfg := commitlog.DefaultConfig()
	cfg.CleanupCompact, cfg.CleanupDelete = true, false
	cfg.SegmentBytes = 16 << 20
	l, err := commitlog.Open(commitlog.Options{FS: vfs.OS(), Dir: b.TempDir(), Partition: kafka.TopicPartition{Topic: "t"}, Config: cfg, Now: time.Now})
	must(b, err)
	const records, perBatch = 64 << 20 / 100, 160
	var batch record.Builder
	for n := 0; n < records; n += perBatch {
		o := record.NewBuildOptions()
		o.Codec = codec
		batch.Reset(o)
		for i := n; i < n+perBatch; i++ {
			batch.Append(kafka.Timestamp(i), fmt.Appendf(nil, "key-%08d", i*7919%(records/10)), []byte(strings.Repeat(fmt.Sprint(i, "."), 36)[:70]), nil)
		}
		buf, err := batch.Finish()
		must(b, err)
		_, err = l.AppendAsLeader(buf, 0, commitlog.AppendOptions{})
		must(b, err)
	}
	l.MaybeIncrementHighWatermark(l.EndOffset())
	must(b, l.Roll())
	return l
}
