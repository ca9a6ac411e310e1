package vfs

import (
	"errors"
	"io"
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

// IsReadError reports whether the disk failed to give bytes that it holds: an
// error of a call that only looks, or fewer bytes than the file has. Nothing on
// the disk has changed, and another attempt can succeed.
func IsReadError(err error) bool {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return true
	}
	var path *fs.PathError
	if !errors.As(err, &path) {
		return false
	}
	switch path.Op {
	case "read", "pread", "open", "stat", "lstat", "fstat", "readdir", "readdirent", "size":
		return isDisk(err)
	}
	return false
}

// Twice does something that only reads once more when the disk fails (faults E3).
func Twice(read func() error) error {
	err := read()
	if IsReadError(err) {
		err = read()
	}
	return err
}

// isDisk picks the numbers that a failing disk gives.
func isDisk(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.EIO, syscall.ESTALE, syscall.ENXIO, syscall.ENODEV, syscall.ENOTCONN, syscall.ETIMEDOUT,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
