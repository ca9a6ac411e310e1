package record

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
)

func collect(t testing.TB, b []byte, dec *Decompressor) ([]Record, error) {
	t.Helper()
	var it Iterator
	if err := it.Reset(b, dec); err != nil {
		return nil, err
	}
	var records []Record
	for it.Next() {
		r := *it.Record()
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		r.Headers = nil
		for _, h := range it.Record().Headers {
			r.Headers = append(r.Headers, RecordHeader{bytes.Clone(h.Key), bytes.Clone(h.Value)})
		}
		if it.Index() != len(records) {
			t.Errorf("Index = %d, want %d", it.Index(), len(records))
		}
		records = append(records, r)
	}
	return records, it.Err()
}

func TestRecordsRoundTripThroughEveryCodec(t *testing.T) {
	want := []Record{
		{Offset: 100, Timestamp: 5, Key: []byte("k"), Value: []byte("v"), Sequence: 7},
		{Offset: 101, Timestamp: -1, Key: nil, Value: []byte{}, Sequence: 8},
		{Offset: 103, Timestamp: math.MaxInt64, Key: []byte{}, Value: nil, Sequence: 10,
			Headers: []RecordHeader{{[]byte("h"), nil}, {[]byte(""), []byte{}}, {[]byte("h"), []byte("x")}}},
		{Offset: 200, Timestamp: 0, Key: bytes.Repeat([]byte("key"), 100), Value: bytes.Repeat([]byte("value "), 50000), Sequence: 107},
	}
	var b Builder
	dec := new(Decompressor)
	for codec := None; codec <= Zstd; codec++ {
		o := NewBuildOptions()
		o.BaseOffset, o.Codec, o.ProducerID, o.ProducerEpoch, o.BaseSequence = 100, codec, 3, 1, 7
		b.Reset(o)
		for _, r := range want {
			b.AppendAt(r.Offset, r.Timestamp, r.Key, r.Value, r.Headers)
		}
		batch, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if err := batch.Check(); err != nil {
			t.Fatal(err)
		}
		if batch.LastOffset() != 200 || batch.Count() != 4 || batch.MaxTimestamp() != math.MaxInt64 || batch.Codec() != codec {
			t.Errorf("%v: header says last %d, count %d, max %d", codec, batch.LastOffset(), batch.Count(), batch.MaxTimestamp())
		}
		got, err := collect(t, batch, dec)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			got[i].Size = 0
			want[i].Magic, want[i].Valid = 2, true
		}
		if d := diff(want, got); d != "" {
			t.Errorf("%v (-want +got)\n%s", codec, d)
		}
	}
}

func TestSummarize(t *testing.T) {
	type rec struct {
		offset kafka.Offset
		ts     kafka.Timestamp
		key    []byte
	}
	k := []byte("k")
	tests := []struct {
		name    string
		records []rec
		want    Summary
	}{
		{"plain records", []rec{{0, 5, k}, {1, 9, k}, {2, 7, k}},
			Summary{Count: 3, MaxTimestamp: 9, MinTimestamp: 5, FirstNullKey: -1, Consecutive: true}},
		{"a gap is not consecutive", []rec{{0, 5, k}, {2, 5, k}},
			Summary{Count: 2, MaxTimestamp: 5, MinTimestamp: 5, FirstNullKey: -1}},
		{"null keys are counted and the first is named", []rec{{0, 5, k}, {1, 5, nil}, {2, 5, nil}},
			Summary{Count: 3, MaxTimestamp: 5, MinTimestamp: 5, NullKeys: 2, FirstNullKey: 1, Consecutive: true}},
		{"an empty key is a key", []rec{{0, 5, []byte{}}},
			Summary{Count: 1, MaxTimestamp: 5, MinTimestamp: 5, FirstNullKey: -1, Consecutive: true}},
		{"timestamp -1 counts apart", []rec{{0, -1, k}, {1, -1, k}},
			Summary{Count: 2, MaxTimestamp: -1, MinTimestamp: math.MaxInt64, NoTimestamps: 2, FirstNullKey: -1, Consecutive: true}},
		{"the maximum starts at -1, as Kafka's search does", []rec{{0, -5, k}, {1, -9, k}},
			Summary{Count: 2, MaxTimestamp: -1, MinTimestamp: -9, FirstNullKey: -1, Consecutive: true}},
	}
	var b Builder
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for codec := None; codec <= Zstd; codec++ {
				o := NewBuildOptions()
				o.Codec = codec
				b.Reset(o)
				for _, r := range tt.records {
					b.AppendAt(r.offset, r.ts, r.key, []byte("v"), nil)
				}
				batch, err := b.Finish()
				if err != nil {
					t.Fatal(err)
				}
				got, err := batch.Summarize(new(Decompressor))
				got.RecordBytes = 0
				if err != nil || got != tt.want {
					t.Errorf("%v: Summarize = %+v, %v; want %+v", codec, got, err, tt.want)
				}
			}
		})
	}
}

