package server

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// setBuffers fixes the sizes of a listening socket's buffers, which accepted
// connections inherit; 0 leaves them to the kernel.
func setBuffers(rc syscall.RawConn, send, receive int) error {
	var failed error
	err := rc.Control(func(fd uintptr) {
		if send > 0 {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, send)
		}
		if receive > 0 && failed == nil {
			failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, receive)
		}
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("setsockopt", failed)
}

// setBacklog changes the length of the queue of connections that are not yet
// accepted: listen may be called again on a listening socket.
func setBacklog(ln *net.TCPListener, n int) error {
	if n <= 0 {
		return nil
	}
	rc, err := ln.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := rc.Control(func(fd uintptr) { failed = unix.Listen(int(fd), n) }); err != nil {
		return err
	}
	return os.NewSyscallError("listen", failed)
}

// openSpare reserves a descriptor; nil when there is none.
func openSpare() *os.File {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return nil
	}
	return f
}
