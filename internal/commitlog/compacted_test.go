package commitlog

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"testing"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
)

// A swap without a record covers no offset. Kafka leaves the transaction index of
// the segment that it replaces; its entries would hide committed records.
func TestAnEmptySwapTakesTheTransactionIndexOfItsSegmentAlong(t *testing.T) {
	b := newBench(t, nil)
	b.append(3)
	for _, err := range []error{
		b.log.Segments()[0].AppendTxn(index.AbortedTxn{ProducerID: 1, FirstOffset: 0, LastOffset: 2, LastStable: 3}), b.log.Roll(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.log.NewCleanedSegment(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{s.Seal(), s.Flush(), s.ChangeSuffix(segment.SwapSuffix), s.Abandon(), b.log.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b.open(true)
	if _, err := b.disk.Stat(path.Join(testDir, segment.Name(0, segment.TxnIndexExt))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the transaction index of the replaced segment: %v, want that it is gone", err)
	}
	if n := b.log.Segments()[0].Size(); n != 0 {
		t.Errorf("segment 0 has %d bytes, want the empty swap", n)
	}
}

// A producer snapshot is older than a marker that compaction removed with the
// last records of its transaction. A recovery that starts from the snapshot must
// not take the transaction for an open one.
func TestATransactionThatWasCompactedAwayIsNotOpen(t *testing.T) {
	tests := []struct {
		name string
		// left of the log behind the snapshot, from offset 2 on
		left       []func(o *record.BuildOptions)
		wantStable kafka.Offset
		wantEvent  bool
	}{
		{"nothing is left of it", nil, 9, true},
		{"the producer has begun another one", []func(o *record.BuildOptions){func(o *record.BuildOptions) { o.Transactional = true }}, 5, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(o *Options) { o.HighWatermark = 9 })
			b.append(2)
			write(t, b.log, 2, 0, func(o *record.BuildOptions) { o.Transactional = true })
			if err := b.log.Roll(); err != nil { // a snapshot at 3: open since 2
				t.Fatal(err)
			}
			for _, change := range tt.left {
				write(t, b.log, 5, 1, change)
			}
			write(t, b.log, 8, kafka.NoSequence, func(o *record.BuildOptions) {
				o.ProducerID, o.ProducerEpoch = kafka.NoProducerID, kafka.NoProducerEpoch
			})
			if err := b.log.Close(); err != nil {
				t.Fatal(err)
			}
			// The first segment as a round leaves it.
			b.open(true)
			s, err := b.log.NewCleanedSegment(0)
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range []error{s.Append(1, b.stored(0)), s.Seal(), s.Flush(), b.log.ReplaceSegments(b.log.Generation(), []*segment.Segment{s}, b.log.Segments()[:1])} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := b.disk.Remove(path.Join(testDir, "00000000000000000009.snapshot")); err != nil {
				t.Fatal(err)
			}
			b.opts.RecoveryPoint = 3 // of the checkpoint
			b.events = nil
			b.killed()
			if got := b.log.LastStable(); got != tt.wantStable {
				t.Errorf("last stable offset %d, want %d", got, tt.wantStable)
			}
			if got := slices.Contains(b.events, "transaction-settled"); got != tt.wantEvent {
				t.Errorf("events %q", b.events)
			}
			b.opts.RecoveryPoint = 3 // of the checkpoint
		})
	}
}

// write appends one record of producer 7 at an offset, as a follower does.
func write(t *testing.T, l *Log, at kafka.Offset, seq kafka.Sequence, change func(o *record.BuildOptions)) {
	t.Helper()
	o := record.NewBuildOptions()
	o.BaseOffset, o.LeaderEpoch = at, 0
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = 7, 0, seq
	change(&o)
	var b record.Builder
	b.Reset(o)
	b.Append(1_750_000_000_000, []byte("k"), []byte("v"), nil)
	buf, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendAsFollower(buf, 0); err != nil {
		t.Fatal(err)
	}
	l.MaybeIncrementHighWatermark(l.EndOffset())
}
