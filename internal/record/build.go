package record

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/kafka"
)

// RecordHeader is one header of a record (KIP-82). A nil Value is null; Key is
// UTF-8 and never null.
type RecordHeader struct {
	Key   []byte
	Value []byte
}

// BuildOptions is everything of a batch besides its records. Start from
// NewBuildOptions: the zero value would be a batch of producer 0.
type BuildOptions struct {
	BaseOffset    kafka.Offset
	LeaderEpoch   kafka.LeaderEpoch
	Codec         Codec
	Level         int // of the codec; 0 is its default
	TimestampType kafka.TimestampType
	LogAppendTime kafka.Timestamp // the batch's maximum timestamp when TimestampType is LogAppendTime
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	BaseSequence  kafka.Sequence
	Transactional bool
	Control       bool
	DeleteHorizon kafka.Timestamp // NoTimestamp for none
}

// NewBuildOptions are the options of an uncompressed batch at offset 0 without
// a producer and without a leader epoch.
func NewBuildOptions() BuildOptions {
	return BuildOptions{
		LeaderEpoch:   kafka.NoLeaderEpoch,
		LogAppendTime: kafka.NoTimestamp,
		ProducerID:    kafka.NoProducerID,
		ProducerEpoch: kafka.NoProducerEpoch,
		BaseSequence:  kafka.NoSequence,
		DeleteHorizon: kafka.NoTimestamp,
	}
}

// Builder makes v2 batches, one after the other, in buffers that it keeps. The
// zero value needs a Reset. One goroutine at a time.
type Builder struct {
	opts       BuildOptions
	buf        []byte // header place and uncompressed records
	out        []byte // the compressed batch
	compressor Compressor

	count         int32
	lastOffset    kafka.Offset
	baseTimestamp kafka.Timestamp
	maxTimestamp  kafka.Timestamp
}

// Reset begins a new batch. The bytes of the one before become invalid.
func (b *Builder) Reset(o BuildOptions) {
	if cap(b.buf) < HeaderSize {
		b.buf = make([]byte, HeaderSize, 4096)
	}
	b.buf = b.buf[:HeaderSize]
	b.opts = o
	b.count = 0
	b.lastOffset = o.BaseOffset - 1
	b.baseTimestamp = o.DeleteHorizon
	b.maxTimestamp = kafka.NoTimestamp
}

// Append adds a record at the next offset. nil key and value are null.
func (b *Builder) Append(ts kafka.Timestamp, key, value []byte, headers []RecordHeader) {
	b.AppendAt(b.lastOffset+1, ts, key, value, headers)
}

// AppendAt adds a record at an offset of the caller's choice, as compaction
// does to keep gaps. Offsets rise within a batch and stay within 2^31-1 of its base.
func (b *Builder) AppendAt(offset kafka.Offset, ts kafka.Timestamp, key, value []byte, headers []RecordHeader) {
	if b.count == 0 && b.opts.DeleteHorizon == kafka.NoTimestamp {
		b.baseTimestamp = ts
	}
	b.buf = appendRecord(b.buf, int64(offset-b.opts.BaseOffset), int64(ts-b.baseTimestamp), key, value, headers)
	b.lastOffset = offset
	b.count++
	if ts > b.maxTimestamp {
		b.maxTimestamp = ts
	}
}

// Count is the number of records so far.
func (b *Builder) Count() int { return int(b.count) }

// NextOffset is the offset that Append would give.
func (b *Builder) NextOffset() kafka.Offset { return b.lastOffset + 1 }

// KeepLastOffset makes the batch end at o although its last record lies before:
// compaction keeps the last offset, and with it the last sequence, of a batch
// that it takes records from.
func (b *Builder) KeepLastOffset(o kafka.Offset) { b.lastOffset = max(b.lastOffset, o) }

// UncompressedSize is the size of the batch so far, were it not compressed.
func (b *Builder) UncompressedSize() int { return len(b.buf) }

