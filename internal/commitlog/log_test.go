package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// bench is a log on a memory disk under a clock of the test's.
type bench struct {
	t      testing.TB
	disk   *memfs.FS
	opts   Options
	log    *Log
	now    int64
	events []string
	due    []func()
}

const testDir = "/d/test-0"

func newBench(t testing.TB, change func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, disk: memfs.New(), now: 1_750_000_000_000}
	b.disk.SetNow(b.clock)
	if err := b.disk.MkdirAll(testDir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.opts = Options{
		FS: b.disk, Dir: testDir, Partition: kafka.TopicPartition{Topic: "test"}, Config: DefaultConfig(), Now: b.clock,
		AfterDelay: func(_ time.Duration, f func()) { b.due = append(b.due, f) },
		OnEvent:    func(e Event) { b.events = append(b.events, e.Name) },
	}
	if change != nil {
		change(&b.opts)
	}
	b.open(false)
	return b
}

func (b *bench) clock() time.Time { return time.UnixMilli(b.now) }

func (b *bench) open(clean bool) {
	b.t.Helper()
	b.opts.CleanShutdown = clean
	l, err := Open(b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.log = l
}

// killed opens the log again as after the death of the process.
func (b *bench) killed() {
	b.t.Helper()
	b.disk = b.disk.Crash(memfs.KeepAll())
	b.disk.SetNow(b.clock)
	b.opts.FS = b.disk
	b.due = nil
	b.open(false)
}

// records is a batch of n records as a client sends it.
func (b *bench) records(n int, o record.BuildOptions) []byte {
	b.t.Helper()
	var builder record.Builder
	builder.Reset(o)
	for i := range n {
		builder.Append(kafka.Timestamp(b.now+int64(i)), []byte{byte('k'), byte(i)}, bytes.Repeat([]byte{byte('a' + i%26)}, 50), nil)
	}
	out, err := builder.Finish()
	if err != nil {
		b.t.Fatal(err)
	}
	return bytes.Clone(out)
}

func (b *bench) append(n int) AppendInfo {
	b.t.Helper()
	info, err := b.log.AppendAsLeader(b.records(n, record.NewBuildOptions()), 0, AppendOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.log.MaybeIncrementHighWatermark(b.log.EndOffset())
	return info
}

// stored is the bytes of the batch that holds an offset.
func (b *bench) stored(at kafka.Offset) record.Batch {
	b.t.Helper()
	info, err := b.log.Read(at, ReadOptions{MaxBytes: 1, MinOneBatch: true, Bound: LogEnd})
	if err != nil {
		b.t.Fatal(err)
	}
	buf := make([]byte, info.Region.Length)
	if len(buf) == 0 {
		b.t.Fatalf("read %d: nothing", at)
	}
	if _, err := info.Region.File.ReadAt(buf, info.Region.Offset); err != nil {
		b.t.Fatal(err)
	}
	info.Region.Release()
	return buf
}

func (b *bench) files() string {
	b.t.Helper()
	names, err := b.disk.ReadDir(testDir)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for _, d := range names {
		out = append(out, d.Name())
	}
	return strings.Join(out, " ")
}

func withCodec(c record.Codec) record.BuildOptions {
	o := record.NewBuildOptions()
	o.Codec = c
	return o
}

func TestValidation(t *testing.T) {
	control := record.NewBuildOptions()
	control.ProducerID, control.ProducerEpoch, control.Control = 1, 0, true
	sequence := record.NewBuildOptions()
	sequence.ProducerID, sequence.ProducerEpoch = 1, 0
	tests := []struct {
		name   string
		config func(*Config)
		build  record.BuildOptions
		change func(record.Batch) []byte
		want   error
	}{
		{"a plain batch", nil, withCodec(record.None), nil, nil},
		{"bytes behind the last whole batch are dropped", nil, withCodec(record.None),
			func(b record.Batch) []byte { return append(b, 1, 2, 3) }, nil},
		{"a wrong checksum", nil, withCodec(record.None), func(b record.Batch) []byte { b[len(b)-2]++; return b }, ErrCorrupt},
		{"a size below the smallest", nil, withCodec(record.None), func(b record.Batch) []byte { copy(b[8:], []byte{0, 0, 0, 3}); return b }, ErrCorrupt},
		{"two batches", nil, withCodec(record.None), func(b record.Batch) []byte { return append(b, b...) }, ErrInvalidRecord},
		{"a base offset", nil, withCodec(record.None), func(b record.Batch) []byte { b.SetBaseOffset(1); return b }, ErrInvalidRecord},
		{"an old format", nil, withCodec(record.None), func(record.Batch) []byte { return oldMessage() }, ErrInvalidRecord},
		{"a control batch of a client", nil, control, nil, ErrInvalidRecord},
		{"a producer without a sequence", nil, sequence, nil, ErrInvalidRecord},
		{"a batch above max.message.bytes", func(c *Config) { c.MaxMessageBytes = 100 }, withCodec(record.None), nil, ErrMessageTooLarge},
		{"a batch above segment.bytes", func(c *Config) { c.SegmentBytes = 100 }, withCodec(record.None), nil, ErrRecordBatchTooLarge},
		{"compressed bytes that are none", nil, withCodec(record.LZ4),
			func(b record.Batch) []byte { copy(b[record.HeaderSize:], "xxxx"); return resealed(b) }, ErrUnprocessable},
		{"a decompression bomb", nil, withCodec(record.Zstd), func(b record.Batch) []byte {
			var c record.Compressor
			b, err := c.Compress(b[:record.HeaderSize], record.Zstd, 0, make([]byte, 32<<20))
			if err != nil {
				t.Fatal(err)
			}
			binary.BigEndian.PutUint32(b[8:], uint32(len(b)-12))
			return resealed(b)
		}, ErrMessageTooLarge},
		{"a codec that does not exist", nil, withCodec(record.None),
			func(b record.Batch) []byte { b[22] |= 7; return resealed(b) }, ErrUnprocessable},
		{"a record above max.decompressed.message.bytes", func(c *Config) { c.MaxDecompressedBytes = 20 }, withCodec(record.Gzip), nil, ErrInvalidRecord},
		{"a record above that limit, not compressed", func(c *Config) { c.MaxDecompressedBytes = 20 }, withCodec(record.None), nil, nil},
		{"timestamps from the future", func(c *Config) { c.TimestampAfterMax = -10 }, withCodec(record.None), nil, ErrInvalidTimestamp},
		{"timestamps from the past", func(c *Config) { c.TimestampBeforeMax = -10_000 }, withCodec(record.None), nil, ErrInvalidTimestamp},
		{"leftover bytes in the records", nil, withCodec(record.None), func(b record.Batch) []byte {
			b = append(b, 0)
			b[11]++
			return resealed(b)
		}, ErrInvalidRecord},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, func(o *Options) {
				if tt.config != nil {
					tt.config(&o.Config)
				}
			})
			buf := b.records(3, tt.build)
			if tt.change != nil {
				buf = tt.change(buf)
			}
			info, err := b.log.AppendAsLeader(buf, 4, AppendOptions{})
			if !errors.Is(err, tt.want) {
				t.Fatalf("error %v, want %v", err, tt.want)
			}
			if err != nil && (b.log.EndOffset() != 0 || b.log.Size() != 0 || info.FirstOffset != -1) {
				t.Errorf("a refused batch left end offset %d and %d bytes", b.log.EndOffset(), b.log.Size())
			}
			if err == nil && (info.FirstOffset != 0 || info.LastOffset != 2 || b.stored(0).LeaderEpoch() != 4) {
				t.Errorf("append = %+v with leader epoch %d", info, b.stored(0).LeaderEpoch())
			}
		})
	}
}

