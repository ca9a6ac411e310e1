package dump

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

func TestBrokenUTF8IsReplacedAsJavaReplacesIt(t *testing.T) {
	// R stands for one U+FFFD.
	tests := map[string]string{
		"\xe0\x80A": "RRA", "\xed\xa0\x80A": "RA", "\xf0\x82A": "RRA", "\xf4\x90\x80\x80A": "RRRRA", "\xf0\x90A": "RA",
		"\xf0\x90\x80": "R", "\xf0": "R", "\xe1\x80": "R", "\xe0\x80": "RR", "\xed\xa0": "R", "\xc0\x80A": "RRA", "\xc2A": "RA",
		"\xf5\x80A": "RRA", "\xe1A\x80": "RAR", "\xf1\x80\x80A": "RA", "\xfeA": "RA", "\x80\x80": "RR", "\xf1A\x80\x80": "RARR",
		"\xe0\xa0": "R", "\xf1\x80AA": "RAA", "\xdf\x82\xe0\x9fc": "\u07c2RRc", "plain ✓": "plain ✓", "": "",
	}
	for in, want := range tests {
		want = strings.ReplaceAll(want, "R", "\uFFFD")
		if got := javaString([]byte(in)); got != want {
			t.Errorf("javaString(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestDoublesArePrintedAsJavaPrintsThem(t *testing.T) {
	tests := map[float64]string{
		0: "0.0", 1: "1.0", -2.5: "-2.5", 0.001: "0.001", 0.0001: "1.0E-4", 9999999: "9999999.0", 1e7: "1.0E7",
		1.5e300: "1.5E300", 1048576: "1048576.0", 12345678.9: "1.23456789E7", math.Inf(1): `"Infinity"`,
	}
	for in, want := range tests {
		if got := string(appendJavaDouble(nil, in)); got != want {
			t.Errorf("appendJavaDouble(%v) = %s, want %s", in, got, want)
		}
	}
}

func TestJSONStringsAreEscapedAsJacksonEscapesThem(t *testing.T) {
	if got, want := string(appendJSONString(nil, "a\"b\\c\b\t\n\f\r\x00\x1f/é")), `"a\"b\\c\b\t\n\f\r\u0000\u001F/é"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestEverySchemaDecodesItsDefaults(t *testing.T) {
	for set, messages := range parseSchemas(schemaText) {
		for id, s := range messages {
			if s.versions.from > s.versions.to || s.name == "" {
				t.Errorf("%s %d: %+v", set, id, s)
			}
			for v := s.versions.from; v <= s.versions.to; v++ {
				// 200 zero bytes hold an empty message of any of them.
				o, _, err := s.decode(make([]byte, 200), v)
				if s.flexible.has(v) && err != nil {
					continue // a zero length is null in a flexible version
				}
				if err != nil || !json.Valid(o.appendJSON(nil)) {
					t.Errorf("%s version %d: %s, %v", s.name, v, o.appendJSON(nil), err)
				}
			}
		}
	}
}

func str(b []byte, s string) []byte { return append(append(b, byte(len(s)+1)), s...) }

func TestRemoteLogMetadataIsPrintedAsKafkasClassesPrintIt(t *testing.T) {
	all := parseSchemas(schemaText)
	id := bytes.Repeat([]byte{1}, 16)
	segment := func(b []byte) []byte {
		b = str(b, "topic")
		b = append(append(b, id...), 0, 0, 0, 2, 0)
		return append(append(b, id...), 0)
	}
	i64 := func(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }
	i32 := func(b []byte, v uint32) []byte { return binary.BigEndian.AppendUint32(b, v) }
	full := segment([]byte{1, 0, 0})
	full = i64(i64(full, 5), 9)
	full = i64(i64(i32(full, 1), 100), 200)
	full = append(i64(i32(append(full, 2), 3), 4), 0) // one leader epoch
	full = append(i32(full, 77), 0)                   // size, no custom metadata
	full = append(full, 1, 1, 0, 1, 1)                // state; tag 0: the transaction index is empty
	update := segment([]byte{1, 1, 0})
	update = append(append(i64(i32(update, 1), 200), 4), "abc"...)
	update = append(update, 3, 0)
	del := str([]byte{1, 2, 0}, "topic")
	del = append(append(del, id...), 0, 0, 0, 2, 0)
	del = append(i64(i32(del, 1), 200), 2, 0)
	uuid := kafka.UUID(id).String()
	tests := []struct {
		name  string
		value []byte
		want  string
	}{
		{"segment", full, "RemoteLogSegmentMetadata{remoteLogSegmentId=RemoteLogSegmentId{topicIdPartition=" + uuid + ":topic-2, id=" + uuid +
			"}, startOffset=5, endOffset=9, brokerId=1, maxTimestampMs=100, eventTimestampMs=200, segmentLeaderEpochs={3=4}, segmentSizeInBytes=77, customMetadata=Optional.empty, state=COPY_SEGMENT_FINISHED, txnIdxEmpty=true}"},
		{"update", update, "RemoteLogSegmentMetadataUpdate{remoteLogSegmentId=RemoteLogSegmentId{topicIdPartition=" + uuid + ":topic-2, id=" + uuid +
			"}, customMetadata=Optional[CustomMetadata{3 bytes}], state=DELETE_SEGMENT_FINISHED, eventTimestampMs=200, brokerId=1}"},
		{"delete", del, "RemotePartitionDeleteMetadata{topicPartition=" + uuid + ":topic-2, state=DELETE_PARTITION_FINISHED, eventTimestampMs=200, brokerId=1}"},
		{"garbage", []byte{9}, "Error at offset 7, skipping. Could not deserialize metadata record due to unknown frame version 9(only frame version 1 is supported)"},
	}
	for _, tt := range tests {
		p, err := remoteParser{all["remote"]}.parse(&record.Record{Offset: 7, Value: tt.value})
		if err != nil || p.key != nil || p.payload == nil || *p.payload != tt.want {
			t.Errorf("%s: %v\nwant %s", tt.name, deref(p.payload), tt.want)
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return "nothing"
	}
	return *s
}

func TestUndecodableRecordsAreNamedAndSkipped(t *testing.T) {
	all := parseSchemas(schemaText)
	offsets := coordinatorParser{all["offsets.key"], all["offsets.value"], expandMembers(all)}
	groupKey := []byte{0, 2, 0, 1, 'g'}
	tests := []struct {
		name       string
		key, value []byte
		wantKey    string
	}{
		{"a key of one byte", []byte{0}, nil, "Error at offset 7, skipping. Could not read version from key's buffer."},
		{"a cut key", []byte{0, 2, 0, 9}, nil, "Error at offset 7, skipping. Could not read record with version 0 from key's buffer due to: Error reading byte array of 9 byte(s): only 0 byte(s) available."},
		{"a type of the future", []byte{0, 99}, nil, "Unknown record type 99 at offset 7, skipping."},
		{"a cut value", groupKey, []byte{0, 3, 0}, "Error at offset 7, skipping. Could not read record with version 3 from value's buffer due to: null."},
		{"a value version of the future", groupKey, []byte{0, 9}, "Error at offset 7, skipping. Could not read record with version 9 from value's buffer due to: Can't read version 9 of GroupMetadataValue."},
	}
	for _, tt := range tests {
		p, err := offsets.parse(&record.Record{Offset: 7, Key: tt.key, Value: tt.value})
		if err != nil || deref(p.key) != tt.wantKey || p.payload != nil {
			t.Errorf("%s: %s %s, %v; want %s", tt.name, deref(p.key), deref(p.payload), err, tt.wantKey)
		}
	}
	p, err := offsets.parse(&record.Record{Key: groupKey})
	if err != nil || deref(p.key) != `{"type":"2","data":{"group":"g"}}` || deref(p.payload) != "<DELETE>" {
		t.Errorf("a tombstone: %s %s, %v", deref(p.key), deref(p.payload), err)
	}
	if _, err := offsets.parse(&record.Record{}); err == nil {
		t.Error("a record without a key passed")
	}
	meta := metadataParser{all["metadata"]}
	for value, want := range map[string]string{
		"\x01\x63\x00":                  "Error at 7, skipping. org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 99",
		"\x01\x14\x00\x00x":             "Error at 7, skipping. Found 1 byte(s) of garbage after 20",
		"\x01\x0c\x00":                  "Error at 7, skipping. Failed to deserialize record with type 12",
		"\x01\x14\x00\x00":              `{"type":"NO_OP_RECORD","version":0,"data":{}}`,
		"":                              "Error at 7, skipping. Error while reading frame version",
		"\x01\xff\xff\x7f":              "Error at 7, skipping. Value for type was too large.",
		"\x01\x0c\x00\x02f\x00\x05\x00": `{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"f","featureLevel":5}}`,
		"\x01\x05\x00" + strings.Repeat("\x00", 20) + "\x01\x01\x04\x00\x00\x00\x07": `{"type":"PARTITION_CHANGE_RECORD","version":0,"data":{"partitionId":0,"topicId":"AAAAAAAAAAAAAAAAAAAAAA","leader":7}}`,
	} {
		p, err := meta.parse(&record.Record{Offset: 7, Value: []byte(value)})
		if err != nil || deref(p.payload) != want {
			t.Errorf("metadata %q: %s, %v; want %s", value, deref(p.payload), err, want)
		}
	}
}

// FuzzDecoders: no bytes make a decoder panic or print what is not JSON.
func FuzzDecoders(f *testing.F) {
	f.Add([]byte{0, 1, 0, 1, 'g', 0, 1, 't', 0, 0, 0, 1}, []byte{0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9})
	f.Add([]byte{0, 5, 0, 1, 'g', 0, 1, 'm'}, []byte{0, 0, 0, 0, 1, 'c', 1, 1, 1, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 1, 't'}, []byte{0, 1, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Add([]byte{}, []byte{1, 2, 0, 2, 't'})
	all := parseSchemas(schemaText)
	parsers := []parser{
		coordinatorParser{all["offsets.key"], all["offsets.value"], expandMembers(all)},
		coordinatorParser{all["txn.key"], all["txn.value"], nameTransactionState},
		coordinatorParser{all["share.key"], all["share.value"], nil},
		metadataParser{all["metadata"]}, remoteParser{all["remote"]},
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		for _, p := range parsers {
			out, err := p.parse(&record.Record{Key: key, Value: value})
			if err != nil {
				continue
			}
			for _, s := range []*string{out.key, out.payload} {
				if s != nil && strings.HasPrefix(*s, "{") && !json.Valid([]byte(*s)) {
					t.Fatalf("not JSON: %s", *s)
				}
			}
		}
	})
}
