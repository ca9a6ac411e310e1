package logdir

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// A creation that found no room or no descriptor, whichever operation met it,
// leaves the directory online and nothing that a later one does not get past.
func TestACreationThatFailedIsDoneAgain(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EMFILE} {
		for n := 1; ; n++ {
			disk := memfs.New()
			format(t, disk, "/data", "/other")
			c := &faultfs.Counter{Match: func(op faultfs.Op) bool {
				switch op.Kind {
				case faultfs.Mkdir, faultfs.Create, faultfs.Open, faultfs.Write, faultfs.Rename, faultfs.Reserve:
					return cause == syscall.ENOSPC || op.Kind != faultfs.Write && op.Kind != faultfs.Rename && op.Kind != faultfs.Reserve
				case faultfs.SyncDir:
					return cause == syscall.EMFILE // at its open
				}
				return false
			}}
			m := load(t, options(faultfs.Wrap(disk, c.Inject), "/data", "/other"), nil)
			c.From, c.Times, c.Fault = c.Seen()+n, 1, faultfs.Fault{Err: cause}
			want := NewPartition{Partition: tpOf("orders", 0), TopicID: topicID("orders"), Config: testConfig("")}
			_, err := m.Create(want)
			failed := c.Seen() >= c.From
			c.From = 0
			if err != nil && !Transient(err) {
				t.Errorf("%v at operation %d: %v is not called transient", cause, n, err)
			}
			create(t, m, "users", 0) // the fewest partitions are in the other directory now
			log, err := m.Create(want)
			if err != nil {
				t.Fatalf("%v at operation %d, then the creation again: %v", cause, n, err)
			}
			appendRecords(t, log, 3)
			must(t, log.Flush(3), m.Close(1))
			after := load(t, options(disk.Crash(memfs.DropAll()), "/data", "/other"), nil)
			if got := after.Log(tpOf("orders", 0)); got == nil || got.EndOffset() != 3 {
				t.Errorf("%v at operation %d: after a restart there is %v, %v", cause, n, got, after.Failure(tpOf("orders", 0)))
			}
			if !failed {
				if n < 5 {
					t.Errorf("%v: only %d operations", cause, n)
				}
				break
			}
		}
	}
}

// A partition that Load found no descriptors for is opened by Create, with what
// the checkpoints say of it, also when it was its topic id that could not be read.
func TestAPartitionThatWasNotOpenedIsOpenedLater(t *testing.T) {
	for _, file := range []string{"partition.metadata", "00000000000000000000.log"} {
		t.Run(file, func(t *testing.T) {
			disk := memfs.New()
			format(t, disk, "/data")
			m := load(t, options(disk, "/data"), nil)
			log := create(t, m, "orders", 0)
			appendRecords(t, log, 5)
			if _, err := log.DeleteRecordsTo(3); err != nil {
				t.Fatal(err)
			}
			must(t, m.Close(1))
			scarce := true
			m = load(t, options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
				if scarce && op.Kind == faultfs.Open && strings.HasSuffix(op.Name, "orders-0/"+file) {
					return faultfs.Fault{Err: syscall.EMFILE}
				}
				return faultfs.Fault{}
			}), "/data"), imageOf(t, "orders"))
			want := NewPartition{Partition: tpOf("orders", 0), TopicID: topicID("orders"), Config: testConfig("")}
			if _, err := m.Create(want); err == nil || !Transient(err) {
				t.Fatalf("Create while descriptors are scarce: %v", err)
			}
			scarce = false
			if _, err := m.Create(want); err != nil {
				t.Fatal(err)
			}
			log = m.Log(tpOf("orders", 0))
			if log.StartOffset() != 3 || log.EndOffset() != 5 || log.HighWatermark() != 5 || m.Failure(tpOf("orders", 0)) != nil {
				t.Errorf("log [%d, %d), high watermark %d, failure %v; want [3, 5), 5", log.StartOffset(), log.EndOffset(), log.HighWatermark(), m.Failure(tpOf("orders", 0)))
			}
			must(t, m.Delete(tpOf("orders", 0)))
			if got := readFile(t, disk, "/data/"+checkpoint.RecoveryPointFile); got != "0\n0\n" {
				t.Errorf("recovery points = %q once it is deleted", got)
			}
		})
	}
}

func TestAPartitionOfAnotherTopicIsNotOpenedLater(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	appendRecords(t, create(t, m, "orders", 0), 5)
	must(t, m.Close(1))
	scarce := true
	m = load(t, options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if scarce && op.Kind == faultfs.Open && strings.HasSuffix(op.Name, "partition.metadata") {
			return faultfs.Fault{Err: syscall.EMFILE}
		}
		return faultfs.Fault{}
	}), "/data"), imageOf(t, "orders"))
	scarce = false
	before := names(t, disk, "/data")
	for range 2 {
		_, err := m.Create(NewPartition{Partition: tpOf("orders", 0), TopicID: topicID("other"), Config: testConfig("")})
		if !errors.As(err, new(*commitlog.TopicIDError)) {
			t.Errorf("Create with another id: %v", err)
		}
	}
	if got := names(t, disk, "/data"); strings.Join(got, " ") != strings.Join(before, " ") {
		t.Errorf("entries = %v, want %v", got, before)
	}
}

// What is no file under the name partition.metadata is that partition's trouble.
func TestAnUnreadableTopicIDFailsOnePartition(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	must(t, disk.MkdirAll("/data/orders-0/partition.metadata", 0o755))
	m := load(t, options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if strings.HasSuffix(op.Name, "orders-0/partition.metadata") {
			return faultfs.Fault{Err: syscall.EISDIR}
		}
		return faultfs.Fault{}
	}), "/data"), imageOf(t, "orders", "users"))
	if m.Failure(kafka.TopicPartition{Topic: "orders"}) == nil {
		t.Error("the partition did not fail")
	}
	appendRecords(t, create(t, m, "users", 0), 1)
}
