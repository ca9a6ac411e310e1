// Package scrub reads what nobody reads: it goes through the sealed segments of a
// data directory, slowly and over and over, and checks every batch and every index
// entry, so that a byte that changed on the disk is found while there still is
// another copy of it somewhere.
//
// Before it on the path: logdir, which owns one Scrubber a directory. After it:
// segment, which examines, remembers what is damaged and makes indexes anew.
package scrub

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
)

// DefaultRate is varve.scrub.rate: a terabyte takes a day and a half.
const DefaultRate = 8_000_000

// Period is the least time from the begin of one pass over a directory to the
// next: a small directory is not read all day long.
const Period = 24 * time.Hour

// Options say what is scrubbed. Logs and Now are needed.
type Options struct {
	// Logs lists the logs of the directory that are open and well, in any order,
	// in a slice that becomes the scrubber's.
	Logs func() []*commitlog.Log
	// BytesPerSecond bounds the reading; 0 or less: no limit.
	BytesPerSecond int64
	// Delay is how long the first pass waits, so that a start is not slowed.
	Delay  time.Duration
	Now    func() time.Time
	Logger *slog.Logger // nil: nothing is logged
	// OnError is told about a read that failed twice: the disk does not answer,
	// which says nothing about the bytes. May be nil.
	OnError func(l *commitlog.Log, err error)
	// OnPass is told about each complete pass. May be nil.
	OnPass func(Stats)
}

// Stats is what was done since the scrubber was made.
type Stats struct {
	Passes, Segments, Batches, Bytes int64
	CorruptBatches                   int64 // of the passes together: one that stays counts in each
	IndexesRebuilt                   int64
	ReadErrors                       int64
}

// Scrubber works on a goroutine of its own, between Start and Stop.
type Scrubber struct {
	o      Options
	cursor cursor // where a pass that was stopped goes on; the worker's own

	passes, segments, batches, bytes, corrupt, rebuilt, errors atomic.Int64

	lifecycle sync.Mutex
	stopping  chan struct{}
	worker    sync.WaitGroup
}

// cursor is a segment: the next one of a pass. The zero cursor is the first.
type cursor struct {
	partition kafka.TopicPartition
	base      kafka.Offset
}

func (c cursor) compare(d cursor) int {
	return cmp.Or(strings.Compare(c.partition.Topic, d.partition.Topic), cmp.Compare(c.partition.Partition, d.partition.Partition), cmp.Compare(c.base, d.base))
}

// New makes a scrubber that does nothing until Start.
func New(o Options) *Scrubber {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Scrubber{o: o}
}

// Start begins to scrub, or goes on where Stop ended it.
func (s *Scrubber) Start() {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.stopping != nil {
		return
	}
	s.stopping = make(chan struct{})
	w := &worker{Scrubber: s, stopping: s.stopping}
	s.worker.Go(w.run)
}

// Stop ends the work at once and waits for that.
func (s *Scrubber) Stop() {
	s.lifecycle.Lock()
	defer s.lifecycle.Unlock()
	if s.stopping == nil {
		return
	}
	close(s.stopping)
	s.worker.Wait()
	s.stopping = nil
}

// Stats counts what was done so far.
func (s *Scrubber) Stats() Stats {
	return Stats{
		Passes: s.passes.Load(), Segments: s.segments.Load(), Batches: s.batches.Load(), Bytes: s.bytes.Load(),
		CorruptBatches: s.corrupt.Load(), IndexesRebuilt: s.rebuilt.Load(), ReadErrors: s.errors.Load(),
	}
}

// Pass goes through the whole directory once, at the bounded rate, for who wants
// it now. It must not run beside a started scrubber.
func (s *Scrubber) Pass() { (&worker{Scrubber: s, stopping: make(chan struct{})}).pass() }

// worker is the goroutine between one Start and Stop.
type worker struct {
	*Scrubber
	stopping <-chan struct{}
	free     time.Time // when what was read so far is paid
}

func (w *worker) run() {
	if !w.sleep(w.o.Delay) {
		return
	}
	for {
		began := w.o.Now()
		if !w.pass() || !w.sleep(Period-w.o.Now().Sub(began)) {
			return
		}
	}
}

// sleep returns false when the scrubber stops.
func (w *worker) sleep(d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-w.stopping:
		return false
	case <-timer.C:
		return true
	}
}

// pass returns false when it was stopped; the next one goes on there.
func (w *worker) pass() bool {
	logs := w.o.Logs()
	slices.SortFunc(logs, func(a, b *commitlog.Log) int {
		return cursor{partition: a.Partition()}.compare(cursor{partition: b.Partition()})
	})
	for _, l := range logs {
		if !w.log(l) {
			return false
		}
	}
	w.cursor = cursor{}
	w.passes.Add(1)
	if w.o.OnPass != nil {
		w.o.OnPass(w.Stats())
	}
	return true
}

// log examines the sealed segments of a log that lie below its recovery point:
// what is above is checked by the next recovery, and may still be written.
func (w *worker) log(l *commitlog.Log) bool {
	segs := l.Segments()
	for i, s := range segs[:len(segs)-1] {
		at := cursor{l.Partition(), s.BaseOffset()}
		upper := segs[i+1].BaseOffset()
		if at.compare(w.cursor) < 0 || upper > l.RecoveryPoint() {
			continue
		}
		if l.Failure() != nil {
			return true // its directory is offline
		}
		w.cursor = at
		if !w.segment(l, s, upper) {
			return false
		}
	}
	return true
}

// errStopped ends the reading of a segment.
var errStopped = errors.New("the scrub is stopped")

func (w *worker) segment(l *commitlog.Log, s *segment.Segment, upper kafka.Offset) bool {
	generation := l.Generation()
	found, err := l.Examine(s, pacedReader{w, s}, upper)
	switch {
	case errors.Is(err, errStopped):
		return false
	case errors.Is(err, segment.ErrClosed), errors.Is(err, index.ErrClosed):
		return true // deleted or compacted meanwhile
	case err != nil:
		w.errors.Add(1)
		if w.o.OnError != nil {
			w.o.OnError(l, err)
		}
		return true
	}
	w.segments.Add(1)
	w.batches.Add(found.Batches)
	if l.Generation() != generation {
		return true // cut meanwhile: what was found may not be there any more
	}
	w.corrupt.Add(int64(len(found.Damaged)))
	s.SetDamage(found.Damaged)
	w.rebuilt.Add(int64(l.Mend(s, &found, generation)))
	return true
}

// pacedReader reads a segment at the bounded rate, and tries once more what fails.
type pacedReader struct {
	w *worker
	s *segment.Segment
}

func (r pacedReader) ReadAt(p []byte, off int64) (int, error) {
	if !r.w.pay(len(p)) {
		return 0, errStopped
	}
	n, err := r.s.ReadCold(p, off)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, segment.ErrClosed) {
		n, err = r.s.ReadCold(p, off)
	}
	r.w.bytes.Add(int64(n))
	return n, err
}

// pay waits until n more bytes may be read; false when the scrubber stops.
func (w *worker) pay(n int) bool {
	select {
	case <-w.stopping:
		return false
	default:
	}
	if w.o.BytesPerSecond <= 0 {
		return true
	}
	now := time.Now()
	if w.free.Before(now) {
		w.free = now
	}
	wait := w.free.Sub(now)
	w.free = w.free.Add(time.Duration(float64(n) / float64(w.o.BytesPerSecond) * float64(time.Second)))
	return wait <= 0 || w.sleep(wait)
}
