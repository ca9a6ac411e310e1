package floor

import (
	"errors"
	"hash/crc32"
	"io"
	"os"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// runCRC measures the checksum of a batch by size, a copy of the same size, the walk over its records, and
// the scan of a cached log.
func runCRC(e *Env) error {
	src := make([]byte, 64<<20)
	fill(src[:1<<20], 2)
	for n := 1 << 20; n < len(src); n *= 2 {
		copy(src[n:], src[:n])
	}
	dst := make([]byte, 64<<20)
	copy(dst, src)
	sizes := []int{64, 256, 1 << 10, 16 << 10, 1 << 20, 64 << 20}
	for r := 0; e.More(r); r++ {
		for _, n := range sizes {
			loops := max(1, min(200_000, (128<<20)/n))
			gb := float64(n) * float64(loops) / 1e9
			e.Add("crc/castagnoli "+size(n), "GB per CPU s", gb/Pinned(e.Cores[0], func() {
				for range loops {
					sink = crc32.Checksum(src[:n], castagnoli)
				}
			}))
			e.Add("crc/copy "+size(n), "GB per CPU s", gb/Pinned(e.Cores[0], func() {
				for range loops {
					copy(dst[:n], src[:n])
				}
			}))
		}
	}
	for _, n := range sizes {
		e.Show("crc/castagnoli "+size(n), "crc/copy "+size(n))
	}
	return errors.Join(runWalk(e), scan(e))
}

// scan reads the cached data file in 1 MiB pieces and checksums it: the floor of a recovery.
func scan(e *Env) error {
	name, err := e.data()
	if err != nil {
		return err
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for r := 0; e.More(r); r++ {
		var failed error
		cpu := Pinned(e.Cores[0], func() {
			for off := int64(0); off < dataSize; off += int64(len(buf)) {
				n, err := f.ReadAt(buf, off)
				if err != nil && err != io.EOF {
					failed = err
					return
				}
				sink = crc32.Update(sink, castagnoli, buf[:n])
			}
		})
		if failed != nil {
			return failed
		}
		e.Add("crc/scan of cached log", "GB per CPU s", dataSize/cpu/1e9)
	}
	e.Show("crc/scan of cached log")
	return nil
}
