package wire

import (
	"bytes"
	"testing"
)

// The corpora are the requests that clients sent to Apache Kafka 4.4.0, and
// testdata/fuzz.

func addCaptured(f *testing.F, key int16) {
	for _, p := range capture(f) {
		if p.Key != key || p.Request == "" {
			continue
		}
		_, body, err := ParseRequestHeader(frameOf(f, p.Request), FlexibleRequest)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p.Version, body)
	}
}

func FuzzRequestHeader(f *testing.F) {
	for _, p := range capture(f) {
		if p.Request != "" {
			f.Add(frameOf(f, p.Request))
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, body, err := ParseRequestHeader(frame, FlexibleRequest)
		if err != nil {
			return
		}
		if !bytes.HasSuffix(frame, body) {
			t.Errorf("body of %d bytes is not the end of the frame", len(body))
		}
		if len(h.ClientID)+len(body) > len(frame) {
			t.Errorf("client id of %d and body of %d bytes in a frame of %d", len(h.ClientID), len(body), len(frame))
		}
	})
}

func FuzzProduceRequest(f *testing.F) {
	addCaptured(f, ProduceKey)
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < ProduceMinVersion || version > ProduceMaxVersion {
			return
		}
		var p, again ProduceRequest
		if p.Decode(body, version) != nil {
			return
		}
		// What decodes re-encodes to something that decodes to the same.
		b := p.toKmsg(version).AppendTo(nil)
		if err := again.Decode(b, version); err != nil {
			t.Fatalf("decoded, but its own encoding does not: %v", err)
		}
		if b2 := again.toKmsg(version).AppendTo(nil); !bytes.Equal(b, b2) {
			t.Errorf("re-encodes to %x, then to %x", b, b2)
		}
	})
}

func FuzzFetchRequest(f *testing.F) {
	addCaptured(f, FetchKey)
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < FetchMinVersion || version > FetchMaxVersion {
			return
		}
		var p, again FetchRequest
		if p.Decode(body, version) != nil {
			return
		}
		b := p.toKmsg(version).AppendTo(nil)
		if err := again.Decode(b, version); err != nil {
			t.Fatalf("decoded, but its own encoding does not: %v", err)
		}
		if b2 := again.toKmsg(version).AppendTo(nil); !bytes.Equal(b, b2) {
			t.Errorf("re-encodes to %x, then to %x", b, b2)
		}
	})
}