func resealed(b record.Batch) []byte {
	crc := b.ComputeCRC()
	b[17], b[18], b[19], b[20] = byte(crc>>24), byte(crc>>16), byte(crc>>8), byte(crc)
	return b
}

// oldMessage is a message of format 1 with a right checksum.
func oldMessage() []byte {
	m := []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 22, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	binary.BigEndian.PutUint32(m[12:], crc32.ChecksumIEEE(m[16:]))
	return m
}

func TestAnEmptyAppendIsNothing(t *testing.T) {
	b := newBench(t, nil)
	for _, buf := range [][]byte{nil, {}, make([]byte, 5)} {
		info, err := b.log.AppendAsLeader(buf, 0, AppendOptions{})
		if err != nil || info.FirstOffset != kafka.NoOffset || b.log.EndOffset() != 0 {
			t.Errorf("append of %d bytes = %+v, %v; want nothing", len(buf), info, err)
		}
	}
}

// TestCompressionType stores batches of every codec in topics of every
// compression.type: the target's codec, the same records.
func TestCompressionType(t *testing.T) {
	for source := record.None; source <= record.Zstd; source++ {
		for target := record.None; target <= record.Zstd; target++ {
			t.Run(fmt.Sprintf("%v to %v", source, target), func(t *testing.T) {
				b := newBench(t, func(o *Options) { o.Config.CompressProducer, o.Config.Codec = false, target })
				b.append(1)
				sent := b.records(20, withCodec(source))
				if _, err := b.log.AppendAsLeader(bytes.Clone(sent), 3, AppendOptions{}); err != nil {
					t.Fatal(err)
				}
				got := b.stored(1)
				if got.Codec() != target || got.Check() != nil || got.BaseOffset() != 1 || got.LeaderEpoch() != 3 {
					t.Errorf("stored with %v at %d, %v; want %v at 1", got.Codec(), got.BaseOffset(), got.Check(), target)
				}
				if same := bytes.Equal(got[record.HeaderSize:], sent[record.HeaderSize:]); same != (source == target) {
					t.Errorf("the records' bytes are kept = %v, want %v", same, source == target)
				}
				var want, have record.Iterator
				if err := errors.Join(want.Reset(sent, new(record.Decompressor)), have.Reset(got, new(record.Decompressor))); err != nil {
					t.Fatal(err)
				}
				for want.Next() {
					if !have.Next() || !bytes.Equal(want.Record().Key, have.Record().Key) || !bytes.Equal(want.Record().Value, have.Record().Value) ||
						want.Record().Timestamp != have.Record().Timestamp || want.Record().Offset+1 != have.Record().Offset {
						t.Fatalf("record %d is %+v, want %+v", want.Index(), have.Record(), want.Record())
					}
				}
			})
		}
	}
}

