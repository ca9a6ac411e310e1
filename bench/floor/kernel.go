package floor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// runKernel measures single system calls and page faults: the coins in which every hot path pays.
func runKernel(e *Env) error {
	name, err := e.data()
	if err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	step, err := os.Create(filepath.Join(e.Dir, "falloc"))
	if err != nil {
		return err
	}
	defer step.Close()
	fd, dn, fa := int(f.Fd()), int(null.Fd()), int(step.Fd())
	buf := make([]byte, 64<<10)
	var failed error
	keep := func(err error) {
		if err != nil && failed == nil {
			failed = err
		}
	}
	tests := []struct {
		key string
		n   int
		f   func(i int)
	}{
		{"kernel/getppid", 100_000, func(int) { unix.Getppid() }},
		{"kernel/write 1 B to null", 100_000, func(int) { _, err := unix.Write(dn, buf[:1]); keep(err) }},
		{"kernel/pread 4KiB cached", 50_000, func(i int) { _, err := unix.Pread(fd, buf[:4096], int64(i&8191)<<12); keep(err) }},
		{"kernel/pread 64KiB cached", 5_000, func(i int) { _, err := unix.Pread(fd, buf, int64(i&4095)<<16); keep(err) }},
		{"kernel/time.Now", 200_000, func(int) { _ = time.Now() }},
		{"kernel/mmap+munmap 10MiB", 2_000, func(int) {
			m, err := unix.Mmap(fd, 0, 10<<20, unix.PROT_READ, unix.MAP_SHARED)
			keep(err)
			keep(unix.Munmap(m))
		}},
		{"kernel/open+close", 2_000, func(int) {
			d, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			keep(err)
			keep(unix.Close(d))
		}},
		{"kernel/fallocate KEEP_SIZE 16MiB step", 32, func(i int) {
			keep(unix.Fallocate(fa, unix.FALLOC_FL_KEEP_SIZE, int64(i)<<24, 1<<24))
		}},
	}
	for r := 0; e.More(r); r++ {
		for _, t := range tests {
			Pinned(e.Cores[0], func() {
				i, begin := 0, threadCPU()
				for start := time.Now(); i < t.n && time.Since(start) < 50*time.Millisecond; {
					for range min(256, t.n) {
						t.f(i)
						i++
					}
				}
				e.Add(t.key, "CPU ns", (threadCPU()-begin)*1e9/float64(i))
			})
			if failed != nil {
				return fmt.Errorf("%s: %w", t.key, failed)
			}
		}
		keep(unix.Fallocate(fa, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, 1<<29)) // give the steps back
	}
	for _, t := range tests {
		e.Show(t.key)
	}
	return errors.Join(failed, faults(e, fd))
}

// faults measures the cost of the first touch of a mapped page that is in the page cache.
func faults(e *Env, fd int) error {
	const length = 32 << 20
	for _, random := range []bool{false, true} {
		key := "kernel/touch mapped page, fault-around"
		if random {
			key = "kernel/touch mapped page, MADV_RANDOM"
		}
		for r := 0; e.More(r); r++ {
			m, err := unix.Mmap(fd, 0, length, unix.PROT_READ, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			if random {
				if err := unix.Madvise(m, unix.MADV_RANDOM); err != nil {
					return err
				}
			}
			var sum byte
			cpu := Pinned(e.Cores[0], func() {
				for o := 0; o < length; o += 4096 {
					sum += m[o]
				}
			})
			e.Add(key, "CPU ns", cpu*1e9/(length/4096))
			sink = uint32(sum)
			if err := unix.Munmap(m); err != nil {
				return err
			}
		}
		e.Show(key)
	}
	return nil
}

// sink keeps results alive.
var sink uint32
