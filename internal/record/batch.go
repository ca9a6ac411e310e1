// Package record reads and writes Kafka's record batches: batch format v2
// (KIP-98) as a view on its bytes, the five codecs, control records, and the
// message formats 0 and 1 of old segments, which are only read.
//
// Before it on the path: bytes of a Produce request or of a `.log` file. After
// it: segment (framing, recovery), commitlog (validation, offsets), producer
// (sequences), and the coordinators, which build batches. It knows no file
// name, clock or lock.
package record

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/varvelog/varve/internal/kafka"
)

// Sizes of the fixed parts, in bytes.
const (
	LogOverhead  = 12 // base offset and length, before what the length counts
	HeaderSize   = 61 // whole v2 header, records follow
	legacyMinV0  = 14 // crc, magic, attributes, key length, value length
	legacyMinV1  = 22 // the same with a timestamp
	minBatchBody = legacyMinV0
	magicEnd     = 17 // bytes up to and including the magic, at the same place in all formats
)

// Places of the v2 header's fields.
const (
	offBaseOffset      = 0
	offLength          = 8
	offLeaderEpoch     = 12
	offMagic           = 16
	offCRC             = 17
	offAttributes      = 21
	offLastOffsetDelta = 23
	offBaseTimestamp   = 27
	offMaxTimestamp    = 35
	offProducerID      = 43
	offProducerEpoch   = 51
	offBaseSequence    = 53
	offCount           = 57
)

// Bits of the v2 attributes. Only the low eight are interpreted.
const (
	AttrCodecMask     = 0x07
	AttrLogAppendTime = 0x08
	AttrTransactional = 0x10
	AttrControl       = 0x20
	AttrDeleteHorizon = 0x40
	attrMeaningful    = 0x7f
)

// MagicV2 is the magic byte of the only format that is written.
const MagicV2 = 2

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is one whole batch of format v2: header and records, as on disk and on
// the wire. The accessors read in place and need len(b) >= HeaderSize, which
// NextBatch, Scanner and Check establish. The bytes belong to whoever made the
// Batch; setters write into them.
type Batch []byte

// BaseOffset is the offset that the records' deltas are added to. After
// compaction no record may have it.
func (b Batch) BaseOffset() kafka.Offset {
	return kafka.Offset(binary.BigEndian.Uint64(b[offBaseOffset:]))
}

// Size is the declared size of the whole batch in bytes, 12-byte prefix included.
func (b Batch) Size() int { return LogOverhead + int(int32(binary.BigEndian.Uint32(b[offLength:]))) }

// LeaderEpoch is outside the checksum; -1 as clients send it.
func (b Batch) LeaderEpoch() kafka.LeaderEpoch {
	return kafka.LeaderEpoch(binary.BigEndian.Uint32(b[offLeaderEpoch:]))
}

// Magic is the format version. It is outside the checksum.
func (b Batch) Magic() int8 { return int8(b[offMagic]) }

// CRC is the stored checksum; ComputeCRC is what it should be.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b[offCRC:]) }

// Attributes are the raw bits, of which Kafka interprets the low eight.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[offAttributes:])) }

// Codec is the compression of the records section. Values 5 to 7 exist on the
// wire and have no codec.
func (b Batch) Codec() Codec { return Codec(b[offAttributes+1] & AttrCodecMask) }

// TimestampType says whether MaxTimestamp is every record's timestamp (LogAppendTime).
func (b Batch) TimestampType() kafka.TimestampType {
	if b[offAttributes+1]&AttrLogAppendTime != 0 {
		return kafka.LogAppendTime
	}
	return kafka.CreateTime
}

// IsTransactional reports whether the batch belongs to a transaction.
func (b Batch) IsTransactional() bool { return b[offAttributes+1]&AttrTransactional != 0 }

// IsControl reports whether the records are control records, invisible to consumers.
func (b Batch) IsControl() bool { return b[offAttributes+1]&AttrControl != 0 }

// HasDeleteHorizon reports whether BaseTimestamp holds the delete horizon (KIP-534).
func (b Batch) HasDeleteHorizon() bool { return b[offAttributes+1]&AttrDeleteHorizon != 0 }

// LastOffsetDelta is preserved by compaction, so it may exceed Count-1.
func (b Batch) LastOffsetDelta() int32 { return int32(binary.BigEndian.Uint32(b[offLastOffsetDelta:])) }

// LastOffset is the last offset that the batch covers.
func (b Batch) LastOffset() kafka.Offset { return b.BaseOffset() + kafka.Offset(b.LastOffsetDelta()) }

// NextOffset is the offset after the batch.
func (b Batch) NextOffset() kafka.Offset { return b.LastOffset() + 1 }

