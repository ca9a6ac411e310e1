package dump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/varvelog/varve/internal/kafka"
)

// object is a decoded message or struct. A member's value is nil, bool, int64,
// float64, string, []byte, kafka.UUID, []any or object.
type object []member

type member struct {
	name  string
	value any
	shown bool // false where JSON leaves it out: another version's, or a tagged default
}

// get returns the value of a member, nil when there is none.
func (o object) get(name string) any {
	for i := range o {
		if o[i].name == name {
			return o[i].value
		}
	}
	return nil
}

// errUnderflow is Java's BufferUnderflowException, which has no message.
var errUnderflow = errors.New("null")

// decode reads a message of the given version. rest is what is left behind it.
func (s *schema) decode(b []byte, version int16) (o object, rest []byte, err error) {
	if !s.versions.has(version) {
		return nil, nil, fmt.Errorf("Can't read version %d of %s", version, s.name)
	}
	d := messageDecoder{b: b, version: version, flexible: s.flexible.has(version)}
	o, err = d.object(s.fields)
	return o, d.b, err
}

type messageDecoder struct {
	b        []byte
	version  int16
	flexible bool
}

func (d *messageDecoder) object(fields []field) (object, error) {
	o := make(object, len(fields))
	for i := range fields {
		f := &fields[i]
		o[i].name = f.name
		if !f.versions.has(d.version) || f.tag >= 0 {
			o[i].value = f.defaultValue()
			continue
		}
		v, err := d.value(f, false)
		if err != nil {
			return nil, err
		}
		o[i] = member{f.name, v, true}
	}
	if d.flexible {
		if err := d.tags(fields, o); err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (d *messageDecoder) tags(fields []field, o object) error {
	n, err := d.uvarint()
	for ; err == nil && n > 0; n-- {
		var tag, size uint64
		if tag, err = d.uvarint(); err != nil {
			break
		}
		if size, err = d.uvarint(); err != nil {
			break
		}
		if size > uint64(len(d.b)) {
			return errUnderflow
		}
		sub := messageDecoder{b: d.b[:size], version: d.version, flexible: true}
		d.b = d.b[size:]
		i := slices.IndexFunc(fields, func(f field) bool {
			return f.tag >= 0 && uint64(f.tag) == tag && f.versions.has(d.version)
		})
		if i < 0 {
			continue // of a later release
		}
		if o[i].value, err = sub.value(&fields[i], true); err != nil {
			break
		}
		o[i].shown = !equalValue(o[i].value, fields[i].defaultValue())
	}
	return err
}

// value reads a field. A nullable struct is led by a marker: one byte, -1 for
// null, or in a tagged field a varint, 0 for null.
func (d *messageDecoder) value(f *field, tagged bool) (any, error) {
	if f.array {
		return d.array(f)
	}
	if f.kind == kindStruct && f.nullable {
		var present bool
		if tagged {
			n, err := d.uvarint()
			if err != nil {
				return nil, err
			}
			present = n != 0
		} else {
			b, err := d.take(1)
			if err != nil {
				return nil, err
			}
			present = int8(b[0]) >= 0
		}
		if !present {
			return nil, nil
		}
	}
	return d.element(f)
}

func (d *messageDecoder) array(f *field) (any, error) {
	n, err := d.length(4)
	if err != nil {
		return nil, err
	}
	if n < 0 {
		if !f.nullable {
			return nil, fmt.Errorf("non-nullable field %s was serialized as null", f.name)
		}
		return nil, nil
	}
	if n > len(d.b) {
		return nil, fmt.Errorf("Tried to allocate a collection of size %d, but there are only %d bytes remaining.", n, len(d.b))
	}
	element := *f
	element.array, element.nullable = false, false
	list := make([]any, 0, n)
	for range n {
		v, err := d.element(&element)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

func (d *messageDecoder) element(f *field) (any, error) {
	switch f.kind {
	case kindStruct:
		o, err := d.object(f.fields)
		return o, err
	case kindString, kindBytes:
		return d.bytes(f)
	}
	b, err := d.take(f.kind.size())
	if err != nil {
		return nil, err
	}
	switch f.kind {
	case kindInt8:
		return int64(int8(b[0])), nil
	case kindInt16:
		return int64(int16(binary.BigEndian.Uint16(b))), nil
	case kindUint16:
		return int64(binary.BigEndian.Uint16(b)), nil
	case kindInt32:
		return int64(int32(binary.BigEndian.Uint32(b))), nil
	case kindInt64:
		return int64(binary.BigEndian.Uint64(b)), nil
	case kindFloat64:
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	case kindBool:
		return b[0] != 0, nil
	default:
		return kafka.UUID(b), nil
	}
}

func (k kind) size() int {
	switch k {
	case kindInt8, kindBool:
		return 1
	case kindInt16, kindUint16:
		return 2
	case kindInt32:
		return 4
	case kindUUID:
		return 16
	}
	return 8
}

func (d *messageDecoder) bytes(f *field) (any, error) {
	wide := 4
	if f.kind == kindString {
		wide = 2
	}
	n, err := d.length(wide)
	if err != nil {
		return nil, err
	}
	if n < 0 {
		if !f.nullable {
			return nil, fmt.Errorf("non-nullable field %s was serialized as null", f.name)
		}
		return nil, nil
	}
	if n > len(d.b) {
		return nil, fmt.Errorf("Error reading byte array of %d byte(s): only %d byte(s) available", n, len(d.b))
	}
	b, _ := d.take(n)
	if f.kind == kindString {
		return javaString(b), nil
	}
	return b, nil
}

// length reads a length: compact in flexible versions, else of the given width.
func (d *messageDecoder) length(wide int) (int, error) {
	if d.flexible {
		n, err := d.uvarint()
		return int(n) - 1, err
	}
	b, err := d.take(wide)
	if err != nil {
		return 0, err
	}
	if wide == 2 {
		return int(int16(binary.BigEndian.Uint16(b))), nil
	}
	return int(int32(binary.BigEndian.Uint32(b))), nil
}

func (d *messageDecoder) take(n int) ([]byte, error) {
	if n > len(d.b) {
		return nil, errUnderflow
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b, nil
}

func (d *messageDecoder) uvarint() (uint64, error) {
	v, n := binary.Uvarint(d.b)
	if n == 0 {
		return 0, errUnderflow
	}
	if n < 0 || n > 5 || v > math.MaxUint32 {
		return 0, errors.New("Varint is too long, the most significant bit in the 5th byte is set")
	}
	d.b = d.b[n:]
	if v > math.MaxInt32 {
		return 0, errUnderflow // a negative length, more than there can be
	}
	return v, nil
}

// defaultValue is what a field has in versions without it, and what a tagged
// field has when it is not sent.
func (f *field) defaultValue() any {
	switch {
	case f.def == "null":
		return nil
	case f.array:
		return []any{}
	}
	switch f.kind {
	case kindString:
		return f.def
	case kindBytes:
		return []byte{}
	case kindUUID:
		return kafka.UUID{}
	case kindBool:
		return f.def == "true"
	case kindFloat64:
		return 0.0
	case kindStruct:
		return object{}
	}
	n, _ := strconv.ParseInt(f.def, 10, 64) // empty is 0
	return n
}

func equalValue(a, b any) bool {
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == 0 && len(b) == 0
	case []byte:
		b, ok := b.([]byte)
		return ok && string(a) == string(b)
	case object:
		return false
	}
	switch b.(type) {
	case []any, []byte, object:
		return false
	}
	return a == b
}
