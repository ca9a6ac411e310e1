package floor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// preparation of the file that an append test writes.
const (
	plain    = "plain"    // a new, empty file
	keepSize = "keepsize" // blocks allocated ahead by fallocate(FALLOC_FL_KEEP_SIZE)
	recycled = "recycled" // an old file of full length, written over
)

type appendTest struct {
	method string // pwrite, writev64 or mmap
	unit   int
	prep   string
	total  int64
}

func (t appendTest) key() string {
	return fmt.Sprintf("append/%s %s %s", t.method, size(t.unit), t.prep)
}

// runAppend measures writing a log into the page cache. The file is removed between tests, so that the
// same memory is used again and again.
func runAppend(e *Env) error {
	const m = 1 << 20
	tests := []appendTest{
		{"pwrite", 1 << 10, plain, 16 * m}, {"pwrite", 4 << 10, plain, 32 * m},
		{"pwrite", 16 << 10, plain, 32 * m}, {"pwrite", 64 << 10, plain, 32 * m}, {"pwrite", 1 << 20, plain, 32 * m},
		{"writev64", 1 << 10, plain, 32 * m}, {"writev64", 16 << 10, plain, 32 * m},
		{"pwrite", 1 << 10, keepSize, 16 * m}, {"pwrite", 16 << 10, keepSize, 32 * m}, {"pwrite", 1 << 20, keepSize, 32 * m},
		{"writev64", 1 << 10, keepSize, 32 * m},
		{"pwrite", 16 << 10, recycled, 32 * m},
		{"mmap", 16 << 10, plain, 32 * m},
	}
	for r := -1; e.More(r); r++ { // round -1 warms up: first touch of memory is slower on a virtual machine
		for _, t := range tests {
			gbs, cpu, err := appendOnce(e, t)
			if err != nil {
				return fmt.Errorf("%s: %w", t.key(), err)
			}
			if r < 0 {
				continue
			}
			e.Add(t.key()+" rate", "GB/s", gbs)
			e.Add(t.key()+" cost", "CPU µs per unit", cpu/(float64(t.total)/float64(t.unit))*1e6)
			e.Add(t.key()+" cpu", "CPU s/GB", cpu/float64(t.total)*1e9)
		}
	}
	for _, t := range tests {
		e.Show(t.key()+" rate", t.key()+" cost")
	}
	return runIndexEntry(e)
}

