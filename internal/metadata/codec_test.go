package metadata

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
)

func ptr(s string) *string { return &s }

// full has one record of every type with every field of its highest version set.
func full() []Record {
	id := kafka.UUID{1, 2, 3, 15: 200}
	ids := []kafka.UUID{id, {9, 15: 201}}
	ends := []Endpoint{{"PLAINTEXT", "host", 65535, 0}, {"SSL", "", 1, 3}}
	features := []FeatureRange{{"metadata.version", 7, 33}}
	replicas := []kafka.BrokerID{1, 2}
	return []Record{
		&RegisterBrokerRecord{1, true, id, 7, ends, features, ptr("rack"), true, true, ids, ids[:1]},
		&UnregisterBrokerRecord{1, 7},
		&TopicRecord{"topic", id},
		&PartitionRecord{3, id, replicas, replicas[:1], replicas[1:], []kafka.BrokerID{}, 1, Recovering, 4, 5, ids, replicas, replicas},
		&ConfigRecord{ResourceTopic, "topic", "retention.ms", ptr("1")},
		&PartitionChangeRecord{3, id, replicas, 1, replicas, replicas, []kafka.BrokerID{}, Recovered, ids, replicas, []kafka.BrokerID{}},
		&FenceBrokerRecord{1, 7},
		&UnfenceBrokerRecord{1, 7},
		&RemoveTopicRecord{id},
		&DelegationTokenRecord{"User:a", "User:b", []string{"User:c", "User:d"}, 1, 2, 3, "token"},
		&UserScramCredentialRecord{"alice", 2, []byte("salt"), []byte{1}, []byte{}, 4096},
		&FeatureLevelRecord{"group.version", 1},
		&ClientQuotaRecord{[]QuotaEntity{{"client-id", nil}, {"user", ptr("bob")}}, "producer_byte_rate", 1.5e10, true},
		&ProducerIDsRecord{1, 7, 1000},
		&BrokerRegistrationChangeRecord{1, 7, SwitchOff, SwitchOn, ids, []kafka.UUID{}},
		&AccessControlEntryRecord{id, 2, "t", 3, "User:*", "*", 2, 3},
		&RemoveAccessControlEntryRecord{id},
		&NoOpRecord{},
		&ZkMigrationStateRecord{1},
		&RemoveUserScramCredentialRecord{"alice", 2},
		&BeginTransactionRecord{ptr("Bootstrap records")},
		&EndTransactionRecord{},
		&AbortTransactionRecord{ptr("why")},
		&RemoveDelegationTokenRecord{"token"},
		&RegisterControllerRecord{1, id, true, ends, features},
		&ClearElrRecord{"topic"},
		&UnregisterControllerRecord{1},
	}
}

func TestEveryRecordTypeInEveryVersion(t *testing.T) {
	seen := map[RecordType]bool{}
	for _, r := range full() {
		seen[r.Type()] = true
		for version := int16(0); version <= maxVersion(r); version++ {
			b := AppendRecord(nil, r, version)
			got, v, err := DecodeRecord(b)
			if err != nil || v != version {
				t.Errorf("%s version %d: decoded version %d, %v", r.Type(), version, v, err)
				continue
			}
			if again := AppendRecord(nil, got, version); !bytes.Equal(again, b) {
				t.Errorf("%s version %d encodes to %x, then %x", r.Type(), version, b, again)
			}
			if version == maxVersion(r) {
				if diff := cmp.Diff(r, got); diff != "" {
					t.Errorf("%s version %d lost fields:\n%s", r.Type(), version, diff)
				}
			}
			for cut := range b { // every proper prefix is refused
				if _, _, err := DecodeRecord(b[:cut]); err == nil {
					t.Errorf("%s version %d: the first %d of %d bytes decode", r.Type(), version, cut, len(b))
				}
			}
		}
	}
	for typ := RecordType(-1); typ < 40; typ++ {
		if _, ok := typ.kind(); ok != seen[typ] {
			t.Errorf("type %d: known %v, in the test %v", typ, ok, seen[typ])
		}
	}
}

