package record

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// xerialHeader begins the stream that snappy-java writes and Kafka with it:
// magic, version 1, lowest compatible version 1.
const xerialHeader = "\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"

// xerialBlock is the input that one block of a written snappy stream takes.
const xerialBlock = 32 << 10

// Compressor keeps the encoders of the codecs between batches. The zero value
// is ready. One goroutine at a time.
type Compressor struct {
	gzip      *gzip.Writer
	gzipLevel int
	gzipOut   appendWriter
	zstd      *zstd.Encoder
	zstdLevel int
	lz4       *lz4.Compressor // tables of 136 KiB, made when first used as all here are
	lz4HC     *lz4.CompressorHC
	block     []byte // one compressed block of snappy or lz4
}

// appendWriter collects what an encoder writes.
type appendWriter struct{ b []byte }

func (w *appendWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// Compress appends the compressed form of src to dst, framed as Kafka frames
// it. Level 0 is the codec's default; levels follow compression.<codec>.level.
func (c *Compressor) Compress(dst []byte, codec Codec, level int, src []byte) ([]byte, error) {
	if level == 0 {
		level = codec.DefaultLevel()
	}
	switch codec {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return c.compressGzip(dst, level, src)
	case Snappy:
		return c.compressXerial(dst, src), nil
	case LZ4:
		return c.compressLZ4(dst, level, src)
	case Zstd:
		return c.compressZstd(dst, level, src)
	}
	return dst, fmt.Errorf("%w: %d", ErrUnknownCodec, int(codec))
}

func (c *Compressor) compressGzip(dst []byte, level int, src []byte) ([]byte, error) {
	c.gzipOut.b = dst
	defer func() { c.gzipOut.b = nil }()
	if c.gzip == nil || c.gzipLevel != level {
		w, err := gzip.NewWriterLevel(&c.gzipOut, level)
		if err != nil {
			return dst, fmt.Errorf("gzip level %d: %w", level, err)
		}
		c.gzip, c.gzipLevel = w, level
	} else {
		c.gzip.Reset(&c.gzipOut)
	}
	if _, err := c.gzip.Write(src); err != nil {
		return dst, err
	}
	if err := c.gzip.Close(); err != nil {
		return dst, err
	}
	return c.gzipOut.b, nil
}

func (c *Compressor) compressXerial(dst, src []byte) []byte {
	dst = append(dst, xerialHeader...)
	for len(src) > 0 {
		piece := src[:min(len(src), xerialBlock)]
		src = src[len(piece):]
		c.block = snappy.Encode(c.block[:cap(c.block)], piece)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(c.block)))
		dst = append(dst, c.block...)
	}
	return dst
}

func (c *Compressor) compressZstd(dst []byte, level int, src []byte) ([]byte, error) {
	if c.zstd == nil || c.zstdLevel != level {
		e, err := zstd.NewWriter(nil,
			zstd.WithEncoderLevel(zstd.EncoderLevelFromZstd(level)),
			zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
		if err != nil {
			return dst, fmt.Errorf("zstd level %d: %w", level, err)
		}
		c.zstd, c.zstdLevel = e, level
	}
	return c.zstd.EncodeAll(src, dst), nil
}
