package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
)

func TestEndTxnMarkerTakes78Bytes(t *testing.T) {
	for _, commit := range []bool{false, true} {
		m := &EndTxnMarker{Offset: 9, LeaderEpoch: 3, Timestamp: 1234, ProducerID: 4000, ProducerEpoch: 2, CoordinatorEpoch: 5, Commit: commit}
		b := Batch(AppendEndTxnMarker(nil, m))
		if err := b.Check(); err != nil || len(b) != EndTxnMarkerSize || b.Attributes() != 0x30 ||
			b.BaseSequence() != -1 || b.LastOffsetDelta() != 0 || b.Count() != 1 || b.MaxTimestamp() != 1234 {
			t.Fatalf("marker % x: %v", []byte(b), err)
		}
		records, err := collect(t, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		typ, err := ParseControl(records[0].Key)
		if err != nil || typ != m.Type() {
			t.Errorf("type %v, %v; want %v", typ, err, m.Type())
		}
		if epoch, err := ParseEndTxnMarker(records[0].Value); err != nil || epoch != 5 {
			t.Errorf("coordinator epoch %d, %v; want 5", epoch, err)
		}
	}
}

// The bytes that Apache Kafka 4.4.0 writes.
func TestKRaftControlRecordsHaveKafkasBytes(t *testing.T) {
	voter := Voter{ID: 1}
	tests := []struct {
		name string
		typ  ControlType
		m    interface{ Append([]byte) []byte }
		hex  string
		size int
	}{
		{"LeaderChange", LeaderChanged, &LeaderChange{LeaderID: 1, Voters: []Voter{voter}, Granting: []Voter{voter}},
			"00000000000102000000010002000000010000", 91},
		{"SnapshotHeader", SnapshotStart, &SnapshotHeader{LastContainedLogTimestamp: 0x1a22bcfcaae}, "0000000001a22bcfcaae00", 83},
		{"SnapshotFooter", SnapshotEnd, &SnapshotFooter{}, "000000", 75},
		{"KRaftVersion", KRaftVersion, &KRaftVersionRecord{KRaftVersion: 1}, "0000000100", 77},
	}
	for _, tt := range tests {
		value := tt.m.Append(nil)
		if got := hex.EncodeToString(value); got != tt.hex {
			t.Errorf("%s = %s, want %s", tt.name, got, tt.hex)
		}
		b := Batch(AppendControl(nil, NewBuildOptions(), tt.typ, 5, value))
		if err := b.Check(); err != nil || len(b) != tt.size || b.Attributes() != AttrControl {
			t.Errorf("%s: batch of %d bytes, attributes %#x, %v; want %d", tt.name, len(b), b.Attributes(), err, tt.size)
		}
	}
}

func TestControlRecordsRoundTrip(t *testing.T) {
	dir := kafka.UUID{1, 2, 3}
	change := LeaderChange{Version: 1, LeaderID: 2, Voters: []Voter{{1}, {2}}, Granting: []Voter{{2}}}
	if got, err := ParseLeaderChange(change.Append(nil)); err != nil || !reflect.DeepEqual(got, change) {
		t.Errorf("LeaderChange %+v, %v", got, err)
	}
	header := SnapshotHeader{LastContainedLogTimestamp: 77}
	if got, err := ParseSnapshotHeader(header.Append(nil)); err != nil || got != header {
		t.Errorf("SnapshotHeader %+v, %v", got, err)
	}
	footer := SnapshotFooter{}
	if got, err := ParseSnapshotFooter(footer.Append(nil)); err != nil || got != footer {
		t.Errorf("SnapshotFooter %+v, %v", got, err)
	}
	version := KRaftVersionRecord{KRaftVersion: 1}
	if got, err := ParseKRaftVersion(version.Append(nil)); err != nil || got != version {
		t.Errorf("KRaftVersion %+v, %v", got, err)
	}
	voters := Voters{Voters: []VoterInfo{
		{ID: 1, Directory: dir, Endpoints: []Endpoint{{"CONTROLLER", "localhost", 9093}, {"B", "h", 65535}}, MaxVersion: 1},
		{ID: 2, MinVersion: 1, MaxVersion: 1},
	}}
	if got, err := ParseVoters(voters.Append(nil)); err != nil || !reflect.DeepEqual(got, voters) {
		t.Errorf("Voters %+v, %v", got, err)
	}
}

func TestParseControl(t *testing.T) {
	tests := []struct {
		name string
		key  []byte
		want ControlType
		bad  bool
	}{
		{"abort", []byte{0, 0, 0, 0}, AbortMarker, false},
		{"commit", []byte{0, 0, 0, 1}, CommitMarker, false},
		{"a later version is read as version 0", []byte{0, 9, 0, 1}, CommitMarker, false},
		{"more bytes are ignored", []byte{0, 0, 0, 2, 9}, LeaderChanged, false},
		{"a type of the future is unknown and no error", []byte{0, 0, 0, 7}, UnknownControl, false},
		{"a negative type too", []byte{0, 0, 0xff, 0xff}, UnknownControl, false},
		{"a negative version is invalid", []byte{0xff, 0xff, 0, 1}, UnknownControl, true},
		{"three bytes are invalid", []byte{0, 0, 0}, UnknownControl, true},
	}
	for _, tt := range tests {
		got, err := ParseControl(tt.key)
		if got != tt.want || (err != nil) != tt.bad || err != nil && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, %v; want %v, error %v", tt.name, got, err, tt.want, tt.bad)
		}
		if !tt.bad && got != UnknownControl && tt.key[1] == 0 && !bytes.Equal(ControlKey(got), tt.key[:4]) {
			t.Errorf("%s: ControlKey = %x", tt.name, ControlKey(got))
		}
	}
}

func FuzzControlValues(f *testing.F) {
	f.Add((&LeaderChange{Version: 1, Voters: []Voter{{ID: 3}}}).Append(nil))
	f.Add((&Voters{Voters: []VoterInfo{{ID: 1, Endpoints: []Endpoint{{"a", "b", 1}}}}}).Append(nil))
	f.Add((&SnapshotHeader{}).Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := ParseLeaderChange(b); err == nil {
			if again, err := ParseLeaderChange(m.Append(nil)); err != nil || !reflect.DeepEqual(again, m) {
				t.Fatalf("LeaderChange %+v came back as %+v, %v", m, again, err)
			}
		}
		if m, err := ParseVoters(b); err == nil {
			if again, err := ParseVoters(m.Append(nil)); err != nil || !reflect.DeepEqual(again, m) {
				t.Fatalf("Voters %+v came back as %+v, %v", m, again, err)
			}
		}
		if m, err := ParseSnapshotHeader(b); err == nil {
			if again, err := ParseSnapshotHeader(m.Append(nil)); err != nil || again != m {
				t.Fatalf("SnapshotHeader %+v came back as %+v, %v", m, again, err)
			}
		}
		if m, err := ParseKRaftVersion(b); err == nil {
			if again, err := ParseKRaftVersion(m.Append(nil)); err != nil || again != m {
				t.Fatalf("KRaftVersion %+v came back as %+v, %v", m, again, err)
			}
		}
		_, _ = ParseSnapshotFooter(b)
		_, _ = ParseEndTxnMarker(b)
		_, _ = ParseControl(b)
	})
}