func TestACompressedBatchWithGapsIsRefusedUnlessItIsRebuilt(t *testing.T) {
	gaps := func(b *bench) []byte {
		var builder record.Builder
		builder.Reset(withCodec(record.Gzip))
		builder.AppendAt(0, kafka.Timestamp(b.now), []byte("a"), []byte("1"), nil)
		builder.AppendAt(5, kafka.Timestamp(b.now), []byte("b"), []byte("2"), nil)
		out, err := builder.Finish()
		if err != nil {
			t.Fatal(err)
		}
		copy(out[23:], []byte{0, 0, 0, 1}) // last offset delta: as if there were no gap
		return resealed(bytes.Clone(out))
	}
	b := newBench(t, nil)
	if _, err := b.log.AppendAsLeader(gaps(b), 0, AppendOptions{}); !errors.Is(err, ErrUnprocessable) {
		t.Errorf("kept in its codec: %v, want ErrUnprocessable", err)
	}
	b = newBench(t, func(o *Options) { o.Config.CompressProducer, o.Config.Codec = false, record.Zstd })
	if info, err := b.log.AppendAsLeader(gaps(b), 0, AppendOptions{}); err != nil || info.LastOffset != 1 {
		t.Errorf("rebuilt: %+v, %v", info, err)
	}
}

func TestAMarkerIsNotCompressed(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.CompressProducer, o.Config.Codec = false, record.Zstd })
	m := record.AppendEndTxnMarker(nil, &record.EndTxnMarker{ProducerID: 5, Commit: true, Timestamp: 1})
	if _, err := b.log.AppendAsLeader(m, 0, AppendOptions{Origin: Coordinator, TxnVersion: 1}); err != nil {
		t.Fatal(err)
	}
	if got := b.stored(0); got.Codec() != record.None || len(got) != record.EndTxnMarkerSize {
		t.Errorf("stored with %v in %d bytes", got.Codec(), len(got))
	}
}

func TestAppendTimeDoesNotFallWhenTheClockIsSetBack(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.TimestampType = kafka.LogAppendTime })
	first := b.append(1)
	b.now -= 60_000
	second := b.append(1)
	if second.LogAppendTime != first.LogAppendTime || b.stored(1).MaxTimestamp() != first.LogAppendTime || b.stored(1).Check() != nil {
		t.Errorf("append time %d after %d", second.LogAppendTime, first.LogAppendTime)
	}
}

func TestRetentionRules(t *testing.T) {
	segs := []aged{{size: 100, largest: 10, upper: 5}, {size: 200, largest: 30, upper: 9}, {size: 50, largest: 20, upper: 12}, {size: 70, largest: 40, upper: 15, last: true}}
	tests := []struct {
		name string
		hw   kafka.Offset
		rule func(aged) bool
		want int
	}{
		{"log start at the first base keeps all", 15, belowStart(0), 0},
		{"log start inside the second lets the first go", 15, belowStart(8), 1},
		{"log start at a base lets all below go", 15, belowStart(9), 2},
		{"log start at the end keeps the active one", 15, belowStart(15), 3},
		{"size above the total keeps all", 15, aboveSize(420, 421), 0},
		{"size is kept at or above the limit", 15, aboveSize(420, 300), 1},
		{"size down to the exact limit", 15, aboveSize(420, 120), 2},
		{"size 0 lets the active one go too", 15, aboveSize(420, 0), 4},
		{"age stops at the first that is young enough", 15, olderThan(50, 15), 3},
		{"age of the last decides nothing for those before", 15, olderThan(50, 25), 1},
		{"nothing above the high watermark goes", 8, olderThan(50, 1), 1},
		{"all expired", 15, olderThan(100, 1), 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := deletable(segs, tt.hw, tt.rule); got != tt.want {
				t.Errorf("deletable = %d, want %d", got, tt.want)
			}
		})
	}
	empty := []aged{{size: 0, largest: 0, upper: 0, last: true}}
	if got := deletable(empty, 0, olderThan(math.MaxInt64, 0)); got != 0 {
		t.Errorf("an empty active segment: deletable = %d, want 0", got)
	}
}

