package sendfile

import (
	"errors"
	"io"

	"github.com/varvelog/varve/internal/vfs"
)

// copyPiece is how much a copying transfer holds in memory.
const copyPiece = 64 << 10

// AppendRegion reads a whole region behind dst, for responses that are gathered
// into one write. It grows dst only when its capacity does not suffice.
func AppendRegion(dst []byte, r vfs.Region) ([]byte, error) {
	from := len(dst)
	if need := from + int(r.Length); need > cap(dst) {
		grown := make([]byte, from, need)
		copy(grown, dst)
		dst = grown
	}
	body := dst[from : from+int(r.Length)]
	if err := readFull(r.File, body, r.Offset); err != nil {
		return dst[:from], err
	}
	return dst[:from+int(r.Length)], nil
}

// CopyRegion writes a region to w in pieces of the size of buf: TLS, and files
// without a descriptor.
func CopyRegion(w io.Writer, r vfs.Region, buf []byte) error {
	for done := int64(0); done < r.Length; {
		piece := buf[:min(int64(len(buf)), r.Length-done)]
		if err := readFull(r.File, piece, r.Offset+done); err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
		done += int64(len(piece))
	}
	return nil
}

// readFull tries a second time: a disk can fail once (faults E3).
func readFull(f vfs.File, p []byte, off int64) error {
	n, err := f.ReadAt(p, off)
	if n < len(p) {
		n, err = f.ReadAt(p, off)
	}
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = ErrShortened
	}
	return &FileError{Name: f.Name(), Offset: off + int64(n), Err: err}
}
