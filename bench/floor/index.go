package floor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An offset index: 8-byte entries, big-endian relative offset then position, offsets strictly rising.
const (
	entrySize      = 8
	indexEntries   = 10 << 20 / entrySize // a full index of the default 10 MiB
	entriesPerPage = 4096 / entrySize
	warmEntries    = 8192 / entrySize
)

// offsetIndex is one index file and the ways to search it.
type offsetIndex struct {
	f     *os.File
	m     []byte   // the mapping; nil while unmapped
	fence []uint32 // the first key of every 4 KiB page, in the heap
	page  [4096]byte
}

func (x *offsetIndex) key(i int) uint32 { return binary.BigEndian.Uint32(x.m[i*entrySize:]) }
func (x *offsetIndex) pos(i int) uint32 { return binary.BigEndian.Uint32(x.m[i*entrySize+4:]) }

// floor searches entries [lo, hi] for the last key at or below q; key(lo) must be at or below q.
func (x *offsetIndex) floor(q uint32, lo, hi int) uint32 {
	for lo < hi {
		mid := int(uint(lo+hi+1) >> 1)
		if x.key(mid) <= q {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return x.pos(lo)
}

// plainSearch is a binary search of the whole mapping.
func (x *offsetIndex) plainSearch(q uint32) uint32 {
	if x.key(0) > q {
		return 0
	}
	return x.floor(q, 0, indexEntries-1)
}

// warmSearch looks at the last 8 KiB first.
func (x *offsetIndex) warmSearch(q uint32) uint32 {
	first := indexEntries - 1 - warmEntries
	if x.key(first) < q {
		return x.floor(q, first, indexEntries-1)
	}
	if x.key(0) > q {
		return 0
	}
	return x.floor(q, 0, first)
}

// block finds the page that holds the floor of q, or -1 when q is below every key.
func (x *offsetIndex) block(q uint32) int {
	f := x.fence
	if last := len(f) - 1; f[last] <= q { // nearly every lookup is at the tail
		return last
	}
	if f[0] > q {
		return -1
	}
	lo, hi := 0, len(f)-1
	for lo < hi {
		mid := int(uint(lo+hi+1) >> 1)
		if f[mid] <= q {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}

// fenceSearch searches the fence, then one page of the mapping.
func (x *offsetIndex) fenceSearch(q uint32) uint32 {
	b := x.block(q)
	if b < 0 {
		return 0
	}
	return x.floor(q, b*entriesPerPage, min((b+1)*entriesPerPage, indexEntries)-1)
}

// preadSearch searches the fence, then one page read by pread: for a sealed segment that is not mapped.
func (x *offsetIndex) preadSearch(q uint32) uint32 {
	b := x.block(q)
	if b < 0 {
		return 0
	}
	n, err := unix.Pread(int(x.f.Fd()), x.page[:], int64(b)*4096)
	if err != nil || n < entrySize {
		return 0
	}
	lo, hi := 0, n/entrySize-1
	for lo < hi {
		mid := int(uint(lo+hi+1) >> 1)
		if binary.BigEndian.Uint32(x.page[mid*entrySize:]) <= q {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return binary.BigEndian.Uint32(x.page[lo*entrySize+4:])
}

func (x *offsetIndex) methods() map[string]func(uint32) uint32 {
	return map[string]func(uint32) uint32{
		"plain": x.plainSearch, "warm": x.warmSearch, "fence": x.fenceSearch, "fence+pread": x.preadSearch,
	}
}

var indexMethods = []string{"plain", "warm", "fence", "fence+pread"}

func buildIndex(name string) (x *offsetIndex, err error) {
	r := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, indexEntries*entrySize)
	x = &offsetIndex{}
	var off, pos uint32
	for i := 0; i < indexEntries; i++ {
		off += 1 + uint32(r.IntN(40))
		pos += 1024 + uint32(r.IntN(512))
		binary.BigEndian.PutUint32(buf[i*entrySize:], off)
		binary.BigEndian.PutUint32(buf[i*entrySize+4:], pos)
		if i%entriesPerPage == 0 {
			x.fence = append(x.fence, off)
		}
	}
	if err := os.WriteFile(name, buf, 0o644); err != nil {
		return nil, err
	}
	if x.f, err = os.OpenFile(name, os.O_RDWR, 0); err != nil {
		return nil, err
	}
	return x, x.f.Sync() // only clean pages can be dropped from the page cache later
}

func (x *offsetIndex) mapIn(flags int) (err error) {
	x.m, err = unix.Mmap(int(x.f.Fd()), 0, indexEntries*entrySize, unix.PROT_READ, unix.MAP_SHARED|flags)
	return err
}

func (x *offsetIndex) unmap() error {
	err := unix.Munmap(x.m)
	x.m = nil
	return err
}

func runIndex(e *Env) (err error) {
	x, err := buildIndex(filepath.Join(e.Dir, "00000000000000000000.index"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.f.Close()) }()
	if err := x.mapIn(unix.MAP_POPULATE); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(3, 4))
	top := x.key(indexEntries - 1)
	if err := x.agree(r, top); err != nil {
		return err
	}
	patterns := map[string][]uint32{"uniform": make([]uint32, 1<<14), "tail": make([]uint32, 1<<14)}
	for i := range patterns["uniform"] {
		patterns["uniform"][i] = x.key(0) + uint32(r.IntN(int(top-x.key(0))))
		patterns["tail"][i] = x.key(indexEntries-1-r.IntN(1000)) + 1
	}
	for round := 0; e.More(round); round++ {
		for _, p := range []string{"uniform", "tail"} {
			for _, m := range indexMethods {
				warmLookups(e, x, p, m, patterns[p])
				coldCPU(e, x, p, m, patterns[p])
			}
		}
	}
	for _, kind := range []string{"warm", "cpu-cold"} {
		for _, p := range []string{"uniform", "tail"} {
			for _, m := range indexMethods {
				e.Show("index/" + kind + " " + p + " " + m)
			}
		}
	}
	if err := x.unmap(); err != nil {
		return err
	}
	return pageColdLookups(e, x, patterns)
}

func pageColdLookups(e *Env, x *offsetIndex, patterns map[string][]uint32) error {
	var keys []string
	for round := 0; e.More(round); round++ {
		for _, random := range []bool{false, true} {
			for _, p := range []string{"uniform", "tail"} {
				for _, m := range indexMethods {
					key := fmt.Sprintf("index/page-cold %s %s, %s", p, m, map[bool]string{false: "default", true: "random"}[random])
					for i := range 3 {
						q := patterns[p][round*3+i]
						if err := coldPage(e, x, key, m, random, q); err != nil {
							return err
						}
					}
					if round == 0 {
						keys = append(keys, key+" time", key+" faults")
					}
				}
			}
		}
	}
	e.Show(keys...)
	return nil
}

// agree checks that all methods give the same Answer.
func (x *offsetIndex) agree(r *rand.Rand, top uint32) error {
	fns := x.methods()
	for i := 0; i < 20_000; i++ {
		q := uint32(r.IntN(int(top) + 50))
		want := x.plainSearch(q)
		for n, f := range fns {
			if got := f(q); got != want {
				return fmt.Errorf("%s(%d) = %d, want %d", n, q, got, want)
			}
		}
	}
	return nil
}

func warmLookups(e *Env, x *offsetIndex, pattern, method string, q []uint32) {
	f := x.methods()[method]
	const n = 50_000
	cpu := Pinned(e.Cores[0], func() {
		v := uint32(0)
		for i := range n {
			v = f(q[(i+int(v&1))&(len(q)-1)]) // each lookup waits for the one before
		}
		sink = v
	})
	e.Add("index/warm "+pattern+" "+method, "CPU ns", cpu*1e9/n)
}

var thrash = make([]byte, 48<<20)

// coldCPU empties the processor's caches before each lookup.
func coldCPU(e *Env, x *offsetIndex, pattern, method string, q []uint32) {
	f := x.methods()[method]
	Pinned(e.Cores[0], func() {
		for i := range 5 {
			for j := 0; j < len(thrash); j += 64 {
				thrash[j]++
			}
			begin := time.Now()
			sink = f(q[i])
			e.Add("index/cpu-cold "+pattern+" "+method, "ns", float64(time.Since(begin).Nanoseconds()))
		}
	})
}

// coldPage drops the file from the page cache, looks one key up and counts the major faults.
func coldPage(e *Env, x *offsetIndex, key, method string, random bool, q uint32) error {
	fd := int(x.f.Fd())
	if err := x.mapIn(0); err != nil {
		return err
	}
	if err := x.evict(); err != nil {
		return err
	}
	advice, mapAdvice := unix.FADV_NORMAL, unix.MADV_NORMAL
	if random {
		advice, mapAdvice = unix.FADV_RANDOM, unix.MADV_RANDOM
	}
	if err := errors.Join(unix.Fadvise(fd, 0, 0, advice), unix.Madvise(x.m, mapAdvice)); err != nil {
		return err
	}
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		return err
	}
	begin := time.Now()
	sink = x.methods()[method](q)
	took := time.Since(begin)
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		return err
	}
	e.Add(key+" time", "µs", float64(took.Nanoseconds())/1e3)
	e.Add(key+" faults", "major faults", float64(after.Majflt-before.Majflt))
	return x.unmap()
}

// evict drops the file from the page cache; read-ahead still on its way from the lookup before can hold it up.
func (x *offsetIndex) evict() error {
	resident := make([]byte, len(x.m)/4096)
	for range 50 {
		if err := unix.Fadvise(int(x.f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return err
		}
		if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&x.m[0])), uintptr(len(x.m)), uintptr(unsafe.Pointer(&resident[0]))); e != 0 {
			return e
		}
		if !slices.ContainsFunc(resident, func(b byte) bool { return b&1 != 0 }) {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return errors.New("index pages stay in the page cache")
}