func TestSummarizeTakesTheTimestampOfALogAppendTimeBatch(t *testing.T) {
	b := build(t, NewBuildOptions(), 3)
	b.SetMaxTimestamp(kafka.LogAppendTime, 77)
	s, err := b.Summarize(nil)
	if err != nil || s.MaxTimestamp != 77 || s.MinTimestamp != 77 {
		t.Errorf("Summarize = %+v, %v; want 77 everywhere", s, err)
	}
	records, err := collect(t, b, nil)
	if err != nil || records[0].Timestamp != 77 || records[0].TimestampType != kafka.LogAppendTime {
		t.Errorf("first record %+v, %v; want 77", records, err)
	}
}

// Bodies of one record, and what is wrong with each.
func TestMalformedRecordsAreInvalid(t *testing.T) {
	good := appendRecord(nil, 0, 0, []byte("k"), []byte("v"), []RecordHeader{{[]byte("h"), []byte("x")}})
	tests := []struct {
		name   string
		count  int32
		body   []byte
		reason string
	}{
		{"bytes are left behind the last record", 1, append(bytes.Clone(good), 0), reasonRemaining},
		{"there are fewer records than the header counts", 2, good, reasonLength},
		{"the count is negative", -1, good, "invalid record count -1"},
		{"a record passes the end of the batch", 1, good[:len(good)-1], reasonLength},
		{"a negative size", 1, []byte{1}, reasonLength},
		{"a size that never ends", 1, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, reasonLength},
		{"a record of no bytes", 1, []byte{0}, reasonStructure},
		{"a key that passes its record", 1, []byte{12, 0, 0, 0, 20, 1, 0}, reasonStructure},
		{"a value that passes its record", 1, []byte{12, 0, 0, 0, 1, 20, 0}, reasonStructure},
		{"a negative header count", 1, []byte{12, 0, 0, 0, 1, 1, 1}, reasonHeaders},
		{"more headers than bytes", 1, []byte{12, 0, 0, 0, 1, 1, 20}, reasonHeaders},
		{"a null header key", 1, []byte{16, 0, 0, 0, 1, 1, 2, 1, 1}, reasonStructure},
		{"a record that ends before its size says", 1, []byte{14, 0, 0, 0, 1, 1, 0, 0}, reasonConsumed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := append(make(Batch, HeaderSize), tt.body...)
			o := NewBuildOptions()
			putHeader(b, &o, 0, tt.count, 0, 0)
			_, walkErr := b.Summarize(nil)
			_, iterErr := collect(t, b, nil)
			for _, err := range []error{walkErr, iterErr} {
				if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.reason) {
					t.Errorf("error %v, want %q", err, tt.reason)
				}
			}
		})
	}
}

func TestNegativeLengthsBelowMinusOneAreNullAsInKafka(t *testing.T) {
	b := append(make(Batch, HeaderSize), 12, 0, 0, 0, 5, 7, 0) // lengths -3 and -4
	o := NewBuildOptions()
	putHeader(b, &o, 0, 1, 0, 0)
	records, err := collect(t, b, nil)
	if err != nil || records[0].Key != nil || records[0].Value != nil {
		t.Errorf("records %+v, %v; want null key and value", records, err)
	}
}

func TestABatchEmptiedByCompactionHasNoRecords(t *testing.T) {
	o := NewBuildOptions()
	o.BaseOffset, o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Codec = 40, 9, 2, 5, Zstd
	var b Builder
	b.Reset(o)
	b.AppendAt(42, 10, []byte("k"), nil, nil)
	full, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	h, _ := ParseHeader(full)
	empty := Batch(AppendEmpty([]byte("x"), &h))[1:]
	if err := empty.Check(); err != nil {
		t.Fatal(err)
	}
	got, _ := ParseHeader(empty)
	want := h
	want.Size, want.Count, want.BaseTimestamp, want.Attributes, want.CRC = HeaderSize, 0, -1, 0, got.CRC
	if got != want {
		t.Errorf("empty batch %+v, want %+v", got, want)
	}
	if records, err := collect(t, empty, nil); err != nil || len(records) != 0 {
		t.Errorf("records %v, %v", records, err)
	}
	if s, err := empty.Summarize(nil); err != nil || s.Count != 0 {
		t.Errorf("Summarize = %+v, %v", s, err)
	}
}

