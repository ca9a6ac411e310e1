//go:build unix && !linux

package server

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// peerGone reports whether the peer has closed its side, or the connection broke.
// It does not see that while something is unread.
func peerGone(rc syscall.RawConn) bool {
	gone := false
	err := rc.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		gone = err == nil && n == 0 || err != nil && err != unix.EAGAIN && err != unix.EINTR
	})
	return err == nil && gone
}
