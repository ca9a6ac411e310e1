package logdir

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
	"github.com/varvelog/varve/internal/vfs/tracefs"
)

// The waits of these tests are virtual. clock goes on from start with them.
func clock() func() time.Time {
	began := time.Now()
	return func() time.Time { return start.Add(time.Since(began)) }
}

func TestCheckpointsAreWrittenInTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memfs.New()
		format(t, disk, "/data")
		var trace tracefs.Log
		o := options(tracefs.Wrap(disk, &trace), "/data")
		o.Intervals, o.Now = DefaultIntervals(), clock()
		m := load(t, o, nil)
		log := create(t, m, "orders", 0)
		appendRecords(t, log, 4)
		must(t, log.Flush(4))
		at := func(after time.Duration, file, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := readFile(t, disk, "/data/"+file); got != want {
				t.Errorf("%s = %q, want %q", file, got, want)
			}
		}
		at(4*time.Second, checkpoint.HighWatermarkFile, "")
		at(2*time.Second, checkpoint.HighWatermarkFile, "0\n1\norders 0 4\n")
		at(0, checkpoint.RecoveryPointFile, "")
		at(25*time.Second, checkpoint.RecoveryPointFile, "0\n1\norders 0 4\n")
		appendRecords(t, log, 1)
		must(t, log.Flush(5))
		at(50*time.Second, checkpoint.RecoveryPointFile, "0\n1\norders 0 4\n")
		at(10*time.Second, checkpoint.RecoveryPointFile, "0\n1\norders 0 5\n")

		// An idle broker writes nothing.
		trace.Reset()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := trace.String(); got != "" {
			t.Errorf("written while idle:\n%s", got)
		}
	})
}

func TestDeletedRecordsAreCheckpointedAtOnce(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	log := create(t, m, "orders", 0)
	appendRecords(t, log, 5)
	must(t, log.Flush(5))
	if _, err := log.DeleteRecordsTo(2); err != nil {
		t.Fatal(err)
	}
	after := load(t, options(disk.Crash(memfs.DropAll()), "/data"), nil)
	if got := after.Log(tpOf("orders", 0)).StartOffset(); got != 2 {
		t.Errorf("log start offset after a crash = %d, want 2", got)
	}
}

func TestRetentionFlushAndExpiryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memfs.New()
		format(t, disk, "/data")
		o := options(disk, "/data")
		o.Intervals = Intervals{Initial: time.Second, Retention: time.Minute, Flush: time.Second}
		o.Now = clock()
		m := load(t, o, nil)
		config := testConfig("")
		config.RetentionMs, config.FlushMs, config.FileDeleteDelay = 60_000, 5_000, time.Minute
		log, err := m.Create(NewPartition{Partition: tpOf("orders", 0), TopicID: topicID("orders"), Config: config})
		must(t, err)
		appendRecords(t, log, 3)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if got := log.RecoveryPoint(); got != 0 {
			t.Errorf("recovery point = %d before flush.ms has passed", got)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := log.RecoveryPoint(); got != 3 {
			t.Errorf("recovery point = %d after flush.ms, want 3", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := log.StartOffset(); got != 3 {
			t.Errorf("log start offset = %d after retention.ms, want 3", got)
		}
	})
}

func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j jobs
		j.init()
		var runs, late, never int
		j.every(time.Second, time.Minute, func() { runs++ })
		j.every(0, 0, func() { never++ })
		j.after(90*time.Second, func() { late++ })
		j.after(time.Hour, func() { never++ })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if runs != 2 || late != 1 {
			t.Errorf("periodic ran %d times, delayed %d", runs, late)
		}
		block := make(chan struct{})
		for range backgroundJobs {
			j.background(func() { <-block })
		}
		inline := false
		j.background(func() { inline = true }) // every slot is taken
		if !inline {
			t.Error("a job beyond the bound did not run at once")
		}
		close(block)
		j.stop()
		j.stop()
		j.after(0, func() { never++ })
		j.every(0, time.Second, func() { never++ })
		ran := false
		j.background(func() { ran = true })
		time.Sleep(2 * time.Hour)
		if never != 0 || !ran {
			t.Errorf("after stop: %d ran that should not, a background job ran %v", never, ran)
		}
	})
}

