package commitlog

import (
	"errors"
	"io/fs"
	"log/slog"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
)

// aged is what retention looks at in a segment.
type aged struct {
	size    int64
	largest kafka.Timestamp // newest record, or the file's modification time
	upper   kafka.Offset    // base of the next segment, or the log end
	last    bool
}

// deletable counts how many of the oldest segments a rule lets go: the walk
// stops at the first that it keeps, at one that holds records above the high
// watermark, and at an empty active segment.
func deletable(segs []aged, hw kafka.Offset, rule func(aged) bool) int {
	for i, s := range segs {
		if hw < s.upper || (s.last && s.size == 0) || !rule(s) {
			return i
		}
	}
	return len(segs)
}

// belowStart lets segments go whose records all lie below the log start.
func belowStart(start kafka.Offset) func(aged) bool {
	return func(s aged) bool { return !s.last && s.upper <= start }
}

// aboveSize lets segments go as long as the log stays at or above limit.
func aboveSize(total, limit int64) func(aged) bool {
	excess := total - limit
	return func(s aged) bool {
		if excess < s.size {
			return false
		}
		excess -= s.size
		return true
	}
}

// olderThan lets segments go whose newest record is older than limit milliseconds.
func olderThan(now kafka.Timestamp, limit int64) func(aged) bool {
	return func(s aged) bool { return now.Since(s.largest) > limit }
}

// DeleteOldSegments applies retention, by log start, size and time in this
// order, and returns how many segments went. A topic that is not deleted from
// by policy only loses what lies below its log start.
func (l *Log) DeleteOldSegments() (int, error) {
	c := l.Config()
	n, err := l.deleteOld(func(segs []aged) int {
		return deletable(segs, l.highWatermark.get(), belowStart(l.start.get()))
	}, false)
	if err != nil || !c.CleanupDelete {
		return n, err
	}
	if c.RetentionBytes >= 0 {
		m, err := l.deleteOld(func(segs []aged) int {
			var total int64
			for _, s := range segs {
				total += s.size
			}
			if total < c.RetentionBytes {
				return 0
			}
			return deletable(segs, l.highWatermark.get(), aboveSize(total, c.RetentionBytes))
		}, false)
		if n += m; err != nil {
			return n, err
		}
	}
	if c.RetentionMs >= 0 {
		if err := l.confirmAges(c.RetentionMs); err != nil {
			return n, err
		}
		m, err := l.deleteOld(func(segs []aged) int {
			return deletable(segs, l.highWatermark.get(), olderThan(l.expiry(), c.RetentionMs))
		}, true)
		n += m
		return n, err
	}
	return n, nil
}

// confirmAges holds the ages of the segments that look expired against the log,
// without the lock: no time index is believed when it comes to deletion, and one
// that is wrong is made anew first. So is one that keeps its segment for the
// records' being from the future.
func (l *Log) confirmAges(limit int64) error {
	now := l.expiry()
	list := l.segments.Load()
	for _, s := range list.segs[:len(list.segs)-1] {
		largest, err := s.LargestTimestamp()
		if err == nil && (now.Since(largest) > limit || largest.Since(now) > ahead) {
			if err = s.VetTimes(); err == nil {
				_, err = s.ConfirmMaxTimestamp()
			}
		}
		switch {
		case errors.Is(err, segment.ErrClosed), errors.Is(err, index.ErrClosed):
			continue // another round was faster
		case errors.Is(err, record.ErrCorrupt):
			return nil // what cannot be read is not deleted by age
		case err != nil:
			return l.readError(err)
		}
		if largest, err = s.LargestTimestamp(); err != nil || now.Since(largest) <= limit {
			if err == nil && largest.Since(now) > ahead {
				l.warnOfFuture(s, largest, now)
			}
			return l.readError(err) // young enough: it stays, and so do those behind it
		}
	}
	return nil
}

// ahead is how far in the future, in milliseconds, a record may be before that is
// worth a word: clocks differ, and Kafka accepts an hour by default.
const ahead = 3_600_000

// warnOfFuture tells, once for each segment, that it stays until its records'
// time has come, and with it all that lies behind (KAFKA-6482, KAFKA-18929).
func (l *Log) warnOfFuture(s *segment.Segment, largest, now kafka.Timestamp) {
	base := int64(s.BaseOffset()) + 1 // 0: none yet
	if l.future.Swap(base) == base {
		return
	}
	l.say(slog.LevelWarn, "records from the future keep a segment", "event", "future-timestamp", "file", s.Path(), "timestamp", int64(largest), "aheadMs", largest.Since(now),
		"hint", "it and the segments behind it are not deleted by age before then; delete-records removes them, message.timestamp.after.max.ms refuses such records")
}