func TestATimeIndexOfZerosDeletesNothing(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.RetentionMs = 1000 })
	b.append(3)
	if err := b.log.Roll(); err != nil {
		t.Fatal(err)
	}
	b.append(1)
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, b.disk, path.Join(testDir, segment.Name(0, segment.TimeIndexExt)), make([]byte, 120))
	b.opts.RecoveryPoint = 4
	b.open(true)
	b.log.MaybeIncrementHighWatermark(4)
	if n, err := b.log.DeleteOldSegments(); n != 0 || err != nil {
		t.Errorf("DeleteOldSegments = %d, %v; the records are new", n, err)
	}
	b.now += 10_000
	if n, err := b.log.DeleteOldSegments(); n != 2 || err != nil {
		t.Errorf("DeleteOldSegments = %d, %v; want 2 once they are old", n, err)
	}
}

func TestDeleteRecords(t *testing.T) {
	b := newBench(t, nil)
	b.append(10)
	b.log.UpdateHighWatermark(8)
	tests := []struct {
		name string
		to   kafka.Offset
		want kafka.Offset
		err  error
	}{
		{"below the high watermark", 3, 3, nil},
		{"below the log start changes nothing", 1, 3, nil},
		{"above the high watermark", 9, 3, ErrOffsetOutOfRange},
		{"a negative offset", -2, 3, ErrOffsetOutOfRange},
		{"-1 is the high watermark", -1, 8, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := b.log.DeleteRecordsTo(tt.to)
			if !errors.Is(err, tt.err) || err == nil && got != tt.want || b.log.StartOffset() != tt.want {
				t.Errorf("DeleteRecordsTo(%d) = %d, %v with start %d; want %d, %v", tt.to, got, err, b.log.StartOffset(), tt.want, tt.err)
			}
		})
	}
	c := *b.log.Config()
	c.CleanupDelete, c.CleanupCompact = false, true
	b.log.SetConfig(c)
	if _, err := b.log.DeleteRecordsTo(8); !errors.Is(err, ErrPolicyViolation) {
		t.Errorf("of a compacted topic: %v, want ErrPolicyViolation", err)
	}
	c.CleanupCompact = false
	b.log.SetConfig(c)
	if _, err := b.log.DeleteRecordsTo(8); err != nil {
		t.Errorf("of a topic without a policy: %v", err)
	}
}

func TestTopicID(t *testing.T) {
	id, other := kafka.UUID{1: 1, 15: 200}, kafka.UUID{1: 2, 15: 201}
	b := newBench(t, func(o *Options) { o.TopicID = id })
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	b.opts.TopicID = kafka.TopicID{}
	b.open(true)
	if b.log.TopicID() != id {
		t.Errorf("TopicID = %v, want %v", b.log.TopicID(), id)
	}
	if err := errors.Join(b.log.AssignTopicID(id), b.log.Close()); err != nil {
		t.Error(err)
	}
	b.opts.TopicID = other
	var mismatch *TopicIDError
	if _, err := Open(b.opts); !errors.As(err, &mismatch) || mismatch.Found != id {
		t.Errorf("Open with another id: %v, want a *TopicIDError", err)
	}
	writeFile(t, b.disk, path.Join(testDir, checkpoint.PartitionFile), nil)
	b.open(true)
	if b.log.TopicID() != other {
		t.Errorf("TopicID after the file was emptied = %v, want what the metadata log says", b.log.TopicID())
	}
}

