package commitlog

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// Roll starts a new segment at the end offset. An empty active segment is made anew.
func (l *Log) Roll() error {
	l.mu.Lock()
	defer l.unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	_, err := l.rollLocked(l.end.get())
	return err
}

// rollLocked starts a segment at base, or at the end offset when that is above
// (LocalLog.roll, UnifiedLog.roll). The new segment is made before the old one
// is sealed: when there is no room for it the old one stays the active one.
// What the roll leaves in the page cache is made durable soon afterwards, and
// only then the recovery point moves (order O6).
func (l *Log) rollLocked(base kafka.Offset) (*segment.Segment, error) {
	base = max(base, l.end.get())
	list := l.segments.Load()
	old := list.active()
	if old.BaseOffset() >= base {
		if old.BaseOffset() == base && old.Size() == 0 {
			return l.recreateLocked(old)
		}
		return nil, l.fail("roll", fmt.Errorf("segment %d exists, its base is not below the active one's, %d", base, old.BaseOffset()))
	}
	created, err := l.succeedLocked(old, base)
	if err != nil {
		return nil, err
	}
	l.segments.Store(list.with(created))
	l.end.store(l.end.get(), base, 0)
	l.producers.SetMapEnd(base)
	wrote, err := l.producers.TakeSnapshot(false)
	if err != nil {
		if err = l.writeErrorLocked("producer snapshot", err); !errors.Is(err, ErrFull) {
			return nil, err
		}
		l.say(slog.LevelWarn, "no producer snapshot: the disk is full", "offset", base)
	}
	dir := l.Dir()
	l.backgroundLocked(func() {
		if wrote {
			if err := producer.SyncSnapshot(l.fs, dir, base); err != nil && !l.closed.Load() {
				_ = l.flushError("producer snapshot", err)
				return
			}
		}
		_ = l.flush(base, base, true) // what fails takes the log offline
	})
	return created, nil
}

// succeedLocked makes the segment at base and seals the one before it.
//
// When the recovery point is at base already (nothing was appended since the
// last flush, recovery or clean stop) the old segment is no longer recovered
// once the new one's name is on the disk. So its indexes, which the seal cuts
// to their entries, must be durable before.
func (l *Log) succeedLocked(old *segment.Segment, base kafka.Offset) (*segment.Segment, error) {
	durable := base <= l.recoveryPoint.get()
	if durable {
		if err := old.Seal(); err != nil {
			return nil, l.writeErrorLocked("seal", err)
		}
		if err := old.Flush(); err != nil {
			return nil, l.fail("seal", err)
		}
	}
	created, err := l.createSegment(base)
	if err != nil {
		if durable && mayGoOn(err) {
			err = errors.Join(err, old.Activate())
		}
		return nil, l.writeErrorLocked("roll", err)
	}
	if durable {
		return created, nil
	}
	if err := old.Seal(); err != nil {
		if mayGoOn(err) {
			err = errors.Join(err, created.Delete(), old.Activate())
		} else {
			err = errors.Join(err, created.Abandon())
		}
		return nil, l.writeErrorLocked("seal", err)
	}
	return created, nil
}

// mayGoOn reports whether an error leaves the disk to be trusted, so that what
// it interrupted can be taken back. After any other nothing more is written.
func mayGoOn(err error) bool {
	return !vfs.IsSync(err) && (vfs.IsFull(err) || outOfResources(err))
}

// recreateLocked begins an empty active segment anew: Kafka replaces its files
// so that its time counts from now, when a roll by time meets a segment without
// a batch. Here they stay: on a full disk there would be none afterwards.
func (l *Log) recreateLocked(old *segment.Segment) (*segment.Segment, error) {
	if _, err := old.TruncateTo(old.BaseOffset(), l.now()); err != nil {
		return nil, l.writeErrorLocked("roll", err)
	}
	return old, nil
}

// createSegment makes an empty segment, over whatever files have its name.
func (l *Log) createSegment(base kafka.Offset) (*segment.Segment, error) {
	dir := l.Dir()
	if err := segment.RemoveFiles(l.fs, dir, base, ""); err != nil {
		return nil, err
	}
	o := l.segmentOptions()
	o.Create = true
	if c := l.config.Load(); c.Preallocate {
		o.Preallocate = int64(c.SegmentBytes)
	}
	return segment.Open(l.fs, dir, base, o)
}

func (l *Log) segmentOptions() segment.Options {
	c := l.config.Load()
	o := segment.Options{
		IndexInterval: int64(c.IndexInterval), MaxIndexBytes: int(c.SegmentIndexBytes),
		Now: l.now(), SegmentBytes: int64(c.SegmentBytes), Files: l.opts.Files,
		OnError: func(err error) { l.say(slog.LevelWarn, "deleted segment", "err", err) },
	}
	l.watch(&o)
	if limit := min(c.SegmentJitterMs, c.SegmentMs); limit > 0 && l.opts.Jitter != nil {
		o.RollJitterMs = l.opts.Jitter(limit)
	}
	return o
}
