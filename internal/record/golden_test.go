package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
)

// What Apache Kafka 4.4.0 and 3.9.2 wrote is read batch by batch and record by
// record exactly as their own classes read it.
func TestGoldenLogsHaveTheDescribedBatchesAndRecords(t *testing.T) {
	for _, name := range golden.Names(t) {
		c := golden.Load(t, name)
		for i := range c.Stages {
			s := &c.Stages[i]
			t.Run(name+"/"+s.Name, func(t *testing.T) {
				dir := s.Unpack(t)
				for i := range s.Partitions {
					checkPartition(t, dir, &s.Partitions[i])
				}
				if s.BootstrapCheckpoint != nil {
					checkLog(t, filepath.Join(dir, "bootstrap.checkpoint"), &s.BootstrapCheckpoint.Log)
				}
			})
		}
	}
}

// diff is cmp.Diff, which is slow, only where there is a difference.
func diff(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return cmp.Diff(want, got)
}

func checkPartition(t *testing.T, dir string, p *golden.Partition) {
	for i := range p.Segments {
		if s := &p.Segments[i]; s.Log != nil {
			checkLog(t, filepath.Join(dir, p.Dir, fmt.Sprintf("%020d.log%s", s.Base, s.Suffix)), s.Log)
		}
	}
	for i := range p.KRaftSnapshots {
		s := &p.KRaftSnapshots[i]
		checkLog(t, filepath.Join(dir, p.Dir, fmt.Sprintf("%020d-%010d.checkpoint%s", s.EndOffset, s.Epoch, s.Suffix)), &s.Log)
	}
}

func checkLog(t *testing.T, path string, want *golden.Log) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	short := filepath.Base(filepath.Dir(path)) + "/" + filepath.Base(path)
	dec := new(Decompressor)
	s := NewScanner(f, 0, want.Size, 4096)
	var n int
	for s.Next() {
		if n == len(want.Batches) {
			t.Fatalf("%s: more than %d batches", short, n)
		}
		b, err := s.Batch()
		if err != nil {
			t.Fatalf("%s: batch at %d: %v", short, s.Position(), err)
		}
		checkBatch(t, fmt.Sprintf("%s at %d", short, s.Position()), s.Position(), s.Header(), b, dec, &want.Batches[n])
		n++
	}
	if n != len(want.Batches) || s.ValidEnd() != want.FramedBytes || (s.Err() != nil) != (want.ScanError != "") {
		t.Errorf("%s: %d batches to byte %d, error %v; want %d, %d, %q",
			short, n, s.ValidEnd(), s.Err(), len(want.Batches), want.FramedBytes, want.ScanError)
	}
}

func checkBatch(t *testing.T, at string, pos int64, h *Header, b []byte, dec *Decompressor, want *golden.Batch) {
	t.Helper()
	got := golden.Batch{
		Pos: pos, Size: h.Size, Magic: h.Magic, Last: int64(h.LastOffset), Codec: h.Codec().String(),
		TsType: h.TimestampType().String(), MaxTs: int64(h.MaxTimestamp), CRC: h.CRC, Valid: Check(b) == nil,
	}
	if h.Magic >= MagicV2 {
		got.Base, got.Count, got.LeaderEpoch, got.Attrs = int64(h.BaseOffset), &h.Count, int32(h.LeaderEpoch), h.Attributes
		got.BaseTs, got.PID, got.PEpoch, got.Seq = int64(h.BaseTimestamp), int64(h.ProducerID), int16(h.ProducerEpoch), int32(h.BaseSequence)
		got.Txn, got.Control = h.IsTransactional(), h.IsControl()
		if h.HasDeleteHorizon() {
			got.Horizon = (*int64)(&h.BaseTimestamp)
		}
		checkAccessors(t, at, Batch(b), h)
	}
	shallow := *want
	shallow.Records, shallow.RecordsSHA256, shallow.RecordsError = nil, "", ""
	if h.Magic < MagicV2 {
		shallow.Count = nil
	}
	if d := diff(shallow, got); d != "" {
		t.Errorf("%s: (-want +got)\n%s", at, d)
	}
	checkRecords(t, at, h, b, dec, want)
}

