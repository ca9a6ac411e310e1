package record

import (
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
)

// Record is one record of any format, read in place: Key, Value and Headers
// point into the batch or into the Decompressor's scratch buffer and are valid
// until the Iterator moves on. nil means null, which is not the same as empty.
type Record struct {
	Offset        kafka.Offset
	Timestamp     kafka.Timestamp // NoTimestamp in format 0
	TimestampType kafka.TimestampType
	Sequence      kafka.Sequence // NoSequence without a base sequence
	Key           []byte
	Value         []byte
	Headers       []RecordHeader
	Size          int // encoded bytes, length prefix included

	// Magic is the record's own format: in a compressed message of an old
	// format it may differ from the wrapper's.
	Magic int8
	// CRC and Valid are the checksum of an old message; 0 and true in format 2.
	CRC   uint32
	Valid bool
}

// Iterator reads the records of one batch, of any format, from first to last.
// The zero value is exhausted; Reset gives it a batch. It allocates nothing for
// uncompressed v2 batches once its headers slice has grown.
type Iterator struct {
	rec   Record
	err   error
	data  []byte // uncompressed records section
	pos   int
	index int32
	count int32

	// What the records' deltas are added to.
	baseOffset    kafka.Offset
	baseTimestamp kafka.Timestamp
	baseSequence  kafka.Sequence
	logAppendTime bool
	maxTimestamp  kafka.Timestamp
	maxRecord     int

	legacy legacyIterator
}

// Reset begins the batch b, which is one whole batch as NextBatch or Scanner
// frame it; its checksum is believed to be right. dec is used, and kept until
// the next Reset, when the batch is compressed; it may be nil when that is
// known not to be so.
func (it *Iterator) Reset(b []byte, dec *Decompressor) error {
	headers := it.rec.Headers[:0]
	messages := it.legacy.messages[:0]
	*it = Iterator{}
	it.rec.Headers = headers
	it.legacy.messages = messages
	var h Header
	if it.err = h.parse(b); it.err != nil {
		return it.err
	}
	if h.Size != len(b) {
		it.err = &CorruptError{Base: h.BaseOffset, Reason: "declared size", Found: int64(h.Size), Want: int64(len(b))}
		return it.err
	}
	if h.Magic < MagicV2 {
		it.err = it.resetLegacy(b, &h, dec)
		return it.err
	}
	it.err = it.resetV2(b, &h, dec)
	return it.err
}

func (it *Iterator) resetV2(b []byte, h *Header, dec *Decompressor) error {
	if h.Count < 0 {
		return &InvalidError{Index: -1, Reason: fmt.Sprintf("Found invalid record count %d in magic v%d batch", h.Count, h.Magic)}
	}
	it.count = h.Count
	it.data = b[HeaderSize:]
	it.baseOffset = h.BaseOffset
	it.baseTimestamp = h.BaseTimestamp
	it.baseSequence = h.BaseSequence
	it.maxTimestamp = h.MaxTimestamp
	it.logAppendTime = h.TimestampType() == kafka.LogAppendTime
	it.rec.Magic = h.Magic
	it.rec.Valid = true
	it.rec.TimestampType = h.TimestampType()
	if h.Count == 0 {
		it.data = nil // nothing is decompressed, and nothing is asked of what is there
		return nil
	}
	if h.Codec() == None {
		return nil
	}
	if dec == nil {
		return fmt.Errorf("batch at %d is compressed with %v and there is no decompressor", h.BaseOffset, h.Codec())
	}
	it.maxRecord = dec.MaxRecord
	data, err := dec.Decompress(h.Codec(), it.data)
	it.data = data
	return err
}

// Next moves to the next record. It returns false at the end and at an error,
// which Err tells apart.
func (it *Iterator) Next() bool {
	if it.err != nil || it.index >= it.count {
		return false
	}
	if it.legacy.active {
		return it.nextLegacy()
	}
	next, reason := it.read(it.pos)
	if reason == "" && it.index+1 == it.count && next != len(it.data) {
		reason = reasonRemaining
	}
	if reason != "" {
		it.err = &InvalidError{Index: int(it.index), Reason: reason}
		return false
	}
	it.pos = next
	it.index++
	return true
}

