package commitlog

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// TestReadersBesideTheWriter appends, rolls, deletes and flushes while readers
// read: every batch that they see is whole, where its offset says, and below
// the high watermark that they were told.
func TestReadersBesideTheWriter(t *testing.T) {
	l := openOnDisk(t, func(c *Config) {
		c.SegmentBytes, c.RetentionBytes, c.IndexInterval = 64<<10, 256<<10, 500
	})
	var stop atomic.Bool
	var wg sync.WaitGroup
	for r := range 4 {
		wg.Go(func() {
			buf := make([]byte, 1<<20)
			var hint Hint
			next := kafka.Offset(0)
			for n := 0; !stop.Load(); n++ {
				o := ReadOptions{MaxBytes: int64(100 + n*37%20000), MinOneBatch: true, Bound: Bound(r % 3), Aborted: r == 1, Hint: hint}
				info, err := l.Read(next, o)
				if errors.Is(err, ErrOffsetOutOfRange) {
					next, hint = l.StartOffset(), Hint{}
					continue
				}
				if err != nil {
					t.Errorf("reader %d: %v", r, err)
					return
				}
				next = checkRegion(t, info, buf, next, o.Bound)
				hint = info.Next
				if n%17 == 0 {
					if _, err := l.OffsetForTimestamp(kafka.Timestamp(1_750_000_000_000), l.HighWatermark()); err != nil {
						t.Errorf("lookup: %v", err)
					}
				}
			}
		})
	}
	wg.Go(func() {
		for !stop.Load() {
			if _, err := l.DeleteOldSegments(); err != nil {
				t.Errorf("retention: %v", err)
			}
			if err := l.Flush(l.EndOffset()); err != nil {
				t.Errorf("flush: %v", err)
			}
		}
	})
	b := batchOf(t, 5, 1500, record.None, -1)
	var seq kafka.Sequence
	for i := range 3000 {
		again(b, &seq)
		if _, err := l.AppendAsLeader(b, 0, AppendOptions{}); err != nil {
			t.Errorf("append: %v", err)
			break
		}
		l.MaybeIncrementHighWatermark(l.EndOffset())
		if i%500 == 499 {
			if err := l.Roll(); err != nil {
				t.Errorf("roll: %v", err)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
}

func checkRegion(t *testing.T, info ReadInfo, buf []byte, next kafka.Offset, bound Bound) kafka.Offset {
	t.Helper()
	if info.Region.Length == 0 {
		return next
	}
	defer info.Region.Release()
	got := buf[:info.Region.Length]
	if _, err := info.Region.File.ReadAt(got, info.Region.Offset); err != nil {
		t.Errorf("read %d: %v", next, err)
		return next
	}
	limit := info.EndOffset
	if bound != LogEnd {
		limit = info.HighWatermark
	}
	for first := true; len(got) > 0; first = false {
		size, ok, err := record.NextBatch(got)
		if err != nil {
			t.Errorf("read %d: %v", next, err)
			return next
		}
		if !ok {
			if first {
				t.Errorf("read %d: no whole batch", next)
			}
			break
		}
		b := record.Batch(got[:size])
		if err := b.Check(); err != nil {
			t.Errorf("read %d: %v", next, err)
		}
		if b.LastOffset() < next || first && b.BaseOffset() > next || b.LastOffset() >= limit {
			t.Errorf("read %d: batch %d to %d below %d", next, b.BaseOffset(), b.LastOffset(), limit)
		}
		next = b.NextOffset()
		got = got[size:]
	}
	return next
}

// TestAppendersTakeTurns lets several goroutines append to one log; each batch
// gets offsets of its own and none is lost.
func TestAppendersTakeTurns(t *testing.T) {
	l := openOnDisk(t, func(c *Config) { c.SegmentBytes = 1 << 20; c.FlushMessages = 50 })
	const writers, each = 4, 200
	var wg sync.WaitGroup
	seen := make([][]kafka.Offset, writers)
	for w := range writers {
		b := batchOf(t, 2, 400, record.None, -1)
		wg.Go(func() {
			var seq kafka.Sequence
			for range each {
				again(b, &seq)
				info, err := l.AppendAsLeader(b, 0, AppendOptions{})
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				l.MaybeIncrementHighWatermark(info.LastOffset + 1)
				seen[w] = append(seen[w], info.FirstOffset)
			}
		})
	}
	wg.Wait()
	taken := map[kafka.Offset]bool{}
	for _, list := range seen {
		for _, o := range list {
			if taken[o] {
				t.Errorf("offset %d was given twice", o)
			}
			taken[o] = true
		}
	}
	if got, want := l.EndOffset(), kafka.Offset(writers*each*2); got != want || l.HighWatermark() != want || len(taken) != writers*each {
		t.Errorf("end offset %d, high watermark %d, %d appends; want %d and %d", got, l.HighWatermark(), len(taken), want, writers*each)
	}
}
