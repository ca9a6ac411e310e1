package segment

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TestIndexEntriesOfOneBatchAppends is the worked example of Kafka: batches of
// 1,081 bytes and three records at the default interval.
func TestIndexEntriesOfOneBatchAppends(t *testing.T) {
	s := create(t, memfs.New(), options())
	closed(t, s)
	next := base
	for i := range 13 {
		b := newBatch(t, next, 330, 10, 20, kafka.Timestamp(30+i))
		if pad := 1081 - len(b.bytes); pad != 0 {
			b = newBatch(t, next, 330, 10, 20, kafka.Timestamp(30+i))
			t.Logf("batch of %d bytes", len(b.bytes))
		}
		check(t, s.Append(b.last, b.bytes))
		next = b.last + 1
	}
	size := s.Size() / 13
	got := readEntries(t, s)
	want := []index.Position{{Offset: base + 14, Byte: 4 * size}, {Offset: base + 26, Byte: 8 * size}, {Offset: base + 38, Byte: 12 * size}}
	if !slices.Equal(got.offsets, want) {
		t.Errorf("offset index %v, want %v", got.offsets, want)
	}
	times := []index.TimePosition{{Timestamp: 34, Offset: base + 14}, {Timestamp: 38, Offset: base + 26}, {Timestamp: 42, Offset: base + 38}}
	if !slices.Equal(got.times, times) {
		t.Errorf("time index %v, want %v", got.times, times)
	}
}

func TestShouldRoll(t *testing.T) {
	const segmentBytes, segmentMs = 10_000, 60_000
	tests := []struct {
		name  string
		fill  int // batches of about a KiB before
		times int // entries that fill the time index, if any
		p     RollParams
		want  bool
	}{
		{"an empty segment takes anything that fits", 0, 0, RollParams{Bytes: 10_000, LastOffset: base}, false},
		{"an append that does not fit any more", 5, 0, RollParams{Bytes: 9_000, LastOffset: base + 20}, true},
		{"an append that just fits", 5, 0, RollParams{Bytes: 1000, LastOffset: base + 20}, false},
		{"record time that passed since the first batch", 5, 0, RollParams{Bytes: 10, MaxTimestamp: 60_003, LastOffset: base + 20}, true},
		{"record time that has not quite passed", 5, 0, RollParams{Bytes: 10, MaxTimestamp: 60_002, LastOffset: base + 20}, false},
		{"old records never roll by time", 5, 0, RollParams{Bytes: 10, MaxTimestamp: 1, Now: opened + 10*segmentMs, LastOffset: base + 20}, false},
		{"an idle empty segment does not roll", 0, 0, RollParams{Bytes: 10, MaxTimestamp: math.MaxInt64, Now: opened * 100, LastOffset: base}, false},
		{"an offset that cannot be expressed", 0, 0, RollParams{Bytes: 10, LastOffset: base + math.MaxInt32 + 1}, true},
		{"the last offset that can", 0, 0, RollParams{Bytes: 10, LastOffset: base + math.MaxInt32}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := create(t, memfs.New(), options())
			closed(t, s)
			fill(t, s, tt.fill)
			tt.p.SegmentBytes, tt.p.SegmentMs = segmentBytes, segmentMs
			got, err := s.ShouldRoll(tt.p)
			if got != tt.want || err != nil {
				t.Errorf("ShouldRoll(%+v) = %v, %v, want %v", tt.p, got, err, tt.want)
			}
		})
	}
}

func TestShouldRollByClockWithoutRecordTimes(t *testing.T) {
	s := create(t, memfs.New(), options())
	closed(t, s)
	b := newBatch(t, base, 10, -1)
	check(t, s.Append(b.last, b.bytes))
	for now, want := range map[kafka.Timestamp]bool{opened + 1000: false, opened + 1001: true} {
		got, err := s.ShouldRoll(RollParams{Bytes: 1, MaxTimestamp: 5, LastOffset: base + 1, Now: now, SegmentBytes: 1 << 20, SegmentMs: 1000})
		if got != want || err != nil {
			t.Errorf("ShouldRoll at %d = %v, %v, want %v", now, got, err, want)
		}
	}
}

