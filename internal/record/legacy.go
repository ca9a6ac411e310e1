package record

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/varvelog/varve/internal/kafka"
)

// Places of the fields of a message of format 0 or 1, counted from its offset.
const (
	legacyCRC        = 12
	legacyMagic      = 16
	legacyAttributes = 17
	legacyTimestamp  = 18
	legacyKeyV0      = 18
	legacyKeyV1      = 26
)

// Message formats 0 and 1 are only read: since Kafka 3.0 nothing writes them,
// old segments may still hold them. An outer message is a batch of one record,
// or, compressed, a wrapper whose value is a message set. In format 0 the inner
// offsets are absolute; in format 1 they count from 0 and the wrapper's offset
// is that of the last inner message.

// CheckLegacy reports whether b is one whole message of format 0 or 1 with a
// right CRC-32 (LegacyRecord.isValid). The error is a *CorruptError.
func CheckLegacy(b []byte) error {
	if len(b) < LogOverhead+legacyMinV0 {
		return &CorruptError{Reason: "bytes of the message", Found: int64(len(b)), Want: LogOverhead + legacyMinV0}
	}
	if stored, computed := binary.BigEndian.Uint32(b[legacyCRC:]), legacyChecksum(b); stored != computed {
		return &CorruptError{
			Base: kafka.Offset(binary.BigEndian.Uint64(b)), Reason: "checksum", Found: int64(stored), Want: int64(computed)}
	}
	return nil
}

func legacyChecksum(b []byte) uint32 { return crc32.ChecksumIEEE(b[legacyMagic:]) }

// Check reports whether b is one whole valid batch of any format: Batch.Check
// or CheckLegacy by its magic.
func Check(b []byte) error {
	if len(b) >= magicEnd && int8(b[offMagic]) < MagicV2 {
		return CheckLegacy(b)
	}
	return Batch(b).Check()
}

// legacyIterator is the part of an Iterator that old formats need.
type legacyIterator struct {
	active   bool
	messages []legacyMessage // where the inner messages are; one for an uncompressed outer message
	wrapper  Header
	inner    bool         // the messages come out of a wrapper
	base     kafka.Offset // added to the inner offsets in a format 1 wrapper
}

// legacyMessage is one framed message in Iterator.data.
type legacyMessage struct{ start, end int }

func (it *Iterator) resetLegacy(b []byte, h *Header, dec *Decompressor) error {
	l := &it.legacy
	l.active = true
	l.wrapper = *h
	it.data = b
	if h.Codec() == None {
		l.messages = append(l.messages, legacyMessage{0, len(b)})
		it.count = 1
		return nil
	}
	l.inner = true
	var wrapper Record
	if err := wrapper.readLegacy(b); err != nil {
		return err
	}
	if h.Magic != 0 && h.Magic != 1 {
		return &InvalidError{Index: -1, Reason: "Invalid wrapper magic found in legacy deep record iterator"}
	}
	if h.Codec() == Zstd {
		return ErrUnknownCodec
	}
	if wrapper.Value == nil {
		return &InvalidError{Index: -1, Reason: "Found invalid compressed record set with null value"}
	}
	if dec == nil {
		return &InvalidError{Index: -1, Reason: "compressed message set and no decompressor"}
	}
	data, err := dec.decompress(h.Codec(), wrapper.Value, h.Magic == 0)
	if err != nil {
		return err
	}
	it.data = data
	return l.frame(data, &it.count)
}

