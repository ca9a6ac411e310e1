package logdir

import (
	"runtime"
	"testing"

	"github.com/varvelog/varve/internal/vfs/memfs"
)

// Somebody moves the directory of a partition away under the broker: that
// partition is offline, and its neighbours are not.
func TestAPartitionThatIsTakenAwayIsOfflineAlone(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	var lines logLines
	m := load(t, logTo(options(disk, "/data"), &lines), nil)
	taken, stays := create(t, m, "orders", 0), create(t, m, "clicks", 0)
	appendRecords(t, taken, 3)
	appendRecords(t, stays, 3)
	must(t, disk.Rename("/data/orders-0", "/elsewhere"))
	if err := taken.Roll(); err == nil {
		t.Fatal("a roll found its directory")
	}
	if err := tryAppend(taken, 1); err == nil {
		t.Error("the partition takes records")
	}
	appendRecords(t, stays, 3)
	for !lines.contains("event=partition-missing") && !lines.contains("event=dir-offline") {
		runtime.Gosched() // the owner is told on a goroutine of its own
	}
	if h := m.Health(tpOf("clicks", 0)).Err(); h != nil || lines.contains("event=dir-offline") {
		t.Errorf("directory %v, log:\n%s", h, lines.text())
	}
	_ = m.Close(7) // not clean
	must(t, disk.Rename("/elsewhere", "/data/orders-0"))
	again := load(t, options(disk, "/data"), imageOf(t, "orders", "clicks"))
	for name, end := range map[string]int{"orders": 3, "clicks": 6} {
		log := again.Log(tpOf(name, 0))
		if log == nil || int(log.EndOffset()) != end {
			t.Errorf("%s: %v, want its %d records", name, again.Failure(tpOf(name, 0)), end)
		}
	}
}