func TestShouldRollWhenAnIndexIsFull(t *testing.T) {
	o := options()
	o.IndexInterval, o.MaxIndexBytes = 0, 48 // six offset entries; four time entries, one kept for the end
	s := create(t, memfs.New(), o)
	closed(t, s)
	for i := range 10 {
		p := RollParams{Bytes: 10, LastOffset: base + 50, SegmentBytes: 1 << 20, SegmentMs: 1 << 40}
		roll, err := s.ShouldRoll(p)
		check(t, err)
		if n, _ := s.Times().Len(); roll != (n >= 3) {
			t.Fatalf("ShouldRoll = %v with %d time entries of 4", roll, n)
		}
		if roll {
			return
		}
		b := newBatch(t, base+kafka.Offset(i), 10, kafka.Timestamp(i))
		check(t, s.Append(b.last, b.bytes))
	}
	t.Error("the index never became full")
}

func TestAppendRefusals(t *testing.T) {
	s := create(t, memfs.New(), options())
	closed(t, s)
	check(t, s.Append(base)) // nothing happens
	b := newBatch(t, base, 10, 1)
	if err := s.Append(base+math.MaxInt32+1, b.bytes); !errors.Is(err, ErrOverflow) {
		t.Errorf("Append of an offset that cannot be expressed: %v, want ErrOverflow", err)
	}
	s.size.Store(math.MaxInt32 - 5)
	if err := s.Append(base, b.bytes); !errors.Is(err, ErrTooLong) {
		t.Errorf("Append past 2^31-1 bytes: %v, want ErrTooLong", err)
	}
	s.size.Store(0)
}

func TestAppendOfManyBatchesToAnIndexWithoutRoomWritesNothing(t *testing.T) {
	o := options()
	o.IndexInterval, o.MaxIndexBytes = 0, 40 // five offset entries
	s := create(t, memfs.New(), o)
	closed(t, s)
	var all []byte
	for i := range 7 {
		all = append(all, newBatch(t, base+kafka.Offset(i), 10, 1).bytes...)
	}
	if err := s.Append(base+6, all); !errors.Is(err, ErrIndexFull) {
		t.Errorf("Append with six entries due and room for five: %v, want ErrIndexFull", err)
	}
	if s.Size() != 0 {
		t.Errorf("Size() = %d after the refused append", s.Size())
	}
}

func TestTimestampsAreKnownAfterReopening(t *testing.T) {
	fsys := memfs.New()
	s := create(t, fsys, options())
	fill(t, s, 7)
	check(t, s.Close())
	s, err := Open(fsys, dir, base, options())
	check(t, err)
	closed(t, s)
	want := index.TimePosition{Timestamp: 6002, Offset: base + 20}
	if got, err := s.MaxTimestamp(); got != want || err != nil {
		t.Errorf("MaxTimestamp() = %+v, %v, want %+v", got, err, want)
	}
	if got, err := s.LargestTimestamp(); got != 6002 || err != nil {
		t.Errorf("LargestTimestamp() = %d, %v, want 6002", got, err)
	}
}

func TestLargestTimestampIsTheFilesWithoutRecordTimes(t *testing.T) {
	fsys := memfs.New()
	s := create(t, fsys, options())
	closed(t, s)
	b := newBatch(t, base, 10, -1)
	check(t, s.Append(b.last, b.bytes))
	f, err := s.file()
	check(t, err)
	check(t, f.SetModTime(123456))
	if got, err := s.LargestTimestamp(); got != 123456 || err != nil {
		t.Errorf("LargestTimestamp() = %d, %v, want 123456", got, err)
	}
}