// frame finds the inner messages; a partial one at the end is dropped, as
// Kafka drops it.
func (l *legacyIterator) frame(data []byte, count *int32) error {
	for pos := 0; len(data)-pos >= LogOverhead; {
		length := int32(binary.BigEndian.Uint32(data[pos+offLength:]))
		if length < legacyMinV0 {
			return &CorruptError{Base: l.wrapper.BaseOffset, Reason: "inner length", Found: int64(length), Want: legacyMinV0}
		}
		end := pos + LogOverhead + int(length)
		if end > len(data) {
			break
		}
		l.messages = append(l.messages, legacyMessage{pos, end})
		pos = end
	}
	n := len(l.messages)
	if n == 0 {
		return &InvalidError{Index: -1, Reason: "Found invalid compressed record set with no inner records"}
	}
	*count = int32(n)
	if l.wrapper.Magic == 1 {
		last := kafka.Offset(binary.BigEndian.Uint64(data[l.messages[n-1].start:]))
		// Some versions of librdkafka left the outer offset 0.
		if outer := l.wrapper.LastOffset; outer != 0 {
			if outer < last {
				return &InvalidError{Index: -1, Reason: "Found invalid wrapper offset in compressed v1 message set"}
			}
			l.base = outer - last
		}
	}
	return nil
}

func (it *Iterator) nextLegacy() bool {
	l := &it.legacy
	m := l.messages[it.index]
	b := it.data[m.start:m.end]
	if it.err = it.rec.readLegacy(b); it.err != nil {
		return false
	}
	r := &it.rec
	if l.inner {
		if b[legacyAttributes]&AttrCodecMask != 0 {
			it.err = &InvalidError{Index: int(it.index), Reason: "Inner messages must not be compressed"}
			return false
		}
		if l.wrapper.Magic == 1 {
			r.Offset += l.base
		}
		if r.Magic != 0 {
			// Format 1 takes the type from its wrapper, and the time too when
			// the broker stamped it.
			r.TimestampType = l.wrapper.TimestampType()
			if r.TimestampType == kafka.LogAppendTime {
				r.Timestamp = l.wrapper.MaxTimestamp
			}
		}
	}
	it.index++
	return true
}

// readLegacy decodes one whole message. The checksum is computed and reported
// in Valid, not enforced: batches are checked before they are iterated.
func (r *Record) readLegacy(b []byte) error {
	if len(b) < LogOverhead+legacyMinV0 {
		return &CorruptError{Reason: "bytes of the message", Found: int64(len(b)), Want: LogOverhead + legacyMinV0}
	}
	*r = Record{
		Offset:        kafka.Offset(binary.BigEndian.Uint64(b)),
		Timestamp:     kafka.NoTimestamp,
		TimestampType: kafka.NoTimestampType,
		Sequence:      kafka.NoSequence,
		Headers:       r.Headers[:0],
		Size:          len(b) - LogOverhead,
		Magic:         int8(b[legacyMagic]),
		CRC:           binary.BigEndian.Uint32(b[legacyCRC:]),
		Valid:         CheckLegacy(b) == nil,
	}
	key := legacyKeyV0
	if r.Magic != 0 {
		key = legacyKeyV1
		if len(b) < LogOverhead+legacyMinV1 {
			return &CorruptError{Base: r.Offset, Reason: "bytes of the message", Found: int64(len(b)), Want: LogOverhead + legacyMinV1}
		}
		r.Timestamp = kafka.Timestamp(binary.BigEndian.Uint64(b[legacyTimestamp:]))
		r.TimestampType = kafka.CreateTime
		if b[legacyAttributes]&AttrLogAppendTime != 0 {
			r.TimestampType = kafka.LogAppendTime
		}
	}
	var ok bool
	i := key
	if r.Key, i, ok = legacyField(b, i); ok {
		r.Value, _, ok = legacyField(b, i)
	}
	if !ok {
		return &CorruptError{Base: r.Offset, Reason: "key or value passes the end of the message"}
	}
	return nil
}

// legacyField reads a field with a 32-bit length, negative for null.
func legacyField(b []byte, i int) (f []byte, next int, ok bool) {
	if len(b)-i < 4 {
		return nil, 0, false
	}
	n := int(int32(binary.BigEndian.Uint32(b[i:])))
	i += 4
	if n < 0 {
		return nil, i, true
	}
	if n > len(b)-i {
		return nil, 0, false
	}
	return b[i : i+n : i+n], i + n, true
}
