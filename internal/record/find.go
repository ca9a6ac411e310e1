package record

import (
	"bytes"
	"errors"
	"io"

	"github.com/varvelog/varve/internal/kafka"
)

const (
	// searchChunk is how much of a damaged tail is looked at in one piece.
	searchChunk = 1 << 20
	// searchSpan is how far above the end of a log an offset may lie that is
	// taken for one of its own and not for chance.
	searchSpan = 1 << 40
)

// WholeBatchBehind looks in the bytes [from, to) of r, which follow the last good
// batch of a log, for a v2 batch with a right checksum and an offset at or above
// next, wherever it starts. Zeros, which a lost power leaves, are passed over at
// the speed of memory: a candidate has the magic byte 2.
func WholeBatchBehind(r io.ReaderAt, from, to int64, next kafka.Offset) (bool, error) {
	_, found, err := FindWholeBatch(r, from, to, next, next+searchSpan)
	return found, err
}

// FindWholeBatch is WholeBatchBehind with the byte at which the first such batch
// starts. Its base offset is at or below limit.
func FindWholeBatch(r io.ReaderAt, from, to int64, next, limit kafka.Offset) (start int64, found bool, err error) {
	buf := make([]byte, min(searchChunk, max(0, to-from)))
	for at := from; to-at >= HeaderSize; {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, false, err
		}
		start, found, err := wholeIn(r, buf[:n], at, to, next, limit)
		if err != nil || found {
			return start, found, err
		}
		if n < searchChunk {
			break
		}
		at += int64(n) - HeaderSize // a header may lie across the pieces
	}
	return 0, false, nil
}

// wholeIn looks for the start of such a batch in one piece, which lies at byte at.
func wholeIn(r io.ReaderAt, piece []byte, at, to int64, next, limit kafka.Offset) (start int64, found bool, err error) {
	for i := offMagic; i < len(piece); i++ {
		skip := bytes.IndexByte(piece[i:], MagicV2)
		if skip < 0 {
			break
		}
		i += skip
		b := Batch(piece[i-offMagic:])
		if len(b) < HeaderSize {
			break
		}
		start, size, base := at+int64(i-offMagic), int64(b.Size()), b.BaseOffset()
		if size < HeaderSize || start+size > to || base < next || base > limit {
			continue
		}
		whole, err := wholeAt(r, start, size)
		if err != nil || whole {
			return start, whole, err
		}
	}
	return 0, false, nil
}

func wholeAt(r io.ReaderAt, at, size int64) (bool, error) {
	b := make([]byte, size)
	if _, err := r.ReadAt(b, at); errors.Is(err, io.EOF) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return Batch(b).Check() == nil, nil
}
