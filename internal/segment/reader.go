package segment

import (
	"errors"
	"hash/crc32"
	"io"
	"sync"

	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// readChunk is how much of a .log a recovery reads at a time. It stays in the
// cache of a processor between the copy out of the page cache and the checksum:
// of 64 KiB to 1 MiB this was the fastest (BenchmarkRecover).
const readChunk = 256 << 10

// PartialBatch is the reason when a batch is longer than what is left of the file.
const PartialBatch = "bytes of the batch"

var reads = sync.Pool{New: func() any { return new([readChunk]byte) }}

// reader goes through a .log from front to back, through one buffer: each byte
// is read once, whatever the batches' sizes are, and none is held longer than its
// checksum takes.
type reader struct {
	f       vfs.File
	size    int64
	chunk   *[readChunk]byte
	buf     []byte // bytes of the file from at on
	at      int64
	h       record.Header
	table   *crc32.Table
	scanned func(bytes int64) // may be nil
}

func newReader(f vfs.File, size int64, scanned func(int64)) *reader {
	return &reader{f: f, size: size, chunk: reads.Get().(*[readChunk]byte), table: crc32.MakeTable(crc32.Castagnoli), scanned: scanned}
}

func (r *reader) giveBack() {
	reads.Put(r.chunk)
	r.chunk, r.buf = nil, nil
}

// header reads the header of the batch at pos, all of which lies in the file. It
// is valid until the next call. What is none is a *record.CorruptError.
func (r *reader) header(pos int64) (*record.Header, error) {
	left := max(0, r.size-pos)
	b, err := r.bytes(pos, min(record.HeaderSize, left))
	if err != nil {
		return nil, err
	}
	if r.h, err = record.ParseHeader(b); err != nil {
		var corrupt *record.CorruptError
		if errors.As(err, &corrupt) {
			corrupt.Position = pos
		}
		return nil, err
	}
	if int64(r.h.Size) > left {
		return nil, &record.CorruptError{Base: r.h.BaseOffset, Position: pos, Reason: PartialBatch, Found: left, Want: int64(r.h.Size)}
	}
	return &r.h, nil
}

// check compares the checksum of the batch at pos.
func (r *reader) check(h *record.Header, pos int64) error {
	end := pos + int64(h.Size)
	if h.Magic < record.MagicV2 {
		b, err := r.bytes(pos, int64(h.Size))
		if err == nil {
			err = record.CheckLegacy(b)
		}
		var corrupt *record.CorruptError
		if errors.As(err, &corrupt) {
			corrupt.Position = pos
		}
		return err
	}
	const covered = 21 // the checksum is of everything from the attributes on
	crc := uint32(0)
	for at := pos + covered; at < end; {
		b, err := r.piece(at)
		if err != nil {
			return err
		}
		b = b[:min(int64(len(b)), end-at)]
		crc = crc32.Update(crc, r.table, b)
		at += int64(len(b))
	}
	if crc != h.CRC {
		return &record.CorruptError{Base: h.BaseOffset, Position: pos, Reason: "checksum", Found: int64(h.CRC), Want: int64(crc)}
	}
	return nil
}

// piece returns bytes from pos on, at least one.
func (r *reader) piece(pos int64) ([]byte, error) {
	if skip := pos - r.at; skip >= 0 && skip < int64(len(r.buf)) {
		return r.buf[skip:], nil
	}
	return r.bytes(pos, 1)
}

// bytes returns n bytes from pos on, valid until the next call.
func (r *reader) bytes(pos, n int64) ([]byte, error) {
	if skip := pos - r.at; skip >= 0 && skip+n <= int64(len(r.buf)) {
		return r.buf[skip : skip+n], nil
	}
	into := r.chunk[:min(readChunk, r.size-pos)]
	if n > readChunk {
		into = make([]byte, n) // a control batch or an old message: all of it is looked into
	}
	got, err := r.f.ReadAt(into, pos)
	r.buf, r.at = into[:got], pos
	if r.scanned != nil {
		r.scanned(int64(got))
	}
	if int64(got) >= n {
		return r.buf[:n], nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}
