package logdir

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// imageIn is imageOf with the directory ids that the metadata assigns.
func imageIn(t *testing.T, topics map[string]kafka.UUID) *metadata.Image {
	t.Helper()
	d := metadata.NewDelta(metadata.NewImage())
	for name, dir := range topics {
		must(t, d.Apply(&metadata.TopicRecord{Name: name, TopicID: topicID(name)}))
		must(t, d.Apply(&metadata.PartitionRecord{
			TopicID: topicID(name), Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1, Directories: []kafka.UUID{dir},
		}))
	}
	return d.Finish(1, 1, 0)
}

// imageAgain is imageOf with one topic under another id: made anew.
func imageAgain(t *testing.T, name string, id kafka.TopicID) *metadata.Image {
	t.Helper()
	d := metadata.NewDelta(metadata.NewImage())
	must(t, d.Apply(&metadata.TopicRecord{Name: name, TopicID: id}),
		d.Apply(&metadata.PartitionRecord{TopicID: id, Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1}))
	return d.Finish(1, 1, 0)
}

func wanted(topic string) NewPartition {
	return NewPartition{Partition: tpOf(topic, 0), TopicID: topicID(topic), Config: testConfig(topic)}
}

func remove(t *testing.T, disk *memfs.FS, dir string) {
	t.Helper()
	for _, name := range names(t, disk, dir) {
		must(t, disk.Remove(dir+"/"+name))
	}
	must(t, disk.Remove(dir))
}

// A partition that the checkpoints know with records and whose directory is gone is
// offline, start after start, until the directory is back or the topic deleted.
func TestAPartitionWhoseDirectoryIsGoneIsNotMadeAnew(t *testing.T) {
	for _, back := range []bool{true, false} {
		t.Run(fmt.Sprintf("put back %v", back), func(t *testing.T) {
			disk := withTopics(t, "orders", "users")
			must(t, disk.Rename("/data/orders-0", "/orders-0"))
			image := imageOf(t, "orders", "users")
			for range 3 {
				var lines logLines
				m := load(t, logTo(options(disk, "/data"), &lines), image)
				_, err := m.Create(wanted("orders"))
				var missing *MissingError
				if !errors.As(err, &missing) || missing.Offset != 3 || missing.Dir != "/data" || missing.Partition != tpOf("orders", 0) {
					t.Fatalf("Create = %v, want a *MissingError of /data up to 3", err)
				}
				if got := strings.Count(lines.text(), "event=partition-missing"); got != 1 {
					t.Errorf("%d lines partition-missing, want 1:\n%s", got, lines.text())
				}
				if exists(disk, "/data/orders-0") {
					t.Error("the partition was made anew")
				}
				appendRecords(t, m.Log(tpOf("users", 0)), 1)
				m.checkpointAll(recoveryPoints)
				m.checkpointAll(highWatermarks)
				must(t, m.Close(7))
				if exists(disk, "/data/"+checkpoint.CleanShutdownFile) {
					t.Error("a clean marker was written, and what is put back would be believed")
				}
			}
			if back {
				must(t, disk.Rename("/orders-0", "/data/orders-0"))
				m := load(t, options(disk, "/data"), image)
				if log := m.Log(tpOf("orders", 0)); log == nil || log.EndOffset() != 3 {
					t.Errorf("put back: %v, %v", log, m.Failure(tpOf("orders", 0)))
				}
				return
			}
			m := load(t, options(disk, "/data"), image)
			must(t, m.Delete(tpOf("orders", 0)))
			for _, file := range []string{checkpoint.RecoveryPointFile, checkpoint.HighWatermarkFile} {
				if got := readFile(t, disk, "/data/"+file); strings.Contains(got, "orders") {
					t.Errorf("%s still knows the topic that was deleted: %q", file, got)
				}
			}
			id := topicID("another")
			if _, err := m.Create(NewPartition{Partition: tpOf("orders", 0), TopicID: id, Config: testConfig("")}); err != nil {
				t.Errorf("Create after the topic was deleted: %v", err)
			}
		})
	}
}