func TestARecordLargerThanAllowedInACompressedBatchIsInvalid(t *testing.T) {
	o := NewBuildOptions()
	o.Codec = Gzip
	var b Builder
	b.Reset(o)
	b.Append(0, nil, make([]byte, 1000), nil)
	batch, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	dec := &Decompressor{MaxRecord: 999}
	if _, err := batch.Summarize(dec); !errors.Is(err, ErrInvalid) {
		t.Errorf("Summarize = %v, want invalid", err)
	}
	if _, err := collect(t, batch, dec); !errors.Is(err, ErrInvalid) {
		t.Errorf("iterate = %v, want invalid", err)
	}
}

func TestVarintsAreReadAsTheyAreWritten(t *testing.T) {
	values := []int64{0, -1, 1, 63, 64, -64, -65, 8191, 8192, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
	for range 1000 {
		values = append(values, int64(rand.Uint64()>>rand.IntN(64)))
	}
	for _, v := range values {
		b := appendVarint(nil, v)
		if got, n := varlong(b, 0); got != v || n != len(b) || n != varintSize(v) {
			t.Errorf("varlong(%x) = %d in %d bytes, want %d in %d", b, got, n, v, varintSize(v))
		}
		if v == int64(int32(v)) {
			if got, n := varint(b, 0); int64(got) != v || n != len(b) {
				t.Errorf("varint(%x) = %d in %d bytes, want %d", b, got, n, v)
			}
		}
		if _, n := varlong(b[:len(b)-1], 0); n != 0 {
			t.Errorf("varlong of a cut %x ended", b)
		}
	}
	if _, n := varint([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}, 0); n != 0 {
		t.Error("a varint of six bytes was read")
	}
	if _, n := varlong(append(bytes.Repeat([]byte{0x80}, 10), 0), 0); n != 0 {
		t.Error("a varlong of eleven bytes was read")
	}
}

func TestFinishRefusesOffsetsThatDoNotFit(t *testing.T) {
	var b Builder
	o := NewBuildOptions()
	b.Reset(o)
	b.AppendAt(1<<31, 0, nil, nil, nil)
	if _, err := b.Finish(); err == nil {
		t.Error("a delta of 2^31 was accepted")
	}
}

func TestHotPathsAllocateNothing(t *testing.T) {
	plain := build(t, NewBuildOptions(), 16)
	var b Builder
	dec := new(Decompressor)
	check := func(what string, f func()) {
		t.Helper()
		f() // warm up
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations, want 0", what, n)
		}
	}
	check("Check", func() { _ = plain.Check() })
	check("Summarize", func() { _, _ = plain.Summarize(nil) })
	var it Iterator
	check("iterate", func() {
		_ = it.Reset(plain, nil)
		for it.Next() {
		}
	})
	s := NewScanner(bytes.NewReader(plain), 0, int64(len(plain)), 4096)
	r := bytes.NewReader(plain)
	check("scan", func() {
		s.Reset(r, 0, int64(len(plain)))
		for s.Next() {
			_, _ = s.Batch()
		}
	})
	for codec := Gzip; codec <= Zstd; codec++ {
		o := NewBuildOptions()
		o.Codec = codec
		b.Reset(o)
		for range 16 {
			b.Append(0, []byte("key"), bytes.Repeat([]byte("json like "), 100), nil)
		}
		batch, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		check("Summarize "+codec.String(), func() { _, _ = batch.Summarize(dec) })
	}
}

func BenchmarkSummarize(b *testing.B) {
	var builder Builder
	dec := new(Decompressor)
	for codec := None; codec <= Zstd; codec++ {
		o := NewBuildOptions()
		o.Codec = codec
		builder.Reset(o)
		for i := range 16 {
			value := strings.Repeat(`{"id":`+strings.Repeat(string(rune('0'+i%10)), 6)+`,"name":"x"},`, 50)
			builder.Append(kafka.Timestamp(i), []byte("key"), []byte(value[:1000]), nil)
		}
		batch, err := builder.Finish()
		if err != nil {
			b.Fatal(err)
		}
		batch = bytes.Clone(batch)
		b.Run(codec.String(), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(builder.UncompressedSize()))
			for b.Loop() {
				if _, err := batch.Summarize(dec); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
