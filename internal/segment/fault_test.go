package segment

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// state is everything of a segment that an append changes.
type state struct {
	size  int64
	bytes []byte
	entries
	since int64
	max   kafka.Timestamp
}

func stateOf(t *testing.T, s *Segment) state {
	t.Helper()
	f, err := s.file()
	check(t, err)
	n, err := f.Size()
	check(t, err)
	b := make([]byte, n)
	if n > 0 {
		_, err = f.ReadAt(b, 0)
		check(t, err)
	}
	largest, err := s.MaxTimestamp()
	check(t, err)
	return state{s.Size(), b, readEntries(t, s), s.sinceEntry, largest.Timestamp}
}

func (a state) equal(b state) bool {
	return a.size == b.size && bytes.Equal(a.bytes, b.bytes) && a.since == b.since && a.max == b.max &&
		slices.Equal(a.offsets, b.offsets) && slices.Equal(a.times, b.times)
}

// TestAFailedAppendLeavesNothing makes every changing operation of an append
// fail, one after the other, with a full disk and with a broken one, whole and
// half way through the write.
func TestAFailedAppendLeavesNothing(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO} {
		for _, done := range []int64{0, 1, 300} {
			for step := 1; ; step++ {
				counter := &faultfs.Counter{Fault: faultfs.Fault{Err: errno, Done: done}}
				s := create(t, faultfs.Wrap(memfs.New(), counter.Inject), options())
				list := fill(t, s, 4)
				b := newBatch(t, list[3].last+1, 600, 9000, 9001, 9002)
				before := stateOf(t, s)
				counter.Times, counter.From = 1, counter.Seen()+step
				err := s.Append(b.last, b.bytes, newBatch(t, b.last+1, 10, 5).bytes)
				counter.From = 0
				if err == nil {
					if step == 1 {
						t.Error("no operation of an append can fail")
					}
					check(t, s.Close())
					break
				}
				if !errors.Is(err, errno) || vfs.IsFull(err) != (errno != syscall.EIO) {
					t.Errorf("step %d: %v, want %v", step, err, errno)
				}
				if after := stateOf(t, s); !after.equal(before) {
					t.Errorf("step %d with %v after %d bytes: a failed append left something: size %d, file %d, entries %+v",
						step, errno, done, after.size, len(after.bytes), after.entries)
				}
				check(t, s.Append(b.last, b.bytes))
				check(t, s.Close())
			}
		}
	}
}

func TestNothingIsAppendedBehindBytesThatCouldNotBeCutBack(t *testing.T) {
	var fail atomic.Bool
	s := create(t, faultfs.Wrap(memfs.New(), func(op faultfs.Op) faultfs.Fault {
		if fail.Load() && (op.Kind == faultfs.Write || op.Kind == faultfs.Truncate) {
			return faultfs.Fault{Err: syscall.EIO, Done: 10}
		}
		return faultfs.Fault{}
	}), options())
	list := fill(t, s, 2)
	b := newBatch(t, list[1].last+1, 10, 1)
	fail.Store(true)
	if err := s.Append(b.last, b.bytes); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Append on a broken disk: %v", err)
	}
	fail.Store(false)
	if err := s.Append(b.last, b.bytes); err == nil {
		t.Error("Append behind a torn batch: no error")
	}
	check(t, s.Abandon())
}

func TestAFullDiskIsFoundBeforeAByteIsWritten(t *testing.T) {
	disk := memfs.New()
	s := create(t, disk, options())
	closed(t, s)
	list := fill(t, s, 4)
	disk.SetLimit(4096)
	b := newBatch(t, list[3].last+1, 320, 9000, 9001, 9002)
	before := stateOf(t, s)
	if err := s.Append(b.last, b.bytes); !vfs.IsFull(err) {
		t.Fatalf("Append on a full disk: %v", err)
	}
	if !stateOf(t, s).equal(before) {
		t.Error("the refused append changed something")
	}
	disk.SetLimit(0)
	check(t, s.Append(b.last, b.bytes))
}

func TestRecoveryOnAFullDiskReadsTheLog(t *testing.T) {
	disk := memfs.New()
	s := create(t, disk, options())
	list := fill(t, s, 20)
	check(t, s.Close())
	disk.SetLimit(1)
	s, err := Open(disk, dir, base, options())
	check(t, err)
	if cut, err := s.Recover(nil); cut != 0 || err != nil {
		t.Fatalf("Recover on a full disk = %d, %v", cut, err)
	}
	for i, b := range list {
		if at, ok, err := s.Locate(b.first); at.Byte != int64(i)*s.Size()/20 || !ok || err != nil {
			t.Errorf("Locate(%d) = %+v, %v, %v", b.first, at, ok, err)
		}
	}
	check(t, s.Abandon())
}

// TestReadersRunBesideTheWriter is for the race detector: reads and lookups
// during appends, flushes and truncations; and at the end the deletion.
func TestReadersRunBesideTheWriter(t *testing.T) {
	s := create(t, memfs.New(), options())
	var end atomic.Int64 // the log end offset that the log would publish
	end.Store(int64(base))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	dec := sync.Pool{New: func() any { return &record.Decompressor{} }}
	for i := range 3 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				start := kafka.Offset(end.Load() - 1 - int64(n*i%40))
				if start < base {
					continue
				}
				info, ok, err := s.Read(start, ReadOptions{MaxBytes: 3000, Limit: math.MaxInt64, MinOneBatch: true})
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil || !ok && int64(start) < end.Load() {
					t.Errorf("Read(%d) = %v, %v with the end at %d", start, ok, err, end.Load())
					return
				}
				if info.Region.Length > 0 {
					b := make([]byte, record.HeaderSize)
					if _, err := info.Region.File.ReadAt(b, info.Region.Offset); err != nil {
						t.Error(err)
					}
					info.Region.Release()
					if h, err := record.ParseHeader(b); err != nil || h.LastOffset < start || h.BaseOffset > start {
						t.Errorf("Read(%d) starts with the batch %d to %d, %v", start, h.BaseOffset, h.LastOffset, err)
						return
					}
				}
				if n%50 == 0 {
					d := dec.Get().(*record.Decompressor)
					if _, _, err := s.FindByTimestamp(kafka.Timestamp(n), base, d); err != nil && !errors.Is(err, ErrClosed) {
						t.Error(err)
					}
					dec.Put(d)
				}
			}
		})
	}
	next := base
	for i := range 1500 {
		b := newBatch(t, next, 200, kafka.Timestamp(i), kafka.Timestamp(i))
		check(t, s.Append(b.last, b.bytes))
		next = b.last + 1
		end.Store(int64(next))
		if i%400 == 399 {
			check(t, s.Flush())
		}
	}
	check(t, s.ChangeSuffix(DeletedSuffix))
	check(t, s.Delete())
	close(stop)
	wg.Wait()
}
