package segment

import (
	"fmt"
	"testing"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

const (
	dir    = "/t-0"
	base   = kafka.Offset(100)
	opened = kafka.Timestamp(1_000_000)
)

func options() Options {
	return Options{IndexInterval: 4096, MaxIndexBytes: 1 << 16, Now: opened, SegmentBytes: 1 << 30}
}

type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func check(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create makes the directory and an empty segment.
func create(t tester, fsys vfs.FS, o Options) *Segment {
	t.Helper()
	check(t, fsys.MkdirAll(dir, 0o755))
	o.Create = true
	s, err := Open(fsys, dir, base, o)
	check(t, err)
	return s
}

// batch is one batch of the model: what the tests expect to find.
type batch struct {
	first, last kafka.Offset
	times       []kafka.Timestamp // of the records, one an offset
	bytes       []byte
}

func (b *batch) max() kafka.Timestamp {
	m := kafka.NoTimestamp
	for _, t := range b.times {
		m = max(m, t)
	}
	return m
}

// newBatch makes a batch of one record for each timestamp, padded with a value
// of pad bytes each.
func newBatch(t tester, first kafka.Offset, pad int, times ...kafka.Timestamp) *batch {
	t.Helper()
	o := record.NewBuildOptions()
	o.BaseOffset, o.LeaderEpoch = first, 3
	var b record.Builder
	b.Reset(o)
	for i, ts := range times {
		b.Append(ts, fmt.Appendf(nil, "k%d", i), make([]byte, pad), nil)
	}
	out, err := b.Finish()
	check(t, err)
	return &batch{first, first + kafka.Offset(len(times)) - 1, times, append([]byte(nil), out...)}
}

// fill appends n batches of three records of about a KiB.
func fill(t tester, s *Segment, n int) []*batch {
	t.Helper()
	var list []*batch
	next := base
	for i := range n {
		ts := kafka.Timestamp(1000 * i)
		b := newBatch(t, next, 320, ts, ts+2, ts+1)
		check(t, s.Append(b.last, b.bytes))
		list = append(list, b)
		next = b.last + 1
	}
	return list
}

// entries are what the two indexes of a segment hold.
type entries struct {
	offsets []index.Position
	times   []index.TimePosition
}

func readEntries(t tester, s *Segment) (e entries) {
	t.Helper()
	n, err := s.offsets.Len()
	check(t, err)
	for i := range n {
		p, err := s.offsets.Entry(i)
		check(t, err)
		e.offsets = append(e.offsets, p)
	}
	n, err = s.times.Len()
	check(t, err)
	for i := range n {
		p, err := s.times.Entry(i)
		check(t, err)
		e.times = append(e.times, p)
	}
	return e
}

func readRegion(t tester, r vfs.Region) []byte {
	t.Helper()
	b := make([]byte, r.Length)
	if r.Length > 0 {
		_, err := r.File.ReadAt(b, r.Offset)
		check(t, err)
		r.Release()
	}
	return b
}

// stamp gives the one record of a batch another offset.
func stamp(b []byte, o kafka.Offset) { record.Batch(b).SetBaseOffset(o) }

// countReads is a memory disk that counts the reads of its files.
func countReads() (vfs.FS, *int) {
	n := new(int)
	return faultfs.Wrap(memfs.New(), func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Read {
			*n++
		}
		return faultfs.Fault{}
	}), n
}

func closed(t *testing.T, s *Segment) {
	t.Helper()
	t.Cleanup(func() { check(t, s.Close()) })
}
