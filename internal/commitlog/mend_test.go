package commitlog

import (
	"io"
	"slices"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// readerOnce does something before the first read.
type readerOnce struct {
	io.ReaderAt
	before func()
}

func (r *readerOnce) ReadAt(p []byte, off int64) (int, error) {
	if r.before != nil {
		r.before()
		r.before = nil
	}
	return r.ReaderAt.ReadAt(p, off)
}

// The scrub is at a segment while retention or DeleteRecords raises the log start
// and takes the epochs below it out of the checkpoint: that is no damage.
func TestMendLeavesEpochsThatTheLogStartTookOut(t *testing.T) {
	for _, to := range []kafka.Offset{1, 2, 3, 4, 5, 6, 7} { // the segment ends before 6
		b := newBench(t, nil)
		for epoch := range kafka.LeaderEpoch(4) {
			info, err := b.log.AppendAsLeader(b.records(2, record.NewBuildOptions()), epoch, AppendOptions{})
			if err != nil {
				t.Fatal(err)
			}
			b.log.MaybeIncrementHighWatermark(b.log.EndOffset())
			if info.LastOffset == 5 {
				if err := b.log.Roll(); err != nil {
					t.Fatal(err)
				}
			}
		}
		s, generation := b.log.Segments()[0], b.log.Generation()
		var want []checkpoint.Epoch
		found, err := b.log.Examine(s, &readerOnce{s, func() {
			if _, err := b.log.MaybeIncrementStartOffset(to); err != nil {
				t.Fatal(err)
			}
			want = b.log.epochs.load()
		}}, 6)
		if err != nil {
			t.Fatal(err)
		}
		b.log.Mend(s, &found, generation)
		if got := b.log.epochs.load(); !slices.Equal(got, want) || slices.Contains(b.events, "checkpoint-rebuilt") {
			t.Errorf("log start %d: epochs %v, events %v; want %v and no event", to, got, b.events, want)
		}

		// What is missing at and above the log start is still put back.
		if at := b.log.StartOffset(); at < 4 {
			b.log.epochs.store([]checkpoint.Epoch{{Epoch: 3, Start: 6}})
			if found, err = b.log.Examine(s, s, 6); err != nil {
				t.Fatal(err)
			}
			b.log.Mend(s, &found, generation)
			if got := b.log.epochs.load(); !slices.Equal(got, want) || !slices.Contains(b.events, "checkpoint-rebuilt") {
				t.Errorf("log start %d: epochs %v, events %v; want %v put back", to, got, b.events, want)
			}
		}
	}
}