func TestSealAndCloseLeaveKafkasSizes(t *testing.T) {
	fsys := memfs.New()
	o := options()
	o.MaxIndexBytes = 10 << 20
	s := create(t, fsys, o)
	fill(t, s, 13)
	sizes := func() (out [3]int64) {
		for i, ext := range []string{LogExt, IndexExt, TimeIndexExt} {
			info, err := fsys.Stat(dir + "/" + Name(base, ext))
			check(t, err)
			out[i] = info.Size()
		}
		return out
	}
	if got, want := sizes(), [3]int64{s.Size(), 10485760, 10485756}; got != want {
		t.Errorf("sizes while active %v, want %v", got, want)
	}
	check(t, s.Seal())
	if got, want := sizes(), [3]int64{s.Size(), 24, 36}; got != want { // the last entry is of the last batch, so no fourth time entry
		t.Errorf("sizes when sealed %v, want %v", got, want)
	}
	check(t, s.Close())
}

func TestOpeningManySegmentsOpensNoFile(t *testing.T) {
	disk := memfs.New()
	s := create(t, disk, options())
	fill(t, s, 5)
	check(t, s.Close())
	var seen []faultfs.Kind
	fsys := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		seen = append(seen, op.Kind)
		return faultfs.Fault{}
	})
	s, err := Open(fsys, dir, base, options())
	check(t, err)
	if want := []faultfs.Kind{faultfs.Stat}; !slices.Equal(seen, want) {
		t.Errorf("Open made %v, want %v", seen, want)
	}
	seen = nil
	check(t, s.Close())
	if len(seen) != 0 {
		t.Errorf("Close of an unused segment made %v", seen)
	}
}

func TestClosingASegmentThatNobodyWroteToSyncsNoLog(t *testing.T) {
	disk := memfs.New()
	s := create(t, disk, options())
	fill(t, s, 5)
	check(t, s.Close())
	syncs := &faultfs.Counter{Match: func(op faultfs.Op) bool {
		return op.Kind == faultfs.Sync && strings.HasSuffix(op.Name, LogExt)
	}}
	s, err := Open(faultfs.Wrap(disk, syncs.Inject), dir, base, options())
	check(t, err)
	check(t, s.Activate())
	if n, err := s.ReadNextOffset(); n != base+15 || err != nil {
		t.Errorf("ReadNextOffset() = %d, %v, want %d", n, err, base+15)
	}
	check(t, s.Close())
	if n := syncs.Seen(); n != 0 {
		t.Errorf("the .log was synced %d times", n)
	}
}

func TestReadNextOffsetAndOverflow(t *testing.T) {
	fsys := memfs.New()
	s := create(t, fsys, options())
	closed(t, s)
	if n, err := s.ReadNextOffset(); n != base || err != nil {
		t.Errorf("ReadNextOffset() of an empty segment = %d, %v, want %d", n, err, base)
	}
	list := fill(t, s, 9)
	if n, err := s.ReadNextOffset(); n != list[8].last+1 || err != nil {
		t.Errorf("ReadNextOffset() = %d, %v, want %d", n, err, list[8].last+1)
	}
	if over, err := s.HasOverflow(); over || err != nil {
		t.Errorf("HasOverflow() = %v, %v", over, err)
	}
	far := newBatch(t, base+math.MaxInt32+10, 10, 1)
	f, err := s.file()
	check(t, err)
	_, err = f.WriteAt(far.bytes, s.Size())
	check(t, err)
	s.size.Add(int64(len(far.bytes)))
	if over, err := s.HasOverflow(); !over || err != nil {
		t.Errorf("HasOverflow() = %v, %v with an offset out of reach", over, err)
	}
	if _, err := s.Recover(nil); !errors.Is(err, ErrOverflow) {
		t.Errorf("Recover with an offset out of reach: %v, want ErrOverflow", err)
	}
}

