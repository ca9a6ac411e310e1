package sim

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// StatesOptions say which crash states are opened.
type StatesOptions struct {
	Seed   uint64
	States int // at least so many
	// Case, when not empty, is one state again: "script/seed/state".
	Case string
	// Script, when not empty, is the only one that runs.
	Script string
	// Plant puts a bug between the broker and its disk. May be nil.
	Plant func(vfs.FS) vfs.FS
	// Enough ends the run at so many violations; 0 does not.
	Enough int
	// Keep, when not empty, is a directory that the disk of each violation is
	// written below, as it was before it was opened.
	Keep string
	// Stride takes every so many operations only; 0 takes each.
	Stride int
}

// keeps are the shares of what was not synced that a power cut leaves; 1 is the
// death of the process alone.
var keeps = [...]float64{0, 0.2, 0.5, 1}

const (
	tornKilled   = len(keeps) // the write cut anywhere, then SIGKILL
	tornCut      = tornKilled + 1
	variantCount = tornCut + 1
)

// state is one state of the disk, to be opened.
type state struct {
	script string
	seed   uint64 // of the script
	number int    // operation and variant
	op     faultfs.Op
	disk   *memfs.FS // as it was before op; not to be changed
	whole  bool      // nothing but the process has died
	m      *moment
}

func (s *state) String() string {
	return fmt.Sprintf("%s, seed %d, state %d (before %s %s, %s)", s.script, s.seed, s.number, s.op.Kind, s.op.Name, variantName(s.number%variantCount))
}

func variantName(v int) string {
	switch v {
	case tornKilled:
		return "the write torn, process killed"
	case tornCut:
		return "the write torn, half of what is not synced kept"
	}
	return fmt.Sprintf("%g of what is not synced kept", keeps[v])
}

// States runs the scripts, and before every change of the disk opens what a
// crash at that moment can leave of it.
func States(t *testing.T, row *Row, o StatesOptions) {
	jobs := make(chan *state, 64)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for s := range jobs {
				if o.Enough > 0 && row.Violations() >= o.Enough {
					continue
				}
				judgeState(row, s, o.Keep)
			}
		})
	}
	g := &generator{o: o, row: row, jobs: jobs}
	only, onlySeed, onlyState := "", uint64(0), -1
	if o.Case != "" {
		if _, err := fmt.Sscanf(o.Case[strings.LastIndex(o.Case, "/")+1:], "%d", &onlyState); err == nil {
			rest := o.Case[:strings.LastIndex(o.Case, "/")]
			only = rest[:strings.LastIndex(rest, "/")]
			_, _ = fmt.Sscanf(rest[strings.LastIndex(rest, "/")+1:], "%d", &onlySeed)
		}
	}
	for round := uint64(0); g.made < o.States || o.Case != ""; round++ {
		for _, s := range scripts() {
			if o.Case != "" && s.name != only || o.Script != "" && s.name != o.Script {
				continue
			}
			if o.Case == "" && g.made >= o.States || o.Enough > 0 && row.Violations() >= o.Enough {
				break
			}
			g.script, g.seed, g.ops, g.only = s.name, o.Seed+round, 0, onlyState
			if o.Case != "" {
				g.seed = onlySeed
			}
			synctest.Test(t, func(t *testing.T) { g.run(s) })
		}
		if o.Case != "" || o.Enough > 0 && row.Violations() >= o.Enough {
			break
		}
	}
	close(jobs)
	workers.Wait()
}

// generator makes the states of one script after the other.
type generator struct {
	o    StatesOptions
	row  *Row
	jobs chan<- *state
	made int

	script string
	seed   uint64
	only   int
	mu     sync.Mutex // guards ops
	ops    int
}

func (g *generator) run(s script) {
	w, err := newWorld(g.seed, func(w *world, disk vfs.FS) vfs.FS {
		if g.o.Plant != nil {
			disk = g.o.Plant(disk)
		}
		return faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
			if op.Kind.Changes() {
				g.before(w, op)
			}
			return faultfs.Fault{}
		})
	}, dataDirs...)
	if err == nil {
		s.run(w)
		err = w.broken
	}
	if err != nil && g.o.Plant == nil {
		g.row.Violation("states: %s, seed %d: without a crash: %v", g.script, g.seed, err)
	}
	g.row.Count("operations", g.ops)
	g.row.Count("scripts", 1)
	// The last word is after the last operation.
	g.before(w, faultfs.Op{Kind: "end"})
}

// before takes the states of the disk at this moment.
func (g *generator) before(w *world, op faultfs.Op) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.ops
	g.ops++
	if racing && w.stopping.Load() {
		return
	}
	if g.o.Stride > 1 && (n+int(g.seed))%g.o.Stride != 0 && g.only < 0 {
		return
	}
	var m *moment
	for v := range variantCount {
		number := n*variantCount + v
		if g.only >= 0 && number != g.only || v >= tornKilled && op.Kind != faultfs.Write {
			continue
		}
		if m == nil {
			m = w.moment()
		}
		s := &state{script: g.script, seed: g.seed, number: number, op: op, m: m}
		rng := s.rng()
		switch {
		case v < tornKilled && keeps[v] == 0:
			s.disk = w.disk.Crash(memfs.DropAll())
		case v < tornKilled && keeps[v] == 1:
			s.disk, s.whole = w.disk.Crash(memfs.KeepAll()), true
		case v < tornKilled:
			s.disk = w.disk.Crash(memfs.Random(keeps[v], rng.Uint64()))
		default:
			if s.disk = torn(w.disk, op, rng, v == tornCut); s.disk == nil {
				continue
			}
			s.whole = v == tornKilled
		}
		s.op.Data = nil
		g.made++
		g.row.Plan(1)
		g.jobs <- s
	}
}

