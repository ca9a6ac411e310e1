package cleaner

import (
	"errors"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// worker is one of the goroutines that clean. It chooses a log, cleans it, and
// applies retention to the compacted logs, over and over; when no log wants
// cleaning it sleeps for log.cleaner.backoff.ms.
type worker struct {
	c        *Cleaner
	stopping <-chan struct{}
	memory   memory
}

func (w *worker) run() {
	for {
		cleaned := w.cleanOne()
		w.deleteOld()
		if !cleaned && !w.sleep(w.c.config.Load().Backoff) {
			return
		}
		if w.stopped() {
			return
		}
	}
}

func (w *worker) stopped() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// sleep returns false when the cleaner stops.
func (w *worker) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.stopping:
		return false
	case <-timer.C:
		return true
	}
}

// target is a log that was chosen.
type target struct {
	log        *commitlog.Log
	generation uint64
	segs       []*segment.Segment
	extent     extent
	cancel     <-chan struct{}
}

// choose takes the log with the highest share of dirty bytes of those that may
// be cleaned now. The caller gives it back with done.
func (c *Cleaner) choose(now kafka.Timestamp, stopping <-chan struct{}) (target, bool) {
	c.choosing.Lock()
	defer c.choosing.Unlock()
	candidates := c.candidates()
	for {
		var best target
		at := -1
		for i, candidate := range candidates {
			t, ok := c.examine(candidate, now)
			if ok && (at < 0 || t.extent.ratio() > best.extent.ratio()) {
				best, at = t, i
			}
		}
		if at < 0 {
			return best, false
		}
		if cancel, ok := c.take(best.log, stopping); ok {
			best.cancel = cancel
			return best, true
		}
		// Paused since it was listed, or the cleaner stops.
		candidates = append(candidates[:at:at], candidates[at+1:]...)
	}
}

