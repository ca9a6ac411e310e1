package metadata

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
)

// AppendJSON appends r as kafka-dump-log --cluster-metadata-decoder prints the
// payload of a record: {"type":…,"version":…,"data":{…}}.
func AppendJSON(dst []byte, r Record, version int16) []byte {
	w := jsonWriter{buf: dst}
	w.buf = append(w.buf, `{"type":"`...)
	w.buf = append(w.buf, r.Type().String()...)
	w.buf = append(w.buf, `","version":`...)
	w.buf = strconv.AppendInt(w.buf, int64(version), 10)
	w.buf = append(w.buf, `,"data":`...)
	w.structStart()
	r.walk(&w, version)
	w.structEnd()
	return append(w.buf, '}')
}

// jsonWriter prints fields in schema order as Kafka's generated JsonConverter
// classes do; a tagged field that is absent is left out.
type jsonWriter struct {
	buf   []byte
	first bool // no comma before the next field or element
}

func (w *jsonWriter) decoding() bool { return false }

// field writes the comma and the name.
func (w *jsonWriter) field(name string) {
	if !w.first {
		w.buf = append(w.buf, ',')
	}
	w.first = false
	w.buf = append(w.buf, '"')
	w.buf = append(w.buf, name...)
	w.buf = append(w.buf, '"', ':')
}

func (w *jsonWriter) integer(name string, v int64) {
	w.field(name)
	w.buf = strconv.AppendInt(w.buf, v, 10)
}

func (w *jsonWriter) bool(name string, v *bool) {
	w.field(name)
	w.buf = strconv.AppendBool(w.buf, *v)
}

func (w *jsonWriter) int8(name string, v *int8)     { w.integer(name, int64(*v)) }
func (w *jsonWriter) int16(name string, v *int16)   { w.integer(name, int64(*v)) }
func (w *jsonWriter) uint16(name string, v *uint16) { w.integer(name, int64(*v)) }
func (w *jsonWriter) int32(name string, v *int32)   { w.integer(name, int64(*v)) }
func (w *jsonWriter) int64(name string, v *int64)   { w.integer(name, *v) }

func (w *jsonWriter) float64(name string, v *float64) {
	w.field(name)
	w.buf = appendJavaDouble(w.buf, *v)
}

func (w *jsonWriter) string(name string, v *string) {
	w.field(name)
	w.buf = appendJSONString(w.buf, *v)
}

func (w *jsonWriter) nullString(name string, v **string) {
	if *v == nil {
		w.field(name)
		w.buf = append(w.buf, "null"...)
		return
	}
	w.string(name, *v)
}

func (w *jsonWriter) bytes(name string, v *[]byte) {
	w.field(name)
	w.buf = append(w.buf, '"')
	w.buf = base64.StdEncoding.AppendEncode(w.buf, *v)
	w.buf = append(w.buf, '"')
}

func (w *jsonWriter) uuid(name string, v *kafka.UUID) {
	w.field(name)
	w.buf = appendJSONString(w.buf, v.String())
}

func (w *jsonWriter) uuids(name string, v *[]kafka.UUID, null bool) {
	w.list(name, len(*v), null && *v == nil, func(i int) {
		w.buf = appendJSONString(w.buf, (*v)[i].String())
	})
}

func (w *jsonWriter) brokers(name string, v *[]kafka.BrokerID, null bool) {
	w.list(name, len(*v), null && *v == nil, func(i int) {
		w.buf = strconv.AppendInt(w.buf, int64((*v)[i]), 10)
	})
}

func (w *jsonWriter) strings(name string, v *[]string) {
	w.list(name, len(*v), false, func(i int) {
		w.buf = appendJSONString(w.buf, (*v)[i])
	})
}

// list writes an array of n plain values.
func (w *jsonWriter) list(name string, n int, isNull bool, elem func(i int)) {
	w.field(name)
	if isNull {
		w.buf = append(w.buf, "null"...)
		return
	}
	w.buf = append(w.buf, '[')
	for i := range n {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		elem(i)
	}
	w.buf = append(w.buf, ']')
}

func (w *jsonWriter) arrayStart(name string, n int) int {
	w.field(name)
	w.buf = append(w.buf, '[')
	w.first = true
	return n
}

func (w *jsonWriter) arrayEnd() {
	w.buf = append(w.buf, ']')
	w.first = false
}

// structStart opens an object: the body of a record or an array's element.
func (w *jsonWriter) structStart() {
	if last := w.buf[len(w.buf)-1]; last == '}' {
		w.buf = append(w.buf, ',')
	}
	w.buf = append(w.buf, '{')
	w.first = true
}

func (w *jsonWriter) structEnd() {
	w.buf = append(w.buf, '}')
	w.first = false
}

func (w *jsonWriter) tagged(_ uint32, present bool, body func()) {
	if present {
		body()
	}
}

// appendJSONString quotes s as Jackson does: control characters by their short
// escapes or \u00XX with upper-case digits, everything else as it is.
func appendJSONString(dst []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch b := s[i]; {
		case b == '"' || b == '\\':
			dst = append(dst, '\\', b)
		case b == '\n':
			dst = append(dst, '\\', 'n')
		case b == '\r':
			dst = append(dst, '\\', 'r')
		case b == '\t':
			dst = append(dst, '\\', 't')
		case b == '\b':
			dst = append(dst, '\\', 'b')
		case b == '\f':
			dst = append(dst, '\\', 'f')
		case b < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[b>>4], hex[b&15])
		default:
			dst = append(dst, b)
		}
	}
	return append(dst, '"')
}

// appendJavaDouble prints v as Java's Double.toString: at least one digit after
// the point, and an exponent below 10^-3 and from 10^7 on.
func appendJavaDouble(dst []byte, v float64) []byte {
	abs := math.Abs(v)
	switch {
	case math.IsNaN(v):
		return append(dst, `"NaN"`...)
	case math.IsInf(v, 1):
		return append(dst, `"Infinity"`...)
	case math.IsInf(v, -1):
		return append(dst, `"-Infinity"`...)
	case abs == 0 || abs >= 1e-3 && abs < 1e7:
		s := strconv.FormatFloat(v, 'f', -1, 64)
		dst = append(dst, s...)
		if !strings.Contains(s, ".") {
			dst = append(dst, '.', '0')
		}
		return dst
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'E', -1, 64), "E")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent)
	dst = append(dst, mantissa...)
	dst = append(dst, 'E')
	return strconv.AppendInt(dst, int64(n), 10)
}
