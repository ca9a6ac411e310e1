package cli

import (
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/internal/checkpoint"
)

// inUse reports whether a broker holds the lock of a data directory, without
// taking it: not even for a moment shall a broker that starts find it taken.
func inUse(dir string) bool {
	f, err := os.Open(filepath.Join(dir, checkpoint.LockFile))
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}
