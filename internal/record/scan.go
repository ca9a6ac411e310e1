package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Scanner reads the batch headers of a log file from front to back, by the
// rules of Kafka's FileLogInputStream:
//
//   - nothing is read where fewer than 18 bytes are left;
//   - a declared length below 14 is an error (zeros after the last batch are);
//   - a batch that would pass the end ends the scan without an error.
//
// It holds one buffer, of the size it was made with unless a whole batch that
// was asked for is larger. A scan that asks for no Batch reads the headers
// alone; one that does reads the file in pieces of the buffer's size.
type Scanner struct {
	r        io.ReaderAt
	end      int64 // exclusive
	next     int64 // where the batch after the current one starts
	position int64
	header   Header
	err      error

	buf      []byte
	bufStart int64 // file position of buf[0]
	whole    bool  // batches are asked for, so read ahead
}

// ScanBuffer is a good buffer size for scans that read whole batches.
const ScanBuffer = 1 << 20

// NewScanner scans bytes [from, to) of r. bufSize is at least one header.
func NewScanner(r io.ReaderAt, from, to int64, bufSize int) *Scanner {
	s := &Scanner{buf: make([]byte, 0, max(bufSize, HeaderSize))}
	s.Reset(r, from, to)
	return s
}

// Reset begins another scan with the same buffer.
func (s *Scanner) Reset(r io.ReaderAt, from, to int64) {
	*s = Scanner{r: r, next: from, position: from, end: to, buf: s.buf[:0]}
}

// ReadAhead makes the scan read the file in pieces of the buffer's size from the
// start, for a lookup that needs several headers close to each other in one
// read. It holds until the next Reset.
func (s *Scanner) ReadAhead() { s.whole = true }

// Next moves to the next batch. It returns false at the end of the whole
// batches and at an error, which Err tells apart.
func (s *Scanner) Next() bool {
	if s.err != nil {
		return false
	}
	// FileLogInputStream stops where only a header up to the magic is left.
	if s.next >= s.end-magicEnd {
		return false
	}
	b, err := s.bytes(s.next, int(min(HeaderSize, s.end-s.next)))
	if err != nil {
		return s.fail(err)
	}
	if length := int32(binary.BigEndian.Uint32(b[offLength:])); length >= minBatchBody &&
		s.next > s.end-LogOverhead-int64(length) {
		return false
	}
	if err := s.header.parse(b); err != nil {
		return s.fail(err)
	}
	s.position = s.next
	s.next += int64(s.header.Size)
	return true
}

// Header is the header of the batch that Next found. The checksum is not yet looked at.
func (s *Scanner) Header() *Header { return &s.header }

// Position is the byte at which the batch that Next found starts.
func (s *Scanner) Position() int64 { return s.position }

// ValidEnd is the end of the last whole batch found so far: after Next
// returned false, where the valid part of the file ends.
func (s *Scanner) ValidEnd() int64 { return s.next }

// Batch returns the whole batch that Next found, valid until the next call of
// Next or Batch. Its checksum is not verified.
func (s *Scanner) Batch() ([]byte, error) {
	s.whole = true
	return s.bytes(s.position, s.header.Size)
}

// Err is the error that ended the scan: a *CorruptError with its Position set,
// or an error of the reader. A partial batch at the end is none.
func (s *Scanner) Err() error { return s.err }

func (s *Scanner) fail(err error) bool {
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		corrupt.Position = s.next
	}
	s.err = err
	return false
}

// bytes returns n bytes at file position pos, out of the buffer or the file.
func (s *Scanner) bytes(pos int64, n int) ([]byte, error) {
	if at := pos - s.bufStart; at >= 0 && at+int64(n) <= int64(len(s.buf)) {
		return s.buf[at : at+int64(n)], nil
	}
	want := n
	if s.whole {
		want = max(n, cap(s.buf))
	}
	want = int(min(int64(want), s.end-pos))
	if want > cap(s.buf) {
		s.buf = make([]byte, 0, want)
	}
	got, err := s.r.ReadAt(s.buf[:want], pos)
	s.buf, s.bufStart = s.buf[:got], pos
	if got >= n {
		return s.buf[:n], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		// The file is known to be longer. That is a disk that fails, or somebody who
		// cuts the file, and not the end of the log.
		err = fmt.Errorf("%d of %d bytes at byte %d: %w", got, n, pos, io.ErrUnexpectedEOF)
	}
	return nil, err
}
