package repair

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// A segment that is gone from the middle of a log refuses the partition; repair
// says which offsets are gone, and accepts that only when it is told to.
func TestAGapIsAcceptedOnlyWhenItIsAllowed(t *testing.T) {
	disk := memfs.New()
	const dir = "/data/orders-0"
	if err := disk.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_760_000_000_000)
	o := commitlog.Options{FS: disk, Dir: dir, Partition: kafka.TopicPartition{Topic: "orders"}, Config: commitlog.DefaultConfig(), Now: func() time.Time { return now }}
	l, err := commitlog.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		var b record.Builder
		b.Reset(record.NewBuildOptions())
		for range 4 {
			b.Append(kafka.Timestamp(now.UnixMilli()), nil, []byte("value"), nil)
		}
		batch, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.AppendAsLeader(batch, 0, commitlog.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			if err := l.Roll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := disk.Remove(filepath.Join(dir, segment.Name(4, segment.LogExt))); err != nil {
		t.Fatal(err)
	}
	o.CleanShutdown, o.RecoveryPoint = true, 12
	if _, err := commitlog.Open(o); err == nil || !strings.Contains(err.Error(), "the offsets 4 to 7") {
		t.Fatalf("Open: %v, want a refusal", err)
	}
	ro := Options{FS: disk, Paths: []string{dir}}
	plan := mustMake(t, ro)
	if len(plan.Steps) > 0 || len(plan.Held) == 0 || !strings.Contains(plan.Held[0].String(), "offsets 4..7 are gone") {
		t.Fatalf("plan %+v, want the gap held", plan)
	}
	ro.AllowDataLoss = true
	mustApply(t, ro)
	if l, err = commitlog.Open(o); err != nil {
		t.Fatal(err)
	}
	if l.EndOffset() != 12 {
		t.Errorf("the log ends at %d, want 12", l.EndOffset())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := mustMake(t, ro); len(got.Steps)+len(got.Held) > 0 {
		t.Errorf("another plan: %s", lines(got))
	}
}
