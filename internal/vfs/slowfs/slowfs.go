// Package slowfs wraps a disk to see how long its writes and syncs take: it
// tells of slow ones, measures the syncs, and knows what does not come back.
//
// Before it on the path: the real disk, as package vfs gives it. After it: node,
// which gives it to everything that it opens.
package slowfs

import (
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/vfs"
)

// FS is a disk that is watched. It implements vfs.FS.
type FS struct {
	vfs.FS
	o     Options
	start time.Time // times are counted from here, by the monotonic clock
	next  atomic.Uint32
	slots [slots]slot
	syncs [len(bounds) + 1]atomic.Uint64
	sum   atomic.Int64 // of the times of syncs, in nanoseconds
}

var _ vfs.FS = (*FS)(nil)

// Options say what is slow. Both are needed.
type Options struct {
	Slow time.Duration
	// OnSlow is told of each call that took as long or longer.
	OnSlow func(op, file string, took time.Duration)
}

// slots bounds the calls under way that are known; what finds none is timed and
// is not among the stuck. A slot has a cache line of its own.
const slots = 64

type slot struct {
	since atomic.Int64 // 0: free
	call  atomic.Pointer[call]
	_     [48]byte
}

// call names what a slot is taken for.
type call struct{ op, file string }

// bounds are the upper ends of the histogram of syncs: 1-2-5 from 50 µs to 10 s.
var bounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	1 * time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, 1 * time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
}

// Wrap returns the watched disk.
func Wrap(under vfs.FS, o Options) *FS { return &FS{FS: under, o: o, start: time.Now()} }

// now is never 0, which is a free slot.
func (m *FS) now() int64 { return int64(time.Since(m.start)) + 1 }

// begin notes that a call starts. hint is where a free slot is looked for first.
func (m *FS) begin(hint uint32, c *call) (s *slot, since int64) {
	since = m.now()
	for i := range uint32(4) {
		s := &m.slots[(hint+i)%slots]
		if s.since.Load() == 0 && s.since.CompareAndSwap(0, since) {
			s.call.Store(c)
			return s, since
		}
	}
	return nil, since
}

// end notes that it is over.
func (m *FS) end(s *slot, since int64, c *call) time.Duration {
	took := time.Duration(m.now() - since)
	if s != nil {
		s.call.Store(nil)
		s.since.Store(0)
	}
	if took >= m.o.Slow {
		m.o.OnSlow(c.op, c.file, took)
	}
	return took
}

// sync runs a sync and counts its time.
func (m *FS) sync(hint uint32, c *call, f func() error) error {
	s, since := m.begin(hint, c)
	err := f()
	took := m.end(s, since, c)
	i := 0
	for i < len(bounds) && took > bounds[i] {
		i++
	}
	m.syncs[i].Add(1)
	m.sum.Add(int64(took))
	return err
}

// Histogram is how long the syncs took: how many took at most each bound, how
// many there were, and the sum.
type Histogram struct {
	Bounds     []time.Duration
	Cumulative []uint64
	Count      uint64
	Sum        time.Duration
}

// Syncs returns the times of all syncs so far.
func (m *FS) Syncs() Histogram {
	h := Histogram{Bounds: bounds[:], Sum: time.Duration(m.sum.Load())}
	for i := range m.syncs {
		h.Count += m.syncs[i].Load()
		if i < len(bounds) {
			h.Cumulative = append(h.Cumulative, h.Count)
		}
	}
	return h
}

// Stuck lists the calls that have been under way for longer than d.
func (m *FS) Stuck(d time.Duration) []string {
	var list []string
	now := m.now()
	for i := range m.slots {
		s := &m.slots[i]
		since, c := s.since.Load(), s.call.Load()
		if took := time.Duration(now - since); since != 0 && c != nil && took > d {
			list = append(list, fmt.Sprintf("%s of %s has not come back for %v", c.op, c.file, took.Round(time.Second)))
		}
	}
	return list
}

// OpenFile implements vfs.FS.
func (m *FS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := m.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &file{File: f, fs: m, hint: m.next.Add(5), write: call{"write", name}, sync: call{"sync", name}}, nil
}

// SyncDir implements vfs.FS.
func (m *FS) SyncDir(name string) error {
	c := call{"sync", name}
	return m.sync(m.next.Add(5), &c, func() error { return m.FS.SyncDir(name) })
}

// file is an open file of the disk.
type file struct {
	vfs.File
	fs          *FS
	hint        uint32
	write, sync call
}

// ReadCold implements vfs.ColdReader.
func (f *file) ReadCold(p []byte, off int64) (int, error) { return vfs.ReadCold(f.File, p, off) }

// WriteAt implements vfs.File.
func (f *file) WriteAt(p []byte, off int64) (int, error) {
	s, since := f.fs.begin(f.hint, &f.write)
	n, err := f.File.WriteAt(p, off)
	f.fs.end(s, since, &f.write)
	return n, err
}

// WritevAt implements vfs.File.
func (f *file) WritevAt(bufs [][]byte, off int64) (int64, error) {
	s, since := f.fs.begin(f.hint, &f.write)
	n, err := f.File.WritevAt(bufs, off)
	f.fs.end(s, since, &f.write)
	return n, err
}

// Sync implements vfs.File.
func (f *file) Sync() error { return f.fs.sync(f.hint, &f.sync, f.File.Sync) }

// SyncData implements vfs.File.
func (f *file) SyncData() error { return f.fs.sync(f.hint, &f.sync, f.File.SyncData) }
