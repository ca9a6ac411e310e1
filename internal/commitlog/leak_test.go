package commitlog

import (
	"math"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TestAFailedOpenLeavesNothingOpen lets each operation of each recovery fail. A
// map that is left would lie over a file that the next open cuts.
func TestAFailedOpenLeavesNothingOpen(t *testing.T) {
	for _, tt := range append([]recovery{{name: "a segment with too wide offsets is split", damage: func(d *damaged) {
		d.opts.Config.CleanupCompact = true
		d.remove(d.file(6, ".log"), d.file(12, ".log"), d.file(18, ".log"))
		one := record.Batch(d.read(d.file(0, ".log"))[d.size : 2*d.size])
		one.SetBaseOffset(math.MaxInt32 + 5)
		d.write(d.file(0, ".log"), d.size, one...)
		d.truncate(d.file(0, ".log"), 2*d.size)
	}}}, recoveries...) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newDamaged(t, tt.clean)
			if tt.damage != nil {
				tt.damage(d)
			}
			opened := 0
			for at := 0; ; at++ {
				disk := d.disk.Crash(memfs.KeepAll())
				n := 0
				var failed faultfs.Op
				o := d.opts
				o.OnEvent, o.AfterDelay = nil, nil
				o.FS = faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
					switch op.Kind {
					case faultfs.Close, faultfs.Unmap, faultfs.Lock, faultfs.Usage:
						return faultfs.Fault{} // what fails to close is closed
					}
					if n++; n-1 == at {
						failed = op
						return faultfs.Fault{Err: syscall.EIO}
					}
					return faultfs.Fault{}
				})
				l, err := Open(o)
				if err == nil {
					opened++
					err = l.Abandon()
				}
				if open := disk.InUse(); len(open) > 0 {
					t.Fatalf("operation %d, %s %s, failed (%v): in use still: %v", at, failed.Kind, failed.Name, err, open)
				}
				if n <= at {
					break
				}
			}
			if opened == 0 && tt.refused == "" {
				t.Error("never opened")
			}
		})
	}
}
