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
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
	"github.com/varvelog/varve/internal/vfs/tracefs"
)

// withTopics is a disk with one directory that holds partition 0 of each topic
// with three records, cleanly closed.
func withTopics(t testing.TB, topics ...string) *memfs.FS {
	t.Helper()
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	for _, name := range topics {
		appendRecords(t, create(t, m, name, 0), 3)
	}
	must(t, m.Close(5))
	return disk
}

func TestClassify(t *testing.T) {
	tests := []struct {
		name string
		kind kind
		tp   kafka.TopicPartition
	}{
		{"orders-0", livePartition, tpOf("orders", 0)},
		{"a.b_c-d-12", livePartition, tpOf("a.b_c-d", 12)},
		{"orders-0.75f8b3be177e44ec9eabe9bea737c35b-delete", deletedPartition, tpOf("orders", 0)},
		{"a.b-1.75f8b3be177e44ec9eabe9bea737c35b-stray", keptPartition, tpOf("a.b", 1)},
		{"orders-0.75f8b3be177e44ec9eabe9bea737c35b-future", keptPartition, tpOf("orders", 0)},
		{"__cluster_metadata-0", otherOwner, kafka.TopicPartition{}},
		{"remote-log-index-cache", otherOwner, kafka.TopicPartition{}},
		{"orders", unknownDir, kafka.TopicPartition{}},
		{"orders-", unknownDir, kafka.TopicPartition{}},
		{"orders-x", unknownDir, kafka.TopicPartition{}},
		{"-0", unknownDir, kafka.TopicPartition{}},
		{"orders-0-delete", unknownDir, kafka.TopicPartition{}},
		{"lost+found", unknownDir, kafka.TopicPartition{}},
	}
	for _, tt := range tests {
		if kind, tp := classify(tt.name); kind != tt.kind || tp != tt.tp {
			t.Errorf("classify(%q) = %v, %v, want %v, %v", tt.name, kind, tp, tt.kind, tt.tp)
		}
	}
}

func TestUniqueName(t *testing.T) {
	id := kafka.UUID{0: 0x12, 15: 0xef}
	if got, want := uniqueName(tpOf("orders", 3), id, deleteSuffix), "orders-3.120000000000000000000000000000ef-delete"; got != want {
		t.Errorf("uniqueName = %q, want %q", got, want)
	}
	long := tpOf(strings.Repeat("x", 249), 12)
	got := uniqueName(long, id, straySuffix)
	if len(got) != maxNameLength || !strings.HasSuffix(got, "x-12.120000000000000000000000000000ef-stray") {
		t.Errorf("uniqueName of a long topic = %q, %d bytes", got, len(got))
	}
	if kind, _ := classify(got); kind != keptPartition {
		t.Errorf("classify(%q) = %v", got, kind)
	}
}

// Before the first file of a partition is opened, the marker is gone durably.
func TestMarkerGoesBeforeTheFirstLog(t *testing.T) {
	disk := withTopics(t, "orders")
	log := tracefs.Log{Reads: true}
	load(t, options(tracefs.Wrap(disk, &log), "/data"), nil)
	lines := strings.Split(log.String(), "\n")
	at := func(prefix string) int {
		for i, line := range lines {
			if strings.HasPrefix(line, prefix) {
				return i
			}
		}
		t.Fatalf("no operation %q in:\n%s", prefix, log.String())
		return -1
	}
	order := []int{
		at("lock /data/.lock"), at("open /data/meta.properties"), at("open /data/.kafka_cleanshutdown"),
		at("remove /data/.kafka_cleanshutdown"), at("syncdir /data"), at("open /data/recovery-point-offset-checkpoint"), at("readdir /data/orders-0"),
	}
	for i := 1; i < len(order); i++ {
		if order[i] < order[i-1] {
			t.Errorf("operation %q comes before %q", lines[order[i]], lines[order[i-1]])
		}
	}
}

func TestLoadLeavesForeignEntriesAlone(t *testing.T) {
	disk := withTopics(t, "orders")
	must(t, disk.MkdirAll("/data/lost+found/inner", 0o755), disk.MkdirAll("/data/photos", 0o755),
		disk.MkdirAll("/data/orders-1.75f8b3be177e44ec9eabe9bea737c35b-stray", 0o755), disk.MkdirAll("/data/orders-1.75f8b3be177e44ec9eabe9bea737c35b-future", 0o755))
	writeFile(t, disk, "/data/notes.txt", "mine")
	writeFile(t, disk, "/data/orders-7", "a file with a partition's name")
	before := names(t, disk, "/data")
	var lines logLines
	m := load(t, logTo(options(disk, "/data"), &lines), imageOf(t, "orders"))
	must(t, m.Close(6))
	if diff := cmp.Diff(before, names(t, disk, "/data")); diff != "" {
		t.Errorf("entries (-before +after):\n%s", diff)
	}
	for _, want := range []string{"path=/data/lost+found", "path=/data/photos"} {
		if !lines.contains(want) {
			t.Errorf("nothing was logged of %s", want)
		}
	}
	if got := m.Partitions(); len(got) != 1 {
		t.Errorf("partitions = %v", got)
	}
}

