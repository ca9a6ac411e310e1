package sim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/repair"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// DamageOptions say how many directories are damaged.
type DamageOptions struct {
	Seed  uint64
	Count int
	Case  string // one case again: its number
}

// Damage makes 1 to 4 random damages in copies of a directory, and has the
// broker, verify and repair look at each.
func Damage(t *testing.T, row *Row, o DamageOptions) error {
	f, err := makeFixture(t, o.Seed, severalPartitions)
	if err != nil {
		return err
	}
	p := newPool(row)
	defer p.wait()
	for n := range o.Count {
		name := func() string { return fmt.Sprint(n) }
		if o.Case != "" && o.Case != name() {
			continue
		}
		row.Plan(1)
		p.do(name, func() {
			rng := rand.New(rand.NewPCG(o.Seed, uint64(n)*2))
			start := f.clean
			if n%2 == 1 {
				start = f.killed
			}
			disk := copyOf(start)
			var what []string
			for range 1 + rng.IntN(4) {
				what = append(what, mutate(disk, start, rng))
			}
			violation := func(who string, err error) {
				row.Violation("damage: %s: %v\n\tdirectory %d: %s\n\treplay: go test ./internal/sim -run 'TestRow/damage' -args -faults.seed=%d -faults.case=%d",
					who, err, n, strings.Join(what, "; "), o.Seed, n)
			}
			disk = copyOf(disk) // durable
			found, verr := verified(copyOf(disk), f.m.dirs)
			if verr != nil {
				violation("verify", verr)
			}
			v, err := f.m.judgeDamaged(copyOf(disk))
			if err != nil && foreign(what) && !errors.Is(err, errPanic) {
				// A batch of another partition has a right checksum, and so has a producer
				// snapshot; nothing in them says whose they are. It is not claimed to be found.
				row.Count("page of another file", 1)
				err = nil
			}
			if err != nil {
				violation("open", err)
			}
			row.Count(v.outcome.String(), 1)
			if v.moved {
				row.Count("last batch at a higher offset, told", 1)
			}
			if v.atFirst != nil {
				row.Count("right only after a scrub", 1)
			}
			for _, code := range found {
				row.Count("verify "+code, 1)
			}
			if verr == nil && err == nil && v.outcome == limited && len(found) == 0 {
				violation("verify", fmt.Errorf("%d batches are not served (events %v), and nothing is found", v.lost, v.events))
			}
			if longest(disk, "/data") > 1<<30 {
				row.Count("repair not tried on a sparse log", 1) // it walks over the zeros, for hours
			} else if err := mended(copyOf(disk), f.m.dirs, row); err != nil {
				violation("repair", err)
			}
			if o.Case != "" {
				t.Logf("%v: %v, %d lost, events %v, verify %v, %v", what, v.outcome, v.lost, v.events, found, v.why)
			}
			row.Done(1, 0)
		})
	}
	return nil
}

// verified is the codes of what verify finds, and whether it changed anything.
func verified(disk *memfs.FS, dirs []string) (codes []string, err error) {
	err = guard(func() error {
		r, err := verify.Check(context.Background(), verify.Options{FS: disk, Paths: dirs, Parallel: 1})
		if err != nil {
			return err
		}
		for i := range r.Findings {
			if f := &r.Findings[i]; f.Severity > verify.Note && !slices.Contains(codes, string(f.Code)) {
				codes = append(codes, string(f.Code))
			}
		}
		return nil
	})
	return codes, err
}

// mended mends a directory and wants no batch gone from it, and no error left
// that the plan did not name.
func mended(disk *memfs.FS, dirs []string, row *Row) error {
	before := goodBatches(disk, dirs)
	return guard(func() error {
		plan, after, err := repair.Apply(context.Background(), repair.Options{FS: disk, Paths: dirs, AllowDataLoss: true, Parallel: 1})
		if err != nil {
			row.Count("repair refused", 1)
			return nil
		}
		row.Count("repair steps", len(plan.Steps))
		left := map[string]bool{}
		for i := range plan.Left {
			left[string(plan.Left[i].Code)+plan.Left[i].File] = true
		}
		for i := range after.Findings {
			if f := &after.Findings[i]; f.Severity == verify.Error && !left[string(f.Code)+f.File] {
				return fmt.Errorf("an error is left that the plan did not name: %v", f)
			}
		}
		if len(plan.Left) > 0 {
			row.Count("repair left something", 1)
		}
		now := goodBatches(disk, dirs)
		for b := range before {
			if !now[b] {
				return errors.New("a good batch is nowhere any more")
			}
		}
		return nil
	})
}

// goodBatches are the batches with a right checksum in the logs and in what was
// put aside of them.
func goodBatches(disk *memfs.FS, dirs []string) map[string]bool {
	out := map[string]bool{}
	for _, dir := range dirs {
		for _, data := range logFiles(disk, dir) {
			for at := 0; at+record.HeaderSize <= len(data); {
				h, err := record.ParseHeader(data[at:])
				if err != nil || h.Size <= 0 || at+h.Size > len(data) {
					break
				}
				if b := data[at : at+h.Size]; record.Check(b) == nil {
					out[string(b[covered:])] = true
				}
				at += h.Size
			}
		}
	}
	return out
}

