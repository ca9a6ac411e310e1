package vfs

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// ReadCold is ReadAt for who goes through data that others may or may not need
// soon: what had to be read from the disk does not stay in the page cache.
func (f *osFile) ReadCold(p []byte, off int64) (int, error) {
	// RWF_NOWAIT reads what is in the page cache, and that stays.
	n, err := unix.Preadv2(f.fd, [][]byte{p}, off, unix.RWF_NOWAIT)
	runtime.KeepAlive(f.file)
	if err == nil && n == len(p) {
		return n, nil
	}
	n, err = f.ReadAt(p, off)
	if n > 0 {
		// Advice: that it is not taken is no error.
		_ = unix.Fadvise(f.fd, off, int64(n), unix.FADV_DONTNEED)
		runtime.KeepAlive(f.file)
	}
	return n, err
}

var _ ColdReader = (*osFile)(nil)
