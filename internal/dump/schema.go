package dump

import (
	_ "embed"
	"fmt"
	"math"
	"strconv"
	"strings"
)

//go:embed schemas.txt
var schemaText string

// schema is one message of schemas.txt.
type schema struct {
	name     string
	versions versionRange
	flexible versionRange
	fields   []field
}

type field struct {
	name     string
	kind     kind
	array    bool
	fields   []field // of a kindStruct
	nullable bool
	versions versionRange
	tag      int // -1 for none
	def      string
}

type kind int8

const (
	kindInt8 kind = iota
	kindInt16
	kindInt32
	kindInt64
	kindUint16
	kindFloat64
	kindBool
	kindString
	kindUUID
	kindBytes
	kindStruct
)

// versionRange is [from, to] of message versions; none has from > to.
type versionRange struct{ from, to int16 }

func (v versionRange) has(n int16) bool { return n >= v.from && n <= v.to }

// schemas are the messages by set and id, such as "offsets.key" 1.
type schemas map[string]map[int16]*schema

// parseSchemas reads schemas.txt. A mistake in it is a bug of this package.
func parseSchemas(text string) schemas {
	all := schemas{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		head, body, _ := strings.Cut(line, "|")
		words := strings.Fields(head)
		id := mustInt16(words[1])
		p := schemaParser{rest: strings.TrimSpace(body)}
		s := &schema{name: words[2], versions: parseVersions(words[3]), flexible: parseVersions(words[4])}
		s.fields = p.fields()
		if all[words[0]] == nil {
			all[words[0]] = map[int16]*schema{}
		}
		all[words[0]][id] = s
	}
	return all
}

func mustInt16(s string) int16 {
	n, err := strconv.ParseInt(s, 10, 16)
	if err != nil {
		panic("schemas.txt: " + err.Error())
	}
	return int16(n)
}

func parseVersions(s string) versionRange {
	if s == "none" {
		return versionRange{1, 0}
	}
	if from, ok := strings.CutSuffix(s, "+"); ok {
		return versionRange{mustInt16(from), math.MaxInt16}
	}
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		to = from
	}
	return versionRange{mustInt16(from), mustInt16(to)}
}

type schemaParser struct{ rest string }

// fields reads fields up to the end or a closing brace.
func (p *schemaParser) fields() []field {
	var fields []field
	for p.rest != "" && p.rest[0] != '}' {
		fields = append(fields, p.field())
		p.rest = strings.TrimPrefix(p.rest, ";")
		p.rest = strings.TrimLeft(p.rest, " ")
	}
	return fields
}

func (p *schemaParser) field() field {
	f := field{tag: -1, versions: versionRange{0, math.MaxInt16}}
	f.name, p.rest, _ = strings.Cut(p.rest, " ")
	if p.skip("[]") {
		f.array = true
	}
	if p.skip("{") {
		f.kind = kindStruct
		f.fields = p.fields()
		if !p.skip("}") {
			panic(fmt.Sprintf("schemas.txt: no closing brace at %q", p.rest))
		}
	} else {
		f.kind = kindOf(p.word())
	}
	f.nullable = p.skip("?")
	for p.rest != "" && p.rest[0] != ';' && p.rest[0] != '}' {
		switch {
		case p.skip("@"):
			f.versions = parseVersions(p.word())
		case p.skip("#"):
			f.tag = int(mustInt16(p.word()))
		case p.skip("="):
			f.def = p.word()
		default:
			panic(fmt.Sprintf("schemas.txt: what is %q?", p.rest))
		}
	}
	return f
}

func (p *schemaParser) skip(s string) bool {
	rest, ok := strings.CutPrefix(p.rest, s)
	p.rest = rest
	return ok
}

// word reads up to the next mark.
func (p *schemaParser) word() string {
	n := strings.IndexAny(p.rest, "?@#=;}")
	if n < 0 {
		n = len(p.rest)
	}
	w := p.rest[:n]
	p.rest = p.rest[n:]
	return w
}

func kindOf(word string) kind {
	kinds := map[string]kind{
		"i8": kindInt8, "i16": kindInt16, "i32": kindInt32, "i64": kindInt64, "u16": kindUint16,
		"f64": kindFloat64, "bool": kindBool, "str": kindString, "uuid": kindUUID, "bytes": kindBytes,
	}
	k, ok := kinds[word]
	if !ok {
		panic(fmt.Sprintf("schemas.txt: unknown type %q", word))
	}
	return k
}
