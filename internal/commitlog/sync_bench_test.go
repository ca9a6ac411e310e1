package commitlog

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/internal/flusher"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// BenchmarkSync is 64 producers of 1 KiB batches that each wait for their
// answer, on the disk under TMPDIR: without a sync, with one for each answer
// (varve.sync=always), and with shared ones (flush.messages=1, varve.sync=group).
// Compare acks/s within one run; syncs/ack is what sharing saves.
func BenchmarkSync(b *testing.B) {
	const producers = 64
	modes := []struct {
		name   string
		change func(*Config)
	}{
		{"none", func(*Config) {}},
		{"always", func(c *Config) { c.FlushMessages, c.SyncAlone = 1, true }},
		{"group", func(c *Config) { c.FlushMessages = 1 }},
	}
	for _, partitions := range []int{1, 16} {
		for _, mode := range modes {
			b.Run(fmt.Sprintf("%d partitions/%s", partitions, mode.name), func(b *testing.B) {
				var shared flusher.Flusher
				var syncs, left atomic.Int64
				logs := make([]*Log, partitions)
				for i := range logs {
					logs[i] = openOnDiskWith(b, func(o *Options) {
						mode.change(&o.Config)
						o.Flusher = &shared
						o.FS = &syncFS{o.FS, func() { syncs.Add(1) }, func() {}}
					})
				}
				left.Store(int64(b.N))
				batches := make([]record.Batch, producers)
				for i := range batches {
					batches[i] = batchOf(b, 1, 1<<10, record.None, -1)
				}
				b.ResetTimer()
				var wg sync.WaitGroup
				for i, batch := range batches {
					l := logs[i%partitions]
					wg.Go(func() {
						var seq kafka.Sequence
						for left.Add(-1) >= 0 {
							again(batch, &seq)
							if _, err := l.AppendAsLeader(batch, 0, AppendOptions{}); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.StopTimer()
				shared.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "acks/s")
				b.ReportMetric(float64(syncs.Load())/float64(b.N), "syncs/ack")
			})
		}
	}
}