func TestADamagedIndexCostsOnlyTime(t *testing.T) {
	tests := []struct {
		name  string
		entry index.Position
	}{
		{"an entry that points into a batch", index.Position{Offset: base + 2, Byte: 7}},
		{"an entry that points past the end", index.Position{Offset: base + 2, Byte: 1 << 30}},
		{"an entry that points too far", index.Position{Offset: base + 2, Byte: -1}}, // the last batch
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys := memfs.New()
			o := options()
			o.IndexInterval = 1 << 30
			s := create(t, fsys, o)
			closed(t, s)
			list := fill(t, s, 6)
			if tt.entry.Byte < 0 {
				tt.entry.Byte = s.Size() - int64(len(list[5].bytes))
			}
			check(t, s.offsets.Append(tt.entry.Offset, tt.entry.Byte))
			for i, b := range list {
				at, ok, err := s.Locate(b.last)
				if want := int64(i) * s.Size() / 6; at.Byte != want || !ok || err != nil {
					t.Errorf("Locate(%d) = %+v, %v, %v, want byte %d", b.last, at, ok, err, want)
				}
			}
		})
	}
}

func TestRegionsOutliveTheDeletion(t *testing.T) {
	fsys := memfs.New()
	s := create(t, fsys, options())
	list := fill(t, s, 3)
	info, ok, err := s.Read(base, ReadOptions{MaxBytes: 1 << 20, Limit: math.MaxInt64})
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	check(t, s.ChangeSuffix(DeletedSuffix))
	check(t, s.Delete())
	check(t, s.Delete())
	if _, err := fsys.Stat(dir + "/" + Name(base, LogExt) + DeletedSuffix); err != nil {
		t.Errorf("the file is gone while a region is held: %v", err)
	}
	if _, _, err := s.Read(base, ReadOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Read after Delete: %v, want ErrClosed", err)
	}
	got := readRegion(t, info.Region)
	if want := slices.Concat(list[0].bytes, list[1].bytes, list[2].bytes); !slices.Equal(got, want) {
		t.Errorf("the region held %d bytes, want %d", len(got), len(want))
	}
	left, err := fsys.ReadDir(dir)
	check(t, err)
	if len(left) != 0 {
		t.Errorf("left in the directory: %v", left)
	}
}

func TestTruncationWaitsForRegions(t *testing.T) {
	fsys := memfs.New()
	s := create(t, fsys, options())
	closed(t, s)
	fill(t, s, 3)
	info, _, err := s.Read(base, ReadOptions{MaxBytes: 1 << 20, Limit: math.MaxInt64})
	check(t, err)
	done := make(chan error)
	go func() {
		_, err := s.TruncateTo(base, 5)
		done <- err
	}()
	// Once the truncation has taken its step no new reader finds anything.
	for s.Size() != 0 {
		if _, ok, err := s.Read(base, ReadOptions{}); err != nil || !ok && s.Size() != 0 {
			t.Error(ok, err)
		}
	}
	select {
	case <-done:
		t.Fatal("truncated under a region that is being sent")
	default:
	}
	if got := readRegion(t, info.Region); len(got) == 0 || got[16] != 2 {
		t.Errorf("the region holds %d bytes", len(got))
	}
	check(t, <-done)
	if s.Created() != 5 {
		t.Errorf("Created() = %d after emptying, want 5", s.Created())
	}
}

