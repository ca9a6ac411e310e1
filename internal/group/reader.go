package group

import "encoding/binary"

// reader decodes big-endian fields and remembers the first that was cut short.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) int8() int8 {
	if b := r.take(1); b != nil {
		return int8(b[0])
	}
	return 0
}

func (r *reader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *reader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (r *reader) string() string { return string(r.take(int(r.int16()))) }

func (r *reader) uvarint() int {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || v > 1<<31-1 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

// compactString reads a string of a flexible version; null reads as empty.
func (r *reader) compactString() string {
	n := r.uvarint()
	if n == 0 {
		return ""
	}
	return string(r.take(n - 1))
}

// appendString appends a string of a version that is not flexible.
func appendString(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}
