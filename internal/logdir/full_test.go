package logdir

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func TestAFullDiskIsLoggedOnceAndItsRoomOnce(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/data", "/other")
	full := false
	var lines logLines
	o := logTo(options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if full && op.Kind == faultfs.Write && strings.HasPrefix(op.Name, "/data/") && strings.HasSuffix(op.Name, ".log") {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	}), "/data", "/other"), &lines)
	clock := start
	o.Now = func() time.Time { return clock }
	m := load(t, o, nil)
	first, elsewhere, third := create(t, m, "orders", 0), create(t, m, "orders", 1), create(t, m, "orders", 2)
	count := func(event string) int { return strings.Count(lines.text(), "event="+event) }
	for round := range 2 {
		full = true
		for range 3 {
			for _, log := range []*commitlog.Log{first, third} {
				if err := tryAppend(log, 1); !errors.Is(err, commitlog.ErrFull) {
					t.Fatalf("append on a full disk: %v", err)
				}
			}
		}
		must(t, tryAppend(elsewhere, 1))
		if got := count("disk-full"); got != round+1 || count("disk-room") != round {
			t.Fatalf("round %d, while it is full: %d disk-full, %d disk-room\n%s", round, got, count("disk-room"), lines.text())
		}
		full = false
		must(t, tryAppend(third, 1)) // too soon to say that it is over
		if count("disk-room") != round {
			t.Error("an append beside refused ones is taken for room")
		}
		clock = clock.Add(1500 * time.Millisecond)
		must(t, tryAppend(third, 1), tryAppend(first, 1))
		if got := count("disk-room"); got != round+1 {
			t.Fatalf("round %d: %d disk-room\n%s", round, got, lines.text())
		}
	}
	for _, want := range []string{
		fmt.Sprintf(`level=ERROR msg="disk full" event=disk-full dir=/data op=append file=/data/orders-0/%020d.log`, 0),
		`level=INFO msg="disk has room again, writes resume" event=disk-room dir=/data durationMs=1500`,
	} {
		if !lines.contains(want) {
			t.Errorf("no line with %s in\n%s", want, lines.text())
		}
	}
}
