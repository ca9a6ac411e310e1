package repair

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

var errStopped = errors.New("the machine stopped")

// small is a directory with a few of the damaged partitions, one for each way
// of changing a file, with its indexes cut to their entries.
func small(t testing.TB) *memfs.FS {
	t.Helper()
	all := memfs.New()
	golden.Load(t, "09-crash-trusted-4.4.0").Stage(t, "before").UnpackTo(t, all, "/all")
	disk := memfs.New()
	for path, data := range files(t, all, "/all") {
		rel := strings.TrimPrefix(path, "/all/")
		dir, _, nested := strings.Cut(rel, "/")
		if nested && !slices.Contains([]string{"crash-0", "crash-2", "crash-7", "crash-16", "crash-18"}, dir) {
			continue
		}
		if rel == "crash-7/leader-epoch-checkpoint" || rel == "crash-0/00000000000000000013.log" { // a gap to accept
			continue
		}
		write(t, disk, "/data/"+rel, data)
	}
	write(t, disk, "/data/cleaner-offset-checkpoint", "nonsense")
	return disk
}

func write(t testing.TB, disk vfs.FS, path, data string) {
	t.Helper()
	if err := disk.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := disk.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(data), 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// A repair is stopped before every change that it makes to the disk, by the
// death of the process and by power cuts that keep any part of what was not
// synced. The next run ends as the first would have, and nothing is lost: each
// batch is in the log, or in what was kept.
func TestARepairStoppedAnywhereIsContinued(t *testing.T) {
	start := small(t)
	whole := start.Crash(memfs.KeepAll())
	o := Options{Paths: []string{"/data"}, AllowDataLoss: true, Parallel: 1}
	run := func(disk vfs.FS) error {
		o := o
		o.FS = disk
		_, r, err := Apply(t.Context(), o)
		if err == nil && r.Count(verify.Error) > 0 {
			t.Errorf("errors are left: %v", r.Findings)
		}
		return err
	}
	count := &faultfs.Counter{}
	if err := run(faultfs.Wrap(whole, count.Inject)); err != nil {
		t.Fatal(err)
	}
	want, good := files(t, whole, "/data"), everything(t, start)
	for stop := 1; stop <= count.Seen(); stop++ {
		for crash := range 4 {
			if crash >= 2 && crash%2 != stop%2 {
				continue // one of the two random ones
			}
			disk := start.Crash(memfs.KeepAll())
			c := &faultfs.Counter{From: stop, Fault: faultfs.Fault{Err: errStopped}}
			if err := run(faultfs.Wrap(disk, c.Inject)); !errors.Is(err, errStopped) && stop < count.Seen()-1 {
				t.Fatalf("stop %d: %v", stop, err)
			}
			choice := []memfs.Choice{memfs.KeepAll(), memfs.DropAll(), memfs.Random(0.5, uint64(stop)), memfs.Random(0.8, uint64(stop+1000))}[crash]
			disk = disk.Crash(choice)
			if missing(everything(t, disk), good) > 0 {
				t.Fatalf("stop %d, crash %d: a good batch is nowhere", stop, crash)
			}
			if err := run(disk); err != nil {
				t.Fatalf("stop %d, crash %d: %v", stop, crash, err)
			}
			got := files(t, disk, "/data")
			for path, data := range want {
				if !strings.Contains(path, cutSuffix) && got[path] != data {
					t.Fatalf("stop %d, crash %d: %s differs", stop, crash, path)
				}
			}
			if missing(everything(t, disk), good) > 0 {
				t.Fatalf("stop %d, crash %d: a good batch is nowhere after the second run", stop, crash)
			}
		}
	}
	t.Logf("stopped at each of %d operations", count.Seen())
}

// everything is the good batches in the logs and in what was kept of them.
func everything(t testing.TB, disk vfs.FS) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for path, data := range files(t, disk, "/data") {
		if !strings.Contains(path, segment.LogExt) || strings.HasSuffix(path, ".tmp") {
			continue
		}
		for at := 0; at < len(data); {
			h, err := record.ParseHeader([]byte(data)[at:])
			if err != nil || at+h.Size > len(data) {
				break
			}
			if b := data[at : at+h.Size]; record.Check([]byte(b)) == nil {
				out[b] = true
			}
			at += h.Size
		}
	}
	return out
}

func missing(have, want map[string]bool) int {
	n := 0
	for b := range want {
		if !have[b] {
			n++
		}
	}
	return n
}

