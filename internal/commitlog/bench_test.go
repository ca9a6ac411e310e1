package commitlog

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// openOnDisk opens an empty log on the real disk with default settings.
func openOnDisk(t testing.TB, change func(*Config)) *Log {
	t.Helper()
	return openOnDiskWith(t, func(o *Options) {
		if change != nil {
			change(&o.Config)
		}
	})
}

// openOnDiskWith is openOnDisk with a say in all options.
func openOnDiskWith(t testing.TB, change func(*Options)) *Log {
	t.Helper()
	o := Options{
		FS: vfs.OS(), Dir: filepath.Join(t.TempDir(), "bench-0"), Partition: kafka.TopicPartition{Topic: "bench"},
		Config: DefaultConfig(), Now: time.Now, Background: func(f func()) { go f() },
	}
	o.Config.TimestampAfterMax = 1 << 60
	change(&o)
	if err := o.FS.MkdirAll(o.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Abandon(); err != nil {
			t.Error(err)
		}
	})
	if err := l.AssignEpoch(0, 0); err != nil {
		t.Fatal(err)
	}
	return l
}

// batchOf builds a batch of about size bytes with n records.
func batchOf(t testing.TB, n, size int, codec record.Codec, pid kafka.ProducerID) []byte {
	t.Helper()
	var b record.Builder
	o := record.NewBuildOptions()
	o.Codec = codec
	if pid >= 0 {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = pid, 0, 0
	}
	b.Reset(o)
	value := bytes.Repeat([]byte("0123456789abcdef"), (size-record.HeaderSize)/n/16+1)[:(size-record.HeaderSize)/n-10]
	for i := range n {
		b.Append(kafka.Timestamp(1_750_000_000_000+int64(i)), nil, value, nil)
	}
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(out)
}

// again makes a stored batch one that a client sends, and the next of its producer.
func again(b record.Batch, seq *kafka.Sequence) {
	b.SetBaseOffset(0)
	b.SetLeaderEpoch(kafka.NoLeaderEpoch)
	if b.ProducerID() >= 0 {
		b.SetProducer(b.ProducerID(), 0, *seq, false)
		*seq = seq.Add(b.Count())
	}
}

var appendCases = []struct {
	name    string
	records int
	size    int
	codec   record.Codec
	pid     kafka.ProducerID
}{
	{"one record of 100 bytes", 1, 170, record.None, -1},
	{"1 KiB", 1, 1024, record.None, -1},
	{"16 KiB of 16 records", 16, 16 << 10, record.None, -1},
	{"16 KiB of 16 records, idempotent", 16, 16 << 10, record.None, 1},
	{"1 MB of 1000 records", 1000, 1_000_000, record.None, -1},
	{"16 KiB, lz4", 16, 16 << 10, record.LZ4, -1},
	{"16 KiB, zstd", 16, 16 << 10, record.Zstd, -1},
	{"16 KiB, snappy", 16, 16 << 10, record.Snappy, -1},
	{"16 KiB, gzip", 16, 16 << 10, record.Gzip, -1},
}

func TestAppendsDoNotAllocate(t *testing.T) {
	for _, tt := range appendCases {
		t.Run(tt.name, func(t *testing.T) {
			l := openOnDisk(t, nil)
			b := batchOf(t, tt.records, tt.size, tt.codec, tt.pid)
			var seq kafka.Sequence
			appendOne := func() {
				again(b, &seq)
				if _, err := l.AppendAsLeader(b, 0, AppendOptions{}); err != nil {
					t.Fatal(err)
				}
				l.MaybeIncrementHighWatermark(l.EndOffset())
			}
			for range 20 {
				appendOne()
			}
			if n := testing.AllocsPerRun(200, appendOne); n != 0 && !racing {
				t.Errorf("%v allocations an append, want 0", n)
			}
		})
	}
}

