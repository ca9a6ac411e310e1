package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// SweepOptions say which operations are made to fail.
type SweepOptions struct {
	Seed   uint64
	Stride int  // takes every so many only; 0 takes each
	Syncs  bool // syncs alone
	Case   string
	// Plant puts a bug between the broker and its disk. May be nil.
	Plant func(vfs.FS) vfs.FS
}

// fault is what an operation is made to fail with.
type fault struct {
	name  string
	errno syscall.Errno
	short bool // half of a write is done first
}

func sweepFaults(syncs bool) []fault {
	if syncs {
		return []fault{{"EIO", syscall.EIO, false}, {"ENOSPC", syscall.ENOSPC, false}, {"EDQUOT", syscall.EDQUOT, false}}
	}
	return []fault{
		{"EIO", syscall.EIO, false}, {"ENOSPC", syscall.ENOSPC, false}, {"EDQUOT", syscall.EDQUOT, false},
		{"EMFILE", syscall.EMFILE, false}, {"EINTR", syscall.EINTR, false}, {"short", syscall.ENOSPC, true},
	}
}

// sweepScripts are the scripts whose model allows for an answer that is an error.
var sweepScripts = []string{"append", "rolls and checkpoints", "every append synced", "retention and DeleteRecords", "topics"}

// Sweep lets every operation of the scripts fail in turn, lets the broker go on
// and stop, and opens what is left.
func Sweep(t *testing.T, row *Row, o SweepOptions) {
	if o.Syncs {
		// What runs beside the sync that fails is not after it: one processor keeps
		// them apart.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	p := newPool(row)
	defer p.wait()
	number := 0
	for _, s := range scripts() {
		if !strings.Contains(strings.Join(sweepScripts, ","), s.name) {
			continue
		}
		n := runSweep(t, s, o, fault{}, -1).ops
		row.Count("operations", n)
		for at := range n {
			for _, f := range sweepFaults(o.Syncs) {
				if number++; o.Case == "" && o.Stride > 1 && number%o.Stride != 0 {
					continue
				}
				name := fmt.Sprintf("%s/%d/%s", s.name, at, f.name)
				if o.Case != "" && o.Case != name {
					continue
				}
				r := runSweep(t, s, o, f, at)
				if f.errno == syscall.EMFILE && (r.op.Kind == faultfs.Sync || r.op.Kind == faultfs.Flush) {
					continue
				}
				if !r.struck || f.short && r.op.Kind != faultfs.Write {
					continue
				}
				row.Plan(1)
				p.do(func() string { return name }, func() {
					if err := r.judge(); err != nil {
						which := "sweep-in-process"
						if o.Syncs {
							which = "fsync"
						}
						row.Violation("%s: %s (%s %s): %v\n\treplay: go test ./internal/sim -run 'TestRow/%s' -args -faults.seed=%d '-faults.case=%s'",
							which, name, r.op.Kind, r.op.Name, err, which, o.Seed, name)
					}
					if r.syncFailed != "" {
						row.Count("failed syncs", 1)
					}
					row.Done(1, r.m.ackedRecords())
				})
			}
		}
	}
}

// sweepRun is one run with one operation that failed.
type sweepRun struct {
	disk *memfs.FS
	m    *moment

	mu         sync.Mutex
	ops        int
	struck     bool
	op         faultfs.Op // that failed
	syncFailed string     // the data directory of a sync that failed
	process    bool       // it failed in this process
	afterwards []string   // changes in that directory after it
	broken     error
}

func isSync(k faultfs.Kind) bool {
	return k == faultfs.Sync || k == faultfs.SyncDir || k == faultfs.Flush
}

func (r *sweepRun) inject(o SweepOptions, f fault, at int) faultfs.Inject {
	return func(op faultfs.Op) faultfs.Fault {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.process && op.Kind.Changes() && strings.HasPrefix(op.Name, r.syncFailed) && !strings.HasSuffix(op.Name, "/.lock") {
			r.afterwards = append(r.afterwards, fmt.Sprintf("%s %s", op.Kind, op.Name))
		}
		switch op.Kind {
		case faultfs.Lock, faultfs.Close, faultfs.Unmap, faultfs.Usage:
			return faultfs.Fault{} // a close that fails has closed; the rest is not of a file's content
		}
		if o.Syncs && !isSync(op.Kind) {
			return faultfs.Fault{}
		}
		n := r.ops
		r.ops++
		if n != at {
			return faultfs.Fault{}
		}
		r.struck, r.op = true, op
		r.op.Data = nil
		if isSync(op.Kind) && f.errno != syscall.EMFILE { // which is of the directory's opening
			r.syncFailed, r.process = dirOf(op.Name), true
		}
		fault := faultfs.Fault{Err: f.errno}
		if f.short && op.Kind == faultfs.Write {
			fault.Done = op.Length / 2
		}
		return fault
	}
}

// dirOf is the data directory that a path lies in.
func dirOf(name string) string {
	for _, d := range dataDirs {
		if name == d || strings.HasPrefix(name, d+"/") {
			return d
		}
	}
	return ""
}

func runSweep(t *testing.T, s script, o SweepOptions, f fault, at int) *sweepRun {
	r := &sweepRun{}
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorld(o.Seed, func(_ *world, disk vfs.FS) vfs.FS {
			wrapped := vfs.FS(faultfs.Wrap(disk, r.inject(o, f, at)))
			if o.Plant != nil {
				wrapped = o.Plant(wrapped)
			}
			return wrapped
		}, dataDirs...)
		if err != nil {
			r.broken = err
			return
		}
		w.tolerant = at >= 0
		w.onStart = func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.process = false
		}
		s.run(w)
		w.stop()
		r.broken = w.broken
		if open := w.disk.InUse(); len(open) > 0 && r.broken == nil {
			r.broken = fmt.Errorf("left open by the stop: %s", strings.Join(open, ", "))
		}
		r.m = w.moment()
		r.disk = w.disk.Crash(memfs.KeepAll())
		if r.syncFailed != "" {
			// The kernel goes on: what it took for written is in its memory still, and
			// a power cut after this is beyond what any program can promise.
			r.disk = w.disk
		}
	})
	return r
}

// judge opens what is left when the process has gone, and wants all that was
// acknowledged; after a failed sync, all that was durable.
func (r *sweepRun) judge() error {
	if r.broken != nil {
		return r.broken
	}
	var errs []error
	if len(r.afterwards) > 0 {
		errs = append(errs, fmt.Errorf("after the failed sync %s was changed: %s", r.syncFailed, strings.Join(r.afterwards[:min(4, len(r.afterwards))], ", ")))
	}
	rng := rand.New(rand.NewPCG(uint64(r.ops), 1))
	errs = append(errs, guard(func() error { return r.m.check(r.disk, r.disk, r.syncFailed == "", rng, func() {}) }))
	return errors.Join(errs...)
}
