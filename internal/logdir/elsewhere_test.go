package logdir

import (
	"errors"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// A partition of a directory that fails at the start is not made anew in another
// one: it would be served empty, and the start after that would find it twice.
func TestAPartitionOfAnOfflineDirectoryIsNotMadeElsewhere(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data", "/more")
	m := load(t, options(disk, "/data", "/more"), nil)
	first := create(t, m, "orders", 0)
	appendRecords(t, first, 3)
	id, _ := m.DirectoryOf(tpOf("orders", 0))
	must(t, m.Close(5))

	broken := true
	inject := func(op faultfs.Op) faultfs.Fault {
		if broken && op.Kind == faultfs.SyncDir && op.Name == "/data" {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	}
	m = load(t, options(faultfs.Wrap(disk, inject), "/data", "/more"), nil)
	want := NewPartition{Partition: tpOf("orders", 0), TopicID: topicID("orders"), Config: testConfig("orders"), Dir: id}
	if log, err := m.Create(want); !errors.Is(err, ErrOffline) {
		t.Fatalf("Create = %v, %v, want ErrOffline", log, err)
	}
	if exists(disk, "/more/orders-0") {
		t.Error("the partition was made in the other directory")
	}
	// A new one is: nothing says where it lies.
	if _, err := m.Create(NewPartition{Partition: tpOf("users", 0), TopicID: topicID("users"), Config: testConfig("users")}); err != nil {
		t.Errorf("Create of a new partition = %v", err)
	}
	m.abandon()
	broken = false
	m = load(t, options(disk, "/data", "/more"), nil)
	if log := m.Log(tpOf("orders", 0)); log == nil || log.EndOffset() != 3 {
		t.Errorf("after the next start: %v, %v", log, m.Failure(tpOf("orders", 0)))
	}
}

func TestReservedDirectories(t *testing.T) {
	for id, want := range map[kafka.UUID]bool{{}: true, {15: 1}: true, {15: 99}: true, {15: 100}: false, {0: 1}: false, {14: 1}: false} {
		if got := reservedDirectory(id); got != want {
			t.Errorf("reservedDirectory(%v) = %v, want %v", id, got, want)
		}
	}
}

// A topic that was deleted and made anew while its directory was offline is in two
// directories at the next start. The topic ids say which one is over: the start
// goes on, and the old one is set aside.
func TestALeftoverOfAnEarlierTopicDoesNotStopTheStart(t *testing.T) {
	disk := withTopics(t, "orders")
	format(t, disk, "/data", "/more")
	must(t, disk.MkdirAll("/more/orders-0", 0o755))
	writeFile(t, disk, "/more/orders-0/partition.metadata", "version: 0\ntopic_id: "+topicID("deleted before").String())
	writeFile(t, disk, "/more/orders-0/00000000000000000000.log", "what was in it")
	m := load(t, options(disk, "/data", "/more"), imageOf(t, "orders"))
	if log := m.Log(tpOf("orders", 0)); log == nil || log.EndOffset() != 3 {
		t.Errorf("log = %v, %v", log, m.Failure(tpOf("orders", 0)))
	}
	if exists(disk, "/more/orders-0") {
		t.Errorf("entries = %v, want the leftover set aside", names(t, disk, "/more"))
	}
}
