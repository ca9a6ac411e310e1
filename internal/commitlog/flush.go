package commitlog

import (
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// Flush makes everything below to durable, indexes included, and moves the
// recovery point there. Those who ask while a flush is under way share the next
// one. An error takes the log offline: after a failed sync nothing may be
// believed to be on the disk.
func (l *Log) Flush(to kafka.Offset) error { return l.flush(to, to, false) }

// flush syncs the segments that hold [recovery point, end) and then moves the
// recovery point to point. end is above point when an active segment must be
// flushed although the recovery point says that all is. names says that files
// came or went, so that the directory is synced too.
func (l *Log) flush(end, point kafka.Offset, names bool) error {
	if end <= l.flushed() {
		return l.Failure()
	}
	raised, err := l.flushOnce(end, point, names)
	if raised {
		// Without flushMu: who is told may wait for one who waits for a flush.
		l.wakeSynced()
	}
	return err
}

// flushOnce is flush without the telling: raised says that SyncedOffset has moved.
func (l *Log) flushOnce(end, point kafka.Offset, names bool) (raised bool, err error) {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	from := l.flushed()
	if end <= from {
		return false, l.Failure()
	}
	if err := l.usable(); err != nil {
		return false, err
	}
	generation, written := l.truncations.Load(), l.end.get()
	for _, s := range l.segments.Load().span(from, end) {
		if err := s.Flush(); err != nil {
			return false, l.flushError("flush", err)
		}
		names = names || s.BaseOffset() >= from
	}
	if names {
		if err := l.fs.SyncDir(l.Dir()); err != nil {
			return false, l.flushError("flush", err)
		}
	}
	if err := l.usable(); err != nil {
		return false, err // another log of the directory failed meanwhile
	}
	l.mu.Lock()
	if l.truncations.Load() == generation {
		if point > l.recoveryPoint.get() {
			l.recoveryPoint.set(min(point, l.end.get()))
		}
		raised = l.synced.raise(min(end, written))
	}
	l.lastFlush = l.opts.Now()
	l.unlock()
	return raised, nil
}

// flushError takes the log offline, unless nothing was asked of the disk: the
// process has no descriptor or memory left. Then nothing is taken for durable,
// and the next flush does it all (faults R1).
func (l *Log) flushError(what string, err error) error {
	if outOfResources(err) && !vfs.IsSync(err) {
		return &storageError{fmt.Errorf("%s: %s: %w", l.partition, what, err)}
	}
	return l.fail(what, err)
}

// flushed is the offset below which nothing is owed to the disk. A log start that
// was raised takes the recovery point with it, and no file.
func (l *Log) flushed() kafka.Offset {
	return min(l.recoveryPoint.get(), l.synced.to.get())
}

// excludeFlushes waits for the flush and the round under way and keeps others
// out until the function that it returns is called.
func (l *Log) excludeFlushes() (allow func()) {
	l.flushMu.Lock()
	l.synced.mu.Lock()
	return func() {
		l.synced.mu.Unlock()
		l.flushMu.Unlock()
	}
}

// FlushIfDue flushes the log when flush.ms has passed since it was last flushed.
func (l *Log) FlushIfDue() error {
	l.mu.Lock()
	idle := l.opts.Now().Sub(l.lastFlush).Milliseconds()
	l.unlock()
	if idle < l.Config().FlushMs {
		return nil
	}
	return l.Flush(l.EndOffset())
}
