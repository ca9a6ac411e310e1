package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"
)

func TestReaderIsAsLenientAsKafka(t *testing.T) {
	tests := []struct {
		name string
		in   []byte
		flex bool
		read func(r *Reader) bool // true: as expected
	}{
		{"a bool of 2 is true", []byte{2}, false, func(r *Reader) bool { return r.Bool() }},
		{"a string length of -2 is null", []byte{0xff, 0xfe}, false, func(r *Reader) bool { return r.NullableString() == nil }},
		{"an empty string is not null", []byte{0, 0}, false, func(r *Reader) bool { s := r.NullableString(); return s != nil && len(s) == 0 }},
		{"invalid UTF-8 is kept", []byte{0, 1, 0xff}, false, func(r *Reader) bool { return string(r.String()) == "\xff" }},
		{"an array length of -9 is null", []byte{0xff, 0xff, 0xff, 0xf7}, false, func(r *Reader) bool { return r.NullableArray(4) == -1 }},
		{"a compact length of 0 is null", []byte{0}, true, func(r *Reader) bool { return r.NullableBytes() == nil }},
		{"a compact length of 2³² is null", []byte{0xff, 0xff, 0xff, 0xff, 0x0f}, true, func(r *Reader) bool { return r.NullableBytes() == nil }},
		{"unknown, repeated and unordered tags are skipped", []byte{3, 9, 1, 0xaa, 2, 0, 9, 2, 1, 2}, true, func(r *Reader) bool { r.SkipTags(); return r.Remaining() == 0 }},
		{"no tags are read when not flexible", []byte{1}, false, func(r *Reader) bool { r.SkipTags(); return r.Remaining() == 1 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(tt.in, tt.flex)
			if !tt.read(&r) {
				t.Errorf("read something else, error %v", r.Err())
			}
			if r.Err() != nil {
				t.Errorf("error %v, want none", r.Err())
			}
		})
	}
}

func TestReaderRefusesWhatKafkaRefuses(t *testing.T) {
	tests := []struct {
		name string
		in   []byte
		flex bool
		read func(r *Reader)
	}{
		{"an integer cut short", []byte{1, 2, 3}, false, func(r *Reader) { r.Int32() }},
		{"a uuid cut short", make([]byte, 15), false, func(r *Reader) { r.UUID() }},
		{"a varint of six bytes", []byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}, true, func(r *Reader) { r.Uvarint() }},
		{"a string beyond the frame", []byte{0, 5, 'a'}, false, func(r *Reader) { r.String() }},
		{"null where a string must be", []byte{0xff, 0xff}, false, func(r *Reader) { r.String() }},
		{"a compact string of 32768 bytes", append([]byte{0x81, 0x80, 0x02}, make([]byte, 40000)...), true, func(r *Reader) { r.String() }},
		{"null where an array must be", []byte{0}, true, func(r *Reader) { r.Array(1) }},
		{"an array of 2³¹−1 elements in a short frame", []byte{0x7f, 0xff, 0xff, 0xff}, false, func(r *Reader) { r.Array(1) }},
		{"an array that the frame cannot hold", []byte{0, 0, 0, 3, 1, 2, 3, 4, 5}, false, func(r *Reader) { r.Array(2) }},
		{"an array of 1,000,001 elements", append(binary.BigEndian.AppendUint32(nil, 1_000_001), make([]byte, 1_000_001)...), false, func(r *Reader) { r.Array(1) }},
		{"10,001 tags", append([]byte{0x91, 0x4e}, make([]byte, 20_002)...), true, func(r *Reader) { r.SkipTags() }},
		{"a tag beyond the frame", []byte{1, 0, 9, 1}, true, func(r *Reader) { r.SkipTags() }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(tt.in, tt.flex)
			tt.read(&r)
			if !errors.Is(r.Err(), ErrMalformed) {
				t.Fatalf("error %v, want ErrMalformed", r.Err())
			}
			first := r.Err()
			if r.Int64() != 0 || r.String() != nil || r.Array(1) != 0 || r.Err() != first {
				t.Error("the first error does not stay")
			}
		})
	}
}

func TestTheLargestCountsAreServed(t *testing.T) {
	r := NewReader(append(binary.BigEndian.AppendUint32(nil, MaxElements), make([]byte, MaxElements)...), false)
	if n := r.Array(1); n != MaxElements || r.Err() != nil {
		t.Errorf("array of %d, %v, want %d", n, r.Err(), MaxElements)
	}
	r = NewReader(append([]byte{0x90, 0x4e}, make([]byte, 2*MaxTags)...), true)
	if r.SkipTags(); r.Err() != nil || r.Remaining() != 0 {
		t.Errorf("%d tags: %v, %d bytes left", MaxTags, r.Err(), r.Remaining())
	}
}