// A failed write takes the directory out of use for good; the other one serves.
func TestOffline(t *testing.T) {
	for _, kind := range []faultfs.Kind{faultfs.Write, faultfs.Sync, faultfs.SyncDir} {
		t.Run(string(kind), func(t *testing.T) {
			disk := memfs.New()
			format(t, disk, "/a", "/b")
			broken := false
			afterwards := 0
			inject := func(op faultfs.Op) faultfs.Fault {
				if !strings.HasPrefix(op.Name, "/a") || !op.Kind.Changes() {
					return faultfs.Fault{}
				}
				if broken && op.Kind == kind && afterwards == 0 {
					afterwards = 1
					return faultfs.Fault{Err: syscall.EIO}
				}
				if afterwards > 0 {
					afterwards++
				}
				return faultfs.Fault{}
			}
			told := make(chan Offline, 2)
			o := options(faultfs.Wrap(disk, inject), "/a", "/b")
			o.OnOffline = func(off Offline, online int) {
				if online != 1 {
					t.Errorf("online = %d, want 1", online)
				}
				told <- off
			}
			m := load(t, o, nil)
			a, b := create(t, m, "orders", 0), create(t, m, "orders", 1)
			create(t, m, "orders", 2) // in /a too
			appendRecords(t, a, 1)
			appendRecords(t, b, 1)
			broken = true
			switch kind {
			case faultfs.Write:
				if err := tryAppend(a, 1); err == nil {
					t.Error("an append to a broken disk succeeded")
				}
			case faultfs.Sync:
				if err := a.Flush(1); err == nil {
					t.Error("a flush to a broken disk succeeded")
				}
			case faultfs.SyncDir:
				m.checkpointAll(recoveryPoints)
			}
			off := <-told
			if off.Dir != "/a" || off.ID != (kafka.UUID{15: 101}) || len(off.Partitions) != 2 {
				t.Errorf("told = %+v", off)
			}
			if m.Health(tpOf("orders", 0)).Err() == nil || m.Health(tpOf("orders", 1)).Err() != nil {
				t.Error("health of the two directories is wrong")
			}
			if err := tryAppend(m.Log(tpOf("orders", 2)), 1); err == nil {
				t.Error("another partition of the broken directory accepts records")
			}
			must(t, tryAppend(b, 1))
			m.checkpointAll(highWatermarks)
			if log := create(t, m, "orders", 3); !strings.HasPrefix(log.Dir(), "/b/") {
				t.Errorf("a new partition is made in %s", log.Dir())
			}
			if err := m.Close(3); err == nil {
				t.Error("the stop was clean")
			}
			if afterwards > 1 {
				t.Errorf("%d operations changed the directory after it went offline", afterwards-1)
			}
			if exists(disk, "/a/"+checkpoint.CleanShutdownFile) || !exists(disk, "/b/"+checkpoint.CleanShutdownFile) {
				t.Error("the marker is in the broken directory, or not in the other")
			}
			if len(told) != 0 {
				t.Error("told more than once")
			}
		})
	}
}

// A checkpoint that finds no room keeps the old one, and is written when there
// is some again. Only a failed sync is an end, whatever its number is.
func TestAFullDiskDelaysACheckpoint(t *testing.T) {
	for _, tt := range []struct {
		name   string
		kind   faultfs.Kind
		cause  error
		online bool
	}{
		{"no room for a new file", faultfs.Create, syscall.ENOSPC, true},
		{"no room for its bytes", faultfs.Write, syscall.ENOSPC, true},
		{"no room for the name", faultfs.Rename, syscall.ENOSPC, true},
		{"no descriptor for it", faultfs.Create, syscall.EMFILE, true},
		{"a late report of it by a sync", faultfs.Sync, syscall.ENOSPC, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := memfs.New()
			format(t, disk, "/data")
			full := false
			m := load(t, options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
				if full && op.Kind == tt.kind {
					return faultfs.Fault{Err: tt.cause}
				}
				return faultfs.Fault{}
			}), "/data"), nil)
			log := create(t, m, "orders", 0)
			appendRecords(t, log, 3)
			full = true
			m.checkpointAll(highWatermarks)
			full = false
			if err := m.Health(tpOf("orders", 0)).Err(); (err == nil) != tt.online {
				t.Fatalf("Health = %v, want online %v", err, tt.online)
			}
			m.checkpointAll(highWatermarks)
			want := "0\n1\norders 0 3\n"
			if got := readFile(t, disk, "/data/"+checkpoint.HighWatermarkFile); (got == want) != tt.online {
				t.Errorf("checkpoint = %q, want %q only while the directory is online", got, want)
			}
		})
	}
}

func TestATopicIsDeletedAndMadeAnewOnAFullDisk(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	full := false
	m := load(t, options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if full && op.Kind == faultfs.Rename {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	}), "/data"), nil)
	appendRecords(t, create(t, m, "orders", 0), 3)
	users := create(t, m, "users", 0)
	full = true
	if err := m.Delete(tpOf("orders", 0)); !errors.Is(err, commitlog.ErrFull) {
		t.Errorf("Delete without room for a name: %v, want ErrFull", err)
	}
	full = false
	must(t, tryAppend(users, 1))
	log, err := m.Create(NewPartition{Partition: tpOf("orders", 0), TopicID: topicID("other"), Config: testConfig("orders")})
	if err != nil || log.EndOffset() != 0 {
		t.Errorf("the topic made anew: %v, %v, want an empty log", log, err)
	}
}

func TestNothingIsDoneInADirectoryThatIsOffline(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	log := create(t, m, "orders", 0)
	m.goOffline(m.dirs[0], "write", syscall.EIO)
	if tryAppend(log, 1) == nil {
		t.Error("an append succeeded")
	}
	if _, err := m.Create(NewPartition{Partition: tpOf("users", 0), TopicID: topicID("users"), Config: testConfig("")}); err == nil {
		t.Error("a partition was made without a directory")
	}
	if d := m.Describe()[0]; d.Err == nil || len(d.Partitions) != 0 {
		t.Errorf("Describe = %+v", d)
	}
}

func TestDescribe(t *testing.T) {
	disk := memfs.New()
	disk.SetLimit(1 << 20)
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	appendRecords(t, create(t, m, "b", 0), 2)
	create(t, m, "a", 0)
	got := m.Describe()
	want := []DirInfo{{
		Path: "/data", ID: kafka.UUID{15: 101}, Total: 1 << 20, Free: got[0].Free,
		Partitions: []PartitionInfo{{tpOf("a", 0), 0, 0}, {tpOf("b", 0), got[0].Partitions[1].Size, 2}},
	}}
	if diff := cmp.Diff(want, got); diff != "" || got[0].Partitions[1].Size == 0 || got[0].Free <= 0 {
		t.Errorf("Describe (-want +got):\n%s", diff)
	}
}
