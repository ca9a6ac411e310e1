package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TestARebuiltIndexIsWholeOrNotThere: no start checks a segment below the recovery
// point, so a power cut while one of its indexes is made anew must not leave a part
// of it under its name.
func TestARebuiltIndexIsWholeOrNotThere(t *testing.T) {
	d := newDamaged(t, true)
	names := []string{d.file(6, ".index"), d.file(6, ".timeindex")}
	want := map[string][]byte{}
	for _, name := range names {
		want[name] = d.read(name)
	}
	d.remove(names[1])
	d.sync()
	done := false
	for limit := 0; !done; limit++ {
		disk, n := d.disk.Crash(memfs.KeepAll()), 0
		o := d.opts
		o.OnEvent, o.AfterDelay = nil, nil
		o.FS = faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
			if op.Kind.Changes() {
				if n++; n > limit {
					return faultfs.Fault{Err: errKilled}
				}
			}
			return faultfs.Fault{}
		})
		l, err := Open(o)
		if done = err == nil; done {
			if err := l.Abandon(); err != nil {
				t.Fatal(err)
			}
		}
		for seed := range uint64(12) {
			for _, choice := range []memfs.Choice{memfs.DropAll(), memfs.KeepAll(), memfs.Random(0.2, seed), memfs.Random(0.7, seed)} {
				left := disk.Crash(choice)
				for _, name := range names {
					if got, err := vfs.ReadFile(left, name); err == nil && !bytes.Equal(got, want[name]) {
						t.Fatalf("a power cut after %d operations leaves %d bytes of %s, want %d or no file", limit, len(got), name, len(want[name]))
					}
				}
			}
		}
	}
	d.open(true)
	if got := fmt.Sprint(d.events); got != "[index-rebuilt]" || !bytes.Equal(d.read(names[1]), want[names[1]]) {
		t.Errorf("events %s; the time index is not what it was", got)
	}
}

// TestARebuildWithoutRoomOrDescriptors fails each operation of a start that makes
// the indexes of a segment below the recovery point anew, alone or with all behind
// it. On a full disk the log opens; without descriptors it may not, and does when
// there are some again. Then the segment works: it is read, becomes the active one,
// is deleted with all its files, and the next start finds nothing wrong.
func TestARebuildWithoutRoomOrDescriptors(t *testing.T) {
	needs := map[syscall.Errno][]faultfs.Kind{
		syscall.ENOSPC: {faultfs.Create, faultfs.Write, faultfs.Truncate, faultfs.Reserve, faultfs.Rename},
		syscall.EMFILE: {faultfs.Open, faultfs.Create, faultfs.ReadDir, faultfs.SyncDir},
	}
	for errno, kinds := range needs {
		for _, once := range []bool{true, false} {
			for _, use := range []string{"deleted", "truncated", "closed"} {
				t.Run(fmt.Sprint(errno, ", once ", once, ", ", use), func(t *testing.T) {
					rebuildWithout(t, errno, kinds, once, use)
				})
			}
		}
	}
}

func rebuildWithout(t *testing.T, errno syscall.Errno, kinds []faultfs.Kind, once bool, use string) {
	made := newDamaged(t, true)
	made.remove(made.file(6, ".timeindex"))
	for at := 0; ; at++ {
		d := &damaged{bench: &bench{t: t, disk: made.disk.Crash(memfs.KeepAll()), opts: made.opts, now: made.now}, size: made.size}
		n, short := 0, true
		var failed faultfs.Op
		d.opts.FS = faultfs.Wrap(d.disk, func(op faultfs.Op) faultfs.Fault {
			ofAnother := errno == syscall.ENOSPC && !strings.HasPrefix(op.Name, made.file(6, ""))
			if !short || ofAnother || !slices.Contains(kinds, op.Kind) {
				return faultfs.Fault{}
			}
			if n++; n-1 < at || once && n-1 > at {
				return faultfs.Fault{}
			}
			if failed.Kind == "" {
				failed = op
			}
			return faultfs.Fault{Err: errno}
		})
		d.opts.OnEvent = func(e Event) { d.events = append(d.events, e.Name) }
		d.opts.AfterDelay = func(_ time.Duration, f func()) { d.due = append(d.due, f) }
		d.opts.CleanShutdown = true
		what := func() string { return fmt.Sprintf("operation %d, %s %s", at, failed.Kind, failed.Name) }
		l, err := Open(d.opts)
		if err != nil && (errno == syscall.ENOSPC || !errors.Is(err, errno)) {
			t.Fatalf("%s: %v", what(), err)
		}
		if errno == syscall.ENOSPC {
			d.log = l
			d.readable(nil) // while the disk is full
		}
		short = false
		if err != nil {
			if open := d.disk.InUse(); len(open) > 0 {
				t.Fatalf("%s: in use still: %v", what(), open)
			}
			if l, err = Open(d.opts); err != nil {
				t.Fatalf("%s, then open: %v", what(), err)
			}
		}
		d.log = l
		d.readable(nil)
		switch use {
		case "deleted":
			l.MaybeIncrementHighWatermark(24)
			if _, err := l.DeleteRecordsTo(12); err != nil {
				t.Fatalf("%s: %v", what(), err)
			}
			for _, f := range d.due {
				f()
			}
			for _, name := range strings.Fields(d.files()) {
				if n, _, _ := strings.Cut(name, "."); n == path.Base(d.file(6, "")) {
					t.Errorf("%s: %s is left of a deleted segment", what(), name)
				}
			}
		case "truncated":
			if _, err := l.TruncateTo(8); err != nil {
				t.Fatalf("%s: %v", what(), err)
			}
			d.append(2)
			d.append(2)
		}
		for _, f := range d.due {
			f()
		}
		end := l.EndOffset()
		if err := l.Close(); err != nil {
			t.Fatalf("%s, close: %v", what(), err)
		}
		d.events, d.opts.RecoveryPoint, d.opts.HighWatermark = nil, l.RecoveryPoint(), 0
		d.opts.LogStartOffset = l.StartOffset()
		d.open(true)
		for _, e := range d.events {
			if e != "index-rebuilt" {
				t.Errorf("%s, next start: %s", what(), e)
			}
		}
		if d.log.EndOffset() != end {
			t.Errorf("%s, next start: the log ends at %d, want %d", what(), d.log.EndOffset(), end)
		}
		if use == "closed" {
			d.readable(nil)
		}
		if files := d.files(); strings.Contains(files, ".tmp") {
			t.Errorf("%s, next start: %s", what(), files)
		}
		if err := d.log.Abandon(); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
		if n <= at {
			return
		}
	}
}