func TestRecoverCutsTheTail(t *testing.T) {
	tests := []struct {
		name   string
		damage func(t *testing.T, f vfs.File, list []*batch, size int64)
		keep   int // batches that survive
	}{
		{"a last batch cut short", func(t *testing.T, f vfs.File, _ []*batch, size int64) { check(t, f.Truncate(size-1)) }, 9},
		{"only a part of a header", func(t *testing.T, f vfs.File, list []*batch, size int64) {
			check(t, f.Truncate(size-int64(len(list[9].bytes))+20))
		}, 9},
		{"zeros behind the last batch", func(t *testing.T, f vfs.File, _ []*batch, size int64) { check(t, f.Truncate(size+100)) }, 10},
		{"garbage behind the last batch", func(t *testing.T, f vfs.File, _ []*batch, size int64) {
			_, err := f.WriteAt([]byte("0123456789012345678901234567890123456789"), size)
			check(t, err)
		}, 10},
		{"a flipped bit in the sixth batch", func(t *testing.T, f vfs.File, list []*batch, size int64) {
			_, err := f.WriteAt([]byte{0x55}, size/10*5+70)
			check(t, err)
		}, 5},
		{"nothing at all", func(t *testing.T, f vfs.File, _ []*batch, _ int64) { check(t, f.Truncate(0)) }, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fsys := memfs.New()
			s := create(t, fsys, options())
			list := fill(t, s, 10)
			size := s.Size()
			check(t, s.Abandon())
			f, err := fsys.OpenFile(dir+"/"+Name(base, LogExt), 2, 0)
			check(t, err)
			tt.damage(t, f, list, size)
			before, _ := f.Size()
			s, err = Open(fsys, dir, base, options())
			check(t, err)
			closed(t, s)
			seen := 0
			cut, err := s.Recover(func(h *record.Header, _ []byte, _ int64) error {
				if h.BaseOffset != list[seen].first {
					t.Errorf("batch %d has base offset %d", seen, h.BaseOffset)
				}
				seen++
				return nil
			})
			check(t, err)
			if want := size / 10 * int64(tt.keep); seen != tt.keep || s.Size() != want || cut != before-want {
				t.Errorf("kept %d batches and %d bytes, cut %d, want %d, %d, %d", seen, s.Size(), cut, tt.keep, want, before-want)
			}
			if now, _ := f.Size(); now != s.Size() {
				t.Errorf("the file has %d bytes, want %d", now, s.Size())
			}
			next := base
			if tt.keep > 0 {
				next = list[tt.keep-1].last + 1
			}
			if n, err := s.ReadNextOffset(); n != next || err != nil {
				t.Errorf("ReadNextOffset() = %d, %v, want %d", n, err, next)
			}
		})
	}
}

// What lies behind damage in a segment that had reached the disk is still read,
// so its index entries and its aborted transactions must be found again.
func TestRecoveryThatKeepsGoesOnBehindADamagedBatch(t *testing.T) {
	for _, tt := range []struct {
		name string
		pad  int // bytes of the damaged batch's values
	}{{"a small batch", 320}, {"one that is checked in pieces", 4 << 20}} {
		t.Run(tt.name, func(t *testing.T) {
			fsys := memfs.New()
			s := create(t, fsys, options())
			list := fill(t, s, 10)
			hurt := newBatch(t, list[9].last+1, tt.pad, 20_000)
			at := s.Size()
			check(t, s.Append(hurt.last, hurt.bytes))
			for i := range 10 {
				b := newBatch(t, hurt.last+1+kafka.Offset(i), 1000, kafka.Timestamp(30_000+i))
				check(t, s.Append(b.last, b.bytes))
				list = append(list, b)
			}
			size, want := s.Size(), readEntries(t, s)
			check(t, s.Abandon())
			f, err := fsys.OpenFile(dir+"/"+Name(base, LogExt), 2, 0)
			check(t, err)
			_, err = f.WriteAt([]byte{0x55}, at+70)
			check(t, errors.Join(err, f.Close()))
			s, err = Open(fsys, dir, base, options())
			check(t, err)
			closed(t, s)
			seen := 0
			got, err := s.RecoverWith(RecoverOptions{Keep: math.MaxInt64, Visit: func(h *record.Header, _ []byte, _ int64) error {
				if h.BaseOffset != list[seen].first {
					t.Errorf("batch %d has base offset %d, want %d", seen, h.BaseOffset, list[seen].first)
				}
				seen++
				return nil
			}})
			check(t, err)
			if got.Cut != 0 || s.Size() != size || seen != len(list) {
				t.Errorf("cut %d of %d bytes, saw %d batches, want 0 and %d", got.Cut, size, seen, len(list))
			}
			behind := index.Position{Offset: list[10].last, Byte: at + int64(len(hurt.bytes))}
			if got := readEntries(t, s).offsets; len(got) < len(want.offsets) || !slices.Contains(got, behind) {
				t.Errorf("index entries %v, want one for the batch behind the damage, %v", got, behind)
			}
			if largest, err := s.MaxTimestamp(); err != nil || largest.Timestamp != 30_009 {
				t.Errorf("MaxTimestamp() = %v, %v, want 30009", largest, err)
			}
		})
	}
}

