package verify

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// BenchmarkCheck reads 256 MiB in eight partitions from the page cache, by one
// worker and by one a processor: bytes a second.
func BenchmarkCheck(b *testing.B) {
	const partitions, each = 8, 32 << 20
	dir := b.TempDir()
	value := bytes.Repeat([]byte("0123456789abcdef"), 64)
	for p := range partitions {
		sub := filepath.Join(dir, kafka.TopicPartition{Topic: "orders", Partition: int32(p)}.String())
		if err := os.Mkdir(sub, 0o755); err != nil {
			b.Fatal(err)
		}
		var log []byte
		for offset := kafka.Offset(0); len(log) < each; {
			var batch record.Builder
			batch.Reset(record.NewBuildOptions())
			for range 16 {
				batch.Append(1_760_000_000_000, nil, value, nil)
			}
			out, err := batch.Finish()
			if err != nil {
				b.Fatal(err)
			}
			record.Batch.SetBaseOffset(out, offset)
			offset += 16
			log = append(log, out...)
		}
		if err := os.WriteFile(filepath.Join(sub, segment.Name(0, segment.LogExt)), log, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for _, workers := range []int{1, 0} {
		for mode, o := range map[string]Options{"fast": {Fast: true}, "plain": {}, "deep": {Deep: true}} {
			o.FS, o.Paths, o.Parallel = vfs.OS(), nil, workers
			for p := range partitions {
				o.Paths = append(o.Paths, filepath.Join(dir, fmt.Sprintf("orders-%d", p)))
			}
			b.Run(fmt.Sprintf("%s/workers=%d", mode, workers), func(b *testing.B) {
				b.SetBytes(partitions * each)
				for b.Loop() {
					if r, err := Check(b.Context(), o); err != nil || len(r.Findings) > 0 {
						b.Fatal(r.Findings, err)
					}
				}
			})
		}
	}
}