// An entry of each checkpoint alone is enough.
func TestWhichCheckpointEntriesSayThatAPartitionIsMissing(t *testing.T) {
	for file, want := range map[string]bool{
		checkpoint.RecoveryPointFile: true, checkpoint.HighWatermarkFile: true, checkpoint.LogStartFile: true, checkpoint.CleanerFile: false,
	} {
		for _, offset := range []kafka.Offset{0, 40000} {
			disk := memfs.New()
			format(t, disk, "/data")
			must(t, checkpoint.WriteOffsets(disk, "/data/"+file, map[kafka.TopicPartition]kafka.Offset{tpOf("orders", 0): offset, tpOf("unknown", 0): 7}))
			m := load(t, options(disk, "/data"), imageOf(t, "orders"))
			_, err := m.Create(wanted("orders"))
			if refused := errors.As(err, new(*MissingError)); refused != (want && offset > 0) || !refused && err != nil {
				t.Errorf("%s with %d: %v", file, offset, err)
			}
		}
	}
}

// A directory that waits to be removed says that the entry is of the topic that was
// deleted; unless it is of the topic that is there now, which then is kept.
func TestADeletionUnderWayIsNoMissingPartition(t *testing.T) {
	long := strings.Repeat("x", 249)
	for _, topic := range []string{"orders", long} {
		for _, same := range []bool{false, true} {
			disk := withTopics(t, topic)
			name := "/data/" + uniqueName(tpOf(topic, 0), kafka.UUID{1}, deleteSuffix)
			must(t, disk.Rename("/data/"+topic+"-0", name))
			id := topicID("made anew")
			if same {
				id = topicID(topic)
			}
			o := options(disk, "/data")
			o.FileDeleteDelay = 0
			m := load(t, o, imageAgain(t, topic, id))
			_, err := m.Create(NewPartition{Partition: tpOf(topic, 0), TopicID: id, Config: testConfig("")})
			if refused := errors.As(err, new(*MissingError)); refused != same || !refused && err != nil {
				t.Errorf("%.10s, of the same topic %v: %v", topic, same, err)
			}
			m.jobs.stop()
			if same && !exists(disk, name+"/00000000000000000000.log") {
				t.Errorf("%.10s: what was left of the topic was removed", topic)
			}
		}
	}
}

// A partition whose data directory is not here is not made anew in another one.
func TestAPartitionOfADirectoryThatIsNotHereIsNotMadeElsewhere(t *testing.T) {
	first, second := kafka.UUID{15: 101}, kafka.UUID{15: 102}
	for name, dirs := range map[string][]string{"not named": {"/data"}, "empty": {"/data", "/fresh"}} {
		t.Run(name, func(t *testing.T) {
			disk := memfs.New()
			format(t, disk, "/data", "/more")
			m := load(t, options(disk, "/data", "/more"), nil)
			for topic, dir := range map[string]kafka.UUID{"users": first, "orders": second} {
				n := wanted(topic)
				n.Dir = dir
				log, err := m.Create(n)
				must(t, err)
				appendRecords(t, log, 3)
			}
			must(t, m.Close(7))
			image := imageIn(t, map[string]kafka.UUID{"users": first, "orders": second, "created": kafka.DirUnassigned, "lost": kafka.DirLost, "old": {}})
			for range 2 {
				var lines logLines
				m = load(t, logTo(options(disk, dirs...), &lines), image)
				n := wanted("orders")
				n.Dir = second
				var missing *MissingError
				if _, err := m.Create(n); !errors.As(err, &missing) || missing.DirectoryID != second {
					t.Fatalf("Create = %v, want a *MissingError with the directory's id", err)
				}
				if got := strings.Count(lines.text(), "event=partition-missing"); got != 1 || !lines.contains("directoryId="+second.String()) {
					t.Errorf("%d lines partition-missing, want 1:\n%s", got, lines.text())
				}
				// What was never said to lie there is made, and not where it may be mounted.
				for _, topic := range []string{"created", "lost", "old"} {
					if create(t, m, topic, 0); !exists(disk, "/data/"+topic+"-0") {
						t.Errorf("%s was made in the empty directory", topic)
					}
				}
				must(t, m.Close(7))
			}
			m = load(t, options(disk, "/data", "/more"), image)
			if log := m.Log(tpOf("orders", 0)); log == nil || log.EndOffset() != 3 {
				t.Errorf("with the directory back: %v, %v", log, m.Failure(tpOf("orders", 0)))
			}
			must(t, m.Close(7))
			// The loss is accepted by a directory of the partition's name.
			must(t, disk.Mkdir("/data/orders-0", 0o755))
			m = load(t, options(disk, "/data"), image)
			if log := m.Log(tpOf("orders", 0)); log == nil || log.EndOffset() != 0 {
				t.Errorf("with an empty directory: %v, %v", log, m.Failure(tpOf("orders", 0)))
			}
		})
	}
}

