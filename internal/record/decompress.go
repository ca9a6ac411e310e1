package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// Limits of a Decompressor.
const (
	// DefaultMaxDecompressed bounds the decompressed records of one batch when
	// a Decompressor is not told otherwise: Kafka's default of
	// max.decompressed.message.bytes. The expansion limit below is reached
	// long before by anything that fits into max.message.bytes.
	DefaultMaxDecompressed = 2147483639
	// keepScratch is the most that a Decompressor keeps between batches.
	keepScratch = 16 << 20
	// A batch may expand to 128 times its size and 16 MiB. No codec does that
	// with records that differ from each other; decompression bombs do.
	expandFactor = 128
	expandFloor  = 16 << 20
	// firstScratch is what decompression begins with.
	firstScratch = 64 << 10
)

// Decompressor turns the records section of a batch into plain bytes, in a
// buffer that it keeps. The zero value is ready. One goroutine at a time;
// a Pool hands them out.
type Decompressor struct {
	// Max bounds the output of one batch in bytes; 0 is DefaultMaxDecompressed.
	Max int
	// MaxRecord bounds the declared size of one record in a compressed batch
	// (max.decompressed.message.bytes); 0 is no bound but Max.
	MaxRecord int

	scratch []byte
	source  bytes.Reader
	gzip    *gzip.Reader
	zstd    *zstd.Decoder
}

// Decompress returns the plain form of src. The bytes are valid until the next
// call. What the codec cannot read is a *CorruptError, more output than
// allowed ErrTooLarge, and a codec that does not exist ErrUnknownCodec.
func (d *Decompressor) Decompress(codec Codec, src []byte) ([]byte, error) {
	return d.decompress(codec, src, false)
}

// decompress with legacyLZ4 ignores the LZ4 header checksum, see parseLZ4Frame.
func (d *Decompressor) decompress(codec Codec, src []byte, legacyLZ4 bool) ([]byte, error) {
	if codec == None {
		return src, nil
	}
	if cap(d.scratch) > keepScratch {
		d.scratch = nil
	}
	dst := d.scratch[:0]
	limit := d.limit(len(src))
	var err error
	switch codec {
	case Gzip:
		dst, err = d.decompressGzip(dst, src, limit)
	case Snappy:
		dst, err = decompressSnappy(dst, src, limit)
	case LZ4:
		dst, err = decompressLZ4(dst, src, limit, legacyLZ4)
	case Zstd:
		dst, err = d.decompressZstd(dst, src, limit)
	default:
		return nil, fmt.Errorf("%w: %d", ErrUnknownCodec, int(codec))
	}
	d.scratch = dst[:0]
	if err != nil {
		return nil, err
	}
	return dst, nil
}

func (d *Decompressor) limit(compressed int) int {
	limit := d.Max
	if limit <= 0 {
		limit = DefaultMaxDecompressed
	}
	return min(limit, expandFactor*compressed+expandFloor)
}

func badStream(c Codec, what string) error {
	return &CorruptError{Reason: c.String() + " " + what}
}

// grow makes room for n more bytes.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	bigger := make([]byte, len(dst), max(len(dst)+n, 2*cap(dst), firstScratch))
	copy(bigger, dst)
	return bigger
}

func (d *Decompressor) decompressGzip(dst, src []byte, limit int) ([]byte, error) {
	d.source.Reset(src)
	defer d.source.Reset(nil)
	if d.gzip == nil {
		d.gzip = new(gzip.Reader)
	}
	if err := d.gzip.Reset(&d.source); err != nil {
		return dst, badStream(Gzip, "header: "+err.Error())
	}
	for {
		dst = grow(dst, 1)
		// One byte more than allowed, so that an exact fit is told from too much.
		room := min(cap(dst), limit+1)
		n, err := d.gzip.Read(dst[len(dst):max(room, len(dst))])
		dst = dst[:len(dst)+n]
		switch {
		case len(dst) > limit:
			return dst, ErrTooLarge
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return dst, badStream(Gzip, "content: "+err.Error())
		}
	}
}

// decompressSnappy reads the xerial stream that Java clients write and the raw
// block that librdkafka and others do. Declared lengths are checked before
// anything is allocated.
func decompressSnappy(dst, src []byte, limit int) ([]byte, error) {
	if !isXerial(src) {
		return appendSnappyBlock(dst, src, limit)
	}
	src = src[len(xerialHeader):]
	for len(src) > 0 {
		if isXerial(src) {
			src = src[len(xerialHeader):] // streams may follow each other
			continue
		}
		if len(src) < 4 {
			return dst, badStream(Snappy, "block length ends early")
		}
		n := int64(binary.BigEndian.Uint32(src))
		src = src[4:]
		if n > int64(len(src)) {
			return dst, badStream(Snappy, "block ends early")
		}
		var err error
		if dst, err = appendSnappyBlock(dst, src[:n], limit); err != nil {
			return dst, err
		}
		src = src[n:]
	}
	return dst, nil
}

func isXerial(src []byte) bool {
	return len(src) >= len(xerialHeader) && string(src[:8]) == xerialHeader[:8]
}

func appendSnappyBlock(dst, block []byte, limit int) ([]byte, error) {
	n, err := snappy.DecodedLen(block)
	if err != nil {
		return dst, badStream(Snappy, "block length")
	}
	// A block element of three bytes makes at most 64 bytes of output.
	if n > 64*(len(block)+1) {
		return dst, badStream(Snappy, "declared length")
	}
	if len(dst)+n > limit {
		return dst, ErrTooLarge
	}
	dst = grow(dst, n)
	out, err := snappy.Decode(dst[len(dst):len(dst)+n], block)
	if err != nil || len(out) != n {
		return dst, badStream(Snappy, "block content")
	}
	return dst[:len(dst)+n], nil
}

// Pool hands out at most n Decompressors at a time, so that many connections
// do not hold many scratch buffers. Get waits for one to come back.
type Pool struct {
	idle chan *Decompressor
}

// NewPool makes a pool of n decompressors with the given Max each.
func NewPool(n, maxBytes int) *Pool {
	p := &Pool{idle: make(chan *Decompressor, n)}
	for range n {
		p.idle <- &Decompressor{Max: maxBytes}
	}
	return p
}

// Get takes a Decompressor; the caller gives it back with Put.
func (p *Pool) Get() *Decompressor { return <-p.idle }

// Put gives back what Get took. Bytes that it returned become invalid. What one
// large batch needed is not kept until the next one.
func (p *Pool) Put(d *Decompressor) {
	if cap(d.scratch) > keepScratch {
		d.scratch = nil
	}
	p.idle <- d
}
