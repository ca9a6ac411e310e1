package record

import (
	"encoding/binary"

	"github.com/varvelog/varve/internal/kafka"
)

// Header is what a scan needs to know about a batch of any format. For the
// formats 0 and 1 a "batch" is one outer message: fields that they lack are -1
// or 0, BaseOffset and LastOffset both are the outer offset (the base of a
// compressed wrapper is known only after decompression, see Iterator).
type Header struct {
	BaseOffset      kafka.Offset
	LastOffset      kafka.Offset
	Size            int // whole batch with its 12-byte prefix
	Magic           int8
	LeaderEpoch     kafka.LeaderEpoch
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   kafka.Timestamp
	MaxTimestamp    kafka.Timestamp
	ProducerID      kafka.ProducerID
	ProducerEpoch   kafka.ProducerEpoch
	BaseSequence    kafka.Sequence
	Count           int32 // records in a v2 batch; -1 for old formats
}

// NextOffset is the offset after the batch.
func (h *Header) NextOffset() kafka.Offset { return h.LastOffset + 1 }

// Codec is the compression of the records.
func (h *Header) Codec() Codec { return Codec(h.Attributes & AttrCodecMask) }

// TimestampType is NoTimestampType for format 0.
func (h *Header) TimestampType() kafka.TimestampType {
	switch {
	case h.Magic == 0:
		return kafka.NoTimestampType
	case h.Attributes&AttrLogAppendTime != 0:
		return kafka.LogAppendTime
	}
	return kafka.CreateTime
}

// IsTransactional reports whether the batch belongs to a transaction.
func (h *Header) IsTransactional() bool {
	return h.Magic >= MagicV2 && h.Attributes&AttrTransactional != 0
}

// IsControl reports whether the batch holds control records.
func (h *Header) IsControl() bool { return h.Magic >= MagicV2 && h.Attributes&AttrControl != 0 }

// HasDeleteHorizon reports whether BaseTimestamp is a delete horizon.
func (h *Header) HasDeleteHorizon() bool {
	return h.Magic >= MagicV2 && h.Attributes&AttrDeleteHorizon != 0
}

// HasProducerID reports whether the batch comes from an idempotent producer.
func (h *Header) HasProducerID() bool { return h.ProducerID > kafka.NoProducerID }

// LastSequence is the sequence of the last offset, or NoSequence.
func (h *Header) LastSequence() kafka.Sequence {
	if h.BaseSequence == kafka.NoSequence {
		return kafka.NoSequence
	}
	return h.BaseSequence.Add(h.LastOffsetDelta)
}

// legacyHeaderSize is how many bytes ParseHeader needs of a message of format 0 or 1.
const legacyHeaderSize = LogOverhead + legacyMinV0

// ParseHeader reads the header of the batch that starts at b[0]. It needs
// HeaderSize bytes of a v2 batch and 26 of an old message; fewer, and a
// declared size that cannot be, are a *CorruptError. The checksum is not looked at.
func ParseHeader(b []byte) (Header, error) {
	var h Header
	err := h.parse(b)
	return h, err
}

func (h *Header) parse(b []byte) error {
	if len(b) < magicEnd {
		return &CorruptError{Reason: "bytes of the header", Found: int64(len(b)), Want: magicEnd}
	}
	base := kafka.Offset(binary.BigEndian.Uint64(b))
	length := int32(binary.BigEndian.Uint32(b[offLength:]))
	magic := int8(b[offMagic])
	if length < minBatchBody {
		return &CorruptError{Base: base, Reason: "declared length", Found: int64(length), Want: minBatchBody}
	}
	if magic < MagicV2 {
		return h.parseLegacy(b, base, int(length), magic)
	}
	if LogOverhead+int(length) < HeaderSize {
		return &CorruptError{Base: base, Reason: "declared length", Found: int64(length), Want: HeaderSize - LogOverhead}
	}
	if len(b) < HeaderSize {
		return &CorruptError{Base: base, Reason: "bytes of the header", Found: int64(len(b)), Want: HeaderSize}
	}
	v := Batch(b)
	*h = Header{
		BaseOffset:      base,
		LastOffset:      v.LastOffset(),
		Size:            LogOverhead + int(length),
		Magic:           magic,
		LeaderEpoch:     v.LeaderEpoch(),
		CRC:             v.CRC(),
		Attributes:      v.Attributes(),
		LastOffsetDelta: v.LastOffsetDelta(),
		BaseTimestamp:   v.BaseTimestamp(),
		MaxTimestamp:    v.MaxTimestamp(),
		ProducerID:      v.ProducerID(),
		ProducerEpoch:   v.ProducerEpoch(),
		BaseSequence:    v.BaseSequence(),
		Count:           v.Count(),
	}
	return nil
}

