//go:build linux

package segment

import (
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// BenchmarkRecover checks a segment of 256 MiB that lies in the page cache, and
// makes its indexes anew. One processor does it; a start has one worker each.
// cpu-MB/s counts the time of the thread alone, whatever else the machine does.
func BenchmarkRecover(b *testing.B) {
	for _, size := range []int{16 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("batches of %d KiB", size>>10), func(b *testing.B) {
			dir := filepath.Join(b.TempDir(), "t-0")
			fsys := vfs.OS()
			check(b, fsys.MkdirAll(dir, 0o755))
			o := Options{IndexInterval: 4096, MaxIndexBytes: 10 << 20, Now: opened, Create: true}
			s, err := Open(fsys, dir, 0, o)
			check(b, err)
			var builder record.Builder
			builder.Reset(record.NewBuildOptions())
			value := make([]byte, 1000)
			for i := 0; builder.UncompressedSize() < size-1100; i++ {
				builder.Append(opened+kafka.Timestamp(i), nil, value, nil)
			}
			batch, err := builder.Finish()
			check(b, err)
			next := kafka.Offset(0)
			for s.Size() < 256<<20 {
				batch.SetBaseOffset(next)
				check(b, s.Append(batch.LastOffset(), batch))
				next = batch.NextOffset()
			}
			check(b, s.Close())
			o.Create = false
			s, err = Open(fsys, dir, 0, o)
			check(b, err)
			b.Cleanup(func() { check(b, s.Abandon()) })
			b.SetBytes(s.Size())
			b.ReportAllocs()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			began, n := threadTime(b), 0
			for b.Loop() {
				if got, err := s.RecoverWith(RecoverOptions{}); err != nil || got.Next != next {
					b.Fatalf("RecoverWith = %+v, %v, want the end at %d", got, err, next)
				}
				n++
			}
			b.ReportMetric(float64(n)*float64(s.Size())/1e6/(threadTime(b)-began).Seconds(), "cpu-MB/s")
		})
	}
}

// threadTime is what this thread has used of a processor.
func threadTime(b *testing.B) time.Duration {
	const thread = 1 // RUSAGE_THREAD
	var u syscall.Rusage
	check(b, syscall.Getrusage(thread, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