func checkAccessors(t *testing.T, at string, b Batch, h *Header) {
	t.Helper()
	got := Header{
		BaseOffset: b.BaseOffset(), LastOffset: b.LastOffset(), Size: b.Size(), Magic: b.Magic(), LeaderEpoch: b.LeaderEpoch(),
		CRC: b.CRC(), Attributes: b.Attributes(), LastOffsetDelta: b.LastOffsetDelta(), BaseTimestamp: b.BaseTimestamp(),
		MaxTimestamp: b.MaxTimestamp(), ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(),
		BaseSequence: b.BaseSequence(), Count: b.Count(),
	}
	if d := diff(*h, got); d != "" {
		t.Errorf("%s: accessors against header (-header +accessors)\n%s", at, d)
	}
	if b.Codec() != h.Codec() || b.TimestampType() != h.TimestampType() || b.IsControl() != h.IsControl() ||
		b.IsTransactional() != h.IsTransactional() || b.HasDeleteHorizon() != h.HasDeleteHorizon() || b.LastSequence() != h.LastSequence() {
		t.Errorf("%s: attribute accessors differ from the header's", at)
	}
}

func checkRecords(t *testing.T, at string, h *Header, b []byte, dec *Decompressor, want *golden.Batch) {
	t.Helper()
	if !want.Valid && want.RecordsSHA256 == "" {
		return // Kafka does not look into a batch with a wrong checksum
	}
	var it Iterator
	err := it.Reset(b, dec)
	sum := sha256.New()
	var got []golden.Record
	for err == nil && it.Next() {
		r := it.Record()
		hashRecord(sum.Write, r)
		got = append(got, goldenRecord(t, h, r))
	}
	if err == nil {
		err = it.Err()
	}
	if (err != nil) != (want.RecordsError != "" || want.RecordsSHA256 == "") {
		t.Errorf("%s: records: %v, want error %q", at, err, want.RecordsError)
		return
	}
	if err != nil {
		return
	}
	if s := hex.EncodeToString(sum.Sum(nil)); s != want.RecordsSHA256 {
		t.Errorf("%s: records_sha256 %s, want %s", at, s, want.RecordsSHA256)
	}
	if len(want.Records) > 0 || len(got) > 0 && want.Records != nil {
		if d := diff(want.Records, got); d != "" {
			t.Errorf("%s: records (-want +got)\n%s", at, d)
		}
	}
	if h.Magic >= MagicV2 {
		checkSummary(t, at, Batch(b), dec)
	}
}

// checkSummary compares the allocation-free walk with the iterator.
func checkSummary(t *testing.T, at string, b Batch, dec *Decompressor) {
	t.Helper()
	s, err := b.Summarize(dec)
	if err != nil {
		t.Errorf("%s: Summarize: %v", at, err)
		return
	}
	var it Iterator
	if err := it.Reset(b, new(Decompressor)); err != nil {
		t.Fatal(err)
	}
	want := Summary{Count: s.Count, MaxTimestamp: -1, MinTimestamp: 1<<63 - 1, FirstNullKey: -1, Consecutive: true, RecordBytes: s.RecordBytes}
	n := 0
	for ; it.Next(); n++ {
		r := it.Record()
		want.MaxTimestamp = max(want.MaxTimestamp, r.Timestamp)
		if r.Timestamp == kafka.NoTimestamp {
			want.NoTimestamps++
		} else {
			want.MinTimestamp = min(want.MinTimestamp, r.Timestamp)
		}
		if r.Key == nil {
			if want.NullKeys == 0 {
				want.FirstNullKey = n
			}
			want.NullKeys++
		}
		if r.Offset != b.BaseOffset()+kafka.Offset(n) {
			want.Consecutive = false
		}
	}
	want.Count = n
	if d := diff(want, s); d != "" {
		t.Errorf("%s: Summarize (-iterator +summary)\n%s", at, d)
	}
}

