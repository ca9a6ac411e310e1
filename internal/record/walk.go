package record

import (
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/kafka"
)

// Summary is what a walk over all records of a batch finds: enough to decide,
// without a second look, whether any record breaks a topic's rules. Only a
// batch that does is iterated again to name the records.
type Summary struct {
	Count int // records; equal to the header's count when the walk succeeds

	// MaxTimestamp is the largest record timestamp, but at least NoTimestamp:
	// Kafka starts its search there. MinTimestamp is the smallest of the
	// records that have one (math.MaxInt64 when none has).
	MaxTimestamp kafka.Timestamp
	MinTimestamp kafka.Timestamp
	// NoTimestamps is how many records have timestamp -1.
	NoTimestamps int
	// NullKeys is how many records have no key, FirstNullKey the index of the
	// first of them, -1 without any.
	NullKeys     int
	FirstNullKey int
	// Consecutive says that the offset deltas are 0, 1, 2, … Count-1.
	Consecutive bool
	// RecordBytes is the size of the records section, decompressed.
	RecordBytes int
}

// Summarize walks over the records, decompressing into dec's scratch buffer if
// need be. Every length is checked and the records must fill the section
// exactly; the checksum is the caller's business (Check). It allocates nothing
// unless it fails or dec's buffer has to grow. Errors are those of Iterator.
func (b Batch) Summarize(dec *Decompressor) (Summary, error) {
	s := Summary{
		MaxTimestamp: kafka.NoTimestamp, MinTimestamp: math.MaxInt64,
		FirstNullKey: -1, Consecutive: true,
	}
	if err := b.sizeError(); err != nil {
		return s, err
	}
	count := b.Count()
	if count < 0 {
		return s, &InvalidError{Index: -1, Reason: fmt.Sprintf("Found invalid record count %d in magic v%d batch", count, b.Magic())}
	}
	if count == 0 {
		return s, nil
	}
	data, maxRecord := []byte(b[HeaderSize:]), 0
	if codec := b.Codec(); codec != None {
		if dec == nil {
			return s, fmt.Errorf("batch at %d is compressed with %v and there is no decompressor", b.BaseOffset(), codec)
		}
		var err error
		if data, err = dec.Decompress(codec, data); err != nil {
			return s, err
		}
		maxRecord = dec.MaxRecord
	}
	s.RecordBytes = len(data)
	w := walker{
		base:      b.BaseTimestamp(),
		maxRecord: maxRecord,
	}
	pos := 0
	for i := range count {
		next, reason := w.step(&s, data, pos, i)
		if reason == "" && i+1 == count && next != len(data) {
			reason = reasonRemaining
		}
		if reason != "" {
			return s, &InvalidError{Index: int(i), Reason: reason}
		}
		pos = next
	}
	s.Count = int(count)
	if b.TimestampType() == kafka.LogAppendTime {
		s.overrideTimestamps(b.MaxTimestamp())
	}
	return s, nil
}

// overrideTimestamps gives every record the batch's timestamp.
func (s *Summary) overrideTimestamps(ts kafka.Timestamp) {
	s.MaxTimestamp, s.MinTimestamp, s.NoTimestamps = max(ts, kafka.NoTimestamp), ts, 0
	if ts == kafka.NoTimestamp {
		s.MinTimestamp, s.NoTimestamps = math.MaxInt64, s.Count
	}
}

func (b Batch) sizeError() error {
	if len(b) < HeaderSize {
		return &CorruptError{Reason: "size is smaller than a batch header", Found: int64(len(b)), Want: HeaderSize}
	}
	if size := b.Size(); size != len(b) {
		return &CorruptError{Base: b.BaseOffset(), Reason: "declared size", Found: int64(size), Want: int64(len(b))}
	}
	return nil
}

// walker is Iterator.read without building the record.
type walker struct {
	base      kafka.Timestamp
	maxRecord int
}

func (w *walker) step(s *Summary, b []byte, pos int, index int32) (end int, reason string) {
	size, i := varint(b, pos)
	if i == 0 || size < 0 || int(size) > len(b)-i {
		return 0, reasonLength
	}
	if w.maxRecord > 0 && int(size) > w.maxRecord {
		return 0, reasonTooLarge
	}
	end = i + int(size)
	b = b[:end]
	i++ // attributes
	delta, i := varlong(b, i)
	if i == 0 {
		return 0, reasonStructure
	}
	offsetDelta, i := varint(b, i)
	if i == 0 {
		return 0, reasonStructure
	}
	keySize, i := varint(b, i)
	if i == 0 || int(keySize) > len(b)-i {
		return 0, reasonStructure
	}
	if keySize < 0 {
		if s.NullKeys == 0 {
			s.FirstNullKey = int(index)
		}
		s.NullKeys++
	} else {
		i += int(keySize)
	}
	if i = skipField(b, i); i == 0 {
		return 0, reasonStructure
	}
	if i, reason = skipHeaders(b, i); reason != "" {
		return 0, reason
	}
	if i != end {
		return 0, reasonConsumed
	}
	if offsetDelta != index {
		s.Consecutive = false
	}
	s.addTimestamp(w.base + kafka.Timestamp(delta))
	return end, ""
}

func (s *Summary) addTimestamp(ts kafka.Timestamp) {
	if ts == kafka.NoTimestamp {
		s.NoTimestamps++
		return
	}
	s.MaxTimestamp = max(s.MaxTimestamp, ts)
	s.MinTimestamp = min(s.MinTimestamp, ts)
}

func skipField(b []byte, i int) (next int) {
	n, i := varint(b, i)
	if i == 0 || int(n) > len(b)-i {
		return 0
	}
	return i + max(int(n), 0)
}

func skipHeaders(b []byte, i int) (next int, reason string) {
	n, i := varint(b, i)
	if i == 0 {
		return 0, reasonStructure
	}
	if n < 0 || int(n) > len(b)-i {
		return 0, reasonHeaders
	}
	for range n {
		keySize, j := varint(b, i)
		if j == 0 || keySize < 0 || int(keySize) > len(b)-j {
			return 0, reasonStructure
		}
		if i = skipField(b, j+int(keySize)); i == 0 {
			return 0, reasonStructure
		}
	}
	return i, ""
}
