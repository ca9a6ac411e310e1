package logdir

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
	"github.com/varvelog/varve/internal/vfs/tracefs"
)

var update = flag.Bool("update", false, "write the golden trace anew")

// TestTrace compares the order of operations of a partition's life with the
// golden text in testdata (faults O1 to O3, O8, O14).
func TestTrace(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	var log tracefs.Log
	m := load(t, options(tracefs.Wrap(disk, &log), "/data"), nil)
	for range backgroundJobs {
		m.jobs.slots <- struct{}{} // what would run in the background runs at once, so that the order is one
	}
	step := func(name string) { log.Printf("# %s", name) }
	step("created")
	orders := create(t, m, "orders", 0)
	step("appended")
	appendRecords(t, orders, 3)
	step("records deleted")
	if _, err := orders.DeleteRecordsTo(2); err != nil {
		t.Fatal(err)
	}
	step("another created and deleted")
	create(t, m, "gone", 0)
	must(t, m.Delete(tpOf("gone", 0)))
	step("closed")
	must(t, m.Close(7))

	golden := filepath.Join("testdata", "life.trace")
	if *update {
		must(t, os.WriteFile(golden, []byte(log.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), log.String()); diff != "" {
		t.Errorf("order of operations (-%s +got):\n%s\nall:\n%s", golden, diff, log.String())
	}
}

func TestCreateAppendCloseLoad(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	log := create(t, m, "orders", 0)
	appendRecords(t, log, 3)
	if again := create(t, m, "orders", 0); again != log {
		t.Error("creating a partition again made another log")
	}
	must(t, m.Close(7), m.Close(7))
	if _, err := m.Create(NewPartition{Partition: tpOf("late", 0), TopicID: topicID("late")}); !errors.Is(err, ErrNotLoaded) {
		t.Errorf("Create after Close = %v, want ErrNotLoaded", err)
	}

	m = load(t, options(disk, "/data"), imageOf(t, "orders"))
	if got := m.Log(tpOf("orders", 0)).EndOffset(); got != 3 {
		t.Errorf("end offset after restart = %d, want 3", got)
	}
	want := []string{"00000000000000000000.index", "00000000000000000000.log", "00000000000000000000.timeindex", "00000000000000000003.snapshot", "leader-epoch-checkpoint", "partition.metadata"}
	if diff := cmp.Diff(want, names(t, disk, "/data/orders-0")); diff != "" {
		t.Errorf("files of the partition:\n%s", diff)
	}
}

func TestCreateGoesWhereTheFewestAre(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/a", "/b", "/c")
	m := load(t, options(disk, "/a", "/b", "/c"), nil)
	var list []NewPartition
	for i := range int32(7) {
		list = append(list, NewPartition{Partition: tpOf("orders", i), TopicID: topicID("orders"), Config: testConfig("")})
	}
	list[0].Dir = kafka.UUID{15: 103} // wanted by the metadata: /c
	list[1].Dir = kafka.UUID{15: 99}  // not known
	for i, c := range m.CreateAll(list) {
		if c.Err != nil {
			t.Errorf("partition %d: %v", i, c.Err)
		}
	}
	var got []string
	for i := range int32(7) {
		id, _ := m.DirectoryOf(tpOf("orders", i))
		got = append(got, string('a'+rune(id[15]-101)))
	}
	if want := "cababca"; strings.Join(got, "") != want {
		t.Errorf("directories = %s, want %s", strings.Join(got, ""), want)
	}
	counts := map[string]int{}
	for _, d := range m.Describe() {
		counts[d.Path] = len(d.Partitions)
	}
	if counts["/a"]+counts["/b"]+counts["/c"] != 7 || max(counts["/a"], counts["/b"], counts["/c"]) > 3 {
		t.Errorf("partitions by directory = %v, want them spread", counts)
	}
}

func TestCreateInPlaceOfSomethingElse(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, disk *memfs.FS)
		stray   bool
	}{
		{"an empty directory is used", func(t *testing.T, disk *memfs.FS) {}, false},
		{"what an interrupted creation left is used", func(t *testing.T, disk *memfs.FS) {
			must(t, checkpoint.WritePartitionMetadata(disk, "/data/orders-0/partition.metadata", topicID("orders")))
		}, false},
		{"another topic's data is set aside", func(t *testing.T, disk *memfs.FS) {
			must(t, checkpoint.WritePartitionMetadata(disk, "/data/orders-0/partition.metadata", topicID("before")))
		}, true},
		{"data without an id is set aside", func(t *testing.T, disk *memfs.FS) {
			writeFile(t, disk, "/data/orders-0/00000000000000000000.log", "data")
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := memfs.New()
			format(t, disk, "/data")
			m := load(t, options(disk, "/data"), nil)
			must(t, disk.Mkdir("/data/orders-0", 0o755))
			tt.prepare(t, disk)
			appendRecords(t, create(t, m, "orders", 0), 2)
			stray := strings.Contains(strings.Join(names(t, disk, "/data"), " "), "-stray")
			if stray != tt.stray {
				t.Errorf("entries = %v", names(t, disk, "/data"))
			}
			if got, err := checkpoint.ReadPartitionMetadata(disk, "/data/orders-0/partition.metadata"); err != nil || got != topicID("orders") {
				t.Errorf("topic id = %v, %v", got, err)
			}
		})
	}
}

