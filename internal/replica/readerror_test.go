package replica

import (
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// Faults E3: a fetch whose read fails tries once more; then that partition
// answers KAFKA_STORAGE_ERROR, and everything else goes on.
func TestAFetchThatCannotRead(t *testing.T) {
	disk := memfs.New()
	fail := 0
	n := newNode(t, faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if fail > 0 && op.Kind == faultfs.Read && strings.HasSuffix(op.Name, ".log") {
			fail--
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	}), "/a")
	p := n.topic("orders")
	for range 10 {
		produce(t, p, 1)
	}
	o := readOptions(1, commitlog.HighWatermark)
	read := func() error {
		info, err := p.Read(o)
		if err == nil && info.Region.Release != nil {
			info.Region.Release()
		}
		return err
	}
	fail = 1
	if err := read(); err != nil || fail != 0 {
		t.Errorf("a read that failed once: %v, %d failures left", err, fail)
	}
	for i := range 3 {
		if err := p.Err(); err != nil {
			t.Fatalf("after %d failed fetches: %v", i, err)
		}
		fail = 2
		if err := read(); err == nil || fail != 0 {
			t.Errorf("fetch %d succeeded, or was not tried twice: %d failures left", i, fail)
		}
	}
	// One file that cannot be read is the matter of those who read it.
	if err := p.Err(); err != nil {
		t.Errorf("the directory is offline after failed reads of one file: %v", err)
	}
	produce(t, p, 1)
}

// Faults S8: the reserve is for what the broker itself appends.
func TestCoordinatorsAppendBelowTheReserve(t *testing.T) {
	n, p := newTopicNode(t)
	n.dirs.Hold(true)
	if _, err := p.Append(batch(t, 1, 10), AppendOptions{Acks: 1}); err == nil {
		t.Error("a producer was not refused")
	}
	if _, err := p.Append(batch(t, 1, 10), AppendOptions{Acks: 1, Origin: commitlog.Coordinator}); err != nil {
		t.Errorf("a coordinator: %v", err)
	}
	n.dirs.Hold(false)
	produce(t, p, 1)
}