func TestLoadRemovesDeletedDirectories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := withTopics(t, "orders", "gone")
		gone := "/data/gone-0.75f8b3be177e44ec9eabe9bea737c35b-delete"
		must(t, disk.Rename("/data/gone-0", gone))
		m := load(t, options(disk, "/data"), imageOf(t, "orders"))
		if m.Log(tpOf("gone", 0)) != nil {
			t.Error("a deleted partition was opened")
		}
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if !exists(disk, gone) {
			t.Error("removed before the delay has passed")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if exists(disk, gone) {
			t.Error("not removed after the delay")
		}
		if diff := cmp.Diff("0\n1\norders 0 3\n", readFile(t, disk, "/data/"+checkpoint.RecoveryPointFile)); diff != "" {
			t.Errorf("recovery points keep an entry of the deleted partition:\n%s", diff)
		}
	})
}

func TestLoadDecidesByTopicID(t *testing.T) {
	metadataFile := func(topic string) string { return "version: 0\ntopic_id: " + topicID(topic).String() }
	tests := []struct {
		name    string
		content string // of orders-0/partition.metadata; "-": no file
		image   []string
		opened  bool
		refused bool
	}{
		{"the id of its topic", metadataFile("orders"), []string{"orders"}, true, false},
		{"no file, the topic is known by name", "-", []string{"orders"}, true, false},
		{"an empty file, the topic is known by name", "", []string{"orders"}, true, false},
		{"no file and no such topic", "-", []string{"users"}, false, false},
		{"an unknown id under a known name", metadataFile("deleted before"), []string{"orders"}, false, false},
		{"an unknown id", metadataFile("deleted before"), []string{"users"}, false, false},
		{"the id of another topic under a known name", metadataFile("users"), []string{"orders", "users"}, false, true},
		{"the id of another topic under an unknown name", metadataFile("users"), []string{"users"}, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := withTopics(t, "orders")
			file := "/data/orders-0/partition.metadata"
			if tt.content == "-" {
				must(t, disk.Remove(file))
			} else {
				writeFile(t, disk, file, tt.content)
			}
			var lines logLines
			m := load(t, logTo(options(disk, "/data"), &lines), imageOf(t, tt.image...))
			if got := m.Log(tpOf("orders", 0)) != nil; got != tt.opened {
				t.Errorf("opened = %v, want %v", got, tt.opened)
			}
			var refused *IdentityError
			if got := errors.As(m.Failure(tpOf("orders", 0)), &refused); got != tt.refused {
				t.Errorf("Failure = %v", m.Failure(tpOf("orders", 0)))
			}
			stray := ""
			for _, name := range names(t, disk, "/data") {
				if strings.HasSuffix(name, "-stray") {
					stray = name
				}
			}
			switch {
			case tt.opened:
				if got := readFile(t, disk, file); got != metadataFile("orders") {
					t.Errorf("partition.metadata = %q", got)
				}
			case tt.refused:
				if readFile(t, disk, file) != tt.content || stray != "" {
					t.Error("a refused partition was changed")
				}
				if _, err := m.Create(NewPartition{Partition: tpOf("orders", 0), TopicID: topicID("orders"), Config: testConfig("")}); !errors.As(err, &refused) {
					t.Errorf("Create in its place = %v, want the refusal", err)
				}
				must(t, m.Close(9))
				if exists(disk, "/data/"+checkpoint.CleanShutdownFile) {
					t.Error("a directory with a refused partition was called clean")
				}
				if got := readFile(t, disk, "/data/"+checkpoint.RecoveryPointFile); got != "0\n1\norders 0 3\n" {
					t.Errorf("recovery points = %q, want the refused partition's kept", got)
				}
			default:
				if stray == "" || exists(disk, "/data/orders-0") || !exists(disk, "/data/"+stray+"/00000000000000000000.log") {
					t.Errorf("entries = %v, want the directory renamed to -stray", names(t, disk, "/data"))
				}
			}
		})
	}
}

func TestLoadSetsPartitionsOfOtherBrokersAside(t *testing.T) {
	disk := withTopics(t, "orders")
	d := metadata.NewDelta(metadata.NewImage())
	must(t, d.Apply(&metadata.TopicRecord{Name: "orders", TopicID: topicID("orders")}))
	must(t, d.Apply(&metadata.PartitionRecord{TopicID: topicID("orders"), Replicas: []kafka.BrokerID{2}, ISR: []kafka.BrokerID{2}, Leader: 2}))
	m := load(t, options(disk, "/data"), d.Finish(1, 1, 0))
	if m.Log(tpOf("orders", 0)) != nil || exists(disk, "/data/orders-0") {
		t.Error("a partition of another broker was opened")
	}
}

