package metadata

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// goldenLog is a log or snapshot as expect.json describes it: the records'
// bytes, and what kafka-dump-log of that release printed for them.
type goldenLog struct {
	Batches []struct {
		Control bool
		Records []struct {
			Offset int64
			Value  string
		}
	}
	Decoded []struct {
		Offset int64
		Value  json.RawMessage
	}
}

type goldenStage struct {
	Name       string
	Partitions []struct {
		Topic          string
		Segments       []struct{ Log goldenLog }
		KRaftSnapshots []struct {
			EndOffset int64 `json:"end_offset"`
			Log       goldenLog
		} `json:"kraft_snapshots"`
	}
}

// goldenStages reads the metadata logs of one case of testdata/golden.
func goldenStages(t *testing.T, name string) []goldenStage {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../testdata/golden", name, "expect.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expect struct{ Stages []goldenStage }
	if err := json.Unmarshal(b, &expect); err != nil {
		t.Fatal(err)
	}
	for i := range expect.Stages {
		s := &expect.Stages[i]
		parts := s.Partitions
		s.Partitions = nil
		for _, p := range parts {
			if p.Topic == "__cluster_metadata" {
				s.Partitions = append(s.Partitions, p)
			}
		}
	}
	return expect.Stages
}

var goldenCases = []string{
	"01-fresh-3.9.2", "01-fresh-4.4.0", "02-segments-3.9.2", "02-segments-4.4.0",
	"05-transactions-3.9.2", "05-transactions-4.4.0", "07-groups-4.4.0", "08-deletion-4.4.0", "11-metadata-4.4.0",
}

// values returns the bytes of the data records by offset.
func (l goldenLog) values(t *testing.T) map[int64][]byte {
	t.Helper()
	m := map[int64][]byte{}
	for _, b := range l.Batches {
		for _, r := range b.Records {
			if b.Control {
				continue
			}
			v, err := base64.StdEncoding.DecodeString(r.Value)
			if err != nil {
				t.Fatal(err)
			}
			m[r.Offset] = v
		}
	}
	return m
}

func TestRecordsOfKafkaDecodeToItsDumpAndEncodeToTheSameBytes(t *testing.T) {
	types := map[RecordType]int{}
	for _, name := range goldenCases {
		t.Run(name, func(t *testing.T) {
			for _, stage := range goldenStages(t, name) {
				for _, p := range stage.Partitions {
					for _, s := range p.Segments {
						checkGoldenLog(t, stage.Name, s.Log, types)
					}
					for _, s := range p.KRaftSnapshots {
						checkGoldenLog(t, stage.Name+" snapshot", s.Log, types)
					}
				}
			}
		})
	}
	if len(types) < 20 {
		t.Errorf("%d record types seen, want at least 20", len(types))
	}
}

func checkGoldenLog(t *testing.T, stage string, l goldenLog, types map[RecordType]int) {
	t.Helper()
	values := l.values(t)
	for _, row := range l.Decoded {
		value, ok := values[row.Offset]
		if !ok {
			continue // bytes are left out of expect.json for large logs
		}
		r, version, err := DecodeRecord(value)
		if err != nil {
			t.Errorf("%s offset %d: %v", stage, row.Offset, err)
			continue
		}
		types[r.Type()]++
		if got := AppendRecord(nil, r, version); !bytes.Equal(got, value) {
			t.Errorf("%s offset %d encodes to %x, want %x", stage, row.Offset, got, value)
		}
		var got, want any
		text := AppendJSON(nil, r, version)
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if err := json.Unmarshal(row.Value, &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s offset %d is %s, want %s", stage, row.Offset, text, row.Value)
		}
	}
}

// replay applies data records in the order of their offsets from from on.
func replay(t *testing.T, image *Image, l goldenLog, from, to int64) *Image {
	t.Helper()
	values := l.values(t)
	var offsets []int64
	for o := range values {
		if o >= from && o < to {
			offsets = append(offsets, o)
		}
	}
	slices.Sort(offsets)
	d := NewDelta(image)
	for _, o := range offsets {
		r, _, err := DecodeRecord(values[o])
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Apply(r); err != nil {
			t.Fatalf("offset %d: %v", o, err)
		}
	}
	return d.Finish(0, 0, 0)
}

func snapshotLines(i *Image) []string {
	var lines []string
	for r := range i.SnapshotRecords() {
		if b, ok := r.(*RegisterBrokerRecord); ok { // Kafka writes the features in hash order
			b.Features = slices.SortedFunc(slices.Values(b.Features), func(x, y FeatureRange) int { return strings.Compare(x.Name, y.Name) })
		}
		lines = append(lines, string(AppendJSON(nil, r, RecordVersion(r, i.Feature(MetadataVersion)))))
	}
	return lines
}

// TestSnapshotOfReplayedLogEqualsKafkas: replaying the log up to the end offset
// of a snapshot that Kafka took gives the records that the snapshot holds.
func TestSnapshotOfReplayedLogEqualsKafkas(t *testing.T) {
	for _, stage := range goldenStages(t, "11-metadata-4.4.0") {
		p := stage.Partitions[0]
		snapshot := p.KRaftSnapshots[1]
		fromLog := snapshotLines(replay(t, NewImage(), p.Segments[0].Log, 0, snapshot.EndOffset))
		fromSnapshot := snapshotLines(replay(t, NewImage(), snapshot.Log, 0, 1<<40))
		if diff := cmp.Diff(fromSnapshot, fromLog); diff != "" {
			t.Errorf("%s: snapshot (-) and replayed log (+) differ:\n%s", stage.Name, diff)
		}
		if len(fromLog) != len(snapshot.Log.Decoded) {
			t.Errorf("%s: %d records, Kafka wrote %d", stage.Name, len(fromLog), len(snapshot.Log.Decoded))
		}
		// The rest of the log on top of the snapshot is the same as the whole log.
		whole := snapshotLines(replay(t, NewImage(), p.Segments[0].Log, 0, 1<<40))
		onTop := snapshotLines(replay(t, replay(t, NewImage(), snapshot.Log, 0, 1<<40), p.Segments[0].Log, snapshot.EndOffset, 1<<40))
		if diff := cmp.Diff(whole, onTop); diff != "" {
			t.Errorf("%s: whole log (-) and snapshot with the rest (+) differ:\n%s", stage.Name, diff)
		}
	}
}
