package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/varvelog/varve/internal/vfs/memfs"
)

// FlipsOptions say how much is flipped.
type FlipsOptions struct {
	Seed   uint64
	Rounds int    // size of the partition
	Stride int    // takes every so many bits and lengths only; 0 takes each
	Case   string // one case again
}

// change is one damage of one file.
type change struct {
	name  string
	apply func(disk *memfs.FS, path string, data []byte) error
}

// Flips opens a directory with every single bit flipped, every file cut at every
// length, missing and extended, both after a clean stop and after a kill.
func Flips(t *testing.T, row *Row, o FlipsOptions) error {
	f, err := makeFixture(t, o.Seed, smallPartition(o.Rounds))
	if err != nil {
		return err
	}
	p := newPool(row)
	defer p.wait()
	for _, stop := range []struct {
		name string
		disk *memfs.FS
	}{{"clean", f.clean}, {"killed", f.killed}} {
		files := tree(stop.disk, "/data")
		n := 0
		for _, path := range slices.Sorted(maps.Keys(files)) {
			for c := range changes(files[path]) {
				if n++; o.Case == "" && o.Stride > 1 && n%o.Stride != 0 {
					continue
				}
				name := func() string { return fmt.Sprintf("%s/%s/%s", stop.name, path, c.name) }
				if o.Case != "" && o.Case != name() {
					continue
				}
				row.Plan(1)
				p.do(name, func() {
					disk := copyOf(stop.disk)
					err := c.apply(disk, path, files[path])
					var v verdict
					if err == nil {
						v, err = f.m.judgeDamaged(disk)
					}
					if err != nil {
						row.Violation("flips: %s: %v\n\treplay: go test ./internal/sim -run 'TestRow/flips' -args -faults.seed=%d '-faults.case=%s'", name(), err, o.Seed, name())
					}
					if o.Case != "" {
						t.Logf("%s: %v, %d batches lost, events %v, %v", name(), v.outcome, v.lost, v.events, v.why)
					}
					row.Count(v.outcome.String(), 1)
					if v.moved {
						row.Count("last batch at a higher offset, told", 1)
					}
					if v.atFirst != nil {
						row.Count("right only after a scrub", 1)
					}
					row.Done(1, 0)
				})
			}
		}
	}
	return nil
}

// changes are all single damages of a file: each bit, each length, and more.
func changes(data []byte) func(yield func(change) bool) {
	return func(yield func(change) bool) {
		for bit := range len(data) * 8 {
			flip := func(disk *memfs.FS, path string, data []byte) error {
				return writeAt(disk, path, []byte{data[bit/8] ^ 1<<(bit%8)}, int64(bit/8))
			}
			if !yield(change{fmt.Sprintf("bit %d of byte %d", bit%8, bit/8), flip}) {
				return
			}
		}
		for size := range len(data) {
			cut := func(disk *memfs.FS, path string, _ []byte) error { return truncateTo(disk, path, int64(size)) }
			if !yield(change{fmt.Sprintf("cut to %d", size), cut}) {
				return
			}
		}
		more := []change{
			{"missing", func(disk *memfs.FS, path string, _ []byte) error { return disk.Remove(path) }},
			{"a zero more", func(disk *memfs.FS, path string, data []byte) error {
				return truncateTo(disk, path, int64(len(data))+1)
			}},
			{"a page of zeros more", func(disk *memfs.FS, path string, data []byte) error {
				return truncateTo(disk, path, int64(len(data))+4096)
			}},
			{"a TiB of zeros more", func(disk *memfs.FS, path string, data []byte) error {
				return truncateTo(disk, path, int64(len(data))+1<<40)
			}},
			{"noise behind it", func(disk *memfs.FS, path string, data []byte) error {
				return writeAt(disk, path, bytes.Repeat([]byte{0xa5, 0x17, 0x33}, 40), int64(len(data)))
			}},
			{"itself behind it", func(disk *memfs.FS, path string, data []byte) error {
				return writeAt(disk, path, data, int64(len(data)))
			}},
			{"a directory in its place", func(disk *memfs.FS, path string, _ []byte) error {
				if err := disk.Remove(path); err != nil {
					return err
				}
				return disk.Mkdir(path, 0o755)
			}},
		}
		for _, c := range more {
			if !yield(c) {
				return
			}
		}
	}
}

func writeAt(disk *memfs.FS, path string, data []byte, off int64) error {
	f, err := disk.OpenFile(path, 2, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(data, off)
	return err
}

func truncateTo(disk *memfs.FS, path string, size int64) error {
	f, err := disk.OpenFile(path, 2, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(size)
}
