package commitlog

import (
	"bytes"
	"fmt"
	"testing"

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
