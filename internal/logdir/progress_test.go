package logdir

import (
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// killedWith is a disk whose broker was killed with topics of one partition,
// each of two segments.
func killedWith(t *testing.T, topics ...string) *memfs.FS {
	t.Helper()
	disk := memfs.New()
	format(t, disk, "/data")
	m := load(t, options(disk, "/data"), nil)
	for _, name := range topics {
		log := create(t, m, name, 0)
		appendRecords(t, log, 3)
		must(t, log.Roll())
		appendRecords(t, log, 3)
	}
	m.abandon()
	return disk.Crash(memfs.KeepAll())
}

func TestRecoveryIsCountedAndSummedUp(t *testing.T) {
	var lines logLines
	disk := killedWith(t, "a", "b")
	must(t, disk.Remove("/data/"+recoveryPoints.fileName()))
	m := load(t, logTo(options(disk, "/data"), &lines), nil)
	p := m.Progress()
	if p.Partitions != 2 || p.TotalPartitions != 2 || p.Segments != 4 || p.TotalSegments != 4 || p.TotalBytes == 0 || p.Bytes != p.TotalBytes {
		t.Errorf("Progress() = %+v, want 2 partitions and 4 segments, all of them", p)
	}
	for _, want := range []string{
		"event=unclean-start dir=/data partitions=2 segments=4 bytes=", "event=recovered partitions=2 ofPartitions=2 segments=4 bytes=", "clean=false",
	} {
		if !lines.contains(want) {
			t.Errorf("no %q in\n%s", want, lines.text())
		}
	}
	must(t, m.Close(3))
	lines = logLines{}
	m = load(t, logTo(options(disk, "/data"), &lines), nil)
	defer m.abandon()
	if p := m.Progress(); p.Segments != 0 || p.TotalBytes != 0 || p.Partitions != 2 {
		t.Errorf("after a clean stop Progress() = %+v, want nothing to check", p)
	}
	if !lines.contains("event=recovered partitions=0 ofPartitions=2 segments=0 bytes=0") || !lines.contains("clean=true") || lines.contains("unclean-start") {
		t.Errorf("after a clean stop:\n%s", lines.text())
	}
}

// TestALongRecoverySaysHowFarItIs has the clock go on by eleven seconds each time
// it is asked.
func TestALongRecoverySaysHowFarItIs(t *testing.T) {
	var lines logLines
	disk := killedWith(t, "a", "b", "c")
	must(t, disk.Remove("/data/"+recoveryPoints.fileName()))
	o := logTo(options(disk, "/data"), &lines)
	o.RecoveryThreads = 1
	now := time.UnixMilli(1_760_000_000_000)
	o.Now = func() time.Time { now = now.Add(11 * time.Second); return now }
	load(t, o, nil).abandon()
	if n := strings.Count(lines.text(), "event=recovering"); n < 2 || n > 10 {
		t.Errorf("%d lines about the progress, want some, and not more than one for each tenth:\n%s", n, lines.text())
	}
}

// TestCheckpointsOfALoadKeepWhatIsNotOpenYet writes the recovery points after
// each partition, and wants those of the others to be in the file all the while.
func TestCheckpointsOfALoadKeepWhatIsNotOpenYet(t *testing.T) {
	disk := withTopics(t, "a", "b", "c")
	o := options(disk, "/data")
	o.RecoveryThreads = 1
	now := time.UnixMilli(1_760_000_000_000)
	o.Now = func() time.Time { now = now.Add(3 * time.Second); return now }
	want := readFile(t, disk, "/data/"+recoveryPoints.fileName())
	m, err := Open(o)
	must(t, err)
	defer m.abandon()
	must(t, m.Load(LoadOptions{Config: testConfig, Progress: func(loaded, _ int) {
		got := readFile(t, disk, "/data/"+recoveryPoints.fileName())
		if len(strings.Fields(got)) != len(strings.Fields(want)) {
			t.Errorf("after %d partitions the file is %q, want all entries of %q", loaded, got, want)
		}
	}}))
}

func TestWhatWasSetAsideIsKeptForItsTime(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	now := time.UnixMilli(1_760_000_000_000)
	disk.SetNow(func() time.Time { return now })
	var lines logLines
	o := logTo(options(disk, "/data"), &lines)
	o.Now = func() time.Time { return now }
	o.CutRetention = 7 * 24 * time.Hour
	m := load(t, o, nil)
	defer m.abandon()
	create(t, m, "a", 0)
	dir := "/data/" + kafka.TopicPartition{Topic: "a"}.String() + "/"
	cuts := []string{dir + "00000000000000000013.log.cut", dir + "00000000000000000013.log.cut.1"}
	others := []string{dir + "00000000000000000013.index.cut", dir + "13.log.cut", dir + "00000000000000000013.log.cut.bak", dir + "notes.cut"}
	for _, name := range append(cuts, others...) {
		writeFile(t, disk, name, "bytes")
	}
	now = now.Add(o.CutRetention - time.Second)
	m.removeCuts()
	for _, name := range append(cuts, others...) {
		if !exists(disk, name) {
			t.Errorf("%s went before its time", name)
		}
	}
	now = now.Add(time.Second)
	m.removeCuts()
	for _, name := range cuts {
		if exists(disk, name) || !lines.contains("event=cut-removed topic=a partition=0 file="+name) {
			t.Errorf("%s is still there, or nothing was said:\n%s", name, lines.text())
		}
	}
	for _, name := range others {
		if !exists(disk, name) {
			t.Errorf("%s is not what recovery sets aside, and went", name)
		}
	}
}
