// Package sendfile moves bytes of a file to a socket without a copy, and by a
// copy where that cannot be.
//
// Before it on the path: server, which has the header bytes and the regions of
// a response. After it: the kernel.
//
// net.TCPConn.ReadFrom is no substitute: it passes no offset, so it uses and
// moves the file's shared position, and a second connection on the same segment
// would get other bytes than it asked for.
package sendfile

import (
	"errors"
	"fmt"
	"time"
)

// MinRegion is the size from which a region is worth a sendfile of its own:
// below it, reading it behind the header and writing both at once costs less
// (measured: performance T3).
const MinRegion = 32 << 10

// DefaultStall is how long a peer may accept nothing before a write fails.
const DefaultStall = 30 * time.Second

// ErrShortened is wrapped in a FileError when the file ends before the region
// does. The peer was promised more bytes than there are: close the connection.
var ErrShortened = errors.New("file is shorter than the region")

// FileError is a failure of the file side of a transfer, to tell a bad disk
// from a peer that left. The frame is torn: the connection has to be closed.
type FileError struct {
	Name   string
	Offset int64 // first byte that was not sent
	Err    error
}

// Error says which file failed and where.
func (e *FileError) Error() string {
	return fmt.Sprintf("send %s from byte %d: %v", e.Name, e.Offset, e.Err)
}

// Unwrap returns the cause.
func (e *FileError) Unwrap() error { return e.Err }
