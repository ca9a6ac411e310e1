package record

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
)

// FuzzBatch reads arbitrary bytes as a batch of any format: nothing may panic,
// the walk and the iterator must agree, and what is read must come out of the
// Builder equal.
func FuzzBatch(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		n, ok, err := NextBatch(b)
		if err != nil || !ok {
			return
		}
		b = b[:n]
		_ = Check(b)
		dec := &Decompressor{Max: 1 << 20}
		records, err := collect(t, b, dec)
		if int8(b[offMagic]) < MagicV2 {
			return
		}
		s, walkErr := Batch(b).Summarize(dec)
		if (err == nil) != (walkErr == nil) {
			t.Fatalf("iterator says %v, walk says %v", err, walkErr)
		}
		if err == nil && s.Count != len(records) {
			t.Fatalf("iterator reads %d records, walk %d", len(records), s.Count)
		}
		if err == nil && len(records) > 0 {
			rebuild(t, b, records)
		}
	})
}

func rebuild(t *testing.T, b Batch, records []Record) {
	o := optionsOf(b)
	if !o.Codec.Valid() {
		return
	}
	var builder Builder
	builder.Reset(o)
	last := records[0].Offset
	for i := range records {
		r := &records[i]
		if d := r.Offset - o.BaseOffset; d < 0 || d > 1<<31-1 || r.Offset < last {
			return // offsets that a Builder does not write
		}
		last = r.Offset
		builder.AppendAt(r.Offset, r.Timestamp, r.Key, r.Value, r.Headers)
	}
	again, err := builder.Finish()
	if err != nil {
		t.Fatal(err)
	}
	got, err := collect(t, again, new(Decompressor))
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		want := records[i]
		want.Size, got[i].Size, want.Magic = 0, 0, MagicV2
		if !reflect.DeepEqual(got[i], want) {
			t.Fatalf("record %d came back as %+v, want %+v", i, got[i], want)
		}
	}
}

// FuzzScanner compares the two framings over arbitrary bytes: what the file
// iterator accepts, the memory iterator accepts as far as the magic allows.
func FuzzScanner(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewScanner(bytes.NewReader(b), 0, int64(len(b)), 64)
		for s.Next() {
			whole, err := s.Batch()
			if err != nil || len(whole) != s.Header().Size {
				t.Fatalf("Batch at %d: %d bytes, %v", s.Position(), len(whole), err)
			}
			n, ok, err := NextBatch(whole)
			if magic := s.Header().Magic; magic < 0 || magic > MagicV2 {
				continue
			}
			if err != nil || !ok || n != len(whole) {
				t.Fatalf("batch at %d: scanner says %d bytes, NextBatch %d, %v, %v", s.Position(), len(whole), n, ok, err)
			}
		}
		if s.ValidEnd() > int64(len(b)) {
			t.Fatalf("ValidEnd = %d of %d", s.ValidEnd(), len(b))
		}
	})
}

// seed adds batches of every format and codec.
func seed(f *testing.F) {
	f.Helper()
	var b Builder
	for codec := None; codec <= Zstd; codec++ {
		o := NewBuildOptions()
		o.Codec = codec
		b.Reset(o)
		b.Append(5, []byte("k"), []byte("v"), []RecordHeader{{[]byte("h"), nil}})
		b.Append(7, nil, nil, nil)
		batch, err := b.Finish()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(batch))
	}
	f.Add(AppendEndTxnMarker(nil, &EndTxnMarker{ProducerID: 1, Commit: true, Timestamp: kafka.NoTimestamp}))
	logs, err := filepath.Glob(filepath.Join(golden.Root(f), "10-old-formats", "data", "handmade", "*", "*.log"))
	if err != nil || len(logs) == 0 {
		f.Fatalf("no old logs: %v", err)
	}
	for _, log := range logs {
		data, err := os.ReadFile(log)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:min(len(data), 1000)])
	}
}