func (s *state) rng() *rand.Rand { return rand.New(rand.NewPCG(s.seed, uint64(s.number)*2+1)) }

// torn is the disk with some bytes of a write done; nil when the file has
// another name by now.
func torn(disk *memfs.FS, op faultfs.Op, rng *rand.Rand, cut bool) *memfs.FS {
	data := bytes.Join(op.Data, nil)
	if len(data) < 2 {
		return nil
	}
	// A file of its own: the disk under the broker must not see the write. What
	// was not synced before it is decided by its own throws.
	c := memfs.KeepAll()
	if cut {
		c = memfs.Random(0.5, rng.Uint64())
	}
	after := disk.Crash(c)
	f, err := after.OpenFile(op.Name, 2, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	if _, err := f.WriteAt(data[:1+rng.IntN(len(data)-1)], op.Offset); err != nil {
		return nil
	}
	return after.Crash(memfs.KeepAll())
}

// judgeState opens a state, stops that recovery at one of its changes and
// recovers anew, and lets both go on.
func judgeState(row *Row, s *state, keep string) {
	before := s.disk
	if keep != "" {
		before = s.disk.Crash(memfs.KeepAll())
	}
	rng := s.rng()
	stopAt := rng.IntN(12 + rng.IntN(30))
	same := s.whole && rng.IntN(2) == 0
	choice := memfs.KeepAll()
	if !same {
		choice = memfs.Random(keeps[rng.IntN(len(keeps))], rng.Uint64())
	}
	var forked *memfs.FS
	var mu sync.Mutex
	changes, recovered := 0, false
	fsys := faultfs.Wrap(s.disk, func(op faultfs.Op) faultfs.Fault {
		if op.Kind.Changes() {
			mu.Lock()
			if changes == stopAt && !recovered {
				forked = s.disk.Crash(choice)
			}
			changes++
			mu.Unlock()
		}
		return faultfs.Fault{}
	})
	var first map[string][]byte
	err := guard(func() error {
		return s.m.check(fsys, s.disk, s.whole, rng, func() {
			mu.Lock()
			recovered = true
			again := forked != nil && same
			mu.Unlock()
			if again {
				first = partitionFiles(s.disk, s.m.dirs)
			}
		})
	})
	mu.Lock()
	second := forked
	mu.Unlock()
	where := ""
	if err == nil && second != nil {
		where = fmt.Sprintf("; recovery stopped before its change %d", stopAt)
		var diff error
		err = guard(func() error {
			return s.m.check(second, second, s.whole && same, rng, func() {
				if first != nil {
					if d := difference(first, partitionFiles(second, s.m.dirs)); d != "" {
						diff = fmt.Errorf("not the same bytes as of a recovery that ran once: %s", d)
					}
				}
			})
		})
		err = errors.Join(err, diff)
		row.Count("in recovery", 1)
	}
	if err != nil {
		row.Violation("states: %v%s: %v\n\treplay: %s", s, where, err, s.replay())
		if keep != "" {
			if err := writeOut(before, s.m.dirs, filepath.Join(keep, fmt.Sprintf("%s-%d-%d", s.script, s.seed, s.number))); err != nil {
				row.Violation("states: the disk could not be kept: %v", err)
			}
		}
	}
	row.Done(1, s.m.ackedRecords())
}

func (s *state) replay() string {
	return fmt.Sprintf("go test ./internal/sim -run 'TestRow/states' -args '-faults.case=%s/%d/%d'", s.script, s.seed, s.number)
}

// check opens the directories and holds them against the model. opened is
// called when recovery is over and nothing else was done.
func (m *moment) check(fsys vfs.FS, disk *memfs.FS, whole bool, rng *rand.Rand, opened func()) (err error) {
	dirs, err := m.open(fsys, nil)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() {
		cerr := dirs.Close(9)
		if open := disk.InUse(); err == nil && len(open) > 0 {
			err = fmt.Errorf("left open by the stop (%w): %s", cerr, strings.Join(open, ", "))
		}
	}()
	opened()
	if err := m.judge(dirs, whole, rng); err != nil {
		return err
	}
	if rng.IntN(6) == 0 {
		return m.goesOn(disk, dirs)
	}
	return nil
}

// partitionFiles are the files of the partitions that a second recovery must
// leave as a first would have. Indexes and snapshots are not among them: a start
// that finds the clean marker keeps those of the stop, the next one makes its own.
func partitionFiles(disk *memfs.FS, dirs []string) map[string][]byte {
	out := map[string][]byte{}
	for _, dir := range dirs {
		for name, data := range tree(disk, dir) {
			if filepath.Dir(name) == dir || strings.Contains(name, "-delete/") || strings.Contains(name, "-stray/") {
				continue
			}
			switch filepath.Ext(name) {
			case ".index", ".timeindex", ".snapshot":
				continue
			}
			out[name] = data
		}
	}
	return out
}

func difference(want, got map[string][]byte) string {
	for name := range want {
		b, ok := got[name]
		switch {
		case !ok:
			return name + " is missing"
		case !bytes.Equal(b, want[name]):
			at := 0
			for at < min(len(b), len(want[name])) && b[at] == want[name][at] {
				at++
			}
			return fmt.Sprintf("%s differs from byte %d on (%d bytes, %d)", name, at, len(b), len(want[name]))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			return name + " is there too"
		}
	}
	return ""
}

// writeOut copies directories of a memory disk to a real one, to be looked at.
func writeOut(disk *memfs.FS, dirs []string, to string) error {
	for _, dir := range dirs {
		for name, data := range tree(disk, dir) {
			path := filepath.Join(to, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, data, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