// An error of the disk ends a repair and leaves what a later run finishes.
func TestAnErrorOfTheDiskEndsTheRepair(t *testing.T) {
	start := small(t)
	for _, kind := range []faultfs.Kind{faultfs.Write, faultfs.Sync, faultfs.Rename, faultfs.SyncDir, faultfs.Truncate, faultfs.Create} {
		disk := start.Crash(memfs.KeepAll())
		c := &faultfs.Counter{From: 2, Times: 1, Match: func(op faultfs.Op) bool { return op.Kind == kind }, Fault: faultfs.Fault{Err: errStopped}}
		o := Options{FS: faultfs.Wrap(disk, c.Inject), Paths: []string{"/data"}, AllowDataLoss: true}
		if _, _, err := Apply(t.Context(), o); !errors.Is(err, errStopped) {
			t.Errorf("%s: %v", kind, err)
		}
		o.FS = disk
		if _, r, err := Apply(t.Context(), o); err != nil || r.Count(verify.Error) > 0 {
			t.Errorf("%s, again: %v %v", kind, err, r.Findings)
		}
	}
}

// damage changes files of a directory at random and names them.
func damage(r *rand.Rand, all map[string]string) (changed []string) {
	var paths []string
	for path, data := range all {
		if len(data) > 0 && !strings.Contains(path, "/__cluster_metadata") && !strings.HasSuffix(path, "meta.properties") && !strings.HasSuffix(path, ".kafka_cleanshutdown") {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	for range 1 + r.IntN(4) {
		path := paths[r.IntN(len(paths))]
		b := []byte(all[path])
		if len(b) == 0 {
			continue
		}
		at := r.IntN(len(b))
		switch r.IntN(7) {
		case 0:
			b[at] ^= 1 << r.IntN(8)
		case 1:
			b = b[:at]
		case 2:
			clear(b[at:min(len(b), at+1+r.IntN(600))])
		case 3:
			for i := at; i < min(len(b), at+1+r.IntN(300)); i++ {
				b[i] = byte(r.Uint32())
			}
		case 4:
			b = append(b, bytes.Repeat([]byte{byte(r.IntN(2) * r.IntN(256))}, 1+r.IntN(500))...)
		case 5: // a part of it is there twice
			end := min(len(b), at+1+r.IntN(400))
			b = slices.Insert(b, end, slices.Clone(b[at:end])...)
		case 6:
			delete(all, path)
			changed = append(changed, path)
			continue
		}
		all[path] = string(b)
		changed = append(changed, path)
	}
	return changed
}

// Random damage on copies of a directory: verify finds it, repair mends it or
// says what it left, verify is content, and nothing else was touched.
func TestRandomDamageIsMended(t *testing.T) {
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 200
	}
	disk := memfs.New()
	golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").UnpackTo(t, disk, "/data")
	whole := files(t, disk, "/data")
	steps := 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 1))
		all := map[string]string{}
		for path, data := range whole {
			if !strings.Contains(path, "__consumer_offsets") && (!strings.Contains(path, "__transaction_state") || strings.Contains(path, "__transaction_state-3/")) &&
				(!strings.Contains(path, "__cluster_metadata") || seed%4 == 0) {
				all[path] = data
			}
		}
		changed := damage(r, all)
		disk := memfs.New()
		for path, data := range all {
			write(t, disk, path, data)
		}
		o := Options{FS: disk, Paths: []string{"/data"}, AllowDataLoss: true, Parallel: 1}
		plan := mustMake(t, o)
		steps += len(plan.Steps)
		if len(plan.Left) > 0 {
			for _, f := range plan.Left { // what the files do not tell
				if f.Code != verify.CodePartition && f.Code != verify.CodeCount && f.Code != verify.CodeTopicID {
					t.Errorf("seed %d, damaged %v: left %v", seed, changed, f)
				}
			}
			continue
		}
		checkApplied(t, disk, o)
		if t.Failed() {
			t.Fatalf("seed %d, damaged %v, plan:\n%s", seed, changed, lines(plan))
		}
	}
	if steps < int(seeds) {
		t.Errorf("%d steps for %d damaged directories", steps, seeds)
	}
}

// Without leave to lose data no batch with a right checksum goes.
func TestWithoutLeaveNoGoodBatchGoes(t *testing.T) {
	disk := memfs.New()
	golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").UnpackTo(t, disk, "/data")
	whole := files(t, disk, "/data")
	for seed := range uint64(150) {
		all := map[string]string{}
		for path, data := range whole {
			all[path] = data
		}
		damage(rand.New(rand.NewPCG(seed, 2)), all)
		disk := memfs.New()
		for path, data := range all {
			write(t, disk, path, data)
		}
		good := batches(t, disk, "/data")
		mustApply(t, Options{FS: disk, Paths: []string{"/data"}, Parallel: 1})
		if n := missing(batches(t, disk, "/data"), good); n > 0 {
			t.Fatalf("seed %d: %d good batches went", seed, n)
		}
	}
}