func (h *Header) parseLegacy(b []byte, offset kafka.Offset, length int, magic int8) error {
	if len(b) < legacyHeaderSize {
		return &CorruptError{Base: offset, Reason: "bytes of the header", Found: int64(len(b)), Want: legacyHeaderSize}
	}
	*h = Header{
		BaseOffset:    offset,
		LastOffset:    offset,
		Size:          LogOverhead + length,
		Magic:         magic,
		LeaderEpoch:   kafka.NoLeaderEpoch,
		CRC:           binary.BigEndian.Uint32(b[legacyCRC:]),
		Attributes:    int16(b[legacyAttributes]),
		BaseTimestamp: kafka.NoTimestamp,
		MaxTimestamp:  kafka.NoTimestamp,
		ProducerID:    kafka.NoProducerID,
		ProducerEpoch: kafka.NoProducerEpoch,
		BaseSequence:  kafka.NoSequence,
		Count:         -1,
	}
	if magic != 0 {
		if length < legacyMinV1 {
			return &CorruptError{Base: offset, Reason: "declared length", Found: int64(length), Want: legacyMinV1}
		}
		h.MaxTimestamp = kafka.Timestamp(binary.BigEndian.Uint64(b[legacyTimestamp:]))
	}
	return nil
}

// NextBatch frames the batch at the start of a buffer by the rules of
// ByteBufferLogInputStream: ok is false, without an error, when no whole batch
// is left (end of the buffer or a partial batch); a declared length below 14,
// a batch of v2 smaller than its header, or a magic outside 0 to 2 is a
// *CorruptError. The checksum is not looked at.
func NextBatch(buf []byte) (size int, ok bool, err error) {
	if len(buf) < LogOverhead {
		return 0, false, nil
	}
	length := int32(binary.BigEndian.Uint32(buf[offLength:]))
	if length < minBatchBody {
		return 0, false, &CorruptError{
			Base: kafka.Offset(binary.BigEndian.Uint64(buf)), Reason: "declared length", Found: int64(length), Want: minBatchBody}
	}
	if len(buf) < magicEnd {
		return 0, false, nil
	}
	magic := int8(buf[offMagic])
	if magic < 0 || magic > MagicV2 {
		return 0, false, &CorruptError{
			Base: kafka.Offset(binary.BigEndian.Uint64(buf)), Reason: "magic", Found: int64(magic), Want: MagicV2}
	}
	size = LogOverhead + int(length)
	if size > len(buf) {
		return 0, false, nil
	}
	if magic == MagicV2 && size < HeaderSize {
		return 0, false, &CorruptError{
			Base: kafka.Offset(binary.BigEndian.Uint64(buf)), Reason: "size", Found: int64(size), Want: HeaderSize}
	}
	return size, true, nil
}

// ValidBytes is the number of bytes that whole batches take at the start of
// buf (MemoryRecords.validBytes), and the error that ended the count, if any.
func ValidBytes(buf []byte) (n int, err error) {
	for {
		size, ok, err := NextBatch(buf[n:])
		if err != nil || !ok {
			return n, err
		}
		n += size
	}
}
