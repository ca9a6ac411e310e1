// Package wire is the data plane's side of the protocol: frames, request and
// response headers, and Produce and Fetch by hand. Requests are decoded in
// place, so that what they hold aliases the frame; responses are written into
// Chunks, header bytes interleaved with file regions that no one has read yet.
//
// Before it on the path: server reads a frame. After it: broker acts on the
// decoded request, and server writes the chunks. Everything that is not Produce
// or Fetch is decoded and encoded by kmsg, in the broker.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Bounds on what a frame may claim (org.apache.kafka.common.protocol of 4.4.0).
const (
	// SizePrefix is the length of the size field in front of every frame.
	SizePrefix = 4
	// MaxElements bounds the elements of one array.
	MaxElements = 1_000_000
	// MaxTags bounds the fields of one tagged section.
	MaxTags = 10_000
	// maxString bounds a string in bytes, whatever the width of its length.
	maxString = 0x7fff
)

// ErrMalformed is wrapped by every error about bytes that cannot be parsed.
// There is no answer to such a request: its connection is closed.
var ErrMalformed = errors.New("malformed request")

// FrameSize reads the size prefix of a frame: the bytes that follow it. ok is
// false while b is shorter than the prefix.
func FrameSize(b []byte) (size int32, ok bool) {
	if len(b) < SizePrefix {
		return 0, false
	}
	return int32(binary.BigEndian.Uint32(b)), true
}

// CheckFrameSize refuses a size that is negative or above limit, before a byte
// of the frame is read or memory set aside for it. The hint names other
// protocols whose first bytes read as a size.
func CheckFrameSize(size, limit int32) error {
	if size >= 0 && size <= limit {
		return nil
	}
	switch {
	case uint32(size)>>16 == 0x1603:
		return fmt.Errorf("frame of %d bytes, limit %d (the client speaks TLS on a plain port): %w", size, limit, ErrMalformed)
	case isHTTP(uint32(size)):
		return fmt.Errorf("frame of %d bytes, limit %d (the client speaks HTTP): %w", size, limit, ErrMalformed)
	}
	return fmt.Errorf("frame of %d bytes, limit %d: %w", size, limit, ErrMalformed)
}

// isHTTP reports whether the first four bytes of a connection are those of a
// common HTTP request line.
func isHTTP(first uint32) bool {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], first)
	switch string(b[:]) {
	case "GET ", "POST", "PUT ", "HEAD", "OPTI", "DELE", "CONN", "PATC", "PRI ":
		return true
	}
	return false
}
