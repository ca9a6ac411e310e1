package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
)

// build makes an uncompressed batch of n small records from offset base.
func build(t testing.TB, o BuildOptions, n int) Batch {
	t.Helper()
	var b Builder
	b.Reset(o)
	for i := range n {
		b.Append(kafka.Timestamp(1000+i), []byte{byte('a' + i%26)}, bytes.Repeat([]byte("v"), 100), nil)
	}
	batch, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(batch)
}

func TestCRC32CHasTheCheckValueOfTheSpecification(t *testing.T) {
	b := append(make(Batch, offAttributes), "123456789"...)
	if got := b.ComputeCRC(); got != 0xE3069283 {
		t.Errorf("ComputeCRC = %08x, want e3069283", got)
	}
	b = append(make(Batch, legacyMagic), "123456789"...)
	if got := legacyChecksum(b); got != 0xCBF43926 {
		t.Errorf("legacyChecksum = %08x, want cbf43926", got)
	}
}

func TestSettersOutsideTheChecksumLeaveTheBatchValid(t *testing.T) {
	b := build(t, NewBuildOptions(), 3)
	b.SetLastOffset(1000)
	b.SetLeaderEpoch(7)
	if b.BaseOffset() != 998 || b.LastOffset() != 1000 || b.NextOffset() != 1001 || b.LeaderEpoch() != 7 {
		t.Errorf("offsets [%d, %d], epoch %d; want [998, 1000], 7", b.BaseOffset(), b.LastOffset(), b.LeaderEpoch())
	}
	if err := b.Check(); err != nil {
		t.Error(err)
	}
}

func TestSetMaxTimestamp(t *testing.T) {
	tests := []struct {
		name  string
		attrs int16 // set beforehand, checksum made right
		typ   kafka.TimestampType
		ts    kafka.Timestamp
		want  int16
		same  bool // no byte changes
	}{
		{"same type and time change no byte, not even bits without meaning", 0x0200, kafka.CreateTime, 1002, 0x0200, true},
		{"another time clears the bits without meaning", 0x0200, kafka.CreateTime, 5000, 0, false},
		{"LogAppendTime sets its bit and keeps the others", AttrTransactional, kafka.LogAppendTime, 9, AttrTransactional | AttrLogAppendTime, false},
		{"CreateTime clears the LogAppendTime bit", AttrLogAppendTime, kafka.CreateTime, 1002, 0, false},
		{"the delete horizon bit survives", AttrDeleteHorizon, kafka.CreateTime, 1, AttrDeleteHorizon, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := build(t, NewBuildOptions(), 3)
			binary.BigEndian.PutUint16(b[offAttributes:], uint16(tt.attrs))
			b.sealCRC()
			before := bytes.Clone(b)
			b.SetMaxTimestamp(tt.typ, tt.ts)
			if b.Attributes() != tt.want || b.MaxTimestamp() != tt.ts || b.TimestampType() != tt.typ {
				t.Errorf("attributes %#x, %v %d; want %#x, %v %d", b.Attributes(), b.TimestampType(), b.MaxTimestamp(), tt.want, tt.typ, tt.ts)
			}
			if bytes.Equal(before, b) != tt.same {
				t.Errorf("bytes unchanged = %v, want %v", !tt.same, tt.same)
			}
			if err := b.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCheckFindsEveryFlippedBitBehindTheLeaderEpoch(t *testing.T) {
	b := build(t, NewBuildOptions(), 2)
	for i := range b {
		for bit := range 8 {
			b[i] ^= 1 << bit
			err := b.Check()
			outside := i < offLength || i >= offLeaderEpoch && i <= offMagic
			if (err == nil) != outside || err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("bit %d of byte %d flipped: Check = %v", bit, i, err)
			}
			b[i] ^= 1 << bit
		}
	}
}

func TestLastSequenceWrapsToZero(t *testing.T) {
	o := NewBuildOptions()
	o.ProducerID, o.ProducerEpoch, o.BaseSequence = 1, 0, 1<<31-2
	if got := build(t, o, 3).LastSequence(); got != 0 {
		t.Errorf("LastSequence = %d, want 0", got)
	}
	if got := build(t, NewBuildOptions(), 3).LastSequence(); got != kafka.NoSequence {
		t.Errorf("LastSequence without a sequence = %d, want -1", got)
	}
}

func TestNextBatch(t *testing.T) {
	whole := build(t, NewBuildOptions(), 1)
	patched := func(at int, with ...byte) []byte {
		b := bytes.Clone(whole)
		copy(b[at:], with)
		return b
	}
	tests := []struct {
		name string
		buf  []byte
		size int
		ok   bool
		bad  bool
	}{
		{"an empty buffer has no batch", nil, 0, false, false},
		{"eleven bytes are not a prefix", whole[:11], 0, false, false},
		{"a prefix without a magic is no batch and no error", whole[:16], 0, false, false},
		{"a partial batch ends the walk silently", whole[:len(whole)-1], 0, false, false},
		{"a whole batch is found with more behind it", append(bytes.Clone(whole), 1, 2, 3), len(whole), true, false},
		{"a length below 14 is corrupt even without a magic", patched(offLength, 0, 0, 0, 13)[:12], 0, false, true},
		{"a negative length is corrupt", patched(offLength, 0xff, 0xff, 0xff, 0xff), 0, false, true},
		{"magic 3 is corrupt in memory", patched(offMagic, 3), 0, false, true},
		{"magic -1 is corrupt", patched(offMagic, 0xff), 0, false, true},
		{"a v2 batch smaller than its header is corrupt", patched(offLength, 0, 0, 0, 48), 0, false, true},
		{"the smallest v2 batch is a header", patched(offLength, 0, 0, 0, 49), 61, true, false},
		{"an old message may be smaller", patched(offLength, 0, 0, 0, 14, 0, 0, 0, 0, 1), 26, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			size, ok, err := NextBatch(tt.buf)
			if size != tt.size || ok != tt.ok || (err != nil) != tt.bad || err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("NextBatch = %d, %v, %v; want %d, %v, error %v", size, ok, err, tt.size, tt.ok, tt.bad)
			}
		})
	}
}