// So it is where the checkpoints know the partition, and it is told.
func TestAnEmptyDirectoryHasAMissingPartitionBeginAnew(t *testing.T) {
	disk := withTopics(t, "orders")
	remove(t, disk, "/data/orders-0")
	must(t, disk.Mkdir("/data/orders-0", 0o755))
	var lines logLines
	m := load(t, logTo(options(disk, "/data"), &lines), imageOf(t, "orders"))
	log := m.Log(tpOf("orders", 0))
	if log == nil || log.EndOffset() != 0 {
		t.Fatalf("log = %v, %v", log, m.Failure(tpOf("orders", 0)))
	}
	if !lines.contains("event=records-missing") {
		t.Errorf("nothing was said of the records:\n%s", lines.text())
	}
	appendRecords(t, log, 1)
	must(t, m.Close(7))
	m = load(t, options(disk, "/data"), imageOf(t, "orders"))
	if log := m.Log(tpOf("orders", 0)); log == nil || log.EndOffset() != 1 {
		t.Errorf("after another start: %v, %v", log, m.Failure(tpOf("orders", 0)))
	}
}

// A topic is deleted and made anew, or what lies there under its name is set aside
// by a start or by the creation, and the power fails before any operation: the new
// topic is never taken for one that is missing.
func TestATopicMadeAnewIsNeverTakenForAMissingOne(t *testing.T) {
	again := topicID("made anew")
	want := NewPartition{Partition: tpOf("orders", 0), TopicID: again, Config: testConfig("")}
	before := withTopics(t, "orders", "users")
	for name, first := range map[string]*metadata.Image{
		"deleted":                  imageOf(t, "orders", "users"),
		"set aside by a start":     imageAgain(t, "orders", again),
		"set aside by creating it": nil,
	} {
		t.Run(name, func(t *testing.T) {
			disk := before.Crash(memfs.KeepAll())
			states, creating := uint64(0), name == "set aside by a start"
			survives := func(disk *memfs.FS, where string) {
				states++
				m, err := Open(options(disk, "/data"))
				must(t, err)
				defer m.abandon()
				must(t, m.Load(LoadOptions{Image: imageAgain(t, "orders", again), Config: testConfig}))
				if _, err := m.Create(want); err != nil {
					t.Fatalf("%s: %v", where, err)
				}
			}
			m, err := Open(options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
				if creating && op.Kind.Changes() {
					where := fmt.Sprintf("before operation %d (%s %s)", states, op.Kind, op.Name)
					survives(disk.Crash(memfs.DropAll()), where+", nothing kept")
					survives(disk.Crash(memfs.KeepAll()), where+", all kept")
					survives(disk.Crash(memfs.Random(0.5, states)), where+", half kept")
				}
				return faultfs.Fault{}
			}), "/data"))
			must(t, err)
			defer m.abandon()
			must(t, m.Load(LoadOptions{Image: first, Config: testConfig}))
			switch name {
			case "deleted":
				must(t, m.Delete(tpOf("orders", 0)))
			case "set aside by creating it":
				m.mu.Lock()
				p := m.logs[tpOf("orders", 0)] // its name could not be changed when it was deleted
				delete(m.logs, tpOf("orders", 0))
				m.mu.Unlock()
				must(t, p.log.Abandon())
			}
			creating = true
			_, err = m.Create(want)
			must(t, err)
			if states < 10 {
				t.Errorf("%d states were tried", states)
			}
		})
	}
}