// logFiles are the files with batches, of a size that a test can hold.
func logFiles(disk *memfs.FS, dir string) map[string][]byte {
	out := map[string][]byte{}
	list, err := disk.ReadDir(dir)
	if err != nil {
		return out
	}
	for _, e := range list {
		path := dir + "/" + e.Name()
		info, err := e.Info()
		switch {
		case err != nil:
		case e.IsDir():
			maps.Copy(out, logFiles(disk, path))
		case strings.Contains(e.Name(), ".log") && !strings.HasSuffix(e.Name(), ".tmp"):
			f, err := disk.OpenFile(path, 0, 0)
			if err != nil {
				continue
			}
			data := make([]byte, min(info.Size(), 1<<20))
			_, _ = f.ReadAt(data, 0)
			_ = f.Close()
			out[path] = data
		}
	}
	return out
}

// mutate damages one file of a disk and says how. from is the undamaged disk.
func mutate(disk, from *memfs.FS, rng *rand.Rand) string {
	files := tree(from, "/data")
	paths := slices.Sorted(maps.Keys(files))
	path := paths[rng.IntN(len(paths))]
	if rng.IntN(3) > 0 { // most of it to the logs and their indexes
		for !strings.Contains(path, "-0/0") && !strings.Contains(path, "-1/0") {
			path = paths[rng.IntN(len(paths))]
		}
	}
	data := files[path]
	at := 0
	if len(data) > 0 {
		at = rng.IntN(len(data))
	}
	var what string
	var err error
	switch rng.IntN(13) {
	case 0, 1:
		what = fmt.Sprintf("flip bit of byte %d", at)
		if len(data) > 0 {
			err = writeAt(disk, path, []byte{data[at] ^ 1<<rng.IntN(8)}, int64(at))
		}
	case 2:
		what = fmt.Sprintf("truncate to %d", at)
		err = truncateTo(disk, path, int64(at))
	case 3:
		at &^= 511
		what = fmt.Sprintf("zeros from byte %d on", at)
		err = writeAt(disk, path, make([]byte, min(512*(1+rng.IntN(8)), len(data)-at)), int64(at))
	case 4:
		other := paths[rng.IntN(len(paths))]
		at &^= 511
		page := files[other]
		if len(page) > 512 {
			page = page[rng.IntN(len(page)/512)*512:]
		}
		page = page[:min(len(page), 512)]
		what = fmt.Sprintf("512 bytes of %s at byte %d", other, at)
		if len(page) > 0 {
			err = writeAt(disk, path, page, int64(at))
		}
	case 5:
		what = "noise behind the end"
		noise := make([]byte, 1+rng.IntN(700))
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		err = writeAt(disk, path, noise, int64(len(data)))
	case 6:
		what = "itself behind the end"
		err = writeAt(disk, path, data[at:], int64(len(data)))
	case 7:
		n := int64(1) << rng.IntN(24)
		if rng.IntN(4) == 0 {
			n = 1 << 40
		}
		what = fmt.Sprintf("%d zeros behind the end", n)
		err = truncateTo(disk, path, int64(len(data))+n)
	case 8:
		what = "missing"
		err = disk.Remove(path)
	case 9:
		what = "a directory in its place"
		if err = disk.Remove(path); err == nil {
			err = disk.Mkdir(path, 0o755)
		}
	case 10:
		to := neighbour(path, rng)
		what = "renamed to " + filepath.Base(to)
		err = disk.Rename(path, to)
	case 11:
		to := neighbour(path, rng)
		what = "copied to " + filepath.Base(to)
		f, oerr := disk.OpenFile(to, 0x42, 0o644)
		if err = oerr; err == nil {
			_ = f.Close()
			err = writeAt(disk, to, data, 0)
		}
	case 12:
		what = "emptied"
		err = truncateTo(disk, path, 0)
	}
	if err != nil {
		what += " (not done)" // an earlier damage has taken the file
	}
	return path + ": " + what
}

// neighbour is a name that a file could be mistaken for.
func neighbour(path string, rng *rand.Rand) string {
	dir, name := filepath.Split(path)
	if len(name) > 20 && name[0] == '0' {
		base := bytes.Clone([]byte(name[:20]))
		base[19] = byte('0' + (int(base[19]-'0')+1+8*rng.IntN(2))%10)
		return dir + string(base) + name[20:]
	}
	return path + []string{".bak", ".tmp", ".deleted", ".swap"}[rng.IntN(4)]
}

// foreign reports whether a .log got a page of another file, or a snapshot all of
// another one: both have a right checksum.
func foreign(what []string) bool {
	return slices.ContainsFunc(what, func(w string) bool {
		_, page, ok := strings.Cut(w, ": 512 bytes of ")
		return ok && (strings.Contains(w, ".log: ") || strings.Contains(w, ".snapshot: ") && strings.HasSuffix(page, ".snapshot at byte 0"))
	})
}

// longest is the size of the largest .log below a directory.
func longest(disk *memfs.FS, dir string) (n int64) {
	list, err := disk.ReadDir(dir)
	if err != nil {
		return 0
	}
	for _, e := range list {
		if e.IsDir() {
			n = max(n, longest(disk, dir+"/"+e.Name()))
		} else if info, err := e.Info(); err == nil && strings.Contains(e.Name(), ".log") {
			n = max(n, info.Size())
		}
	}
	return n
}