func TestLoadRefusesOnePartitionInTwoDirectories(t *testing.T) {
	disk := withTopics(t, "orders")
	format(t, disk, "/data", "/more")
	must(t, disk.MkdirAll("/more/orders-0", 0o755))
	m, err := Open(options(disk, "/data", "/more"))
	must(t, err)
	defer m.abandon()
	var refused *RefusedError
	if err := m.Load(LoadOptions{Config: testConfig}); !errors.As(err, &refused) {
		t.Errorf("Load = %v, want a RefusedError", err)
	}
	if !exists(disk, "/data/"+checkpoint.CleanShutdownFile) {
		t.Error("the marker of a refused directory is gone")
	}
}

// A partition that failed to open keeps its place until its topic is deleted;
// a topic that is made under the name later begins with nothing of it.
func TestPartitionThatFailsToOpen(t *testing.T) {
	disk := withTopics(t, "orders")
	must(t, disk.Remove("/data/.kafka_cleanshutdown"))
	inject := func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Open && strings.HasSuffix(op.Name, "orders-0/00000000000000000000.log") {
			return faultfs.Fault{Err: syscall.EMFILE}
		}
		return faultfs.Fault{}
	}
	var lines logLines
	m := load(t, logTo(options(faultfs.Wrap(disk, inject), "/data"), &lines), imageOf(t, "orders"))
	tp := tpOf("orders", 0)
	if err := m.Failure(tp); !errors.Is(err, syscall.EMFILE) || m.Log(tp) != nil || !lines.contains("partition not opened") {
		t.Fatalf("Failure = %v", err)
	}
	if _, err := m.Create(NewPartition{Partition: tp, TopicID: topicID("orders"), Config: testConfig("")}); !errors.Is(err, syscall.EMFILE) {
		t.Errorf("Create in its place = %v, want the failure", err)
	}
	if got := readFile(t, disk, "/data/"+checkpoint.RecoveryPointFile); got != "0\n1\norders 0 3\n" {
		t.Errorf("recovery points = %q, want its entry kept", got)
	}
	must(t, m.Delete(tp))
	if got := readFile(t, disk, "/data/"+checkpoint.RecoveryPointFile); got != "0\n0\n" {
		t.Errorf("recovery points = %q after deletion", got)
	}
	log, err := m.Create(NewPartition{Partition: tp, TopicID: topicID("orders again"), Config: testConfig("")})
	if err != nil || log.EndOffset() != 0 {
		t.Errorf("Create of another topic = %v, %v", log, err)
	}
}

// A checkpoint that cannot be read costs a scan, never the directory.
func TestLoadRebuildsDamagedCheckpoints(t *testing.T) {
	for _, content := range []string{"garbage", "0\n5\norders 0 3\n", "\x00\x00\x00\x00", "0\n1\norders 0 3\nx"} {
		for _, file := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile} {
			for _, clean := range []bool{true, false} {
				disk := withTopics(t, "orders")
				writeFile(t, disk, "/data/"+file, content)
				if !clean {
					must(t, disk.Remove("/data/"+checkpoint.CleanShutdownFile))
				}
				var lines logLines
				m := load(t, logTo(options(disk, "/data"), &lines), nil)
				if got := m.Log(tpOf("orders", 0)).EndOffset(); got != 3 {
					t.Errorf("%s = %q: end offset %d, want 3", file, content, got)
				}
				if !lines.contains("checkpoint-rebuilt") {
					t.Errorf("%s = %q: nothing was logged", file, content)
				}
				if _, err := checkpoint.ReadOffsets(disk, "/data/"+file); err != nil {
					t.Errorf("%s = %q was not written anew: %v", file, content, err)
				}
			}
		}
	}
}

func TestLoadMakesMissingCheckpoints(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	for _, file := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile, checkpoint.CleanerFile} {
		if got := readFile(t, disk, "/data/"+file); got != "" {
			t.Errorf("%s = %q, want it empty at the first start", file, got)
		}
	}
	must(t, m.Close(3))
	for file, want := range map[string]string{
		checkpoint.RecoveryPointFile: "0\n0\n", checkpoint.LogStartFile: "0\n0\n", checkpoint.HighWatermarkFile: "", checkpoint.CleanerFile: "",
	} {
		if got := readFile(t, disk, "/data/"+file); got != want {
			t.Errorf("%s = %q after a clean stop, want %q", file, got, want)
		}
	}
	if got := readFile(t, disk, "/data/"+checkpoint.CleanShutdownFile); got != `{"version":0,"brokerEpoch":3}` {
		t.Errorf("marker = %q", got)
	}
	if exists(disk, "/data/.lock") {
		t.Error(".lock is left after a clean stop")
	}
}

func TestLoadTellsProgress(t *testing.T) {
	disk := withTopics(t, "a", "b", "c")
	m, err := Open(options(disk, "/data"))
	must(t, err)
	defer m.abandon()
	var seen []int
	must(t, m.Load(LoadOptions{Config: testConfig, Progress: func(loaded, of int) { seen = append(seen, loaded*10+of) }}))
	if diff := cmp.Diff([]int{13, 23, 33}, seen); diff != "" {
		t.Errorf("progress:\n%s", diff)
	}
}
