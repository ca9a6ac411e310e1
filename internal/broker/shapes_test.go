package broker

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/wire"
)

// byHand are the APIs whose requests kmsg does not decode.
var byHand = map[int16]bool{wire.ProduceKey: true, wire.FetchKey: true, 3: true, wire.APIVersionsKey: true}

func TestEveryAPIHasARequestShape(t *testing.T) {
	shapes := requestShapes()
	for _, a := range table() {
		if _, ok := shapes[a.key]; ok == byHand[a.key] {
			t.Errorf("%s: shape %v, decoded by hand %v", a.name, ok, byHand[a.key])
		}
		if a.name != kmsg.NameForKey(a.key) && a.key != 22 {
			t.Errorf("key %d is named %s, want %s", a.key, a.name, kmsg.NameForKey(a.key))
		}
	}
}

// capturedFrame is a request that a client sent to Apache Kafka 4.4.0.
type capturedFrame struct {
	Key, Version int16
	Request      string
}

func capturedFrames(t testing.TB) []capturedFrame {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(golden.Root(t), "wire", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var list []capturedFrame
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			var p capturedFrame
			if err := json.Unmarshal([]byte(line), &p); err != nil {
				t.Fatal(err)
			}
			list = append(list, p)
		}
	}
	return list
}

// capturedBodies calls f with the body of each captured request that has a shape.
func capturedBodies(t testing.TB, f func(key, version int16, s wire.Shape, body []byte)) {
	shapes := requestShapes()
	n := 0
	for _, p := range capturedFrames(t) {
		s, ok := shapes[p.Key]
		if !ok || p.Request == "" {
			continue
		}
		frame, err := base64.StdEncoding.DecodeString(p.Request)
		if err != nil {
			t.Fatal(err)
		}
		h, body, err := wire.ParseRequestHeader(frame[4:], wire.FlexibleRequest)
		if err != nil {
			t.Fatal(err)
		}
		f(h.Key, h.Version, s, body)
		n++
	}
	if n < 100 {
		t.Fatalf("%d captured requests, want hundreds", n)
	}
}

func TestCapturedRequestsHaveTheirShape(t *testing.T) {
	capturedBodies(t, func(key, version int16, s wire.Shape, body []byte) {
		if err := s.Check(body, version); err != nil {
			t.Errorf("%s v%d: %v", kmsg.NameForKey(key), version, err)
		}
		for n := range body {
			if s.Check(body[:n], version) == nil {
				t.Errorf("%s v%d: the first %d of %d bytes have the shape", kmsg.NameForKey(key), version, n, len(body))
			}
		}
	})
}

// FuzzControlRequest sees that what has its API's shape is decoded, with no more
// memory than a multiple of its bytes.
func FuzzControlRequest(f *testing.F) {
	capturedBodies(f, func(key, version int16, _ wire.Shape, body []byte) { f.Add(key, version, body) })
	shapes, rows := requestShapes(), map[int16]api{}
	for _, a := range table() {
		rows[a.key] = a
	}
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		s, ok := shapes[key]
		if a := rows[key]; !ok || version < a.min || version > a.max {
			return
		}
		if s.Check(body, version) != nil {
			return
		}
		q := kmsg.RequestForKey(key)
		q.SetVersion(version)
		if err := q.ReadFrom(body); err != nil {
			t.Errorf("%s v%d: %x has the shape, but: %v", kmsg.NameForKey(key), version, body, err)
		}
	})
}
