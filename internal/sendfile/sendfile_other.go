//go:build !linux

package sendfile

import (
	"net"
	"time"

	"github.com/varvelog/varve/internal/vfs"
)

// Sender writes the responses of one connection, by copying: this platform's
// sendfile is not used. One goroutine at a time may use it.
type Sender struct {
	conn    *net.TCPConn
	stall   time.Duration
	scratch []byte
}

// NewSender binds a sender to a connection. The connection stays the caller's.
func NewSender(conn *net.TCPConn) (*Sender, error) {
	return &Sender{conn: conn, stall: DefaultStall}, nil
}

// SetStall replaces DefaultStall. Zero waits for ever.
func (s *Sender) SetStall(d time.Duration) { s.stall = d }

// WriteBurst writes b as a whole.
func (s *Sender) WriteBurst(b []byte, _ bool) error {
	if s.stall > 0 {
		if err := s.conn.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
			return err
		}
	}
	_, err := s.conn.Write(b)
	return err
}

// SendRegion sends the bytes of r. It does not release r.
func (s *Sender) SendRegion(r vfs.Region) error { return s.SendBurst(nil, r) }

// SendBurst writes header and then the region.
func (s *Sender) SendBurst(header []byte, r vfs.Region) error {
	if len(header) > 0 {
		if err := s.WriteBurst(header, r.Length > 0); err != nil {
			return err
		}
	}
	if s.scratch == nil {
		s.scratch = make([]byte, copyPiece)
	}
	return CopyRegion(burstWriter{s}, r, s.scratch)
}

type burstWriter struct{ s *Sender }

// Write implements io.Writer.
func (w burstWriter) Write(b []byte) (int, error) {
	if err := w.s.WriteBurst(b, false); err != nil {
		return 0, err
	}
	return len(b), nil
}
