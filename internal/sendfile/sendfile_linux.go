package sendfile

import (
	"errors"
	"net"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/internal/vfs"
)

// maxCall bounds one sendfile call; the kernel moves at most 2 GiB − 4 KiB.
const maxCall = 1 << 30

// Sender writes the responses of one connection. It is bound once and then
// allocates nothing; one goroutine at a time may use it, and nothing else may
// write to the connection or set its write deadline meanwhile.
//
// A write is tried at once, without a deadline. Only when the socket is full is
// the stall deadline set, and set anew after each progress, so that a slow peer
// is served and one that accepts nothing is not.
type Sender struct {
	conn  *net.TCPConn
	raw   syscall.RawConn
	stall time.Duration
	step  func(fd uintptr) bool // s.visit, bound once: a method value for each call would allocate

	// The transfer that visit is in the middle of.
	bytes    []byte // to go first
	flags    int    // of these bytes
	fd       int    // file of the region, with left > 0
	off      int64
	left     int64
	err      error
	fileSide bool // err is the file's
	blocked  bool // the socket was full after progress: set the deadline, visit again
	armed    bool // a deadline is set
	progress bool // since it was set
	scratch  []byte
}

// NewSender binds a sender to a connection. The connection stays the caller's.
func NewSender(conn *net.TCPConn) (*Sender, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &Sender{conn: conn, raw: raw, stall: DefaultStall}
	s.step = s.visit
	return s, nil
}

// SetStall replaces DefaultStall. Zero waits for ever.
func (s *Sender) SetStall(d time.Duration) { s.stall = d }

// WriteBurst writes b as a whole. more says that a region or another burst
// follows at once and the kernel may hold b back for it; the last piece of a
// response must not carry it, or it arrives 200 ms late.
func (s *Sender) WriteBurst(b []byte, more bool) error {
	s.bytes, s.flags, s.left = b, 0, 0
	if more {
		s.flags = unix.MSG_MORE
	}
	return s.run(nil)
}

// SendRegion sends the bytes of r from its file. It does not release r. A file
// that ends too early or cannot be read is a *FileError.
func (s *Sender) SendRegion(r vfs.Region) error { return s.SendBurst(nil, r) }

// SendBurst writes header and then the region, in one visit to the socket. An
// empty region is a plain write of the header.
func (s *Sender) SendBurst(header []byte, r vfs.Region) error {
	if r.Length == 0 {
		if len(header) == 0 {
			return nil
		}
		return s.WriteBurst(header, false)
	}
	fd, ok := r.File.Fd()
	if !ok {
		return s.copyBurst(header, r)
	}
	s.bytes, s.flags = header, unix.MSG_MORE
	s.fd, s.off, s.left = int(fd), r.Offset, r.Length
	err := s.run(r.File)
	runtime.KeepAlive(r.File)
	if s.fileSide && (errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)) {
		// This file system has no sendfile. What is sent is sent.
		rest := vfs.Region{File: r.File, Offset: s.off, Length: s.left}
		return s.copyBurst(nil, rest)
	}
	if err != nil && s.fileSide {
		return &FileError{Name: r.File.Name(), Offset: s.off, Err: err}
	}
	return err
}

// copyBurst sends a region through memory, its header in the first piece.
func (s *Sender) copyBurst(header []byte, r vfs.Region) error {
	if s.scratch == nil {
		s.scratch = make([]byte, 0, copyPiece)
	}
	if len(header) > 0 {
		if err := s.WriteBurst(header, true); err != nil {
			return err
		}
	}
	for r.Length > 0 {
		piece := r
		piece.Length = min(r.Length, copyPiece)
		b, err := AppendRegion(s.scratch[:0], piece)
		if err != nil {
			return err
		}
		r.Offset += piece.Length
		r.Length -= piece.Length
		if err := s.WriteBurst(b, r.Length > 0); err != nil {
			return err
		}
	}
	return nil
}

// run visits the socket until the transfer is done. f keeps the file's
// descriptor from being closed by the collector.
func (s *Sender) run(f vfs.File) error {
	s.err, s.fileSide, s.progress = nil, false, false
	for {
		s.blocked = false
		if err := s.raw.Write(s.step); err != nil {
			s.bytes = nil
			return err
		}
		if !s.blocked {
			break
		}
		s.armed, s.progress = true, false
		if err := s.conn.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
			s.bytes = nil
			return err
		}
	}
	runtime.KeepAlive(f)
	s.bytes = nil
	if s.armed {
		s.armed = false
		if err := s.conn.SetWriteDeadline(time.Time{}); s.err == nil {
			s.err = err
		}
	}
	return s.err
}

// visit moves what the socket takes. It returns false, to wait for the socket,
// only after the kernel said EAGAIN in this very call: the poller is
// edge-triggered, and an edge that came before would be lost.
func (s *Sender) visit(fd uintptr) bool {
	for len(s.bytes) > 0 {
		n, err := unix.SendmsgN(int(fd), s.bytes, nil, nil, s.flags)
		switch err {
		case nil:
			s.bytes = s.bytes[n:]
			s.progress = true
		case unix.EINTR:
		case unix.EAGAIN:
			return s.wait()
		default:
			s.err = err
			return true
		}
	}
	for s.left > 0 {
		n, err := unix.Sendfile(int(fd), s.fd, &s.off, int(min(s.left, maxCall)))
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return s.wait()
		case err != nil:
			s.err, s.fileSide = err, !isSocketError(err)
			return true
		case n == 0:
			s.err, s.fileSide = ErrShortened, true
			return true
		default:
			s.left -= int64(n)
			s.progress = true
		}
	}
	return true
}

// wait decides what a full socket means: park under the deadline that is set,
// or leave the visit to set one. A deadline counts from the last progress.
func (s *Sender) wait() (done bool) {
	if s.stall > 0 && (!s.armed || s.progress) {
		s.blocked = true
		return true
	}
	return false
}

// isSocketError tells the peer's errors from the file's; both come from one call.
func isSocketError(err error) bool {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case unix.EPIPE, unix.ECONNRESET, unix.ENOTCONN, unix.ETIMEDOUT, unix.ECONNABORTED,
		unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENETDOWN, unix.EHOSTDOWN, unix.ENOBUFS, unix.ESHUTDOWN:
		return true
	}
	return false
}
