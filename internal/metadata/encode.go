package metadata

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/varvelog/varve/internal/kafka"
)

// encoder writes the flexible encoding (KIP-482): compact strings and arrays,
// and a tagged section at the end of every struct.
type encoder struct {
	buf    []byte
	frames []encodeFrame // open structs, innermost last
}

// encodeFrame holds the tagged fields met so far in one open struct.
type encodeFrame struct{ tags []encodedTag }

type encodedTag struct {
	tag  uint32
	body []byte
}

func (e *encoder) decoding() bool { return false }

func (e *encoder) bool(_ string, v *bool) {
	b := byte(0)
	if *v {
		b = 1
	}
	e.buf = append(e.buf, b)
}

func (e *encoder) int8(_ string, v *int8)   { e.buf = append(e.buf, byte(*v)) }
func (e *encoder) int16(_ string, v *int16) { e.buf = binary.BigEndian.AppendUint16(e.buf, uint16(*v)) }
func (e *encoder) uint16(_ string, v *uint16) {
	e.buf = binary.BigEndian.AppendUint16(e.buf, *v)
}
func (e *encoder) int32(_ string, v *int32) { e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(*v)) }
func (e *encoder) int64(_ string, v *int64) { e.buf = binary.BigEndian.AppendUint64(e.buf, uint64(*v)) }
func (e *encoder) float64(_ string, v *float64) {
	e.buf = binary.BigEndian.AppendUint64(e.buf, math.Float64bits(*v))
}

func (e *encoder) uvarint(v uint64) { e.buf = binary.AppendUvarint(e.buf, v) }

func (e *encoder) string(_ string, v *string) {
	e.uvarint(uint64(len(*v)) + 1)
	e.buf = append(e.buf, *v...)
}

func (e *encoder) nullString(name string, v **string) {
	if *v == nil {
		e.uvarint(0)
		return
	}
	e.string(name, *v)
}

func (e *encoder) bytes(_ string, v *[]byte) {
	e.uvarint(uint64(len(*v)) + 1)
	e.buf = append(e.buf, *v...)
}

func (e *encoder) uuid(_ string, v *kafka.UUID) { e.buf = append(e.buf, v[:]...) }

// arrayLen writes the length of an array; it reports false for a null one.
func (e *encoder) arrayLen(n int, isNull bool) bool {
	if isNull {
		e.uvarint(0)
		return false
	}
	e.uvarint(uint64(n) + 1)
	return true
}

func (e *encoder) uuids(_ string, v *[]kafka.UUID, null bool) {
	if e.arrayLen(len(*v), null && *v == nil) {
		for i := range *v {
			e.buf = append(e.buf, (*v)[i][:]...)
		}
	}
}

func (e *encoder) brokers(_ string, v *[]kafka.BrokerID, null bool) {
	if e.arrayLen(len(*v), null && *v == nil) {
		for _, id := range *v {
			e.buf = binary.BigEndian.AppendUint32(e.buf, uint32(id))
		}
	}
}

func (e *encoder) strings(name string, v *[]string) {
	e.arrayLen(len(*v), false)
	for i := range *v {
		e.string(name, &(*v)[i])
	}
}

func (e *encoder) arrayStart(_ string, n int) int {
	e.arrayLen(n, false)
	return n
}

func (e *encoder) arrayEnd() {}

func (e *encoder) structStart() { e.frames = append(e.frames, encodeFrame{}) }

func (e *encoder) structEnd() {
	top := len(e.frames) - 1
	tags := e.frames[top].tags
	e.frames = e.frames[:top]
	slices.SortFunc(tags, func(a, b encodedTag) int { return int(a.tag) - int(b.tag) })
	e.uvarint(uint64(len(tags)))
	for _, t := range tags {
		e.uvarint(uint64(t.tag))
		e.uvarint(uint64(len(t.body)))
		e.buf = append(e.buf, t.body...)
	}
}

func (e *encoder) tagged(tag uint32, present bool, body func()) {
	if !present {
		return
	}
	outer := e.buf
	e.buf = nil
	body()
	frame := &e.frames[len(e.frames)-1]
	frame.tags = append(frame.tags, encodedTag{tag, e.buf})
	e.buf = outer
}
