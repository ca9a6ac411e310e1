package segment

import (
	"bytes"
	"errors"
	"math"
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// flipped is a sealed segment with one bit changed in one of its batches.
func flipped(t *testing.T, disk *memfs.FS, list []*batch, at int, bit int, w *told) *Segment {
	t.Helper()
	copied := disk.Crash(memfs.KeepAll())
	path := filepath.Join(dir, Name(base, LogExt))
	b, err := vfs.ReadFile(copied, path)
	check(t, err)
	pos := 0
	for _, before := range list[:at] {
		pos += len(before.bytes)
	}
	b[pos+bit/8] ^= 1 << (bit % 8)
	replaceFile(t, copied, path, b)
	return reopened(t, copied, dir, w)
}

// Every bit of a batch in the middle: an examination finds it, the batch and no
// other is refused, no answer before it holds a byte of it.
func TestADamagedBatchIsRefusedAndAllOthersAreServed(t *testing.T) {
	disk := memfs.New()
	list := sealed(t, disk, dir, 24)
	const bad = 11
	upper := list[len(list)-1].last + 1
	unreachable := 0
	for bit := range 8 * len(list[bad].bytes) {
		var w told
		s := flipped(t, disk, list, bad, bit, &w)
		e, err := s.Examine(s, ExamineOptions{Upper: upper})
		check(t, err)
		s.SetDamage(e.Damaged)
		s.SetDamage(e.Damaged)
		if len(e.Damaged) != 1 || len(w.damage) != 1 || e.OffsetIndex != "" || e.TimeIndex != "" {
			t.Fatalf("bit %d: found %+v, told of %d", bit, e, len(w.damage))
		}
		d := e.Damaged[0]
		if d.First != list[bad].first || d.Next < list[bad].last+1 || d.Reason == "" {
			t.Fatalf("bit %d: found %+v, want offsets from %d on", bit, d, list[bad].first)
		}
		if byte := bit / 8; byte < 8 || byte >= 12 {
			if d.Next != list[bad].last+1 || d.End-d.Position != int64(len(list[bad].bytes)) {
				t.Fatalf("bit %d: found %+v, want just the batch of offsets %d to %d", bit, d, list[bad].first, list[bad].last)
			}
		} else if d.Next > list[bad].last+9 {
			unreachable++ // a wrong length: up to the next index entry nothing is found
		}
		wantServed(t, s, list, d)
	}
	if unreachable > 0 {
		t.Errorf("%d wrong lengths hide more than an index interval", unreachable)
	}
}

// wantServed fetches from every offset, a batch at a time and much at a time.
func wantServed(t *testing.T, s *Segment, list []*batch, d BadRange) {
	t.Helper()
	pos := int64(0)
	for _, b := range list {
		for o := b.first; o <= b.last; o++ {
			for _, limit := range []int64{1, 1 << 20} {
				info, ok, err := s.Read(o, ReadOptions{MaxBytes: limit, Limit: math.MaxInt64, MinOneBatch: true})
				if o >= d.First && o < d.Next {
					if !errors.Is(err, record.ErrCorrupt) {
						t.Fatalf("Read(%d) = %v, %v; want ErrCorrupt", o, ok, err)
					}
					continue
				}
				if err != nil || !ok || info.Position != pos || info.Region.Length < int64(len(b.bytes)) {
					t.Fatalf("Read(%d) = %+v, %v, %v; want byte %d", o, info, ok, err, pos)
				}
				end := info.Region.Offset + info.Region.Length
				if info.Region.Offset <= d.Position && end > d.Position {
					t.Fatalf("Read(%d) sends bytes %d to %d, the damage begins at %d", o, info.Region.Offset, end, d.Position)
				}
				got := readRegion(t, info.Region)
				if !bytes.HasPrefix(got, b.bytes) {
					t.Fatalf("Read(%d) sends other bytes", o)
				}
			}
		}
		pos += int64(len(b.bytes))
	}
}

// Without an examination a broken chain is met by the first read that walks over
// it: it is told once, and what lies behind is served.
func TestABrokenChainIsMetByTheFirstRead(t *testing.T) {
	disk := memfs.New()
	list := sealed(t, disk, dir, 24)
	for at := range list {
		const lengthField, magicField = 8*8 + 7, 16 * 8
		for _, bit := range []int{lengthField, magicField + 6} {
			var w told
			s := flipped(t, disk, list, at, bit, &w)
			for _, b := range list[at+1:] {
				info, ok, err := s.Read(b.first, ReadOptions{MaxBytes: 1, Limit: math.MaxInt64, MinOneBatch: true})
				if errors.Is(err, record.ErrCorrupt) && b.first < list[at].last+9 {
					continue
				}
				if err != nil || !ok || !bytes.Equal(readRegion(t, info.Region), b.bytes) {
					t.Fatalf("batch %d, bit %d: Read(%d) = %v, %v", at, bit, b.first, ok, err)
				}
			}
			if len(w.damage) > 1 {
				t.Errorf("batch %d, bit %d: told of %+v", at, bit, w.damage)
			}
		}
	}
}

// A length that leads behind the end of the .log is no end of the log: readers
// would wait there for ever, without a word.
func TestALengthBeyondTheEndIsMetByTheFirstRead(t *testing.T) {
	disk := memfs.New()
	list := sealed(t, disk, dir, 24)
	for at := range list {
		var w told
		s := flipped(t, disk, list, at, 8*8+6, &w) // the highest bit of a positive length
		pos := int64(0)
		for i, b := range list {
			info, ok, err := s.Read(b.first, ReadOptions{MaxBytes: 1, Limit: math.MaxInt64, MinOneBatch: true, Hint: pos, Known: i%2 == 0})
			switch {
			case i == at || errors.Is(err, record.ErrCorrupt) && i > at && b.first < list[at].last+9:
				if !errors.Is(err, record.ErrCorrupt) {
					t.Fatalf("batch %d: Read(%d) = %v, %v, want ErrCorrupt", at, b.first, ok, err)
				}
			case err != nil || !ok || !bytes.Equal(readRegion(t, info.Region), b.bytes):
				t.Fatalf("batch %d: Read(%d) = %v, %v", at, b.first, ok, err)
			}
			pos += int64(len(b.bytes))
		}
		if len(w.damage) != 1 {
			t.Errorf("batch %d: told of %+v", at, w.damage)
		}
		if _, ok, err := s.Read(list[len(list)-1].last+1, ReadOptions{MaxBytes: 1, Limit: math.MaxInt64}); ok || at < len(list)-2 && err != nil { // the last index entry is for the one before the last
			t.Errorf("batch %d: Read at the end = %v, %v", at, ok, err)
		}
	}
}

// A batch whose offset or leader epoch, which no checksum covers, does not fit
// the batches around.
func TestExamineJudgesWhatTheChecksumDoesNotCover(t *testing.T) {
	disk := memfs.New()
	list := sealed(t, disk, dir, 8)
	set := func(change func(b record.Batch)) Examination {
		copied := disk.Crash(memfs.KeepAll())
		path := filepath.Join(dir, Name(base, LogExt))
		b, err := vfs.ReadFile(copied, path)
		check(t, err)
		change(record.Batch(b[3*len(list[0].bytes):][:len(list[3].bytes)]))
		replaceFile(t, copied, path, b)
		e, err := reopened(t, copied, dir, new(told)).Examine(fileReader{copied, path}, ExamineOptions{Upper: list[7].last + 1})
		check(t, err)
		return e
	}
	for _, o := range []kafka.Offset{0, -1, base, list[3].first - 1, list[3].first + 1, list[4].first, 1 << 40, math.MaxInt64} {
		if e := set(func(b record.Batch) { b.SetBaseOffset(o) }); len(e.Damaged) != 1 || e.Damaged[0].First != list[3].first || e.Damaged[0].Next != list[4].first {
			t.Errorf("base offset %d: found %+v", o, e.Damaged)
		}
	}
	for _, epoch := range []kafka.LeaderEpoch{0, 2, 4, math.MaxInt32} { // 3 all around
		if e := set(func(b record.Batch) { b.SetLeaderEpoch(epoch) }); len(e.Damaged) != 1 || e.Damaged[0].First != list[3].first {
			t.Errorf("leader epoch %d: found %+v", epoch, e.Damaged)
		}
	}
	if e := set(func(record.Batch) {}); len(e.Damaged) != 0 || e.Batches != 8 {
		t.Errorf("undamaged: found %+v", e)
	}
}

// fileReader reads a file by its name.
type fileReader struct {
	fsys vfs.FS
	path string
}

func (r fileReader) ReadAt(p []byte, off int64) (int, error) {
	f, err := r.fsys.OpenFile(r.path, 0, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.ReadAt(p, off)
}

// Damage at the end of a log that is written to ends where the next batch begins.
func TestWhatIsAppendedBehindDamageIsServed(t *testing.T) {
	disk := memfs.New()
	list := sealed(t, disk, dir, 24)
	var w told
	s := flipped(t, disk, list, 23, 8*8+6, &w)
	check(t, s.Activate())
	read := func(o kafka.Offset) (ok bool, err error) {
		info, ok, err := s.Read(o, ReadOptions{MaxBytes: 1, Limit: math.MaxInt64, MinOneBatch: true})
		if ok {
			info.Region.Release()
		}
		return ok, err
	}
	if _, err := read(list[23].first); !errors.Is(err, record.ErrCorrupt) {
		t.Fatalf("Read of the damaged batch: %v", err)
	}
	b := newBatch(t, list[23].last+1, 20, 5000)
	check(t, s.Append(b.last, b.bytes))
	if ok, err := read(b.first); !ok || err != nil {
		t.Errorf("Read of what was appended = %v, %v", ok, err)
	}
	if _, err := read(list[23].last); !errors.Is(err, record.ErrCorrupt) {
		t.Errorf("Read of the damaged batch: %v", err)
	}
	if d := s.Damaged(); len(d) != 1 || d[0].Next != b.first {
		t.Errorf("damaged: %+v", d)
	}
}
