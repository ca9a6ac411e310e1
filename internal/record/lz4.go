package record

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/pierrec/lz4/v4"
)

// The LZ4 frame as Kafka's Lz4BlockOutputStream writes it: version 1,
// independent blocks of 64 KiB, no checksums, no content size.
const (
	lz4Magic        = 0x184D2204
	lz4Flags        = 0x60
	lz4Block64KiB   = 4
	lz4Stored       = 1 << 31 // bit of a block's length: stored as it is
	lz4FlagDict     = 1 << 0
	lz4FlagReserved = 1 << 1
	lz4FlagContent  = 1 << 2 // content checksum after the end mark
	lz4FlagSize     = 1 << 3 // content size in the header
	lz4FlagBlockSum = 1 << 4 // checksum after each block
	lz4FlagIndep    = 1 << 5
)

func (c *Compressor) compressLZ4(dst []byte, level int, src []byte) ([]byte, error) {
	const blockSize = 64 << 10
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	dst = append(dst, lz4Flags, lz4Block64KiB<<4)
	dst = append(dst, byte(xxh32(dst[len(dst)-2:])>>8))
	if bound := lz4.CompressBlockBound(blockSize); cap(c.block) < bound {
		c.block = make([]byte, bound)
	}
	for len(src) > 0 {
		piece := src[:min(len(src), blockSize)]
		src = src[len(piece):]
		n, err := c.compressLZ4Block(c.block[:cap(c.block)], level, piece)
		if err != nil {
			return dst, fmt.Errorf("lz4 block: %w", err)
		}
		if n == 0 || n >= len(piece) {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(piece))|lz4Stored)
			dst = append(dst, piece...)
			continue
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
		dst = append(dst, c.block[:n]...)
	}
	return append(dst, 0, 0, 0, 0), nil
}

// compressLZ4Block uses the fast compressor at Kafka's default level and the
// high compressor at any other, as Kafka does.
func (c *Compressor) compressLZ4Block(dst []byte, level int, src []byte) (int, error) {
	if level == LZ4.DefaultLevel() {
		if c.lz4 == nil {
			c.lz4 = new(lz4.Compressor)
		}
		return c.lz4.CompressBlock(src, dst)
	}
	if c.lz4HC == nil {
		c.lz4HC = new(lz4.CompressorHC)
	}
	c.lz4HC.Level = lz4Levels[min(max(level, 1), len(lz4Levels))-1]
	return c.lz4HC.CompressBlock(src, dst)
}

var lz4Levels = [...]lz4.CompressionLevel{
	lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4, lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9,
}

// lz4Frame is the checked header of a frame.
type lz4Frame struct {
	flags    byte
	maxBlock int
	size     int // of the header
}

// parseLZ4Frame accepts what Kafka's Lz4BlockInputStream does. brokenChecksum
// is for message format 0, whose writers computed the header checksum over the
// wrong bytes: it is not looked at then (KAFKA-3160).
func parseLZ4Frame(src []byte, brokenChecksum bool) (lz4Frame, error) {
	var f lz4Frame
	if len(src) < 7 {
		return f, badStream(LZ4, "header ends early")
	}
	if binary.LittleEndian.Uint32(src) != lz4Magic {
		return f, badStream(LZ4, "frame magic")
	}
	f.flags = src[4]
	if f.flags>>6 != 1 || f.flags&lz4FlagIndep == 0 || f.flags&(lz4FlagDict|lz4FlagReserved) != 0 {
		return f, badStream(LZ4, "frame flags")
	}
	code := src[5] >> 4
	if src[5]&0x8f != 0 || code < 4 {
		return f, badStream(LZ4, "block size code")
	}
	f.maxBlock = 1 << (2*code + 8)
	f.size = 7
	if f.flags&lz4FlagSize != 0 {
		f.size += 8
	}
	if len(src) < f.size {
		return f, badStream(LZ4, "header ends early")
	}
	if !brokenChecksum && src[f.size-1] != byte(xxh32(src[4:f.size-1])>>8) {
		return f, badStream(LZ4, "header checksum")
	}
	return f, nil
}

// decompressLZ4 appends the frame's content. Bytes behind the end mark are
// ignored and the content checksum is not verified, both as Kafka has it.
func decompressLZ4(dst, src []byte, limit int, brokenChecksum bool) ([]byte, error) {
	f, err := parseLZ4Frame(src, brokenChecksum)
	if err != nil {
		return dst, err
	}
	for src = src[f.size:]; ; {
		if len(src) < 4 {
			return dst, badStream(LZ4, "block length ends early")
		}
		word := binary.LittleEndian.Uint32(src)
		src = src[4:]
		n := int(word &^ lz4Stored)
		switch {
		case n == 0:
			if f.flags&lz4FlagContent != 0 && len(src) < 4 {
				return dst, badStream(LZ4, "content checksum ends early")
			}
			return dst, nil
		case n > f.maxBlock:
			return dst, badStream(LZ4, "block length")
		case n > len(src):
			return dst, badStream(LZ4, "block ends early")
		}
		block := src[:n]
		if dst, err = appendLZ4Block(dst, block, word&lz4Stored != 0, f.maxBlock, limit); err != nil {
			return dst, err
		}
		sum := src[n:]
		src = src[n:]
		if f.flags&lz4FlagBlockSum != 0 {
			if len(sum) < 4 {
				return dst, badStream(LZ4, "block checksum ends early")
			}
			if binary.LittleEndian.Uint32(sum) != xxh32(block) {
				return dst, badStream(LZ4, "block checksum")
			}
			src = sum[4:]
		}
	}
}

func appendLZ4Block(dst, block []byte, stored bool, maxBlock, limit int) ([]byte, error) {
	if stored {
		if len(dst)+len(block) > limit {
			return dst, ErrTooLarge
		}
		return append(dst, block...), nil
	}
	// A byte of input makes at most 255 bytes of output, so a small block does
	// not need room for a full one.
	room := min(maxBlock, 255*len(block))
	dst = grow(dst, room)
	n, err := lz4.UncompressBlock(block, dst[len(dst):len(dst)+room])
	if err != nil {
		return dst, badStream(LZ4, "block content")
	}
	if len(dst)+n > limit {
		return dst, ErrTooLarge
	}
	return dst[:len(dst)+n], nil
}

// xxh32 is xxHash with 32 bits and seed 0.
func xxh32(b []byte) uint32 {
	const (
		p1 = 2654435761
		p2 = 2246822519
		p3 = 3266489917
		p4 = 668265263
		p5 = 374761393
	)
	h := uint32(p5)
	size := uint32(len(b))
	if len(b) >= 16 {
		v1, v2, v3, v4 := uint32((p1+p2)&0xffffffff), uint32(p2), uint32(0), uint32(1<<32-p1)
		for ; len(b) >= 16; b = b[16:] {
			v1 = bits.RotateLeft32(v1+binary.LittleEndian.Uint32(b)*p2, 13) * p1
			v2 = bits.RotateLeft32(v2+binary.LittleEndian.Uint32(b[4:])*p2, 13) * p1
			v3 = bits.RotateLeft32(v3+binary.LittleEndian.Uint32(b[8:])*p2, 13) * p1
			v4 = bits.RotateLeft32(v4+binary.LittleEndian.Uint32(b[12:])*p2, 13) * p1
		}
		h = bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) + bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	}
	h += size
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