func TestDecodeRecord(t *testing.T) {
	tests := []struct {
		name    string
		hex     string
		want    Record
		wantErr error // nil: any error, when want is nil
	}{
		{"a no-op is four bytes", "01140000", &NoOpRecord{}, nil},
		{"an unknown tag is skipped", "0114000105 02 abcd", &NoOpRecord{}, nil},
		{"absent tags have their defaults", "0105 02 00000003 00000000000000000000000000000000 00",
			&PartitionChangeRecord{PartitionID: 3, Leader: LeaderUnchanged, LeaderRecoveryState: RecoveryUnchanged}, nil},
		{"a later frame version is a newer release's", "02140000", nil, ErrUnknownRecord},
		{"an unused type is a newer release's", "010d0000", nil, ErrUnknownRecord},
		{"a type above all is a newer release's", "011e0000", nil, ErrUnknownRecord},
		{"a later version is a newer release's", "01140100", nil, ErrUnknownRecord},
		{"bytes after the message are refused", "0114000000", nil, nil},
		{"a null name is refused", "010c0000000100", nil, errNull},
		{"a length past the end is refused before it allocates", "010cff0000", nil, ErrUnknownRecord},
		{"a string longer than the record is refused", "010c00ffffffff0f", nil, errShort},
		{"a varint of six bytes is refused", "010c00ffffffffff01", nil, errVarint},
		{"an empty record is refused", "", nil, errShort},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b, err := hex.DecodeString(string(bytes.ReplaceAll([]byte(tt.hex), []byte(" "), nil)))
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := DecodeRecord(b)
			if tt.want != nil {
				if err != nil || !reflect.DeepEqual(got, tt.want) {
					t.Errorf("DecodeRecord(%x) = %#v, %v, want %#v", b, got, err, tt.want)
				}
				return
			}
			var decodeErr *DecodeError
			if !errors.As(err, &decodeErr) || tt.wantErr != nil && !errors.Is(err, tt.wantErr) {
				t.Errorf("DecodeRecord(%x) = %#v, %v, want error %v", b, got, err, tt.wantErr)
			}
		})
	}
}

func TestRecordVersionFollowsMetadataVersion(t *testing.T) {
	tests := []struct {
		r     Record
		level int16
		want  int16
	}{
		{&RegisterBrokerRecord{}, V3_3_IV3, 1},
		{&RegisterBrokerRecord{}, V3_4_IV0, 2},
		{&RegisterBrokerRecord{}, V3_9_IV0, 3},
		{&RegisterBrokerRecord{}, V4_3_IV0, 4},
		{&PartitionRecord{}, 16, 0},
		{&PartitionRecord{}, V3_9_IV0, 1},
		{&PartitionRecord{}, V4_0_IV1, 2},
		{NewPartitionChange(), V3_9_IV0, 1},
		{NewPartitionChange(), V4_4_IV2, 2},
		{&BrokerRegistrationChangeRecord{Fenced: SwitchOn}, V4_4_IV2, 0},
		{&BrokerRegistrationChangeRecord{InControlledShutdown: SwitchOn}, V4_4_IV2, 1},
		{&BrokerRegistrationChangeRecord{CordonedLogDirs: []kafka.UUID{}}, V4_4_IV2, 3},
		{&TopicRecord{}, V4_4_IV2, 0},
	}
	for _, tt := range tests {
		if got := RecordVersion(tt.r, tt.level); got != tt.want {
			t.Errorf("RecordVersion(%s, %d) = %d, want %d", tt.r.Type(), tt.level, got, tt.want)
		}
	}
}

func TestJavaDoubles(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 1024: "1024.0", 0.5: "0.5", 1e7: "1.0E7", 12345678: "1.2345678E7", 0.0001: "1.0E-4", 9999999: "9999999.0",
	} {
		if got := string(appendJavaDouble(nil, v)); got != want {
			t.Errorf("appendJavaDouble(%v) = %s, want %s", v, got, want)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range full() {
		for version := int16(0); version <= maxVersion(r); version++ {
			f.Add(AppendRecord(nil, r, version))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, version, err := DecodeRecord(b)
		if err != nil {
			return
		}
		// Unknown tags and defaults that were written are gone after the first
		// pass; from then on the bytes stay.
		first := AppendRecord(nil, r, version)
		again, v, err := DecodeRecord(first)
		if err != nil || v != version {
			t.Fatalf("%x encodes to %x: version %d, %v", b, first, v, err)
		}
		if second := AppendRecord(nil, again, version); !bytes.Equal(first, second) {
			t.Fatalf("%x encodes to %x, then %x", b, first, second)
		}
		AppendJSON(nil, r, version)
	})
}
