package dump

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/varvelog/varve/internal/kafka"
)

// appendJSON writes a decoded value as Kafka's generated JSON converters and
// Jackson do: no spaces, members in the schema's order, 64-bit integers as
// numbers, bytes in base64, control characters escaped with capital digits.
func appendJSON(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		return appendJavaDouble(dst, v)
	case string:
		return appendJSONString(dst, v)
	case []byte:
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v)
		return append(dst, '"')
	case kafka.UUID:
		return appendJSONString(dst, v.String())
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSON(dst, e)
		}
		return append(dst, ']')
	case object:
		return v.appendJSON(dst)
	}
	panic("dump: a value that no schema has")
}

func (o object) appendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	first := true
	for i := range o {
		if !o[i].shown {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = appendJSONString(dst, o[i].name)
		dst = append(dst, ':')
		dst = appendJSON(dst, o[i].value)
	}
	return append(dst, '}')
}

func appendJSONString(dst []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case c == '\b':
			dst = append(dst, `\b`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\f':
			dst = append(dst, `\f`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(dst, '"')
}

// appendJavaDouble writes a double as Java's Double.toString: decimal from
// 0.001 to 10,000,000, else with an exponent, and always with a fraction.
func appendJavaDouble(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, `"NaN"`...)
	case math.IsInf(f, 0):
		if f < 0 {
			return append(dst, `"-Infinity"`...)
		}
		return append(dst, `"Infinity"`...)
	}
	if a := math.Abs(f); f == 0 || a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return append(dst, s...)
	}
	s := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent)
	dst = append(dst, mantissa...)
	dst = append(dst, 'E')
	return strconv.AppendInt(dst, int64(n), 10)
}

// javaString decodes UTF-8 as Java does: every maximal part of a broken
// sequence, and every surrogate, becomes one U+FFFD.
func javaString(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = brokenLength(b)
		}
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String()
}

// brokenLength is how many bytes at the start of b belong to one broken
// sequence: the longest beginning of a sequence that could have been valid.
func brokenLength(b []byte) int {
	lo, hi, want := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		want = 1
	case c >= 0xe0 && c <= 0xef:
		want = 2
		if c == 0xe0 {
			lo = 0xa0
		}
	case c >= 0xf0 && c <= 0xf4:
		want = 3
		if c == 0xf0 {
			lo = 0x90
		} else if c == 0xf4 {
			hi = 0x8f
		}
	}
	n := 1
	for ; n <= want && n < len(b) && b[n] >= lo && b[n] <= hi; n++ {
		lo, hi = 0x80, 0xbf
	}
	return n
}
