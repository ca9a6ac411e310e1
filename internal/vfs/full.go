package vfs

import (
	"errors"
	"syscall"
)

// IsFull reports whether err says that there is no room: no block on the disk,
// no quota left, or a file past its limit. Such a write is cut back, refused and
// tried again later; any other failed write takes the data directory offline.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}
