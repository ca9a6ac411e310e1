package metadata

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/varvelog/varve/internal/kafka"
)

// errShort, errNull and errVarint are the ways in which bytes fail to be a
// message; they reach callers inside a *DecodeError.
var (
	errShort  = errors.New("message ends early")
	errNull   = errors.New("null where none is allowed")
	errVarint = errors.New("varint longer than 5 bytes")
)

// decoder reads what encoder writes. The first error sticks: later reads give
// zero values and leave the position alone.
type decoder struct {
	buf    []byte // what is left
	err    error
	frames []decodeFrame
}

// decodeFrame remembers how to read the tagged fields of one open struct.
type decodeFrame struct{ tags []taggedField }

type taggedField struct {
	tag  uint32
	body func()
}

func (d *decoder) decoding() bool { return true }

// take returns the next n bytes, or nil after an error.
func (d *decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n > len(d.buf) {
		d.err = errShort
		return nil
	}
	b := d.buf[:n:n]
	d.buf = d.buf[n:]
	return b
}

func (d *decoder) bool(_ string, v *bool) {
	if b := d.take(1); b != nil {
		*v = b[0] != 0
	}
}

func (d *decoder) int8(_ string, v *int8) {
	if b := d.take(1); b != nil {
		*v = int8(b[0])
	}
}

func (d *decoder) int16(_ string, v *int16) {
	if b := d.take(2); b != nil {
		*v = int16(binary.BigEndian.Uint16(b))
	}
}

func (d *decoder) uint16(_ string, v *uint16) {
	if b := d.take(2); b != nil {
		*v = binary.BigEndian.Uint16(b)
	}
}

func (d *decoder) int32(_ string, v *int32) {
	if b := d.take(4); b != nil {
		*v = int32(binary.BigEndian.Uint32(b))
	}
}

func (d *decoder) int64(_ string, v *int64) {
	if b := d.take(8); b != nil {
		*v = int64(binary.BigEndian.Uint64(b))
	}
}

func (d *decoder) float64(_ string, v *float64) {
	if b := d.take(8); b != nil {
		*v = math.Float64frombits(binary.BigEndian.Uint64(b))
	}
}

// uvarint reads an unsigned varint of at most 32 bits, as Kafka does.
func (d *decoder) uvarint() uint32 {
	var v uint32
	for shift := 0; shift < 35; shift += 7 {
		b := d.take(1)
		if b == nil {
			return 0
		}
		v |= uint32(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			return v
		}
	}
	d.err = errVarint
	return 0
}

// length reads the length of a string, byte array or array whose elements take
// at least unit bytes each; null is reported apart. A length that cannot fit in
// what is left is an error before anything is allocated.
func (d *decoder) length(unit int) (n int, null bool) {
	v := d.uvarint()
	if d.err != nil {
		return 0, false
	}
	if v == 0 {
		return 0, true
	}
	if int64(v-1)*int64(unit) > int64(len(d.buf)) {
		d.err = errShort
		return 0, false
	}
	return int(v - 1), false
}

// required is length for fields that may not be null.
func (d *decoder) required(unit int) int {
	n, null := d.length(unit)
	if null {
		d.err = errNull
	}
	return n
}

func (d *decoder) string(_ string, v *string) {
	*v = string(d.take(d.required(1)))
}

func (d *decoder) nullString(_ string, v **string) {
	n, null := d.length(1)
	if null || d.err != nil {
		*v = nil
		return
	}
	s := string(d.take(n))
	*v = &s
}

func (d *decoder) bytes(_ string, v *[]byte) {
	*v = append([]byte{}, d.take(d.required(1))...)
}

func (d *decoder) uuid(_ string, v *kafka.UUID) { copy(v[:], d.take(16)) }

func (d *decoder) uuids(name string, v *[]kafka.UUID, null bool) {
	n, isNull := d.length(16)
	if d.refuseNull(isNull, null) || isNull {
		*v = nil
		return
	}
	*v = make([]kafka.UUID, n)
	for i := range *v {
		d.uuid(name, &(*v)[i])
	}
}

func (d *decoder) brokers(name string, v *[]kafka.BrokerID, null bool) {
	n, isNull := d.length(4)
	if d.refuseNull(isNull, null) || isNull {
		*v = nil
		return
	}
	*v = make([]kafka.BrokerID, n)
	for i := range *v {
		brokerID(d, name, &(*v)[i])
	}
}

// refuseNull sets the error for a null that is not allowed and reports whether
// reading has failed.
func (d *decoder) refuseNull(isNull, allowed bool) bool {
	if isNull && !allowed && d.err == nil {
		d.err = errNull
	}
	return d.err != nil
}

func (d *decoder) strings(name string, v *[]string) {
	n := d.required(1)
	*v = make([]string, n)
	for i := range *v {
		d.string(name, &(*v)[i])
	}
}

func (d *decoder) arrayStart(_ string, _ int) int { return d.required(1) }

func (d *decoder) arrayEnd() {}

func (d *decoder) structStart() { d.frames = append(d.frames, decodeFrame{}) }

func (d *decoder) tagged(tag uint32, _ bool, body func()) {
	frame := &d.frames[len(d.frames)-1]
	frame.tags = append(frame.tags, taggedField{tag, body})
}

// structEnd reads the tagged section. Unknown tags are skipped.
func (d *decoder) structEnd() {
	top := len(d.frames) - 1
	known := d.frames[top].tags
	d.frames = d.frames[:top]
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		tag := d.uvarint()
		size := d.uvarint()
		if int64(size) > int64(len(d.buf)) {
			d.err = errShort
			return
		}
		content := d.take(int(size))
		for _, k := range known {
			if k.tag == tag {
				d.inside(content, k.body)
			}
		}
	}
}

// inside runs body on the content of one tagged field. Bytes that the field
// does not use are ignored, as Kafka does.
func (d *decoder) inside(content []byte, body func()) {
	outer := d.buf
	d.buf = content
	body()
	d.buf = outer
}
