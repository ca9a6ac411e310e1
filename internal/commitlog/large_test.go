package commitlog

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// huge writes a segment of size bytes that takes almost no room on the disk:
// one batch that is a hole but for its header, and behind it a small whole one.
// The index leads to the second, so nothing has to read the first.
func huge(t *testing.T, dir string, base kafka.Offset, size int64, now time.Time) {
	t.Helper()
	var w record.Builder
	o := record.NewBuildOptions()
	o.BaseOffset, o.LeaderEpoch = base, 0
	w.Reset(o)
	w.Append(kafka.TimestampOf(now), nil, []byte("v"), nil)
	small, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	header := append([]byte(nil), small[:record.HeaderSize]...)
	second := record.Batch(append([]byte(nil), small...))
	second.SetBaseOffset(base + 1)
	at := size - int64(len(second))
	binary.BigEndian.PutUint32(header[8:], uint32(at-record.LogOverhead))

	f, err := os.OpenFile(filepath.Join(dir, segment.Name(base, segment.LogExt)), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, err1 := f.WriteAt(header, 0)
	_, err2 := f.WriteAt(second, at)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	offsets := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 1), uint32(at))
	times := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli())), 1)
	for name, data := range map[string][]byte{
		segment.Name(base, segment.IndexExt): offsets, segment.Name(base, segment.TimeIndexExt): times,
		segment.Name(base+2, segment.SnapshotExt): producer.AppendSnapshot(nil, nil),
		checkpoint.EpochFile:                      []byte("0\n1\n0 0\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKAFKA6292TheEndOfAFileOfTwoGiBIsReadable(t *testing.T) {
	const size = 1<<31 - 1 - 20
	now := time.UnixMilli(1_750_000_000_000)
	dir := filepath.Join(t.TempDir(), "large-0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	huge(t, dir, 0, size, now)
	o := Options{FS: vfs.OS(), Dir: dir, Partition: kafka.TopicPartition{Topic: "large"}, Config: DefaultConfig(), CleanShutdown: true, RecoveryPoint: 2, Now: func() time.Time { return now }}
	o.Config.SegmentBytes = 1<<31 - 1
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Abandon(); err != nil {
			t.Error(err)
		}
	}()
	if l.EndOffset() != 2 || l.Size() != size {
		t.Fatalf("log of %d bytes ends at %d, want %d and 2", l.Size(), l.EndOffset(), size)
	}
	r, err := l.Read(1, ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true, Bound: LogEnd})
	if err != nil {
		t.Fatal(err)
	}
	b := make(record.Batch, r.Region.Length)
	if _, err := r.Region.File.ReadAt(b, r.Region.Offset); err != nil || b.Check() != nil || b.BaseOffset() != 1 {
		t.Errorf("read at 1: batch at %d, %v, %v", b.BaseOffset(), err, b.Check())
	}
	r.Region.Release()
	info, err := l.AppendAsLeader(batchOf(t, 1, 100, record.None, -1), 0, AppendOptions{})
	if err != nil || info.FirstOffset != 2 || !info.Rolled {
		t.Errorf("append: %+v, %v; want offset 2 in a new segment: its position would not fit", info, err)
	}
}

func TestKAFKA5584SizesOfMoreThanTwoGiBAreCountedWhole(t *testing.T) {
	const size = 1 << 30
	now := time.UnixMilli(1_750_000_000_000)
	dir := filepath.Join(t.TempDir(), "large-0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range kafka.Offset(5) {
		huge(t, dir, 2*i, size, now)
	}
	o := Options{FS: vfs.OS(), Dir: dir, Partition: kafka.TopicPartition{Topic: "large"}, Config: DefaultConfig(), CleanShutdown: true, RecoveryPoint: 10, HighWatermark: 10, Now: func() time.Time { return now }}
	o.Config.RetentionBytes = 3 * size
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Abandon(); err != nil {
			t.Error(err)
		}
	}()
	if l.Size() != 5*size {
		t.Fatalf("log of %d bytes, want %d", l.Size(), int64(5*size))
	}
	l.MaybeIncrementHighWatermark(10)
	if n, err := l.DeleteOldSegments(); n != 2 || err != nil || l.StartOffset() != 4 {
		t.Errorf("DeleteOldSegments = %d, %v with start %d; want 2 and 4", n, err, l.StartOffset())
	}
}

func TestNats2490ReadersBesideEachOtherSkipNothing(t *testing.T) {
	l := openOnDisk(t, func(c *Config) { c.SegmentBytes, c.IndexInterval = 256<<10, 300 })
	const batches, each = 400, 5
	var wg sync.WaitGroup
	for r := range 6 {
		wg.Go(func() {
			buf := make([]byte, 1<<20)
			var hint Hint
			next := kafka.Offset(0)
			for next < batches*each {
				info, err := l.Read(next, ReadOptions{MaxBytes: int64(200 + 3000*r), MinOneBatch: true, Bound: HighWatermark, Hint: hint})
				if err != nil {
					t.Errorf("reader %d at %d: %v", r, next, err)
					return
				}
				before := next
				got := buf[:info.Region.Length]
				if len(got) > 0 {
					_, err = info.Region.File.ReadAt(got, info.Region.Offset)
					info.Region.Release()
					if err != nil {
						t.Errorf("reader %d at %d: %v", r, next, err)
						return
					}
				}
				for len(got) > 0 {
					size, ok, err := record.NextBatch(got)
					if err != nil {
						t.Errorf("reader %d at %d: %v", r, next, err)
						return
					}
					if !ok {
						break
					}
					if b := record.Batch(got[:size]); b.BaseOffset() != next {
						t.Errorf("reader %d: batch at %d, want %d", r, b.BaseOffset(), next)
						return
					}
					next += each
					got = got[size:]
				}
				if next > before {
					hint = info.Next
				} else {
					hint = Hint{}
				}
			}
		})
	}
	b := batchOf(t, each, 400, record.None, -1)
	for range batches {
		if _, err := l.AppendAsLeader(append([]byte(nil), b...), 0, AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		l.MaybeIncrementHighWatermark(l.EndOffset())
	}
	wg.Wait()
}
