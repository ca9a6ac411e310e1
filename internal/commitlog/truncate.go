package commitlog

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/segment"
)

// TruncateTo cuts the log so that it ends at offset; a batch that holds it goes
// as a whole. It reports whether anything was there to cut. Only followers and
// recovery do this: what is cut was never acknowledged by acks=all.
func (l *Log) TruncateTo(offset kafka.Offset) (cut bool, err error) {
	if offset < 0 {
		return false, fmt.Errorf("truncate %s to %d: the offset is negative", l.partition, offset)
	}
	defer l.excludeFlushes()() // none may believe that it made durable what is cut here
	l.mu.Lock()
	defer l.unlock()
	if err := l.writableLocked(); err != nil {
		return false, err
	}
	if offset >= l.end.get() {
		l.epochsChangedLocked(l.epochs.truncateFromEnd(l.end.get()))
		return false, nil
	}
	if hw := l.highWatermark.get(); offset < hw {
		l.say(slog.LevelWarn, "truncated below the high watermark", "offset", offset, "highWatermark", hw)
	}
	if err := l.lowerRecoveryPoint(offset); err != nil {
		return false, err
	}
	list := l.segments.Load()
	if list.bases[0] > offset {
		return true, l.truncateFullyLocked(offset, offset)
	}
	return true, l.truncateLocked(list, offset)
}

// lowerRecoveryPoint makes a recovery point durable that does not promise what
// is about to be cut (order O10).
func (l *Log) lowerRecoveryPoint(offset kafka.Offset) error {
	l.truncations.Add(1)
	l.synced.to.set(min(l.synced.to.get(), offset))
	l.after = append(l.after, l.synced.wake) // who waits for what is cut
	if l.opts.OnTruncate != nil {
		l.opts.OnTruncate(offset)
	}
	if l.recoveryPoint.get() <= offset {
		return nil
	}
	l.recoveryPoint.set(offset)
	if l.opts.PersistRecoveryPoint == nil {
		return nil
	}
	if err := l.opts.PersistRecoveryPoint(offset); err != nil {
		return l.writeErrorLocked("recovery point checkpoint", err)
	}
	return nil
}

// lowerStart takes the log start offset back: what is durable of a higher one says
// nothing of the next time that it is raised.
func (l *Log) lowerStart(offset kafka.Offset) {
	l.start.set(min(l.start.get(), offset))
	l.startKept.set(min(l.startKept.get(), offset))
}

func (l *Log) truncateLocked(list *segmentList, offset kafka.Offset) error {
	keep := list.floor(offset) + 1
	gone := list.segs[keep:]
	kept := newSegmentList(slices.Clone(list.segs[:keep]))
	// No reader may go past offset from here on.
	l.highWatermark.set(min(l.highWatermark.get(), offset))
	l.lowerStart(offset)
	l.segments.Store(kept)
	l.end.store(offset, kept.active().BaseOffset(), kept.active().Size())
	err := l.dropLocked(gone)
	l.retireAll(gone)
	if err != nil {
		return err
	}
	active := kept.active()
	if _, err := active.TruncateTo(offset, l.now()); err != nil {
		return l.fail("truncate", err)
	}
	l.end.store(offset, active.BaseOffset(), active.Size())
	l.epochsChangedLocked(l.epochs.truncateFromEnd(offset))
	if err := l.rebuildProducers(l.producers, kept.segs, l.start.get(), offset, false); err != nil {
		return l.fail("truncate", err)
	}
	l.highWatermarkMovedLocked()
	return l.truncatedLocked(active)
}

// dropLocked removes segments from the last to the first, each durably before
// the next, so that a crash leaves a log that ends earlier, and no hole in it.
func (l *Log) dropLocked(gone []*segment.Segment) error {
	l.after = append(l.after, func() { l.unlinkLater(gone) })
	for i := len(gone) - 1; i >= 0; i-- {
		// Half a truncation cannot go on: a full disk ends it as any error does.
		if err := l.discardLocked(l.producers, gone[i]); err != nil {
			return l.fail("truncate", err)
		}
		if err := l.fs.SyncDir(l.Dir()); err != nil {
			return l.fail("truncate", err)
		}
	}
	return nil
}

// retireAll closes segments that have left the log once their readers are done,
// and not when the delay of their unlinking has passed: a stop in between forgets it.
func (l *Log) retireAll(gone []*segment.Segment) {
	for _, s := range gone {
		if err := s.Retire(); err != nil {
			l.say(slog.LevelWarn, "deleted segment", "base", s.BaseOffset(), "err", err)
		}
	}
}

// truncatedLocked makes a truncation durable before anything is appended: what
// was cut must not come back behind, or under, what is written in its place.
func (l *Log) truncatedLocked(active *segment.Segment) error {
	err := active.Flush()
	if err == nil {
		err = l.fs.SyncDir(l.Dir())
	}
	l.producers.Dropped()
	if err != nil {
		return l.fail("truncate", err)
	}
	return nil
}

// TruncateFullyAndStartAt empties the log; it goes on at offset, which becomes
// the log start too.
func (l *Log) TruncateFullyAndStartAt(offset kafka.Offset) error {
	defer l.excludeFlushes()()
	l.mu.Lock()
	defer l.unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	if err := l.lowerRecoveryPoint(offset); err != nil {
		return err
	}
	return l.truncateFullyLocked(offset, offset)
}

func (l *Log) truncateFullyLocked(offset, start kafka.Offset) error {
	gone := l.segments.Load().segs
	if err := l.dropLocked(gone); err != nil {
		return err
	}
	created, err := l.createSegment(offset)
	if err != nil {
		return l.fail("truncate", err)
	}
	l.start.set(start)
	l.lowerStart(start)
	l.end.store(offset, offset, 0)
	l.highWatermark.set(offset)
	l.segments.Store(newSegmentList([]*segment.Segment{created}))
	l.retireAll(gone)
	l.recoveryPoint.set(min(l.recoveryPoint.get(), offset))
	if l.epochs.clear() {
		if err := l.writeEpochs(); err != nil {
			return l.fail("truncate", err)
		}
	}
	if err := l.producers.Reset(offset); err != nil {
		return l.fail("truncate", err)
	}
	if err := l.rebuildProducers(l.producers, l.segments.Load().segs, start, offset, false); err != nil {
		return l.fail("truncate", err)
	}
	l.publishUnstableLocked()
	return l.truncatedLocked(created)
}