// deleteOld removes the segments that choose counts, in three steps: the log
// start is raised, then made durable without the lock, then the files go
// (order O9). A crash in between leaves segments below the log start, which the
// next round removes.
func (l *Log) deleteOld(choose func([]aged) int, ages bool) (int, error) {
	l.mu.Lock()
	gone, raised, err := l.chooseLocked(choose, ages)
	l.unlock()
	if err != nil || len(gone) == 0 {
		return 0, err
	}
	if raised {
		if err := l.persistStart(); err != nil {
			return 0, err
		}
	}
	l.mu.Lock()
	defer l.unlock()
	if err := l.writableLocked(); err != nil {
		return 0, err
	}
	return l.removeLocked(gone)
}

// chooseLocked finds the segments to remove and raises the log start above
// them. When that is all of them a new active segment is made first.
func (l *Log) chooseLocked(choose func([]aged) int, ages bool) (gone []*segment.Segment, raised bool, err error) {
	if err := l.writableLocked(); err != nil {
		return nil, false, err
	}
	list := l.segments.Load()
	segs, err := l.aged(list, ages)
	if err != nil {
		return nil, false, err
	}
	n := choose(segs)
	if n == 0 {
		return nil, false, nil
	}
	gone = list.segs[:n]
	if n == len(list.segs) {
		if _, err := l.rollLocked(l.end.get()); err != nil {
			return nil, false, err
		}
		list = l.segments.Load()
	}
	raised, err = l.raiseStartLocked(list.bases[n])
	return gone, raised, err
}

func (l *Log) aged(list *segmentList, ages bool) ([]aged, error) {
	segs := make([]aged, len(list.segs))
	for i, s := range list.segs {
		a := aged{size: s.Size(), last: i+1 == len(list.segs), upper: l.end.get()}
		if !a.last {
			a.upper = list.bases[i+1]
		}
		if ages {
			largest, err := s.LargestTimestamp()
			if err != nil {
				return nil, l.readError(err)
			}
			a.largest = largest
		}
		segs[i] = a
	}
	return segs, nil
}

// removeLocked takes segments, the oldest ones, out of the log. Their files, and
// the producer snapshots at their bases, get the suffix `.deleted` first: those
// that cannot be renamed, because the disk has no room for a longer name, stay.
// They are unlinked after file.delete.delay.ms, when the last reader is gone.
func (l *Log) removeLocked(gone []*segment.Segment) (removed int, err error) {
	for removed < len(gone) {
		if err = l.discardLocked(l.producers, gone[removed]); err != nil {
			break
		}
		removed++
	}
	l.segments.Store(l.segments.Load().without(gone[:removed]))
	l.retireAll(gone[:removed])
	l.after = append(l.after, func() { l.unlinkLater(gone[:removed]) })
	return removed, l.writeErrorLocked("delete segment", err)
}

// discardLocked renames the files of a segment, to be unlinked by unlinkLater.
// After an error they have their names still.
func (l *Log) discardLocked(st *producer.State, s *segment.Segment) error {
	if err := s.ChangeSuffix(segment.DeletedSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		if !mayGoOn(err) {
			return err
		}
		return errors.Join(err, s.ChangeSuffix(""))
	}
	name := producer.SnapshotName(s.BaseOffset())
	if st.DetachSnapshot(s.BaseOffset()) {
		err := l.fs.Rename(l.path(name), l.path(name+segment.DeletedSuffix))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			if !mayGoOn(err) {
				return err
			}
			return errors.Join(err, s.ChangeSuffix(""))
		}
	}
	return nil
}

// unlinkLater makes the renames durable and unlinks after the delay.
func (l *Log) unlinkLater(gone []*segment.Segment) {
	if len(gone) == 0 || l.Failure() != nil { // offline: the next start finds them by their names
		return
	}
	if err := l.fs.SyncDir(l.Dir()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = l.fail("delete segment", err) // kept as the log's failure
		return
	}
	unlink := func() {
		for _, s := range gone {
			if err := s.Delete(); err != nil {
				l.say(slog.LevelWarn, "deleted segment", "base", s.BaseOffset(), "err", err)
			}
			name := producer.SnapshotName(s.BaseOffset()) + segment.DeletedSuffix
			if err := l.fs.Remove(l.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				l.say(slog.LevelWarn, "deleted producer snapshot", "file", l.path(name), "err", err)
			}
		}
	}
	if l.opts.AfterDelay == nil {
		unlink()
		return
	}
	l.opts.AfterDelay(l.Config().FileDeleteDelay, unlink)
}