func TestValidBytesCountsWholeBatches(t *testing.T) {
	one := build(t, NewBuildOptions(), 1)
	buf := append(append(bytes.Clone(one), one...), one[:20]...)
	if n, err := ValidBytes(buf); n != 2*len(one) || err != nil {
		t.Errorf("ValidBytes = %d, %v; want %d", n, err, 2*len(one))
	}
}

func TestScanner(t *testing.T) {
	a, b := build(t, NewBuildOptions(), 1), build(t, NewBuildOptions(), 50)
	two := append(bytes.Clone(a), b...)
	with := func(tail ...byte) []byte { return append(bytes.Clone(two), tail...) }
	header := func(length uint32, magic byte) []byte {
		h := make([]byte, 40)
		binary.BigEndian.PutUint32(h[offLength:], length)
		h[offMagic] = magic
		return h
	}
	tests := []struct {
		name    string
		file    []byte
		batches int
		end     int
		bad     bool
	}{
		{"an empty file has no batch", nil, 0, 0, false},
		{"whole batches to the end", two, 2, len(two), false},
		{"seventeen bytes behind the last batch are not looked at", with(make([]byte, 17)...), 2, len(two), false},
		{"eighteen zeros are corrupt", with(make([]byte, 18)...), 2, len(two), true},
		{"a torn batch ends the scan silently", with(b[:len(b)-1]...), 2, len(two), false},
		{"a batch of magic 2 smaller than its header is corrupt", with(header(28, 2)...), 2, len(two), true},
		{"a magic above 2 is read as format 2", append(with(a[:16]...), append([]byte{5}, a[17:]...)...), 3, len(two) + len(a), false},
		{"an old message is a batch", with(header(28, 1)...), 3, len(two) + 40, false},
	}
	for _, tt := range tests {
		for _, size := range []int{1, 100, 4096} {
			s := NewScanner(bytes.NewReader(tt.file), 0, int64(len(tt.file)), size)
			n := 0
			for s.Next() {
				if whole, err := s.Batch(); err != nil || len(whole) != s.Header().Size ||
					!bytes.Equal(whole, tt.file[s.Position():s.Position()+int64(len(whole))]) {
					t.Errorf("%s, buffer %d: Batch at %d: %d bytes, %v", tt.name, size, s.Position(), len(whole), err)
				}
				n++
			}
			if n != tt.batches || s.ValidEnd() != int64(tt.end) || (s.Err() != nil) != tt.bad {
				t.Errorf("%s, buffer %d: %d batches to %d, %v; want %d to %d, error %v",
					tt.name, size, n, s.ValidEnd(), s.Err(), tt.batches, tt.end, tt.bad)
			}
			var corrupt *CorruptError
			if tt.bad && (!errors.As(s.Err(), &corrupt) || corrupt.Position != int64(tt.end)) {
				t.Errorf("%s: error %v, want one at byte %d", tt.name, s.Err(), tt.end)
			}
		}
	}
}

// A file that is shorter than the scan was told is corruption, not the end.
func TestScannerReportsAFileThatEndsEarly(t *testing.T) {
	a := build(t, NewBuildOptions(), 1)
	s := NewScanner(bytes.NewReader(a), 0, int64(2*len(a)), 64)
	for s.Next() {
	}
	// Not corrupt: what takes that for the end of the log would cut it there.
	if !errors.Is(s.Err(), io.ErrUnexpectedEOF) || errors.Is(s.Err(), ErrCorrupt) {
		t.Errorf("Err = %v, want io.ErrUnexpectedEOF and not corrupt", s.Err())
	}
}

func TestHeaderOnlyScanReadsOnlyHeaders(t *testing.T) {
	var file []byte
	for range 10 {
		file = append(file, build(t, NewBuildOptions(), 100)...)
	}
	r := &countingReader{r: bytes.NewReader(file)}
	s := NewScanner(r, 0, int64(len(file)), ScanBuffer)
	for s.Next() {
	}
	if s.Err() != nil || r.bytes > 10*HeaderSize {
		t.Errorf("read %d bytes, %v; want at most %d", r.bytes, s.Err(), 10*HeaderSize)
	}
}

type countingReader struct {
	r     *bytes.Reader
	bytes int
}

func (c *countingReader) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.bytes += n
	return n, err
}
