package wire

import (
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/invariant"
)

// Shape is the schema of an API's request as far as its bytes go: what a decoder
// would find, without keeping it. Check walks over a body before a decoder that
// trusts its lengths (kmsg's) makes room for what they claim, and refuses what
// Kafka 4.4.0 refuses: a count above the bounds or above what the frame can hold,
// a null that may not be, a cut.
type Shape struct {
	flexible int16 // first flexible version, -1 for none
	fields   []shapeField
}

// shapeField is one field. A struct or array has fields of its own.
type shapeField struct {
	kind     shapeKind
	array    bool
	min, max int16 // versions that have it
	nullable int16 // first version in which it may be null, never else
	tag      int32 // -1: not tagged
	fields   []shapeField
}

type shapeKind int8

const (
	shapeFixed1 shapeKind = iota // by size in bytes
	shapeFixed2
	shapeFixed4
	shapeFixed8
	shapeFixed16
	shapeString
	shapeBytes
	shapeStruct
)

// neverNull is above every version.
const neverNull = 1<<15 - 1

// ParseShape reads a schema in a compact notation: fields separated by
// semicolons, each "name type", with "[]" for arrays, "{}" for structs, "?n+"
// for nullable from version n, "@n-m" for the versions that have it, and "#t" for
// tagged. Schemas are constants: one that is wrong is a bug.
func ParseShape(flexible int16, schema string) Shape {
	p := shapeParser{rest: schema}
	s := Shape{flexible: flexible, fields: p.list()}
	if p.rest != "" {
		invariant.Violated("schema %q: %q left over", schema, p.rest)
	}
	return s
}

type shapeParser struct{ rest string }

func (p *shapeParser) eat(prefix string) bool {
	rest, ok := strings.CutPrefix(p.rest, prefix)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *shapeParser) word() string {
	n := strings.IndexFunc(p.rest, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9')
	})
	if n < 0 {
		n = len(p.rest)
	}
	w := p.rest[:n]
	p.rest = p.rest[n:]
	return w
}

func (p *shapeParser) number(byDefault int16) int16 {
	n := 0
	for n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9' {
		n++
	}
	if n == 0 {
		return byDefault
	}
	v, err := strconv.ParseInt(p.rest[:n], 10, 16)
	if err != nil {
		invariant.Violated("schema: version %q", p.rest[:n])
	}
	p.rest = p.rest[n:]
	return int16(v)
}

func (p *shapeParser) list() []shapeField {
	var fields []shapeField
	for {
		p.rest = strings.TrimLeft(p.rest, " ")
		if p.rest == "" || p.rest[0] == '}' {
			return fields
		}
		fields = append(fields, p.field())
		p.eat(";")
	}
}

func (p *shapeParser) field() shapeField {
	f := shapeField{max: neverNull, nullable: neverNull, tag: -1}
	p.word() // the name
	p.eat(" ")
	f.array = p.eat("[]")
	if p.eat("{") {
		f.kind = shapeStruct
		f.fields = p.list()
		if !p.eat("}") {
			invariant.Violated("schema: struct not closed at %q", p.rest)
		}
	} else {
		f.kind = kindOf(p.word())
	}
	for p.rest != "" && p.rest[0] != ';' && p.rest[0] != '}' {
		switch {
		case p.eat("?"):
			f.nullable = p.number(0)
			p.eat("+")
		case p.eat("@"):
			f.min = p.number(0)
			f.max = f.min
			switch {
			case p.eat("+"):
				f.max = neverNull
			case p.eat("-"):
				f.max = p.number(0)
			}
		case p.eat("#"):
			f.tag = int32(p.number(0))
		case p.eat("="): // a default says nothing about bytes
			p.eat("-")
			p.word()
		default:
			invariant.Violated("schema: %q", p.rest)
		}
	}
	return f
}

func kindOf(name string) shapeKind {
	switch name {
	case "bool", "i8":
		return shapeFixed1
	case "i16", "u16":
		return shapeFixed2
	case "i32":
		return shapeFixed4
	case "i64", "f64":
		return shapeFixed8
	case "uuid":
		return shapeFixed16
	case "str":
		return shapeString
	case "bytes", "records":
		return shapeBytes
	}
	invariant.Violated("schema: type %q", name)
	return 0
}

// Check walks over the body of a request of this version. The error wraps
// ErrMalformed.
func (s Shape) Check(body []byte, version int16) error {
	r := NewReader(body, s.flexible >= 0 && version >= s.flexible)
	walkFields(&r, s.fields, version)
	return r.Err()
}

func walkFields(r *Reader, fields []shapeField, version int16) {
	for i := range fields {
		f := &fields[i]
		if f.tag < 0 && version >= f.min && version <= f.max && r.err == nil {
			f.walk(r, version)
		}
	}
	for n := r.TagCount(); n > 0 && r.err == nil; n-- {
		tag, field := r.Tag()
		for i := range fields {
			if f := &fields[i]; f.tag == int32(tag) && f.tag >= 0 && version >= f.min && version <= f.max {
				f.walk(&field, version)
			}
		}
		r.Join(&field)
	}
}

func (f *shapeField) walk(r *Reader, version int16) {
	nullable := version >= f.nullable
	if !f.array {
		f.element(r, version, nullable)
		return
	}
	n := r.NullableArray(f.minSize(r.flex, version))
	if n < 0 && !nullable {
		r.fail("null array")
	}
	for ; n > 0 && r.err == nil; n-- {
		f.element(r, version, false)
	}
}

func (f *shapeField) element(r *Reader, version int16, nullable bool) {
	switch f.kind {
	case shapeString:
		if r.NullableString() == nil && !nullable {
			r.fail("null string")
		}
	case shapeBytes:
		if r.NullableBytes() == nil && !nullable {
			r.fail("null bytes")
		}
	case shapeStruct:
		if nullable && r.Int8() < 0 {
			return
		}
		walkFields(r, f.fields, version)
	default:
		r.take(1 << f.kind)
	}
}

// minSize is the least number of bytes that one element takes.
func (f *shapeField) minSize(flexible bool, version int16) int {
	switch f.kind {
	case shapeString:
		return lengthSize(flexible, 2)
	case shapeBytes:
		return lengthSize(flexible, 4)
	case shapeStruct:
		size := lengthSize(flexible, 0)
		for i := range f.fields {
			g := &f.fields[i]
			switch {
			case g.tag >= 0 || version < g.min || version > g.max:
			case g.array:
				size += lengthSize(flexible, 4)
			case g.kind == shapeStruct && version >= g.nullable:
				size++
			default:
				size += g.minSize(flexible, version)
			}
		}
		return size
	}
	return 1 << f.kind
}

// lengthSize is the size of a length, or, for 0, of a tagged section.
func lengthSize(flexible bool, fixed int) int {
	if flexible {
		return 1
	}
	return fixed
}