// BaseTimestamp is what the records' timestamp deltas are added to; with a
// delete horizon it is that horizon.
func (b Batch) BaseTimestamp() kafka.Timestamp {
	return kafka.Timestamp(binary.BigEndian.Uint64(b[offBaseTimestamp:]))
}

// MaxTimestamp is the largest record timestamp as the header has it.
func (b Batch) MaxTimestamp() kafka.Timestamp {
	return kafka.Timestamp(binary.BigEndian.Uint64(b[offMaxTimestamp:]))
}

// ProducerID is -1 for a producer that is not idempotent.
func (b Batch) ProducerID() kafka.ProducerID {
	return kafka.ProducerID(binary.BigEndian.Uint64(b[offProducerID:]))
}

// ProducerEpoch goes with ProducerID.
func (b Batch) ProducerEpoch() kafka.ProducerEpoch {
	return kafka.ProducerEpoch(binary.BigEndian.Uint16(b[offProducerEpoch:]))
}

// BaseSequence is the sequence of the first record. Coordinators write 0
// without a producer id: a sequence alone does not make a batch idempotent.
func (b Batch) BaseSequence() kafka.Sequence {
	return kafka.Sequence(binary.BigEndian.Uint32(b[offBaseSequence:]))
}

// LastSequence is the sequence at LastOffset, or NoSequence.
func (b Batch) LastSequence() kafka.Sequence {
	base := b.BaseSequence()
	if base == kafka.NoSequence {
		return kafka.NoSequence
	}
	return base.Add(b.LastOffsetDelta())
}

// Count is the number of records in the batch; 0 for one that compaction emptied.
func (b Batch) Count() int32 { return int32(binary.BigEndian.Uint32(b[offCount:])) }

// SetBaseOffset writes the base offset, which is outside the checksum.
func (b Batch) SetBaseOffset(o kafka.Offset) {
	binary.BigEndian.PutUint64(b[offBaseOffset:], uint64(o))
}

// SetLastOffset moves the batch so that it ends at o (DefaultRecordBatch.setLastOffset).
func (b Batch) SetLastOffset(o kafka.Offset) { b.SetBaseOffset(o - kafka.Offset(b.LastOffsetDelta())) }

// SetLeaderEpoch writes the leader epoch, which is outside the checksum.
func (b Batch) SetLeaderEpoch(e kafka.LeaderEpoch) {
	binary.BigEndian.PutUint32(b[offLeaderEpoch:], uint32(e))
}

// SetMaxTimestamp writes the maximum timestamp and its type. When either
// differs from what is there, attribute bits without meaning are cleared and
// the checksum is computed anew, as DefaultRecordBatch.setMaxTimestamp does;
// otherwise no byte changes.
func (b Batch) SetMaxTimestamp(t kafka.TimestampType, ts kafka.Timestamp) {
	if b.TimestampType() == t && b.MaxTimestamp() == ts {
		return
	}
	attrs := b.Attributes() & attrMeaningful &^ AttrLogAppendTime
	if t == kafka.LogAppendTime {
		attrs |= AttrLogAppendTime
	}
	binary.BigEndian.PutUint16(b[offAttributes:], uint16(attrs))
	binary.BigEndian.PutUint64(b[offMaxTimestamp:], uint64(ts))
	b.sealCRC()
}

// SetProducer writes the producer's fields and the transactional bit and
// computes the checksum anew.
func (b Batch) SetProducer(id kafka.ProducerID, epoch kafka.ProducerEpoch, base kafka.Sequence, transactional bool) {
	attrs := b.Attributes() &^ AttrTransactional
	if transactional {
		attrs |= AttrTransactional
	}
	binary.BigEndian.PutUint16(b[offAttributes:], uint16(attrs))
	binary.BigEndian.PutUint64(b[offProducerID:], uint64(id))
	binary.BigEndian.PutUint16(b[offProducerEpoch:], uint16(epoch))
	binary.BigEndian.PutUint32(b[offBaseSequence:], uint32(base))
	b.sealCRC()
}

// ComputeCRC is the CRC-32C of everything from the attributes to the end.
func (b Batch) ComputeCRC() uint32 { return crc32.Checksum(b[offAttributes:], castagnoli) }

func (b Batch) sealCRC() { binary.BigEndian.PutUint32(b[offCRC:], b.ComputeCRC()) }

// Check reports whether the bytes are a valid v2 batch: declared size equal to
// len(b) and at least a header, checksum right. The error is a *CorruptError.
// The magic byte is not part of it: it is outside the checksum, and Kafka
// accepts any value above 1 in a file (storage rules of recovery).
func (b Batch) Check() error {
	if err := b.sizeError(); err != nil {
		return err
	}
	if stored, computed := b.CRC(), b.ComputeCRC(); stored != computed {
		return &CorruptError{Base: b.BaseOffset(), Reason: "checksum", Found: int64(stored), Want: int64(computed)}
	}
	return nil
}