func TestAnEpochIsDurableBeforeItsFirstRecord(t *testing.T) {
	b := newBench(t, nil)
	stored := func() []checkpoint.Epoch {
		t.Helper()
		list, err := checkpoint.ReadEpochs(b.opts.FS, path.Join(testDir, checkpoint.EpochFile))
		if err != nil && !errors.Is(err, checkpoint.ErrCorrupt) { // empty, as it was made
			t.Fatal(err)
		}
		return list
	}
	if err := errors.Join(b.disk.SyncDir("/"), b.disk.SyncDir("/d"), b.log.AssignEpoch(3, 0)); err != nil {
		t.Fatal(err)
	}
	if e, ok := b.log.LatestEpoch(); !ok || e != 3 || len(stored()) != 0 {
		t.Errorf("assigned: latest %d, in the file %v; want 3 and nothing", e, stored())
	}
	// Without room for the file the record is refused, and tried again later.
	fault := &faultfs.Counter{From: 1, Times: 1, Fault: faultfs.Fault{Err: syscall.ENOSPC}}
	b.log.fs = faultfs.Wrap(b.disk, fault.Inject)
	if _, err := b.log.AppendAsLeader(b.records(1, record.NewBuildOptions()), 3, AppendOptions{}); !errors.Is(err, ErrFull) || len(stored()) != 0 {
		t.Errorf("append without room for the epoch: %v, want ErrFull", err)
	}
	b.log.fs = b.disk
	if _, err := b.log.AppendAsLeader(b.records(1, record.NewBuildOptions()), 3, AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	b.disk = b.disk.Crash(memfs.DropAll())
	b.opts.FS = b.disk
	if got := stored(); len(got) != 1 || got[0] != (checkpoint.Epoch{Epoch: 3}) {
		t.Errorf("after a power cut behind the first record: %v", got)
	}
	// One that never has a record is there once its owner asks, and after a clean end.
	b.open(false)
	if err := errors.Join(b.log.AssignEpoch(4, b.log.EndOffset()), b.log.StoreEpochs()); err != nil {
		t.Fatal(err)
	}
	if got := stored(); len(got) == 0 || got[len(got)-1].Epoch != 4 {
		t.Errorf("after StoreEpochs: %v", got)
	}
	if err := errors.Join(b.log.AssignEpoch(5, b.log.EndOffset()), b.log.Close()); err != nil {
		t.Fatal(err)
	}
	if got := stored(); len(got) == 0 || got[len(got)-1].Epoch != 5 {
		t.Errorf("after a clean end: %v", got)
	}
}

func TestEpochsAreRebuiltFromTheBatches(t *testing.T) {
	for name, content := range map[string][]byte{"missing": nil, "empty": {}, "garbage": []byte("0\n2\n0 0\n"), "falling": []byte("0\n2\n3 0\n1 5\n")} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			for e := range kafka.LeaderEpoch(3) {
				if err := b.log.AssignEpoch(e*2, b.log.EndOffset()); err != nil {
					t.Fatal(err)
				}
				if _, err := b.log.AppendAsLeader(b.records(4, record.NewBuildOptions()), e*2, AppendOptions{}); err != nil {
					t.Fatal(err)
				}
				if err := b.log.Roll(); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.log.Close(); err != nil {
				t.Fatal(err)
			}
			file := path.Join(testDir, checkpoint.EpochFile)
			if content == nil {
				if err := b.disk.Remove(file); err != nil {
					t.Fatal(err)
				}
			} else {
				writeFile(t, b.disk, file, content)
			}
			b.opts.RecoveryPoint = 12
			b.open(true)
			for e, end := range map[kafka.LeaderEpoch]kafka.Offset{0: 4, 2: 8, 4: 12} {
				if got, at := b.log.EndOffsetForEpoch(e); got != e || at != end {
					t.Errorf("EndOffsetForEpoch(%d) = %d, %d; want it to end at %d", e, got, at, end)
				}
			}
			if data, err := vfs.ReadFile(b.disk, file); err != nil || string(data) != "0\n3\n0 0\n2 4\n4 8\n" {
				t.Errorf("file %q, %v", data, err)
			}
		})
	}
}