// A link that has the name of a partition is not followed out of the data
// directory, neither at the start nor by a creation.
func TestALinkInPlaceOfAPartitionIsLeftAlone(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(path, outside string) error
	}{
		{"a link to a directory", func(path, outside string) error { return os.Symlink(outside, path) }},
		{"a link to nothing", func(path, outside string) error { return os.Symlink(outside+"/none", path) }},
		{"a file", func(path, _ string) error { return os.WriteFile(path, nil, 0o644) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, outside := filepath.Join(t.TempDir(), "data"), t.TempDir()
			disk := vfs.OS()
			must(t, checkpoint.WritePartitionMetadata(disk, filepath.Join(outside, checkpoint.PartitionFile), topicID("orders")))
			format(t, disk, dir)
			must(t, tt.make(filepath.Join(dir, "orders-0"), outside))
			before := names(t, disk, outside)
			m := load(t, options(disk, dir), nil)
			_, err := m.Create(NewPartition{Partition: tpOf("orders", 0), TopicID: topicID("orders"), Config: testConfig("")})
			if !errors.As(err, new(*NotDirectoryError)) {
				t.Errorf("Create: %v, want a *NotDirectoryError", err)
			}
			if got := names(t, disk, outside); !slices.Equal(got, before) {
				t.Errorf("outside there are %v, want %v", got, before)
			}
			if _, err := os.Lstat(filepath.Join(dir, "orders-0")); err != nil {
				t.Errorf("the entry itself: %v", err)
			}
			appendRecords(t, create(t, m, "users", 0), 1) // the directory is online
		})
	}
}

func TestDelete(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	log := create(t, m, "orders", 0)
	appendRecords(t, log, 5)
	must(t, log.Flush(5))
	m.checkpointAll(recoveryPoints)
	must(t, m.Delete(tpOf("orders", 0), tpOf("unknown", 4)))
	if m.Log(tpOf("orders", 0)) != nil {
		t.Error("the partition still has a log")
	}
	if got := readFile(t, disk, "/data/"+checkpoint.RecoveryPointFile); got != "0\n0\n" {
		t.Errorf("recovery points = %q: the next topic of that name would inherit one", got)
	}
	// The same name again, with another id, starts empty: also after a crash.
	id := topicID("orders again")
	if _, err := m.Create(NewPartition{Partition: tpOf("orders", 0), TopicID: id, Config: testConfig("")}); err != nil {
		t.Fatal(err)
	}
	after := load(t, options(disk.Crash(memfs.DropAll()), "/data"), nil)
	if got := after.Log(tpOf("orders", 0)); got == nil || got.EndOffset() != 0 || got.TopicID() != id {
		t.Errorf("the new partition after a crash: %+v", got)
	}
	m.jobs.stop()
}

