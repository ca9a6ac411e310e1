package record

import (
	"errors"

	"github.com/klauspost/compress/zstd"
)

const (
	// maxWindow is zstd's own limit for a decoder (2^27): clients may compress
	// at any level. The window is never allocated here, the output is the history.
	maxWindow = 128 << 20
	// zstdBlock is the most that one block can decode to.
	zstdBlock = 128 << 10
	// zstdSlack lets the decoder copy whole words past the end of a block.
	zstdSlack = 32
	// zstdFirstRoom is what output gets before the decoder has proved that
	// there is more: a small frame of many blocks may claim anything.
	zstdFirstRoom = 16 << 20
)

func (d *Decompressor) decompressZstd(dst, src []byte, limit int) ([]byte, error) {
	if d.zstd == nil {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return dst, err
		}
		d.zstd = dec
	}
	bound, err := zstdBound(src)
	if err != nil {
		return dst, err
	}
	most := int(min(bound, int64(limit)))
	for room := min(most, zstdFirstRoom); ; room = min(2*room, most) {
		dst = grow(dst, room+zstdSlack)
		out, err := d.zstd.DecodeAll(src, dst[:0:room+zstdSlack])
		switch {
		case err == nil && len(out) <= limit:
			return out, nil
		case err == nil:
			return dst, ErrTooLarge
		case errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrMagicMismatch):
			return dst, badStream(Zstd, "content: "+err.Error())
		case room < most:
			// Too little room and bad content cannot be told apart by the error.
		case bound > int64(limit):
			return dst, ErrTooLarge
		default:
			return dst, badStream(Zstd, "content: "+err.Error())
		}
	}
}

// zstdBound is the most that the frames of src can decode to, from their
// headers and those of their blocks: writers that stream, such as Java's,
// leave the content size out.
func zstdBound(src []byte) (int64, error) {
	var bound int64
	for len(src) > 0 {
		var h zstd.Header
		if err := h.Decode(src); err != nil {
			return 0, badStream(Zstd, "frame header: "+err.Error())
		}
		if h.Skippable {
			skip := int64(h.HeaderSize) + int64(h.SkippableSize)
			if skip > int64(len(src)) {
				return 0, badStream(Zstd, "skippable frame ends early")
			}
			src = src[skip:]
			continue
		}
		size, rest, err := zstdBlocks(src[h.HeaderSize:], h.HasCheckSum)
		if err != nil {
			return 0, err
		}
		if h.HasFCS && h.FrameContentSize < uint64(size) {
			size = int64(h.FrameContentSize)
		}
		bound += size
		src = rest
	}
	return bound, nil
}

// zstdBlocks adds up what the blocks of one frame can decode to.
func zstdBlocks(b []byte, checksum bool) (size int64, rest []byte, err error) {
	for last := false; !last; {
		if len(b) < 3 {
			return 0, nil, badStream(Zstd, "block header ends early")
		}
		word := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
		b = b[3:]
		last = word&1 != 0
		n, stored := int(word>>3), int(word>>3)
		switch word >> 1 & 3 {
		case 0: // raw
		case 1: // one byte, repeated
			stored = 1
		case 2: // compressed
			n = zstdBlock
		default:
			return 0, nil, badStream(Zstd, "block type")
		}
		if stored > len(b) {
			return 0, nil, badStream(Zstd, "block ends early")
		}
		size += int64(n)
		b = b[stored:]
	}
	if checksum {
		if len(b) < 4 {
			return 0, nil, badStream(Zstd, "checksum ends early")
		}
		b = b[4:]
	}
	return size, b, nil
}
