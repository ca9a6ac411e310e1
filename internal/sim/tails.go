package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TailsOptions say how much of the end of a log is cut.
type TailsOptions struct {
	Seed   uint64
	Bytes  int // cut points
	Stride int // takes every so many only; 0 takes each
	Case   string
}

// Tails ends a killed log at every byte of its last Bytes, puts zeros of 1 byte
// to 64 MiB behind it, and tears its last batches. The log ends at the last whole
// batch, and goes on there.
func Tails(t *testing.T, row *Row, o TailsOptions) error {
	const path = "/data/orders-0/00000000000000000000.log"
	f, err := makeFixture(t, o.Seed, func(w *world) {
		w.topic("orders", 1, func(c *commitlog.Config) { c.SegmentBytes, c.IndexInterval = 1<<30, 4096 })
		p, _ := w.of("orders", 0)
		for size := 0; size < o.Bytes+500 && w.broken == nil; size += len(p.batches[len(p.batches)-1].raw) {
			w.produce("orders", 0, 1+w.rng.IntN(6), kafka.ProducerID(w.rng.IntN(3))-1, false)
		}
	})
	if err != nil {
		return err
	}
	tp := kafka.TopicPartition{Topic: "orders"}
	part := f.m.parts[tp]
	var ends []int // positions behind each batch
	at := 0
	for i := range part.batches {
		at += len(part.batches[i].raw)
		ends = append(ends, at)
	}
	log := tree(f.killed, "/data")[path]
	// whole counts the batches in front of the first byte that is changed: bytes
	// [from, to) are zeros now, and nothing is behind to.
	whole := func(from, to int) (n int) {
		for n < len(ends) && ends[n] <= to && (ends[n] <= from || allZero(log[max(from, ends[n]-len(part.batches[n].raw)):ends[n]])) {
			n++
		}
		return n
	}
	torn := func(disk *memfs.FS) (bool, error) { // else nothing can tell that anything is missing
		info, err := disk.Stat(path)
		if err != nil {
			return false, err
		}
		n := int(min(info.Size(), int64(len(log))))
		data := make([]byte, n)
		f, err := disk.OpenFile(path, 0, 0)
		if err != nil {
			return false, err
		}
		defer f.Close()
		if _, err := f.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		return info.Size() > 0 && !slices.Contains(ends, int(info.Size())) || !bytes.Equal(data, log[:n]), nil
	}
	p := newPool(row)
	defer p.wait()
	try := func(name string, want int, damage func(disk *memfs.FS) error) {
		if o.Case != "" && o.Case != name {
			return
		}
		row.Plan(1)
		p.do(func() string { return name }, func() {
			disk := copyOf(f.killed)
			err := damage(disk)
			damaged := false
			if err == nil {
				damaged, err = torn(disk)
			}
			if err == nil {
				err = guard(func() error { return f.m.endsAfter(disk, tp, want, damaged) })
			}
			if err != nil {
				row.Violation("tails: %s: %v\n\treplay: go test ./internal/sim -run 'TestRow/tails' -args -faults.seed=%d '-faults.case=%s'", name, err, o.Seed, name)
			}
			row.Done(1, want)
		})
	}
	size := at
	for i := range o.Bytes {
		if cut := size - 1 - i; o.Stride <= 1 || i%o.Stride == 0 {
			try(fmt.Sprintf("cut to %d", cut), whole(cut, cut), func(disk *memfs.FS) error { return truncateTo(disk, path, int64(cut)) })
		}
	}
	// Zeros as long as a file system may leave them, from a whole batch on and from
	// the middle of one.
	for _, cut := range []int{size, size - 1, size - 30, ends[len(ends)-2]} {
		for zeros := 1; zeros <= 64<<20; zeros *= 2 {
			for _, n := range []int{zeros, zeros + 1} {
				try(fmt.Sprintf("cut to %d, then %d zeros", cut, n), whole(cut, cut+n), func(disk *memfs.FS) error {
					if err := truncateTo(disk, path, int64(cut)); err != nil {
						return err
					}
					return truncateTo(disk, path, int64(cut+n))
				})
			}
		}
	}
	// A sector in the middle that was not written, with what follows there.
	for from := max(0, size-min(o.Bytes, 64<<10)) / 512; from < size/512; from++ {
		want := len(ends)
		for i := range ends {
			if first := ends[i] - len(part.batches[i].raw); first < (from+1)*512 && ends[i] > from*512 && !allZero(log[max(first, from*512):min(ends[i], (from+1)*512)]) {
				want = i
				break
			}
		}
		try(fmt.Sprintf("sector %d is zeros", from), want, func(disk *memfs.FS) error {
			return writeAt(disk, path, make([]byte, 512), int64(from)*512)
		})
	}
	// An old life of the file behind the end: batches with right checksums.
	for _, i := range []int{0, 1, len(ends) / 2, len(ends) - 1} {
		try(fmt.Sprintf("batch %d again behind the end", i), len(ends), func(disk *memfs.FS) error {
			b := bytes.Clone(part.batches[i].raw)
			record.Batch(b).SetBaseOffset(part.batches[i].base)
			record.Batch(b).SetLeaderEpoch(part.batches[i].epoch)
			return writeAt(disk, path, b, int64(size))
		})
	}
	return nil
}

// endsAfter opens a partition and wants its first n batches, no other, and that
// the next record gets the offset behind them.
func (m *moment) endsAfter(disk *memfs.FS, tp kafka.TopicPartition, n int, torn bool) error {
	w := newWatch()
	dirs, err := m.open(disk, w)
	if err != nil {
		return err
	}
	defer dirs.Close(9)
	log, p := dirs.Log(tp), m.parts[tp]
	if log == nil {
		return fmt.Errorf("not opened: %w", dirs.Failure(tp))
	}
	end := kafka.Offset(0)
	if n > 0 {
		end = p.batches[n-1].last + 1
	}
	if log.EndOffset() != end {
		return fmt.Errorf("the log ends at %d, want %d", log.EndOffset(), end)
	}
	found, err := p.judgePlain(log, end)
	if err != nil {
		return err
	}
	if len(found) != n {
		return fmt.Errorf("%d batches, want %d", len(found), n)
	}
	if torn && !w.any() {
		return errors.New("bytes were cut off and nothing says so")
	}
	var b record.Builder
	b.Reset(record.NewBuildOptions())
	b.Append(kafka.TimestampOf(m.now), []byte("next"), []byte("one"), nil)
	raw, err := b.Finish()
	if err != nil {
		return err
	}
	info, err := log.AppendAsLeader(bytes.Clone(raw), 1000, commitlog.AppendOptions{})
	if err != nil || info.FirstOffset != end {
		return fmt.Errorf("the next record: offset %d, %v; want %d", info.FirstOffset, err, end)
	}
	return nil
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }
