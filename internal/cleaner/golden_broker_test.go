package cleaner

import (
	"fmt"
	"path"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TestGoldenBroker does the rounds that the cleaner of a broker did on its own,
// at the times that their delete horizons tell, and wants the same batches with
// the same records in the same segments, and the same checkpoint. Compressed
// batches are compared by what is in them.
func TestGoldenBroker(t *testing.T) {
	// delete.retention.ms of the topics was short: a round that gave one batch its
	// horizon, 6.4 seconds behind that of another, removed the tombstone of that other.
	const horizon = 5_000
	tests := []struct {
		name, stage, partition string
		// appends are the segments of the next stage whose batches came in before
		// the rounds, each into a segment of its own.
		appends []kafka.Offset
		rounds  []roundAt
		next    string
		// between are segments as a round left them that a later one replaced.
		between map[kafka.Offset]int // base to the round, from 1
	}{
		{"a first round gives tombstones their horizon", "dirty", "comp-0",
			nil, []roundAt{{1796033802799 - horizon, 0, 34}}, "cleaned", nil},
		{"a first round removes aborted data and keeps the markers", "dirty", "comptx-0",
			nil, []roundAt{{1796033804732 - horizon, 0, 27}}, "cleaned", nil},
		{"rounds after the horizon remove tombstones and join segments", "cleaned", "comp-0",
			[]kafka.Offset{73, 77}, []roundAt{{1796034093211 - horizon, 34, 73}, {1796034099607 - horizon, 73, 77}}, "cleaned-again",
			map[kafka.Offset]int{0: 1, 34: 1}},
		{"a round after the horizon gives markers without data theirs", "cleaned", "comptx-0",
			[]kafka.Offset{40, 44}, []roundAt{{1796034098151 - horizon, 27, 44}}, "cleaned-again", nil},
	}
	c := golden.Load(t, "06-compaction-4.4.0")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := memfs.New()
			c.Stage(t, tt.stage).UnpackTo(t, disk, "/d")
			c.Stage(t, tt.next).UnpackTo(t, disk, "/next")
			dir, next := "/d/"+tt.partition, "/next/"+tt.partition
			l := openStage(t, disk, dir, tt.rounds[0].now)
			defer l.Close()
			for i, base := range tt.appends {
				if l.EndOffset() != base {
					t.Fatalf("the log ends at %d before the append of segment %d", l.EndOffset(), base)
				}
				if base > l.Segments()[len(l.Segments())-1].BaseOffset() {
					must(t, l.Roll())
				}
				_, err := l.AppendAsFollower(segmentBytes(t, disk, next, base), 100)
				must(t, err)
				l.MaybeIncrementHighWatermark(l.EndOffset())
				if i < len(tt.rounds) && len(tt.rounds) > 1 {
					runGolden(t, l, tt.rounds[i])
					compareSegments(t, disk, dir, next, tt.between, i+1)
				}
			}
			if len(tt.rounds) == 1 {
				runGolden(t, l, tt.rounds[0])
			}
			var want []string
			for _, g := range c.Stage(t, tt.next).Partition(t, tt.partition).Segments {
				if g.Suffix == "" {
					want = append(want, describe(t, disk, path.Join(next, logName(kafka.Offset(g.Base)))))
				}
			}
			var got []string
			for _, s := range l.Segments() {
				got = append(got, describe(t, disk, s.Path()))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("segments after the rounds (-want +got):\n%s", diff)
			}
		})
	}
}

// roundAt is a round and the dirty part that it was to clean.
type roundAt struct {
	now        kafka.Timestamp
	first, end kafka.Offset
}

func runGolden(t *testing.T, l *commitlog.Log, at roundAt) {
	t.Helper()
	v, segs, err := look(l, at.first)
	must(t, err)
	r := newRound(l, l.Generation(), segs, v.extentOf(at.first, at.now), at.now, testMemory())
	must(t, r.run())
	if s := r.stats; s.FirstDirty != at.first || s.NextDirty != at.end {
		t.Errorf("the round cleaned from %d to %d, want %d to %d", s.FirstDirty, s.NextDirty, at.first, at.end)
	}
}

// compareSegments holds segments against those that a later round of the broker
// had replaced, which are still there as `.deleted`.
func compareSegments(t *testing.T, disk vfs.FS, dir, next string, between map[kafka.Offset]int, round int) {
	t.Helper()
	for base, n := range between {
		if n == round {
			want, got := describe(t, disk, path.Join(next, logName(base)+".deleted")), describe(t, disk, path.Join(dir, logName(base)))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("segment %d after round %d (-want +got):\n%s", base, round, diff)
			}
		}
	}
}

func openStage(t *testing.T, disk vfs.FS, dir string, now kafka.Timestamp) *commitlog.Log {
	t.Helper()
	cfg := commitlog.DefaultConfig()
	cfg.CleanupCompact, cfg.CleanupDelete = true, false
	cfg.SegmentBytes, cfg.DeleteRetentionMs = 3000, 5_000
	l, err := commitlog.Open(commitlog.Options{
		FS: disk, Dir: dir, Partition: kafka.TopicPartition{Topic: "comp"}, Config: cfg, CleanShutdown: true, HighWatermark: 1 << 40,
		Now: func() time.Time { return time.UnixMilli(int64(now)) }, AfterDelay: func(time.Duration, func()) {},
		OnFailure: func(err error) { t.Errorf("log failed: %v", err) },
	})
	must(t, err)
	return l
}

func logName(base kafka.Offset) string { return fmt.Sprintf("%020d.log", base) }

// segmentBytes is the content of a segment as it was appended: before a round
// went over it, when one did.
func segmentBytes(t *testing.T, disk vfs.FS, dir string, base kafka.Offset) []byte {
	t.Helper()
	data, err := vfs.ReadFile(disk, path.Join(dir, logName(base)+".deleted"))
	if err != nil {
		data, err = vfs.ReadFile(disk, path.Join(dir, logName(base)))
	}
	must(t, err)
	return data
}

// describe lists the batches and records of a log file, without what depends on
// the compressor.
func describe(t *testing.T, disk vfs.FS, name string) string {
	t.Helper()
	data, err := vfs.ReadFile(disk, name)
	must(t, err)
	out := path.Base(name)[:20] + "\n"
	var it record.Iterator
	var dec record.Decompressor
	for len(data) > 0 {
		h, err := record.ParseHeader(data)
		must(t, err)
		must(t, record.Check(data[:h.Size]))
		must(t, it.Reset(data[:h.Size], &dec))
		data = data[h.Size:]
		if h.Codec() != record.None {
			h.Size = 0
		}
		h.CRC = 0
		out += fmt.Sprintf("%+v\n", h)
		for it.Next() {
			r := it.Record()
			out += fmt.Sprintf("  %d %d %q %q (%v) %q\n", r.Offset, r.Timestamp, r.Key, r.Value, r.Value == nil, r.Headers)
		}
		must(t, it.Err())
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
