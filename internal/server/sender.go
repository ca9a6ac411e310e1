package server

import (
	"io"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/internal/vfs"
)

// socketWriter writes bursts of bytes and file regions to one socket. It tries
// first and sets a deadline only when it must wait.
type socketWriter struct {
	tcp   *net.TCPConn
	rc    syscall.RawConn
	fn    func(fd uintptr) bool // bound once
	stall time.Duration
	buf   []byte
	flags int
	file  int
	off   int64
	left  int64
	armed bool
	err   error
}

func newSocketWriter(tcp *net.TCPConn, stall time.Duration) (*socketWriter, error) {
	rc, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &socketWriter{tcp: tcp, rc: rc, stall: stall}
	s.fn = s.step
	return s, nil
}

// WriteBurst writes b; more says that the caller writes on at once.
func (s *socketWriter) WriteBurst(b []byte, more bool) error {
	s.buf, s.left, s.flags = b, 0, 0
	if more {
		s.flags = unix.MSG_MORE
	}
	return s.run()
}

// SendRegion writes a region without reading it where its file has a descriptor.
func (s *socketWriter) SendRegion(r vfs.Region) error {
	fd, ok := r.File.Fd()
	if !ok {
		buf := make([]byte, r.Length)
		if _, err := r.File.ReadAt(buf, r.Offset); err != nil {
			return err
		}
		return s.WriteBurst(buf, false)
	}
	s.buf, s.file, s.off, s.left = nil, int(fd), r.Offset, r.Length
	return s.run()
}

func (s *socketWriter) run() error {
	s.err = nil
	err := s.rc.Write(s.fn)
	if s.armed {
		s.armed = false
		s.tcp.SetWriteDeadline(time.Time{})
	}
	s.buf = nil
	if err == nil {
		err = s.err
	}
	return err
}

func (s *socketWriter) step(fd uintptr) bool {
	for len(s.buf) > 0 || s.left > 0 {
		var n int
		var err error
		if len(s.buf) > 0 {
			n, err = unix.SendmsgN(int(fd), s.buf, nil, nil, s.flags)
		} else {
			n, err = unix.Sendfile(int(fd), s.file, &s.off, int(s.left))
		}
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			s.armed = true
			s.tcp.SetWriteDeadline(time.Now().Add(s.stall))
			return false
		case err != nil:
			s.err = err
			return true
		case n == 0:
			s.err = io.ErrUnexpectedEOF
			return true
		case len(s.buf) > 0:
			s.buf = s.buf[n:]
		default:
			s.left -= int64(n)
		}
	}
	return true
}