// TestAStaleBatchEndsTheLog puts whole batches of an older life of the file
// behind the end: right checksums, wrong place.
func TestAStaleBatchEndsTheLog(t *testing.T) {
	for name, change := range map[string]func(record.Batch){
		"an offset that was given before": func(s record.Batch) { s.SetBaseOffset(2); s.SetLeaderEpoch(5) },
		"an older leader epoch":           func(s record.Batch) { s.SetBaseOffset(6); s.SetLeaderEpoch(3) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			for range 2 {
				if _, err := b.log.AppendAsLeader(b.records(3, record.NewBuildOptions()), 5, AppendOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			size := b.log.Size()
			stale := record.Batch(b.records(3, record.NewBuildOptions()))
			change(stale)
			f, err := b.disk.OpenFile(path.Join(testDir, segment.Name(0, segment.LogExt)), 2, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(stale, size); err != nil {
				t.Fatal(err)
			}
			b.killed()
			if b.log.EndOffset() != 6 || b.log.Size() != size {
				t.Errorf("end offset %d, %d bytes; want 6, %d", b.log.EndOffset(), b.log.Size(), size)
			}
		})
	}
}

// TestWhatLiesBehindDamageIsSetAside damages a batch in the middle of what was
// not flushed, and finds the batches behind it in `.cut` files.
func TestWhatLiesBehindDamageIsSetAside(t *testing.T) {
	b := newBench(t, nil)
	var sizes []int64
	for i := range 4 {
		b.append(2)
		sizes = append(sizes, b.log.Size())
		if i == 2 {
			if err := b.log.Roll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	name := path.Join(testDir, segment.Name(0, segment.LogExt))
	whole, err := vfs.ReadFile(b.disk, name)
	if err != nil {
		t.Fatal(err)
	}
	second, err := vfs.ReadFile(b.disk, path.Join(testDir, segment.Name(6, segment.LogExt)))
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(whole)
	damaged[sizes[0]+70]++
	writeFile(t, b.disk, name, damaged)
	b.killed()
	if b.log.EndOffset() != 2 {
		t.Errorf("end offset %d, want 2", b.log.EndOffset())
	}
	for file, want := range map[string][]byte{name: whole[:sizes[0]], name + CutSuffix: damaged[sizes[0]:], path.Join(testDir, segment.Name(6, segment.LogExt)+CutSuffix): second} {
		if got, err := vfs.ReadFile(b.disk, file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v; want %d", file, len(got), err, len(want))
		}
	}
	b.append(1)
	b.killed()
	if b.log.EndOffset() != 3 {
		t.Errorf("end offset after another kill %d, want 3", b.log.EndOffset())
	}
	if !strings.Contains(b.files(), segment.Name(6, segment.LogExt)+CutSuffix) {
		t.Errorf("files: %s", b.files())
	}
}

func TestATailOfZerosIsCutAndNotSetAside(t *testing.T) {
	b := newBench(t, nil)
	b.append(2)
	size := b.log.Size()
	f, err := b.disk.OpenFile(path.Join(testDir, segment.Name(0, segment.LogExt)), 2, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(64 << 20); err != nil {
		t.Fatal(err)
	}
	b.killed()
	if b.log.Size() != size || strings.Contains(b.files(), CutSuffix) {
		t.Errorf("%d bytes, want %d; files %s", b.log.Size(), size, b.files())
	}
}

func TestASegmentWithTooWideOffsetsIsSplit(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.CleanupCompact = true }) // nothing else makes one
	var content []byte
	bases := []kafka.Offset{0, 10, math.MaxInt32 + 5, math.MaxInt32 + 900, 3 * math.MaxInt32}
	for _, base := range bases {
		one := record.Batch(b.records(2, record.NewBuildOptions()))
		one.SetBaseOffset(base)
		one.SetLeaderEpoch(0)
		content = append(content, one...)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, b.disk, path.Join(testDir, segment.Name(0, segment.LogExt)), content)
	b.open(false)
	var got []kafka.Offset
	for _, s := range b.log.Segments() {
		got = append(got, s.BaseOffset())
	}
	if fmt.Sprint(got) != fmt.Sprint([]kafka.Offset{0, math.MaxInt32 + 5, 3 * math.MaxInt32}) || b.log.Size() != int64(len(content)) {
		t.Errorf("segments %v with %d bytes, want %d bytes", got, b.log.Size(), len(content))
	}
	read := readAll(t, b.log, 1<<20)
	if !bytes.Equal(bytes.Join(read, nil), content) {
		t.Errorf("%d batches read, want the %d that were there", len(read), len(bases))
	}
}

func TestAFullDiskIsRefusedAndForgotten(t *testing.T) {
	b := newBench(t, nil)
	b.append(3)
	end, size := b.log.EndOffset(), b.log.Size()
	b.disk.SetLimit(4096)
	big := b.records(2000, record.NewBuildOptions())
	for range 3 {
		if _, err := b.log.AppendAsLeader(bytes.Clone(big), 0, AppendOptions{}); !errors.Is(err, ErrFull) {
			t.Fatalf("append on a full disk: %v, want ErrFull", err)
		}
	}
	if b.log.EndOffset() != end || b.log.Size() != size || b.log.Failure() != nil {
		t.Errorf("end offset %d, %d bytes, failure %v; want nothing changed", b.log.EndOffset(), b.log.Size(), b.log.Failure())
	}
	if err := b.log.Roll(); err != nil && !errors.Is(err, ErrFull) {
		t.Errorf("roll on a full disk: %v", err)
	}
	b.disk.SetLimit(0)
	if info := b.append(2); info.FirstOffset != end {
		t.Errorf("first offset %d once there is room, want %d", info.FirstOffset, end)
	}
}

func TestABrokenDiskTakesTheLogOffline(t *testing.T) {
	tests := []struct {
		name  string
		kind  faultfs.Kind
		fault error
		act   func(*Log, []byte) error
	}{
		{"a failed write", faultfs.Write, syscall.EIO, func(l *Log, buf []byte) error {
			_, err := l.AppendAsLeader(buf, 0, AppendOptions{})
			return err
		}},
		{"a failed sync, whatever its number", faultfs.Sync, syscall.ENOSPC, func(l *Log, _ []byte) error { return l.Flush(l.EndOffset()) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			broken := false
			told := make(chan error, 1)
			b := newBench(t, func(o *Options) {
				o.FS = faultfs.Wrap(o.FS, func(op faultfs.Op) faultfs.Fault {
					if broken && op.Kind == tt.kind {
						return faultfs.Fault{Err: tt.fault}
					}
					return faultfs.Fault{}
				})
				o.OnFailure = func(err error) { told <- err }
			})
			b.append(1)
			broken = true
			if err := tt.act(b.log, b.records(1, record.NewBuildOptions())); !errors.Is(err, ErrStorage) {
				t.Fatalf("error %v, want ErrStorage", err)
			}
			if err := <-told; !errors.Is(err, tt.fault) {
				t.Errorf("owner was told %v, want %v", err, tt.fault)
			}
			broken = false
			if _, err := b.log.AppendAsLeader(b.records(1, record.NewBuildOptions()), 0, AppendOptions{}); !errors.Is(err, ErrStorage) {
				t.Errorf("append afterwards: %v, want ErrStorage: a sync is never tried again", err)
			}
			if _, err := b.log.Read(0, ReadOptions{MaxBytes: 100}); !errors.Is(err, ErrStorage) {
				t.Errorf("read afterwards: %v, want ErrStorage", err)
			}
		})
	}
}

func TestAClosedLogRefusesEverything(t *testing.T) {
	b := newBench(t, nil)
	b.append(1)
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.log.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	_, appendErr := b.log.AppendAsLeader(b.records(1, record.NewBuildOptions()), 0, AppendOptions{})
	_, readErr := b.log.Read(0, ReadOptions{MaxBytes: 100})
	_, timeErr := b.log.OffsetForTimestamp(0, 10)
	_, cutErr := b.log.TruncateTo(0)
	_, deleteErr := b.log.DeleteOldSegments()
	for what, err := range map[string]error{
		"append": appendErr, "read": readErr, "time lookup": timeErr, "truncate": cutErr, "retention": deleteErr,
		"roll": b.log.Roll(), "epoch": b.log.AssignEpoch(1, 1), "rename": b.log.Rename("/d/x-0"),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", what, err)
		}
	}
}

func TestRenameAndDelete(t *testing.T) {
	b := newBench(t, nil)
	b.append(2)
	if err := b.log.Roll(); err != nil {
		t.Fatal(err)
	}
	b.append(2)
	held, err := b.log.Read(0, ReadOptions{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	const to = "/d/test-0.0123456789abcdef0123456789abcdef-delete"
	if err := b.log.Rename(to); err != nil {
		t.Fatal(err)
	}
	b.append(1)
	if got := b.stored(0); got.BaseOffset() != 0 {
		t.Errorf("read after the rename: base %d", got.BaseOffset())
	}
	if err := b.log.Delete(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.disk.Stat(to); err == nil {
		t.Error("the directory is still there")
	}
	buf := make([]byte, held.Region.Length)
	if _, err := held.Region.File.ReadAt(buf, held.Region.Offset); err != nil {
		t.Errorf("a region on its way to a socket: %v", err)
	}
	held.Region.Release()
}

func TestFlushByCountAndByTime(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.FlushMessages, o.Config.FlushMs = 5, 1000 })
	b.append(4)
	if got := b.log.SyncedOffset(); got != 0 {
		t.Errorf("synced to %d after 4 of 5 records, want 0", got)
	}
	b.append(2)
	if got := b.log.SyncedOffset(); got != 6 {
		t.Errorf("synced to %d after 6 records, want 6", got)
	}
	b.append(1)
	if err := b.log.FlushIfDue(); err != nil || b.log.RecoveryPoint() != 0 || b.log.SyncedOffset() != 6 {
		t.Errorf("FlushIfDue at once: %v, recovery point %d, synced to %d; want 0 and 6", err, b.log.RecoveryPoint(), b.log.SyncedOffset())
	}
	b.now += 1000
	if err := b.log.FlushIfDue(); err != nil || b.log.RecoveryPoint() != 7 {
		t.Errorf("FlushIfDue after flush.ms: %v, recovery point %d; want 7", err, b.log.RecoveryPoint())
	}
}

func TestAHintSavesTheSearchAndNothingElse(t *testing.T) {
	b := newBench(t, nil)
	b.append(3)
	info, err := b.log.Read(0, ReadOptions{MaxBytes: 1 << 20})
	if err != nil || !info.Next.Valid || info.Next.Offset != 3 {
		t.Fatalf("Next = %+v, %v; want a hint at 3", info.Next, err)
	}
	info.Region.Release()
	hint := info.Next
	b.append(2)
	with, err := b.log.Read(3, ReadOptions{MaxBytes: 1 << 20, Hint: hint})
	if err != nil {
		t.Fatal(err)
	}
	without, err := b.log.Read(3, ReadOptions{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if with.Region.Offset != without.Region.Offset || with.Region.Length != without.Region.Length {
		t.Errorf("with a hint bytes %d+%d, without %d+%d", with.Region.Offset, with.Region.Length, without.Region.Offset, without.Region.Length)
	}
	with.Region.Release()
	without.Region.Release()
}

func TestAMisnamedSegmentIsRefusedAndLeftAlone(t *testing.T) {
	tests := []struct {
		name     string
		from, to kafka.Offset
		want     string
	}{
		{"named above its first batch", 0, 1, "below the base offset"},
		{"named into the segment before it", 6, 5, "lies below the end"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			for range 2 {
				b.append(6)
				if err := b.log.Roll(); err != nil {
					t.Fatal(err)
				}
			}
			old, name := segment.Name(tt.from, segment.LogExt), segment.Name(tt.to, segment.LogExt)
			want, err := vfs.ReadFile(b.disk, path.Join(testDir, old))
			if err != nil {
				t.Fatal(err)
			}
			b.disk = b.disk.Crash(memfs.KeepAll())
			b.opts.FS = b.disk
			if err := b.disk.Rename(path.Join(testDir, old), path.Join(testDir, name)); err != nil {
				t.Fatal(err)
			}
			var misnamed *MisnamedError
			if _, err := Open(b.opts); !errors.As(err, &misnamed) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open: %v, want a *MisnamedError", err)
			}
			if got, err := vfs.ReadFile(b.disk, path.Join(testDir, name)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s has %d bytes, %v; want %d", name, len(got), err, len(want))
			}
		})
	}
}

func TestRecoveryNeedsNoRoom(t *testing.T) {
	b := newBench(t, nil)
	for i := range 3 {
		o := record.NewBuildOptions()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = 1, 0, kafka.Sequence(i*4)
		if _, err := b.log.AppendAsLeader(b.records(4, o), 0, AppendOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := b.log.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.disk.Remove(path.Join(testDir, "leader-epoch-checkpoint")); err != nil {
		t.Fatal(err)
	}
	b.disk.SetLimit(4096)
	b.killed()
	if b.log.EndOffset() != 12 || len(b.log.ActiveProducers()) != 1 {
		t.Errorf("end offset %d, %d producers; want 12 and 1", b.log.EndOffset(), len(b.log.ActiveProducers()))
	}
	if got := readAll(t, b.log, 1<<20); len(got) != 3 {
		t.Errorf("%d batches, want 3", len(got))
	}
}

func TestRecordsThatCheckpointsKnowAndTheLogDoesNotAreAnEvent(t *testing.T) {
	b := newBench(t, nil)
	b.append(3)
	b.opts.HighWatermark = 9
	b.killed()
	if !strings.Contains(strings.Join(b.events, " "), "records-missing") {
		t.Errorf("events %v, want records-missing", b.events)
	}
}

func TestASegmentThatIsNoFileIsRefused(t *testing.T) {
	b := newBench(t, nil)
	b.append(1)
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.disk.Mkdir(path.Join(testDir, segment.Name(1, segment.LogExt)), 0o755); err != nil {
		t.Fatal(err)
	}
	b.opts.CleanShutdown = true
	if _, err := Open(b.opts); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("Open: %v, want a refusal", err)
	}
}

func TestADamagedTailIsNamedWithItsReason(t *testing.T) {
	for _, tt := range []struct {
		name string
		tail []byte
		want string
	}{
		{"too few bytes for a batch", []byte("tail"), "4 bytes behind byte %d are not whole batches"},
		{"zeros", make([]byte, 100), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.append(3)
			size := b.log.Size()
			if err := b.log.Close(); err != nil {
				t.Fatal(err)
			}
			name := path.Join(testDir, segment.Name(0, segment.LogExt))
			content, err := vfs.ReadFile(b.disk, name)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, b.disk, name, append(content, tt.tail...))
			var detail string
			b.opts.OnEvent = func(e Event) {
				if e.Name == "tail-damaged" {
					detail = e.Detail
				}
			}
			b.open(true)
			if detail == "" || strings.Contains(detail, "nil") || tt.want != "" && detail != fmt.Sprintf(tt.want, size) {
				t.Errorf("detail = %q", detail)
			}
		})
	}
}