// candidates lists the compacted logs that nothing keeps from being cleaned, and
// forgets logs that are gone: those that were known before the owner was asked,
// and that it does not list. Since only one choice is made at a time, no other
// one can still have a list with them.
func (c *Cleaner) candidates() []Candidate {
	c.mu.Lock()
	known := make([]*commitlog.Log, 0, len(c.states))
	for l, s := range c.states {
		if s.cancel == nil {
			known = append(known, l)
		}
	}
	c.mu.Unlock()
	all := c.o.Logs()
	listed := make(map[*commitlog.Log]bool, len(known))
	for _, candidate := range all {
		listed[candidate.Log] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range known {
		if s := c.states[l]; s != nil && s.cancel == nil && !listed[l] {
			delete(c.states, l)
		}
	}
	free := all[:0]
	for _, candidate := range all {
		s := c.states[candidate.Log]
		if candidate.Log.Config().CleanupCompact && (s == nil || s.cancel == nil && s.paused == 0 && s.failed == nil) {
			free = append(free, candidate)
		}
	}
	return free
}

// examine looks at a log, and puts its checkpoint right when that cannot be.
func (c *Cleaner) examine(candidate Candidate, now kafka.Timestamp) (target, bool) {
	l := candidate.Log
	t := target{log: l, generation: l.Generation()}
	v, segs, err := look(l, candidate.Cleaned)
	if err != nil {
		// A segment was deleted meanwhile, or the disk fails: next time.
		c.o.Logger.Debug("log not looked at for compaction", "partition", l.Partition(), "err", err)
		return t, false
	}
	t.segs, t.extent = segs, v.extentOf(candidate.Cleaned, now)
	if t.extent.reset {
		if config := l.Config(); !config.CleanupDelete || candidate.Cleaned > v.end {
			c.o.Logger.Warn("cleaner checkpoint does not fit the log, all of it is taken for dirty", "event", "checkpoint-rebuilt",
				"topic", l.Partition().Topic, "partition", l.Partition().Partition, "offset", candidate.Cleaned, "logStartOffset", v.start, "logEndOffset", v.end)
		}
		if err := c.o.SetCleaned(l, t.generation, t.extent.firstDirty); err != nil {
			return t, false
		}
	}
	return t, t.extent.wanted(l.Config().MinCleanableRatio)
}

// cleanOne does one round; false when no log wants it, or when it failed.
func (w *worker) cleanOne() bool {
	c := w.c
	began := c.o.Now()
	t, ok := c.choose(kafka.TimestampOf(began), w.stopping)
	if !ok {
		return false
	}
	r := newRound(t.log, t.generation, t.segs, t.extent, kafka.TimestampOf(began), w.configure())
	r.cancel, r.pace, r.logger = t.cancel, &c.pacer, c.o.Logger
	err := r.run()
	if err == nil {
		err = c.o.SetCleaned(t.log, t.generation, r.stats.NextDirty)
	}
	if err != nil {
		c.done(t.log, c.failed(t.log, err))
		return false
	}
	w.report(r, c.o.Now().Sub(began))
	c.done(t.log, nil)
	if c.o.OnRound != nil {
		c.o.OnRound(t.log, r.stats)
	}
	return r.stats.NextDirty > r.stats.FirstDirty
}

// configure gives the worker its share of the memory.
func (w *worker) configure() *memory {
	config := w.c.config.Load()
	m := &w.memory
	m.mapBytes = config.DedupeBytes / int64(config.Threads)
	m.load = config.LoadFactor
	if bytes := max(config.BufferBytes/config.Threads/2, record.HeaderSize); bytes != m.bufferBytes {
		m.bufferBytes, m.read, m.write = bytes, nil, nil
	}
	return m
}

func (w *worker) report(r *round, took time.Duration) {
	tp, s := r.log.Partition(), &r.stats
	w.c.o.Logger.Info("log compacted", "event", "compacted", "topic", tp.Topic, "partition", tp.Partition,
		"bytesBefore", s.BytesBefore, "bytesAfter", s.BytesAfter, "durationMs", took.Milliseconds(),
		"recordsBefore", s.RecordsBefore, "recordsAfter", s.RecordsAfter, "segmentsBefore", s.SegmentsBefore, "segmentsAfter", s.SegmentsAfter,
		"keys", s.Keys, "firstDirtyOffset", s.FirstDirty, "nextDirtyOffset", s.NextDirty)
	if s.WithoutKey > 0 {
		w.c.o.Logger.Warn("records without a key dropped by compaction", "topic", tp.Topic, "partition", tp.Partition, "records", s.WithoutKey)
	}
}

// failed says what becomes of a log whose round failed: nil when it is tried
// again, else why it cannot be cleaned until the next start.
func (c *Cleaner) failed(l *commitlog.Log, err error) error {
	tp := l.Partition()
	switch {
	case errors.Is(err, errAborted), l.Failure() != nil, errors.Is(err, commitlog.ErrClosed), errors.Is(err, segment.ErrClosed):
		c.o.Logger.Debug("compaction aborted", "topic", tp.Topic, "partition", tp.Partition, "err", err)
		return nil
	case errors.Is(err, commitlog.ErrFull), errors.Is(err, commitlog.ErrStorage):
		c.o.Logger.Warn("compaction put off", "topic", tp.Topic, "partition", tp.Partition, "err", err)
		return nil
	case vfs.IsReadError(err):
		// A disk that failed once; one that keeps failing is taken out of use by who
		// is told of it.
		c.o.Logger.Warn("compaction put off", "topic", tp.Topic, "partition", tp.Partition, "err", err)
		if c.o.OnReadError != nil {
			c.o.OnReadError(l, err)
		}
		return nil
	}
	event := "uncleanable"
	if errors.Is(err, record.ErrCorrupt) {
		event = "corrupt-batch"
	}
	c.o.Logger.Error("log cannot be compacted until the next start", "event", event, "topic", tp.Topic, "partition", tp.Partition, "err", err,
		"hint", "nothing in it was changed; the log grows until its damage is repaired")
	return err
}

// deleteOld applies retention to the compacted logs, which have segments below
// their log start and may be deleted from as well (cleanup.policy=compact,delete).
func (w *worker) deleteOld() {
	c := w.c
	c.choosing.Lock()
	list := c.candidates()
	c.choosing.Unlock()
	for _, candidate := range list {
		l := candidate.Log
		if _, ok := c.take(l, w.stopping); !ok {
			continue
		}
		n, err := l.DeleteOldSegments()
		c.done(l, nil)
		tp := l.Partition()
		switch {
		case err != nil && l.Failure() == nil && !errors.Is(err, commitlog.ErrClosed):
			c.o.Logger.Error("background task failed", "task", "retention", "partition", tp, "err", err)
		case n > 0:
			c.o.Logger.Info("segments deleted", "partition", tp, "segments", n, "logStartOffset", l.StartOffset())
		}
	}
}
