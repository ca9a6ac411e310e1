package logdir

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

const mib = 1 << 20

// Faults S8: producers are refused below the reserve, each change is logged
// once, and there is no log line and no flapping around the reserve itself.
func TestProducersAreRefusedBelowTheReserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memfs.New()
		disk.SetLimit(16 * mib)
		format(t, disk, "/data")
		var lines logLines
		o := logTo(options(disk, "/data"), &lines)
		o.Now = time.Now
		o.Reserve = func(int64) int64 { return 4 * mib }
		m := load(t, o, nil)
		create(t, m, "orders", 0)
		health := m.Health(tpOf("orders", 0))
		_, empty, err := disk.Usage("/")
		must(t, err)
		leave := func(free int64) { // another process takes the rest
			disk.SetLimit(16*mib - empty + free)
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		for _, step := range []struct {
			free      int64
			refused   bool
			low, room int // lines so far
		}{
			{9 * mib, false, 0, 0},
			{4 * mib, false, 0, 0},
			{4*mib - 4096, true, 1, 0},
			{1 * mib, true, 1, 0},
			{0, true, 1, 0},
			{4*mib + 4096, true, 1, 0}, // a little more than the reserve is wanted
			{4*mib + mib/2, false, 1, 1},
			{4 * mib, false, 1, 1},
			{3 * mib, true, 2, 1},
			{9 * mib, false, 2, 2},
		} {
			leave(step.free)
			if err := health.Room(); errors.Is(err, commitlog.ErrFull) != step.refused || (err != nil) != step.refused {
				t.Errorf("%d free: Room = %v, want refused %v", step.free, err, step.refused)
			}
			low, room := strings.Count(lines.text(), "event=disk-low"), strings.Count(lines.text(), "event=disk-room")
			if low != step.low || room != step.room {
				t.Errorf("%d free: %d disk-low and %d disk-room, want %d and %d:\n%s", step.free, low, room, step.low, step.room, lines.text())
			}
		}
		if want := `level=WARN msg="disk below reserve, writes refused" event=disk-low dir=/data free=4190208 reserve=4194304 hint=`; !lines.contains(want) {
			t.Errorf("no line with %s in\n%s", want, lines.text())
		}
		m.abandon()
	})
}

// A disk whose free space is below the reserve at the start refuses producers
// from the first request on.
func TestALowDiskIsKnownWhenTheStartEnds(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data", "/other")
	m := load(t, options(disk, "/data", "/other"), nil)
	create(t, m, "orders", 0)
	must(t, m.Close(1))
	disk.SetLimit(mib)
	o := options(disk, "/data", "/other")
	o.Reserve = func(int64) int64 { return 4 * mib }
	m = load(t, o, nil)
	if err := m.Health(tpOf("orders", 0)).Room(); !errors.Is(err, ErrLow) {
		t.Errorf("Room = %v, want ErrLow", err)
	}
	for _, d := range m.dirs {
		if !d.space.refuses.Load() {
			t.Errorf("%s does not refuse", d.path)
		}
	}
}

// A look costs one call, and there are few of them while there is plenty of room.
func TestLooksAtTheDiskAreFew(t *testing.T) {
	for name, tt := range map[string]struct {
		free  int64
		looks int // in a minute, at most
	}{
		"plenty":   {1 << 40, 3},
		"40 GiB":   {40 << 30, 8},
		"a little": {1 << 30, 61},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := memfs.New()
				disk.SetLimit(tt.free)
				format(t, disk, "/data")
				c := &faultfs.Counter{Match: func(op faultfs.Op) bool { return op.Kind == faultfs.Usage }}
				o := options(faultfs.Wrap(disk, c.Inject), "/data")
				o.Reserve = func(int64) int64 { return 64 * mib }
				m := load(t, o, nil)
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := c.Seen(); n < 2 || n > tt.looks {
					t.Errorf("%d looks in a minute, want 2 to %d", n, tt.looks)
				}
				m.abandon()
			})
		})
	}
}

// A file system that does not tell how much is free is not taken for a full one.
func TestAnUnknownFreeSpaceRefusesNobody(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data")
	o := options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Usage {
			return faultfs.Fault{Err: vfs.ErrUnsupported}
		}
		return faultfs.Fault{}
	}), "/data")
	o.Reserve = func(int64) int64 { return 4 * mib }
	m := load(t, o, nil)
	create(t, m, "orders", 0)
	if err := m.Health(tpOf("orders", 0)).Room(); err != nil {
		t.Errorf("Room = %v", err)
	}
}
