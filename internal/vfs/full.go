package vfs

import (
	"errors"
	"io/fs"
	"syscall"
)

// IsFull reports whether err says that there is no room: no block on the disk,
// no quota left, or a file past its limit. Such a write is cut back, refused and
// tried again later; any other failed write takes the data directory offline. So
// does a failed sync, which is no full disk whatever its number is (IsSync).
func IsFull(err error) bool {
	full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
	return full && !IsSync(err)
}

// IsSync reports whether a sync failed: its pages may be lost whatever the
// number of the error says (ext4, XFS and NFS report a late ENOSPC there).
func IsSync(err error) bool {
	var path *fs.PathError
	if !errors.As(err, &path) {
		return false
	}
	switch path.Op {
	case "sync", "fsync", "fdatasync", "msync", "flush", "syncdir", "close":
		return true
	}
	return false
}

// IsRead reports whether the failed call only looked at the disk: the bytes
// there are as they were, and another attempt can succeed.
func IsRead(err error) bool {
	var path *fs.PathError
	if !errors.As(err, &path) {
		return false
	}
	switch path.Op {
	case "read", "pread", "open", "stat", "lstat", "fstat", "readdir", "readdirent", "size", "statfs":
		return true
	}
	return false
}