// After each operation of a script the power goes in several ways. What was
// promised by then is there at the next start: created partitions, deleted
// ones gone, deleted records gone, and the records that the log says are durable.
func TestCrashAtEveryOperation(t *testing.T) {
	type promise struct {
		created bool
		start   kafka.Offset // DeleteRecords was answered
		flushed kafka.Offset
		deleted bool
	}
	var mu sync.Mutex // some operations come from background jobs
	run := func(disk *memfs.FS, hook func(faultfs.Op) faultfs.Fault, done *promise) {
		promised := func(f func()) {
			mu.Lock()
			defer mu.Unlock()
			f()
		}
		o := options(faultfs.Wrap(disk, hook), "/data")
		o.FileDeleteDelay = 0
		m, err := Open(o)
		must(t, err)
		defer m.abandon()
		must(t, m.Load(LoadOptions{Config: testConfig}))
		log := create(t, m, "orders", 0)
		promised(func() { done.created = true })
		appendRecords(t, log, 5)
		must(t, log.Flush(5))
		promised(func() { done.flushed = 5 })
		if _, err := log.DeleteRecordsTo(3); err != nil {
			t.Fatal(err)
		}
		promised(func() { done.start = 3 })
		create(t, m, "gone", 0)
		must(t, m.Delete(tpOf("gone", 0)))
		promised(func() { done.deleted = true })
		must(t, m.Close(4))
	}
	states := 0
	check := func(disk *memfs.FS, done promise, where string) {
		states++
		var lines logLines
		m, err := Open(logTo(options(disk, "/data"), &lines))
		if err == nil {
			err = m.Load(LoadOptions{Config: testConfig})
		}
		if err != nil {
			t.Fatalf("%s: start: %v", where, err)
		}
		defer m.abandon()
		log := m.Log(tpOf("orders", 0))
		switch {
		case log == nil && done.created:
			t.Fatalf("%s: the created partition is gone: %v\n%s", where, m.Failure(tpOf("orders", 0)), lines.buf.String())
		case log != nil && (log.EndOffset() < done.flushed || log.StartOffset() < done.start):
			t.Fatalf("%s: log [%d, %d), want at least [%d, %d)", where, log.StartOffset(), log.EndOffset(), done.start, done.flushed)
		case done.deleted && m.Log(tpOf("gone", 0)) != nil:
			t.Fatalf("%s: the deleted partition is back", where)
		}
		if err := m.Close(5); err != nil {
			t.Fatalf("%s: stop: %v", where, err)
		}
	}
	var done promise
	disk := memfs.New()
	format(t, disk, "/data")
	n := uint64(0)
	run(disk, func(op faultfs.Op) faultfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind.Changes() {
			n++
			where := fmt.Sprintf("before operation %d (%s %s)", n, op.Kind, op.Name)
			check(disk.Crash(memfs.DropAll()), done, where+", nothing kept")
			for _, keep := range []float64{0.2, 0.5} {
				check(disk.Crash(memfs.Random(keep, n)), done, where+fmt.Sprintf(", keep %v, seed %d", keep, n))
			}
		}
		return faultfs.Fault{}
	}, &done)
	check(disk.Crash(memfs.DropAll()), done, "at the end")
	if states < 100 {
		t.Errorf("%d states were tried", states)
	}
}

// Every operation that changes the disk fails once, with an error of the disk:
// the directory goes offline, nothing more is written to it, and the next start
// finds what was promised.
func TestFailEveryOperation(t *testing.T) {
	script := func(disk *memfs.FS, c *faultfs.Counter) (flushed kafka.Offset) {
		o := options(faultfs.Wrap(disk, c.Inject), "/data")
		m, err := Open(o)
		if err != nil {
			return 0
		}
		defer m.abandon()
		if err := m.Load(LoadOptions{Config: testConfig}); err != nil {
			return 0
		}
		log, err := m.Create(NewPartition{Partition: tpOf("orders", 0), TopicID: topicID("orders"), Config: testConfig("")})
		if err != nil {
			return 0
		}
		if tryAppend(log, 5) == nil && log.Flush(5) == nil {
			flushed = 5
		}
		_, _ = log.DeleteRecordsTo(1)
		if err := m.Close(4); err == nil && c.From > 0 && c.Seen() >= c.From {
			t.Errorf("operation %d failed and the stop was clean", c.From)
		}
		return flushed
	}
	for n := 1; ; n++ {
		disk := memfs.New()
		format(t, disk, "/data")
		c := &faultfs.Counter{From: n, Fault: faultfs.Fault{Err: syscall.EIO}, Match: func(op faultfs.Op) bool {
			// The lock file goes after all is safe.
			return op.Kind.Changes() && !(op.Kind == faultfs.Remove && op.Name == "/data/.lock")
		}}
		flushed := script(disk, c)
		failed := c.Seen() >= n
		m, err := Open(options(disk.Crash(memfs.DropAll()), "/data"))
		if err != nil {
			t.Fatalf("operation %d failed, then a crash: %v", n, err)
		}
		if m.dirs[0].clean && failed {
			t.Errorf("operation %d failed and the directory is called clean", n)
		}
		must(t, m.Load(LoadOptions{Config: testConfig}))
		if log := m.Log(tpOf("orders", 0)); flushed > 0 && (log == nil || log.EndOffset() < flushed) {
			t.Errorf("operation %d failed: flushed records are gone", n)
		}
		m.abandon()
		if !failed {
			if n < 20 {
				t.Errorf("only %d operations", n)
			}
			return
		}
	}
}

// A deleted partition keeps no file open until its directory goes, or for ever
// when the manager is closed before.
func TestADeletedPartitionHasNoFileOpen(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	var open atomic.Int64
	m := load(t, options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		switch op.Kind {
		case faultfs.Open:
			if _, err := disk.Stat(op.Name); err == nil {
				open.Add(1)
			}
		case faultfs.Create:
			open.Add(1)
		case faultfs.Close:
			open.Add(-1)
		}
		return faultfs.Fault{}
	}), "/data"), nil)
	before := open.Load()
	log := create(t, m, "orders", 0)
	appendRecords(t, log, 3)
	if open.Load() == before {
		t.Fatal("an open partition has no file open")
	}
	must(t, m.Delete(tpOf("orders", 0)))
	if got := open.Load(); got != before {
		t.Errorf("%d files are open after the deletion, want %d", got, before)
	}
}