func goldenRecord(t *testing.T, h *Header, r *Record) golden.Record {
	g := golden.Record{Offset: int64(r.Offset), Ts: int64(r.Timestamp), Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
	for _, x := range r.Headers {
		g.Headers = append(g.Headers, golden.RecordHeader{Key: string(x.Key), Value: bytes.Clone(x.Value)})
	}
	if h.IsControl() {
		ct, err := ParseControl(r.Key)
		if err != nil {
			t.Error(err)
		}
		g.Control = ct.String()
		if ct == AbortMarker || ct == CommitMarker {
			epoch, err := ParseEndTxnMarker(r.Value)
			if err != nil {
				t.Error(err)
			}
			g.CoordinatorEpoch = &epoch
		}
	}
	return g
}

// hashRecord feeds a record to a hash in the form of records_sha256.
func hashRecord(write func([]byte) (int, error), r *Record) {
	b := binary.BigEndian.AppendUint64(nil, uint64(r.Offset))
	b = binary.BigEndian.AppendUint64(b, uint64(r.Timestamp))
	b = appendHashBytes(b, r.Key)
	b = appendHashBytes(b, r.Value)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.Headers)))
	for _, h := range r.Headers {
		b = appendHashBytes(b, h.Key)
		b = appendHashBytes(b, h.Value)
	}
	write(b)
}

func appendHashBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0xff, 0xff, 0xff, 0xff)
	}
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(b))), b...)
}

// Uncompressed v2 batches of Kafka's own writers come out of the Builder byte
// for byte, when it is given what is in them.
func TestBuilderRebuildsGoldenBatchesByteForByte(t *testing.T) {
	rebuilt := 0
	for _, name := range []string{"04-records-4.4.0", "05-transactions-4.4.0", "06-compaction-4.4.0", "12-produce-4.4.0"} {
		c := golden.Load(t, name)
		dir := c.Stages[len(c.Stages)-1].Unpack(t)
		logs, _ := filepath.Glob(filepath.Join(dir, "*", "*.log"))
		for _, log := range logs {
			data, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			for len(data) > 0 {
				n, ok, err := NextBatch(data)
				if !ok {
					if err == nil || !strings.Contains(name, "12-") {
						break
					}
				}
				rebuilt += checkRebuild(t, log, data[:n])
				data = data[n:]
			}
		}
	}
	if rebuilt < 500 {
		t.Errorf("rebuilt %d batches, want at least 500", rebuilt)
	}
}

func checkRebuild(t *testing.T, log string, b Batch) int {
	t.Helper()
	var it Iterator
	if b.Codec() != None || b.Attributes()&^attrMeaningful != 0 || it.Reset(b, nil) != nil {
		return 0
	}
	if b.Count() == 0 {
		h, _ := ParseHeader(b)
		if got := AppendEmpty(nil, &h); !bytes.Equal(got, b) {
			t.Errorf("%s: empty batch at %d: %x, want %x", log, b.BaseOffset(), got, b)
		}
		return 1
	}
	var records []Record
	for it.Next() {
		r := *it.Record()
		r.Headers = append([]RecordHeader(nil), r.Headers...)
		records = append(records, r)
	}
	o := optionsOf(b)
	if o.TimestampType == kafka.LogAppendTime {
		return 0 // the records' own timestamps are not to be had
	}
	if o.DeleteHorizon == kafka.NoTimestamp && b.BaseTimestamp() != records[0].Timestamp {
		return 0 // the client computed deltas from another base
	}
	var builder Builder
	builder.Reset(o)
	for i := range records {
		r := &records[i]
		builder.AppendAt(r.Offset, r.Timestamp, r.Key, r.Value, r.Headers)
	}
	got, err := builder.Finish()
	if err != nil {
		t.Errorf("%s: batch at %d: %v", log, b.BaseOffset(), err)
		return 0
	}
	// What the cleaner leaves may end before the batch did, and a client may
	// have given another maximum.
	if got.LastOffset() != b.LastOffset() || got.MaxTimestamp() != b.MaxTimestamp() {
		return 0
	}
	if !bytes.Equal(got, b) {
		t.Errorf("%s: batch at %d:\n got %x\nwant %x", log, b.BaseOffset(), []byte(got), []byte(b))
	}
	return 1
}

func optionsOf(b Batch) BuildOptions {
	o := BuildOptions{
		BaseOffset: b.BaseOffset(), LeaderEpoch: b.LeaderEpoch(), Codec: b.Codec(),
		TimestampType: b.TimestampType(), LogAppendTime: b.MaxTimestamp(),
		ProducerID: b.ProducerID(), ProducerEpoch: b.ProducerEpoch(), BaseSequence: b.BaseSequence(),
		Transactional: b.IsTransactional(), Control: b.IsControl(), DeleteHorizon: kafka.NoTimestamp,
	}
	if b.HasDeleteHorizon() {
		o.DeleteHorizon = b.BaseTimestamp()
	}
	return o
}