// Finish completes the batch. Its bytes stay valid until the next Reset.
// Without records it is the header alone; see AppendEmpty for the empty batch
// that compaction keeps.
func (b *Builder) Finish() (Batch, error) {
	delta := int64(b.lastOffset - b.opts.BaseOffset)
	if delta > math.MaxInt32 || (b.count > 0 && delta < 0) {
		return nil, fmt.Errorf("batch at %d: last offset %d does not fit its base", b.opts.BaseOffset, b.lastOffset)
	}
	batch := b.buf
	if b.opts.Codec != None {
		out, err := b.compressor.Compress(append(b.out[:0], b.buf[:HeaderSize]...), b.opts.Codec, b.opts.Level, b.buf[HeaderSize:])
		if err != nil {
			return nil, fmt.Errorf("batch at %d: %w", b.opts.BaseOffset, err)
		}
		b.out, batch = out, out
	}
	if len(batch)-LogOverhead > math.MaxInt32 {
		return nil, fmt.Errorf("batch at %d: %w: %d bytes", b.opts.BaseOffset, ErrTooLarge, len(batch))
	}
	maxTimestamp := b.maxTimestamp
	if b.opts.TimestampType == kafka.LogAppendTime {
		maxTimestamp = b.opts.LogAppendTime
	}
	putHeader(batch, &b.opts, int32(delta), b.count, b.baseTimestamp, maxTimestamp)
	return batch, nil
}

// putHeader writes all 61 bytes; the checksum covers what follows them in batch.
func putHeader(batch Batch, o *BuildOptions, lastOffsetDelta, count int32, base, maxTimestamp kafka.Timestamp) {
	be := binary.BigEndian
	be.PutUint64(batch[offBaseOffset:], uint64(o.BaseOffset))
	be.PutUint32(batch[offLength:], uint32(len(batch)-LogOverhead))
	be.PutUint32(batch[offLeaderEpoch:], uint32(o.LeaderEpoch))
	batch[offMagic] = MagicV2
	be.PutUint16(batch[offAttributes:], uint16(o.attributes()))
	be.PutUint32(batch[offLastOffsetDelta:], uint32(lastOffsetDelta))
	be.PutUint64(batch[offBaseTimestamp:], uint64(base))
	be.PutUint64(batch[offMaxTimestamp:], uint64(maxTimestamp))
	be.PutUint64(batch[offProducerID:], uint64(o.ProducerID))
	be.PutUint16(batch[offProducerEpoch:], uint16(o.ProducerEpoch))
	be.PutUint32(batch[offBaseSequence:], uint32(o.BaseSequence))
	be.PutUint32(batch[offCount:], uint32(count))
	batch.sealCRC()
}

func (o *BuildOptions) attributes() int16 {
	attrs := int16(o.Codec) & AttrCodecMask
	if o.TimestampType == kafka.LogAppendTime {
		attrs |= AttrLogAppendTime
	}
	if o.Transactional {
		attrs |= AttrTransactional
	}
	if o.Control {
		attrs |= AttrControl
	}
	if o.DeleteHorizon != kafka.NoTimestamp {
		attrs |= AttrDeleteHorizon
	}
	return attrs
}

// AppendEmpty appends the batch that compaction leaves of one whose records
// are all gone: header only, count 0, offsets, producer fields and maximum
// timestamp kept, codec and delete horizon dropped, base timestamp -1
// (DefaultRecordBatch.writeEmptyHeader).
func AppendEmpty(dst []byte, of *Header) []byte {
	o := BuildOptions{
		BaseOffset:    of.BaseOffset,
		LeaderEpoch:   of.LeaderEpoch,
		TimestampType: of.TimestampType(),
		ProducerID:    of.ProducerID,
		ProducerEpoch: of.ProducerEpoch,
		BaseSequence:  of.BaseSequence,
		Transactional: of.IsTransactional(),
		Control:       of.IsControl(),
		DeleteHorizon: kafka.NoTimestamp,
	}
	start := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	putHeader(dst[start:], &o, of.LastOffsetDelta, 0, kafka.NoTimestamp, of.MaxTimestamp)
	return dst
}

// appendRecord writes one record of format v2.
func appendRecord(dst []byte, offsetDelta, timestampDelta int64, key, value []byte, headers []RecordHeader) []byte {
	size := 1 + varintSize(timestampDelta) + varintSize(offsetDelta) +
		bytesSize(key) + bytesSize(value) + varintSize(int64(len(headers)))
	for i := range headers {
		size += varintSize(int64(len(headers[i].Key))) + len(headers[i].Key) + bytesSize(headers[i].Value)
	}
	dst = appendVarint(dst, int64(size))
	dst = append(dst, 0) // attributes: none are defined
	dst = appendVarint(dst, timestampDelta)
	dst = appendVarint(dst, offsetDelta)
	dst = appendNullable(dst, key)
	dst = appendNullable(dst, value)
	dst = appendVarint(dst, int64(len(headers)))
	for i := range headers {
		dst = appendVarint(dst, int64(len(headers[i].Key)))
		dst = append(dst, headers[i].Key...)
		dst = appendNullable(dst, headers[i].Value)
	}
	return dst
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // -1
	}
	dst = appendVarint(dst, int64(len(b)))
	return append(dst, b...)
}