// runIndexEntry measures what an 8-byte index entry adds to a 4 KiB append: by a store through a map whose
// blocks are reserved 64 KiB ahead, and by pwrite.
func runIndexEntry(e *Env) error {
	const unit, total, step = 4 << 10, 32 << 20, 64 << 10
	hows := []string{"no entry", "entry by store", "entry by pwrite"}
	key := func(how string) string { return "append/pwrite 4KiB keepsize, " + how + " cost" }
	for r := -1; e.More(r); r++ {
		for _, how := range hows {
			f, err := prepare(filepath.Join(e.Dir, "append.log"), keepSize, total)
			if err != nil {
				return err
			}
			x, err := os.Create(filepath.Join(e.Dir, "append.index"))
			if err != nil {
				return err
			}
			if err := x.Truncate(10 << 20); err != nil {
				return err
			}
			m, err := unix.Mmap(int(x.Fd()), 0, 10<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != nil {
				return err
			}
			cpu := Pinned(e.Cores[0], func() {
				buf := make([]byte, unit)
				var entry [8]byte
				at, reserved := 0, 0
				for o := int64(0); o < total && err == nil; o += unit {
					_, err = unix.Pwrite(int(f.Fd()), buf, o)
					binary.BigEndian.PutUint64(entry[:], uint64(o))
					switch how {
					case "entry by store":
						if at+len(entry) > reserved {
							err = errors.Join(err, unix.Fallocate(int(x.Fd()), 0, int64(reserved), step))
							reserved += step
						}
						copy(m[at:], entry[:])
					case "entry by pwrite":
						_, err = unix.Pwrite(int(x.Fd()), entry[:], int64(at))
					}
					at += len(entry)
				}
			})
			err = errors.Join(err, unix.Munmap(m), x.Close(), f.Close(), os.Remove(x.Name()), os.Remove(f.Name()))
			if err != nil {
				return err
			}
			if r >= 0 {
				e.Add(key(how), "CPU µs per unit", cpu/(total/unit)*1e6)
			}
		}
	}
	for _, how := range hows {
		e.Show(key(how))
	}
	return nil
}

func appendOnce(e *Env, t appendTest) (gbs, cpu float64, err error) {
	f, err := prepare(filepath.Join(e.Dir, "append.log"), t.prep, t.total)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	var seconds float64
	cpu = Pinned(e.Cores[0], func() {
		begin := time.Now()
		err = appendAll(f, t)
		seconds = time.Since(begin).Seconds()
	})
	return float64(t.total) / seconds / 1e9, cpu, err
}

func prepare(name, prep string, total int64) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	switch prep {
	case keepSize:
		err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, total)
	case recycled:
		zero := make([]byte, 1<<20)
		for o := int64(0); o < total && err == nil; o += int64(len(zero)) {
			_, err = f.WriteAt(zero, o)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func appendAll(f *os.File, t appendTest) error {
	fd := int(f.Fd())
	buf := make([]byte, t.unit)
	fill(buf, 3)
	switch t.method {
	case "pwrite":
		for o := int64(0); o < t.total; o += int64(t.unit) {
			if _, err := unix.Pwrite(fd, buf, o); err != nil {
				return err
			}
		}
	case "writev64":
		iov := slices.Repeat([][]byte{buf}, 64)
		for o := int64(0); o < t.total; {
			n, err := unix.Pwritev(fd, iov, o)
			if err != nil {
				return err
			}
			o += int64(n)
		}
	case "mmap":
		if err := f.Truncate(t.total); err != nil {
			return err
		}
		m, err := unix.Mmap(fd, 0, int(t.total), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			return err
		}
		for o := 0; o < len(m); o += t.unit {
			copy(m[o:], buf)
		}
		return unix.Munmap(m)
	}
	return nil
}

// runDurable measures a group of 16 KiB appends followed by one fdatasync. On a disk whose writes a host
// caches the figures rank the methods and say nothing about a real disk.
func runDurable(e *Env) error {
	for r := 0; e.More(r); r++ {
		for _, group := range []int{16 << 10, 64 << 10, 1 << 20} {
			for _, prep := range []string{plain, keepSize, recycled} {
				if err := durableOnce(e, group, prep); err != nil {
					return err
				}
			}
		}
	}
	for _, group := range []int{16 << 10, 64 << 10, 1 << 20} {
		for _, prep := range []string{plain, keepSize, recycled} {
			key := fmt.Sprintf("durable/%s per sync %s", size(group), prep)
			e.Show(key+" p50", key+" rate")
		}
	}
	return nil
}

func durableOnce(e *Env, group int, prep string) (err error) {
	const budget = 120 * time.Millisecond
	total := int64(max(64*group, 4<<20))
	f, err := prepare(filepath.Join(e.Dir, "durable.log"), prep, total)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if err := f.Sync(); err != nil {
		return err
	}
	fd := int(f.Fd())
	buf := make([]byte, 16<<10)
	fill(buf, 4)
	var lat []float64
	begin := time.Now()
	off := int64(0)
	for off < total && time.Since(begin) < budget {
		for n := 0; n < group; n += len(buf) {
			if _, err := unix.Pwrite(fd, buf, off); err != nil {
				return err
			}
			off += int64(len(buf))
		}
		s := time.Now()
		if err := unix.Fdatasync(fd); err != nil {
			return err
		}
		lat = append(lat, float64(time.Since(s).Nanoseconds())/1e3)
	}
	seconds := time.Since(begin).Seconds()
	slices.Sort(lat)
	key := fmt.Sprintf("durable/%s per sync %s", size(group), prep)
	e.Add(key+" p50", "µs", Quantile(lat, 0.5))
	e.Add(key+" p99", "µs", Quantile(lat, 0.99))
	e.Add(key+" rate", "GB/s", float64(off)/seconds/1e9)
	return nil
}
