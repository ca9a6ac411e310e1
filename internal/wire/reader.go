package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
)

// Reader decodes primitives from a frame in place. The first thing that cannot
// be read sets an error that stays; after it every method returns zero values,
// so a decoder checks once at its end. Nothing is allocated: byte slices alias
// the frame and are valid as long as it is.
//
// It is as lenient as Kafka: any non-zero bool is true, a negative length is
// null, unknown and repeated tags are skipped, and bytes after the last field
// are ignored.
type Reader struct {
	buf  []byte
	pos  int
	flex bool
	err  error
}

// NewReader reads body; flexible says whether lengths are compact (KIP-482).
func NewReader(body []byte, flexible bool) Reader {
	return Reader{buf: body, flex: flexible}
}

// Err is the first error, wrapping ErrMalformed, or nil.
func (r *Reader) Err() error { return r.err }

// Remaining is the number of bytes not yet read.
func (r *Reader) Remaining() int { return len(r.buf) - r.pos }

func (r *Reader) fail(what string) {
	if r.err == nil {
		r.err = fmt.Errorf("byte %d of %d: %s: %w", r.pos, len(r.buf), what, ErrMalformed)
		r.pos = len(r.buf)
	}
}

// take returns the next n bytes, or nil and an error when they are not there.
func (r *Reader) take(n int) []byte {
	if n > len(r.buf)-r.pos {
		r.fail("ends early")
		return nil
	}
	b := r.buf[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	return b
}

// Bool is true for every byte but zero.
func (r *Reader) Bool() bool { return r.Int8() != 0 }

// Int8 reads one byte.
func (r *Reader) Int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

// Int16 reads two bytes.
func (r *Reader) Int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

// Int32 reads four bytes.
func (r *Reader) Int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// Int64 reads eight bytes.
func (r *Reader) Int64() int64 {
	if b := r.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// UUID reads sixteen bytes.
func (r *Reader) UUID() (u kafka.UUID) {
	copy(u[:], r.take(len(u)))
	return u
}

// Uvarint reads an unsigned varint of at most five bytes; bits above the 32nd
// are dropped, as Kafka's ByteUtils drops them.
func (r *Reader) Uvarint() uint32 {
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		b := r.take(1)
		if b == nil {
			return 0
		}
		v |= uint32(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			return v
		}
	}
	r.fail("varint longer than five bytes")
	return 0
}

// length reads the length of a string, bytes or array whose fixed-width form
// has width bytes. It is negative for null.
func (r *Reader) length(width int) int {
	switch {
	case r.flex:
		return int(int32(r.Uvarint()) - 1)
	case width == 2:
		return int(r.Int16())
	default:
		return int(r.Int32())
	}
}

// NullableString returns the bytes of a string; nil is null, and an empty
// string is not nil. They need not be UTF-8.
func (r *Reader) NullableString() []byte {
	n := r.length(2)
	switch {
	case r.err != nil || n < 0:
		return nil
	case n > maxString:
		r.fail("string too long")
		return nil
	}
	return r.take(n)
}

// String is NullableString for a field that must not be null.
func (r *Reader) String() []byte {
	s := r.NullableString()
	if s == nil {
		r.fail("null string")
	}
	return s
}

// NullableBytes returns a byte field; nil is null, and an empty field is not nil.
func (r *Reader) NullableBytes() []byte {
	n := r.length(4)
	if r.err != nil || n < 0 {
		return nil
	}
	return r.take(n)
}

// NullableArray returns the number of elements of an array, -1 for null. It
// fails when the rest of the frame cannot hold them at minSize bytes each, so
// the count may be trusted for an allocation.
func (r *Reader) NullableArray(minSize int) int {
	n := r.length(4)
	switch {
	case r.err != nil:
		return 0
	case n < 0:
		return -1
	case n > MaxElements:
		r.fail("array too long")
		return 0
	case n > r.Remaining()/max(minSize, 1):
		r.fail("array longer than the frame")
		return 0
	}
	return n
}

// Array is NullableArray for a field that must not be null.
func (r *Reader) Array(minSize int) int {
	n := r.NullableArray(minSize)
	if n < 0 {
		r.fail("null array")
		return 0
	}
	return n
}

// TagCount begins a tagged-field section and returns its number of fields; it
// is 0, with nothing read, when the message is not flexible.
func (r *Reader) TagCount() int {
	if !r.flex {
		return 0
	}
	n := r.Uvarint()
	if n > MaxTags {
		r.fail("too many tagged fields")
		return 0
	}
	return int(n)
}

// Tag reads one field of a tagged section: its number and a reader of its
// content. Errors in that reader are handed back with Join.
func (r *Reader) Tag() (tag uint32, field Reader) {
	tag = r.Uvarint()
	size := r.Uvarint()
	if r.err == nil && uint64(size) > uint64(r.Remaining()) {
		r.fail("tagged field longer than the frame")
	}
	if r.err != nil {
		return 0, Reader{err: r.err}
	}
	return tag, Reader{buf: r.take(int(size)), flex: r.flex}
}

// Join takes over the error of a reader that Tag returned.
func (r *Reader) Join(field *Reader) {
	if r.err == nil && field.err != nil {
		r.err = field.err
		r.pos = len(r.buf)
	}
}

// SkipTags reads over a tagged section in which no field is known.
func (r *Reader) SkipTags() {
	for n := r.TagCount(); n > 0 && r.err == nil; n-- {
		r.Tag()
	}
}