func TestTrailingBytesAndUnknownTagsAreIgnored(t *testing.T) {
	g := gen{rand.New(rand.NewPCG(7, 8))}
	var p ProduceRequest
	want := g.produceRequest(13).AppendTo(nil)
	withTag := append(bytes.Clone(want[:len(want)-1]), 1, 77, 2, 0xaa, 0xbb) // the last byte is the number of tags
	for _, b := range [][]byte{append(bytes.Clone(want), 1, 2, 3), withTag} {
		if err := p.Decode(b, 13); err != nil {
			t.Fatal(err)
		}
		if got := p.toKmsg(13).AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("decodes to %x, want %x", got, want)
		}
	}
}

func TestRequestHeader(t *testing.T) {
	tests := []struct {
		name  string
		frame []byte
		want  RequestHeader
		body  string
		fails bool
	}{
		{"version 1", []byte("\x00\x03\x00\x01\x00\x00\x00\x07\x00\x02idbody"), RequestHeader{3, 1, 7, []byte("id")}, "body", false},
		{"version 2 keeps the wide client id", []byte("\x00\x03\x00\x09\xff\xff\xff\xff\x00\x02id\x00body"), RequestHeader{3, 9, -1, []byte("id")}, "body", false},
		{"a null client id", []byte("\x00\x03\x00\x01\x00\x00\x00\x07\xff\xffbody"), RequestHeader{3, 1, 7, nil}, "body", false},
		{"a client id length of -2", []byte("\x00\x03\x00\x01\x00\x00\x00\x07\xff\xfebody"), RequestHeader{3, 1, 7, nil}, "body", false},
		{"an ApiVersions version of the future has version 2", []byte("\x00\x12\x7f\xff\x00\x00\x00\x07\xff\xff\x00body"), RequestHeader{18, 32767, 7, nil}, "body", false},
		{"and must carry the tag byte", []byte("\x00\x12\x7f\xff\x00\x00\x00\x07\xff\xff"), RequestHeader{}, "", true},
		{"an unknown key", []byte("\x03\xe7\x00\x00\x00\x00\x00\x07\xff\xff"), RequestHeader{999, 0, 7, nil}, "", false},
		{"cut in the client id", []byte("\x00\x03\x00\x01\x00\x00\x00\x07\x00\x02i"), RequestHeader{}, "", true},
		{"one byte", []byte{0}, RequestHeader{}, "", true},
		{"nothing", nil, RequestHeader{}, "", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, body, err := ParseRequestHeader(tt.frame, FlexibleRequest)
			if tt.fails {
				if !errors.Is(err, ErrMalformed) {
					t.Fatalf("error %v, want ErrMalformed", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Key != tt.want.Key || h.Version != tt.want.Version || h.CorrelationID != tt.want.CorrelationID ||
				!bytes.Equal(h.ClientID, tt.want.ClientID) || (h.ClientID == nil) != (tt.want.ClientID == nil) {
				t.Errorf("header %+v, want %+v", h, tt.want)
			}
			if string(body) != tt.body {
				t.Errorf("body %q, want %q", body, tt.body)
			}
		})
	}
}

func TestChunksDiscardWhatWasSent(t *testing.T) {
	var c Chunks
	c.Begin(1, false, false)
	c.Raw([]byte("first"))
	c.End()
	c.Begin(2, false, false)
	if n := c.Finished(); n != 13 {
		t.Fatalf("%d bytes are finished, want 13", n)
	}
	c.Discard(c.Finished())
	c.Raw([]byte("second"))
	c.End()
	want := []byte("\x00\x00\x00\x0a\x00\x00\x00\x02second")
	if !bytes.Equal(c.Bytes(), want) {
		t.Errorf("left %q, want %q", c.Bytes(), want)
	}
}

func TestDecodingAndEncodingAllocateNothing(t *testing.T) {
	g := gen{rand.New(rand.NewPCG(9, 10))}
	produceBody, fetchBody := g.produceRequest(13).AppendTo(nil), g.fetchRequest(18).AppendTo(nil)
	produceAnswer, _ := g.produceResponse(13)
	fetchAnswer, _ := g.fetchResponse(18)
	var produce ProduceRequest
	var fetch FetchRequest
	var c Chunks
	n := testing.AllocsPerRun(100, func() {
		if produce.Decode(produceBody, 13) != nil || fetch.Decode(fetchBody, 18) != nil {
			t.Fatal("does not decode")
		}
		c.Begin(1, true, true)
		produceAnswer.Encode(&c, 13)
		c.End()
		c.Begin(2, true, true)
		fetchAnswer.Encode(&c, 18)
		c.End()
		produce.Forget()
		fetch.Forget()
		c.Reset()
	})
	if n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestForgetDropsTheFrame(t *testing.T) {
	g := gen{rand.New(rand.NewPCG(11, 12))}
	var p ProduceRequest
	if err := p.Decode(g.produceRequest(9).AppendTo(nil), 9); err != nil {
		t.Fatal(err)
	}
	p.Forget()
	for _, topic := range p.Topics[:cap(p.Topics)] {
		for _, part := range topic.Partitions[:cap(topic.Partitions)] {
			if topic.Name != nil || part.Records != nil {
				t.Fatal("a frame is still referred to")
			}
		}
	}
}