func TestRecoverReturnsErrorsOfTheDiskAndOfTheVisitor(t *testing.T) {
	disk := memfs.New()
	fail := false
	fsys := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if fail && op.Kind == faultfs.Read {
			return faultfs.Fault{Err: errors.New("input/output error")}
		}
		return faultfs.Fault{}
	})
	s := create(t, fsys, options())
	closed(t, s)
	fill(t, s, 10)
	size := s.Size()
	mine := errors.Join(record.ErrCorrupt, errors.New("the visitor's own"))
	if _, err := s.Recover(func(*record.Header, []byte, int64) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("Recover: %v, want the visitor's error", err)
	}
	fail = true
	if _, err := s.Recover(nil); err == nil {
		t.Error("Recover with a disk that cannot be read: no error")
	}
	fail = false
	if f, _ := s.file(); f != nil {
		if n, _ := f.Size(); n != size {
			t.Errorf("the file has %d bytes after a failed recovery, want %d", n, size)
		}
	}
	_, err := s.Recover(nil)
	check(t, err)
}

func TestNames(t *testing.T) {
	tests := []struct {
		name string
		want FileName
		ok   bool
	}{
		{"00000000000000000042.log", FileName{42, LogExt, ""}, true},
		{"00000000000000000042.index.deleted", FileName{42, IndexExt, DeletedSuffix}, true},
		{"00000000000000000000.timeindex.cleaned", FileName{0, TimeIndexExt, CleanedSuffix}, true},
		{"09223372036854775807.txnindex.swap", FileName{math.MaxInt64, TxnIndexExt, SwapSuffix}, true},
		{"00000000000000000007.snapshot", FileName{7, SnapshotExt, ""}, true},
		{"00000000000000000007-0000000001.checkpoint", FileName{}, false},
		{"99999999999999999999.log", FileName{}, false},
		{"-0000000000000000001.log", FileName{}, false},
		{"leader-epoch-checkpoint", FileName{}, false},
		{".log", FileName{}, false},
		{"", FileName{}, false},
	}
	for _, tt := range tests {
		got, ok := ParseName(tt.name)
		if ok != tt.ok || ok && got != tt.want {
			t.Errorf("ParseName(%q) = %+v, %v, want %+v, %v", tt.name, got, ok, tt.want, tt.ok)
		}
		if ok && got.String() != tt.name {
			t.Errorf("String() = %q, want %q", got.String(), tt.name)
		}
	}
}

func TestRemoveFiles(t *testing.T) {
	fsys := memfs.New()
	s := create(t, fsys, options())
	fill(t, s, 6)
	check(t, s.AppendTxn(index.AbortedTxn{LastOffset: base}))
	check(t, s.Close())
	check(t, RemoveFiles(fsys, dir, base, ""))
	check(t, RemoveFiles(fsys, dir, base, ""))
	if _, err := fsys.Stat(dir + "/" + Name(base, TxnIndexExt)); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	left, err := fsys.ReadDir(dir)
	check(t, err)
	if len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestALargeBatchIsCheckedBeforeItIsHeld(t *testing.T) {
	fsys := memfs.New()
	s := create(t, fsys, options())
	closed(t, s)
	big := newBatch(t, base, 4<<20, 1)
	check(t, s.Append(base, big.bytes))
	if cut, err := s.Recover(nil); cut != 0 || err != nil {
		t.Errorf("Recover of a good large batch = %d, %v", cut, err)
	}
	f, err := s.file()
	check(t, err)
	_, err = f.WriteAt([]byte{1}, 3<<20)
	check(t, err)
	if cut, err := s.Recover(nil); cut != int64(len(big.bytes)) || err != nil {
		t.Errorf("Recover of a damaged large batch = %d, %v, want all of it cut", cut, err)
	}
}