func TestFollowerAppendsDoNotAllocate(t *testing.T) {
	l := openOnDisk(t, nil)
	one := record.Batch(batchOf(t, 4, 2000, record.None, 7))
	buf := bytes.Repeat(one, 8)
	var seq kafka.Sequence
	appendAll := func() {
		at := l.EndOffset()
		for i := range 8 {
			b := record.Batch(buf[i*len(one) : (i+1)*len(one)])
			b.SetProducer(7, 0, seq, false)
			b.SetBaseOffset(at)
			b.SetLeaderEpoch(0)
			seq, at = seq.Add(4), at+4
		}
		if _, err := l.AppendAsFollower(buf, 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		appendAll()
	}
	if n := testing.AllocsPerRun(200, appendAll); n != 0 && !racing {
		t.Errorf("%v allocations an append, want 0", n)
	}
}

func TestReadsDoNotAllocate(t *testing.T) {
	l := openOnDisk(t, func(c *Config) { c.SegmentBytes = 4 << 20 })
	b := batchOf(t, 16, 16<<10, record.None, -1)
	var seq kafka.Sequence
	for range 1000 {
		again(b, &seq)
		if _, err := l.AppendAsLeader(b, 0, AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l.MaybeIncrementHighWatermark(l.EndOffset())
	end := l.EndOffset()
	aborted := make([]AbortedTxn, 0, 8)
	for _, tt := range []struct {
		name string
		at   func(i int) kafka.Offset
		o    ReadOptions
	}{
		{"at the tail", func(int) kafka.Offset { return end - 16 }, ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true}},
		{"at the end", func(int) kafka.Offset { return end }, ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true}},
		{"anywhere", func(i int) kafka.Offset { return kafka.Offset(i*7919) % end }, ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true}},
		{"anywhere, committed only", func(i int) kafka.Offset { return kafka.Offset(i*7919) % end },
			ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true, Bound: LastStable, Aborted: true, AbortedBuf: aborted}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := 0
			readOne := func() {
				i++
				info, err := l.Read(tt.at(i), tt.o)
				if err != nil {
					t.Fatal(err)
				}
				if info.Region.Release != nil {
					info.Region.Release()
				}
			}
			for range 300 {
				readOne()
			}
			if n := testing.AllocsPerRun(500, readOne); n != 0 && !racing {
				t.Errorf("%v allocations a read, want 0", n)
			}
		})
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, tt := range appendCases {
		b.Run(tt.name, func(b *testing.B) {
			l := openOnDisk(b, func(c *Config) { c.SegmentBytes = 64 << 20; c.RetentionBytes = 64 << 20 })
			batch := batchOf(b, tt.records, tt.size, tt.codec, tt.pid)
			var seq kafka.Sequence
			b.ReportAllocs()
			b.SetBytes(int64(len(batch)))
			for n := 0; b.Loop(); n++ {
				again(batch, &seq)
				if _, err := l.AppendAsLeader(batch, 0, AppendOptions{}); err != nil {
					b.Fatal(err)
				}
				l.MaybeIncrementHighWatermark(l.EndOffset())
				if n%4096 == 0 {
					if _, err := l.DeleteOldSegments(); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10} {
		l := openOnDisk(b, nil)
		batch := batchOf(b, 1, size, record.None, -1)
		var seq kafka.Sequence
		for range 64 << 20 / size {
			again(batch, &seq)
			if _, err := l.AppendAsLeader(batch, 0, AppendOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		l.MaybeIncrementHighWatermark(l.EndOffset())
		end := l.EndOffset()
		for _, where := range []string{"tail", "anywhere"} {
			b.Run(fmt.Sprintf("%s of %d byte batches", where, size), func(b *testing.B) {
				b.ReportAllocs()
				for n := 0; b.Loop(); n++ {
					at := end - 1
					if where == "anywhere" {
						at = kafka.Offset(n*7919) % end
					}
					info, err := l.Read(at, ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true})
					if err != nil {
						b.Fatal(err)
					}
					info.Region.Release()
				}
			})
		}
	}
}
