package kafka

import (
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestErrorCodesAreKafkas compares names and retriability with the table that
// the classes of Apache Kafka 4.4.0 print.
func TestErrorCodesAreKafkas(t *testing.T) {
	f, err := os.Open("testdata/errors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comma = '\t'
	r.LazyQuotes = true
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 1+len(errorNames) {
		t.Errorf("Kafka has %d codes, we name %d", len(rows)-1, len(errorNames))
	}
	for _, row := range rows[1:] {
		n, err := strconv.Atoi(row[0])
		if err != nil {
			t.Fatal(err)
		}
		code := ErrorCode(n)
		if code.String() != row[1] {
			t.Errorf("code %d is %s, want %s", n, code, row[1])
		}
		if want := row[3] == "true"; code.Retriable() != want {
			t.Errorf("%s.Retriable() = %t, want %t", code, code.Retriable(), want)
		}
	}
	for _, n := range []int16{-2, 137, math.MaxInt16, math.MinInt16} {
		if got := ErrorCode(n).String(); got != "UNKNOWN_ERROR_CODE" {
			t.Errorf("code %d is %s, want UNKNOWN_ERROR_CODE", n, got)
		}
	}
}

func TestSequencesWrapAtTheLargestInt32(t *testing.T) {
	tests := []struct {
		from Sequence
		n    int32
		want Sequence
	}{
		{0, 0, 0},
		{5, 3, 8},
		{math.MaxInt32, 0, math.MaxInt32},
		{math.MaxInt32, 1, 0},
		{math.MaxInt32 - 1, 5, 3},
		{10, math.MaxInt32, 9},
	}
	for _, tt := range tests {
		if got := tt.from.Add(tt.n); got != tt.want {
			t.Errorf("%d.Add(%d) = %d, want %d", tt.from, tt.n, got, tt.want)
		}
		if got := tt.want.Sub(tt.n); got != tt.from {
			t.Errorf("%d.Sub(%d) = %d, want %d", tt.want, tt.n, got, tt.from)
		}
	}
}

func TestTopicPartitionNames(t *testing.T) {
	good := map[string]TopicPartition{
		"orders-0":     {"orders", 0},
		"a-b-12":       {"a-b", 12},
		"x.y_z-7":      {"x.y_z", 7},
		"-1":           {},
		"orders-":      {},
		"orders":       {},
		"orders--1":    {"orders-", 1},
		"orders-1x":    {},
		"orders-4e9":   {},
		"t-2147483648": {},
	}
	for name, want := range good {
		got, err := ParseTopicPartition(name)
		if want == (TopicPartition{}) {
			if err == nil {
				t.Errorf("ParseTopicPartition(%q) = %v, want an error", name, got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("ParseTopicPartition(%q) = %v, %v, want %v", name, got, err, want)
		}
		if got.String() != name {
			t.Errorf("%v.String() = %q, want %q", got, got, name)
		}
	}
}

func TestUUIDsAreWrittenAsKafkaWritesThem(t *testing.T) {
	if got := MetadataTopicID.String(); got != "AAAAAAAAAAAAAAAAAAAAAQ" {
		t.Errorf("metadata topic id = %s", got)
	}
	const text = "L_bZsgP4SpuPL9w0BIKJWg"
	u, err := ParseUUID(text)
	if err != nil || u.String() != text || u.IsZero() {
		t.Errorf("ParseUUID(%s) = %s, %v", text, u, err)
	}
	for _, bad := range []string{"", "short", "L/bZsgP4SpuPL9w0BIKJWg", "L_bZsgP4SpuPL9w0BIKJWg==", "!!!!!!!!!!!!!!!!!!!!!!"} {
		if u, err := ParseUUID(bad); err == nil {
			t.Errorf("ParseUUID(%q) = %s, want an error", bad, u)
		}
	}
}

func TestSinceSaturates(t *testing.T) {
	const least, most = Timestamp(-1 << 63), Timestamp(1<<63 - 1)
	tests := []struct {
		ts, earlier Timestamp
		want        int64
	}{
		{10, 4, 6}, {4, 10, -6}, {-1, -1, 0}, {0, most, -(1<<63 - 1)}, {most, 0, 1<<63 - 1},
		{5, least, 1<<63 - 1}, {most, -1, 1<<63 - 1}, {most, least, 1<<63 - 1}, {0, least, 1<<63 - 1},
		{least, 1, -1 << 63}, {least, most, -1 << 63}, {-2, most, -1 << 63}, {-1, most, -1 << 63},
		{-1, least, 1<<63 - 1}, {least, least, 0}, {most, most, 0},
	}
	for _, tt := range tests {
		if got := tt.ts.Since(tt.earlier); got != tt.want {
			t.Errorf("Timestamp(%d).Since(%d) = %d, want %d", tt.ts, tt.earlier, got, tt.want)
		}
	}
}

func TestTimestampsAreMilliseconds(t *testing.T) {
	at := time.Date(2023, 11, 14, 22, 13, 20, 999_999, time.UTC)
	if got := TimestampOf(at); got != 1_700_000_000_000 {
		t.Errorf("TimestampOf(%v) = %d", at, got)
	}
	if got := Timestamp(1_700_000_000_001).Time(); got.UnixMilli() != 1_700_000_000_001 || got.Location() != time.UTC {
		t.Errorf("Time() = %v", got)
	}
	for typ, want := range map[TimestampType]string{CreateTime: "CreateTime", LogAppendTime: "LogAppendTime", NoTimestampType: "NoTimestampType"} {
		if typ.String() != want {
			t.Errorf("%d.String() = %s, want %s", typ, typ, want)
		}
	}
}