// Rewind goes back to before the first record, without decompressing again what
// Reset has. It does not clear an error.
func (it *Iterator) Rewind() { it.pos, it.index = 0, 0 }

// Record is the record that Next found. It is overwritten by the next Next.
func (it *Iterator) Record() *Record { return &it.rec }

// Index is the place in the batch of the record that Next found.
func (it *Iterator) Index() int { return int(it.index) - 1 }

// Err is the first error, of Reset or Next: a *CorruptError, an *InvalidError,
// ErrTooLarge or ErrUnknownCodec.
func (it *Iterator) Err() error { return it.err }

// Reasons of an *InvalidError, in the words of Kafka's exceptions.
const (
	reasonLength    = "Invalid record size: the record payload reached EOF"
	reasonStructure = "Found invalid record structure"
	reasonHeaders   = "Found invalid number of record headers"
	reasonConsumed  = "Invalid record size: the record does not end where its size says"
	reasonRemaining = "Incorrect declared batch size, records still remaining in file"
	reasonTooLarge  = "Record size exceeds max.decompressed.message.bytes"
)

// read decodes the record at data[pos:] into rec and returns where it ends, or
// the reason why it cannot.
func (it *Iterator) read(pos int) (end int, reason string) {
	b := it.data
	size, i := varint(b, pos)
	if i == 0 || size < 0 || int(size) > len(b)-i {
		return 0, reasonLength
	}
	if it.maxRecord > 0 && int(size) > it.maxRecord {
		return 0, reasonTooLarge
	}
	end = i + int(size)
	b = b[:end] // nothing below may read past this record
	i++         // attributes
	timestampDelta, i := varlong(b, i)
	if i == 0 {
		return 0, reasonStructure
	}
	offsetDelta, i := varint(b, i)
	if i == 0 {
		return 0, reasonStructure
	}
	r := &it.rec
	if r.Key, i = field(b, i); i == 0 {
		return 0, reasonStructure
	}
	if r.Value, i = field(b, i); i == 0 {
		return 0, reasonStructure
	}
	if i, reason = r.readHeaders(b, i); reason != "" {
		return 0, reason
	}
	if i != end {
		return 0, reasonConsumed
	}
	r.Size = end - pos
	r.Offset = it.baseOffset + kafka.Offset(offsetDelta)
	r.Timestamp = it.baseTimestamp + kafka.Timestamp(timestampDelta)
	if it.logAppendTime {
		r.Timestamp = it.maxTimestamp
	}
	r.Sequence = kafka.NoSequence
	if it.baseSequence >= 0 {
		r.Sequence = it.baseSequence.Add(offsetDelta)
	}
	return end, ""
}

func (r *Record) readHeaders(b []byte, i int) (next int, reason string) {
	r.Headers = r.Headers[:0]
	n, i := varint(b, i)
	if i == 0 {
		return 0, reasonStructure
	}
	if n < 0 || int(n) > len(b)-i {
		return 0, reasonHeaders
	}
	for range n {
		var h RecordHeader
		if h.Key, i = field(b, i); i == 0 || h.Key == nil {
			return 0, reasonStructure
		}
		if h.Value, i = field(b, i); i == 0 {
			return 0, reasonStructure
		}
		r.Headers = append(r.Headers, h)
	}
	return i, ""
}

// field reads a length-prefixed field; nil for any negative length, as Kafka
// reads it. next is 0 when it does not fit.
func field(b []byte, i int) (f []byte, next int) {
	n, i := varint(b, i)
	if i == 0 || int(n) > len(b)-i {
		return nil, 0
	}
	if n < 0 {
		return nil, i
	}
	return b[i : i+int(n) : i+int(n)], i + int(n)
}
