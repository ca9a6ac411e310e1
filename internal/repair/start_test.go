package repair

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// killed is a data directory whose broker was killed before it wrote a recovery
// point: orders-0 has as many segments as there are numbers, each of that many
// batches of four records.
func killed(t *testing.T, batches ...int) *memfs.FS {
	t.Helper()
	disk := memfs.New()
	write(t, disk, "/data/meta.properties", "version=1\nnode.id=1\ncluster.id=ZmFyIGF3YXkgY2x1c3Rlcg\ndirectory.id=b25lIG9mIHRoZSBkaXJzIA\n")
	write(t, disk, "/data/recovery-point-offset-checkpoint", "")
	if err := disk.MkdirAll("/data/orders-0", 0o755); err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_760_000_000_000)
	l, err := commitlog.Open(commitlog.Options{FS: disk, Dir: "/data/orders-0", Partition: kafka.TopicPartition{Topic: "orders"},
		TopicID: kafka.TopicID{1, 2, 3}, Config: commitlog.DefaultConfig(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range batches {
		for j := range n {
			var b record.Builder
			b.Reset(record.NewBuildOptions())
			for k := range 4 {
				b.Append(kafka.Timestamp(now.UnixMilli()), nil, fmt.Appendf(nil, "value %d %d %d", i, j, k), nil)
			}
			batch, err := b.Finish()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := l.AppendAsLeader(batch, 0, commitlog.AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if i+1 < len(batches) {
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// The names are on the disk, what is in the files is not.
	dirty := memfs.New()
	for path, data := range files(t, disk, "/data") {
		write(t, dirty, path, data)
	}
	for _, dir := range []string{"/", "/data", "/data/orders-0"} {
		if err := dirty.SyncDir(dir); err != nil {
			t.Fatal(err)
		}
	}
	return dirty
}

// flipBatch flips a bit in the last byte of the i-th batch of a .log.
func flipBatch(t *testing.T, disk *memfs.FS, path string, i int) {
	t.Helper()
	data := []byte(content(t, disk, path))
	at := 0
	for ; i >= 0; i-- {
		n, ok, err := record.NextBatch(data[at:])
		if err != nil || !ok {
			t.Fatalf("%s has no such batch", path)
		}
		at += n
	}
	data[at-1] ^= 1
	write(t, disk, path, string(data))
}

// A start cuts a log at a hole above the recovery point. When repair has made the
// hole, and has checked and synced what lies behind it, it is kept: also when the
// machine loses power after the repair.
func TestAStartKeepsWhatARepairHasKept(t *testing.T) {
	tests := []struct {
		name     string
		segments []int
		segment  kafka.Offset
		batch    int
	}{
		{"the last batch of a segment in the middle", []int{3, 3, 3}, 12, 2},
		{"the only batch of a segment in the middle", []int{1, 1, 1}, 4, 0},
		{"a batch in the middle of a segment in the middle", []int{3, 3, 3}, 12, 1},
		{"the batch in the middle of one segment", []int{5}, 0, 2},
		{"the last but one of one segment", []int{5}, 0, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			disk := killed(t, test.segments...)
			flipBatch(t, disk, filepath.Join("/data/orders-0", segment.Name(test.segment, segment.LogExt)), test.batch)
			want := batches(t, disk, "/data/orders-0")
			total := 0
			for _, n := range test.segments {
				total += n
			}
			o := Options{FS: disk, Paths: []string{"/data"}, AllowDataLoss: true}
			if plan, r := mustApply(t, o); len(plan.Left)+len(plan.Held) > 0 {
				t.Errorf("left:\n%s%v", lines(plan), r.Findings)
			}
			disk = disk.Crash(memfs.DropAll())
			got := served(t, disk, "/data/orders-0")
			if len(got) != total-1 {
				t.Errorf("%d batches are served, want %d", len(got), total-1)
			}
			for b := range got {
				if len(want) > 0 && !want[b] && total > 1 {
					t.Error("a batch is served that was not there")
				}
			}
			points, err := checkpoint.ReadOffsets(disk, "/data/recovery-point-offset-checkpoint")
			if end := kafka.Offset(4 * total); err != nil || points[kafka.TopicPartition{Topic: "orders"}] != end {
				t.Errorf("recovery points %v (%v), want %d", points, err, end)
			}
			o.FS = disk
			if again := mustMake(t, o); len(again.Steps)+len(again.Held) > 0 {
				t.Errorf("another plan:\n%s", lines(again))
			}
		})
	}
}
