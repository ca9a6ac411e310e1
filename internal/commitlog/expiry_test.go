package commitlog

import (
	"testing"
	"time"

	"github.com/varvelog/varve/internal/kafka"
)

// TestAJumpOfTheWallClockDeletesNothing: retention goes by the time that ages
// are counted by, and not by a wall clock that jumped.
func TestAJumpOfTheWallClockDeletesNothing(t *testing.T) {
	var expiry int64
	b := newBench(t, func(o *Options) {
		o.Config.RetentionMs = 1000
		o.Expiry = func() time.Time { return time.UnixMilli(expiry) }
	})
	expiry = b.now
	b.append(3)
	if err := b.log.Roll(); err != nil {
		t.Fatal(err)
	}
	b.append(1)
	b.log.MaybeIncrementHighWatermark(4)
	b.now += 10 * 365 * 24 * 3600 * 1000
	if n, err := b.log.DeleteOldSegments(); n != 0 || err != nil {
		t.Errorf("DeleteOldSegments = %d, %v after a jump of ten years", n, err)
	}
	expiry = b.now
	if n, err := b.log.DeleteOldSegments(); n != 2 || err != nil {
		t.Errorf("DeleteOldSegments = %d, %v once the jump is believed, want 2", n, err)
	}
}

// TestAppendTimeNeverGoesBack: with the wall clock set back, records are stamped
// with the largest time of the segment.
func TestAppendTimeNeverGoesBack(t *testing.T) {
	for _, back := range []int64{1, 1000, 3_600_000, 10 * 365 * 24 * 3_600_000, 1_750_000_000_000} {
		b := newBench(t, func(o *Options) { o.Config.TimestampType = kafka.LogAppendTime })
		b.append(2)
		first := b.now
		b.now -= back
		b.append(2)
		last, err := b.log.Segments()[0].LargestTimestamp()
		if err != nil || int64(last) != first {
			t.Errorf("%d ms back: largest timestamp %d, %v, want %d", back, last, err, first)
		}
		found, err := b.log.OffsetForTimestamp(kafka.Timestamp(first), b.log.EndOffset())
		if err != nil || found.Offset != 0 {
			t.Errorf("%d ms back: the first record at %d is %+v, %v", back, first, found, err)
		}
	}
}
