package commitlog

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs/tracefs"
)

var writeOrder = flag.Bool("order.write", false, "write testdata/order.txt anew")

// TestOrderOnDisk holds the order of writes and syncs, which is part of the
// format: testdata/order.txt is read like code when it changes.
func TestOrderOnDisk(t *testing.T) {
	var trace tracefs.Log
	mark := func(what string) { trace.Printf("# %s", what) }
	mark("a new partition: its id, its first segment, then the names are durable")
	b := newBench(t, func(o *Options) {
		o.FS = tracefs.Wrap(o.FS, &trace)
		o.TopicID = kafka.UUID{1: 1, 15: 200}
		o.Config.IndexInterval = 100
		o.Config.SegmentIndexBytes = 4096
		o.PersistLogStart = func(to kafka.Offset) error { trace.Printf("  owner: log start checkpoint %d", to); return nil }
		o.PersistRecoveryPoint = func(to kafka.Offset) error { trace.Printf("  owner: recovery point checkpoint %d", to); return nil }
	})
	mark("a leader epoch: nothing, until its first record")
	if err := b.log.AssignEpoch(0, 0); err != nil {
		t.Fatal(err)
	}
	mark("append: one write, the epoch durable before the first")
	b.append(3)
	mark("append: the first with an index entry")
	b.append(3)
	mark("flush: the log, then its indexes, then the name")
	if err := b.log.Flush(6); err != nil {
		t.Fatal(err)
	}
	mark("flush again: nothing new, nothing done")
	if err := b.log.Flush(6); err != nil {
		t.Fatal(err)
	}
	b.append(3)
	mark("roll: new segment, indexes cut, snapshot; then all of it durable, and only then the recovery point")
	if err := b.log.Roll(); err != nil {
		t.Fatal(err)
	}
	b.append(2)
	mark("records deleted: log start checkpoint, leader epochs; then their segment is renamed, the names durable")
	if _, err := b.log.DeleteRecordsTo(10); err != nil {
		t.Fatal(err)
	}
	mark("retention finds it done")
	if _, err := b.log.DeleteOldSegments(); err != nil {
		t.Fatal(err)
	}
	mark("file.delete.delay.ms later")
	for _, f := range b.due {
		f()
	}
	b.append(2)
	if err := b.log.Roll(); err != nil {
		t.Fatal(err)
	}
	b.append(2)
	mark("truncation: recovery point checkpoint, segments from the last to the first, the log, all durable")
	if _, err := b.log.TruncateTo(11); err != nil {
		t.Fatal(err)
	}
	b.append(1)
	mark("flush.messages=1: a sync of the log before the answer, the indexes later")
	c := *b.log.Config()
	c.FlushMessages = 1
	b.log.SetConfig(c)
	b.append(3)
	mark("roll: the first answer from the new file waits for its name")
	if err := b.log.Roll(); err != nil {
		t.Fatal(err)
	}
	b.append(1)
	b.append(1)
	mark("clean stop")
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	mark("clean start")
	b.opts.RecoveryPoint, b.opts.LogStartOffset = b.log.RecoveryPoint(), 10
	b.open(true)

	file := filepath.Join("testdata", "order.txt")
	if *writeOrder {
		if err := os.WriteFile(file, []byte(trace.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), trace.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}
