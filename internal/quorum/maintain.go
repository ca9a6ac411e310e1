package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// maintenance is what decides when to write a NoOp record or a snapshot.
// Guarded by Quorum.mu.
type maintenance struct {
	lastWrite    time.Time
	bytes        int64 // of records since the last snapshot
	snapshot     snapshotID
	lastSnapshot time.Time
}

func (m *maintenance) start(now time.Time, l *loaded) {
	m.lastWrite, m.lastSnapshot, m.snapshot, m.bytes = now, now, l.snapshot, l.bytes
}

// Maintain does what time has made due: a NoOp record when nothing was written
// for the idle interval, a snapshot by bytes or age, and the removal of old
// snapshots and segments. It returns when it wants to be called again; zero
// when only writes can make something due, after which it should be called too.
func (q *Quorum) Maintain() (next time.Time, err error) {
	now := q.o.Now()
	if idle := q.o.IdleInterval; idle > 0 {
		next = q.idleSince().Add(idle)
		if !next.After(now) {
			if _, err := q.Append([]metadata.Record{&metadata.NoOpRecord{}}); err != nil {
				return time.Time{}, err
			}
			next = now.Add(idle)
		}
	}
	due, at := q.snapshotDue(now)
	if due {
		if err := q.WriteSnapshot(); err != nil {
			return next, err
		}
		_, at = q.snapshotDue(now)
	}
	if !at.IsZero() && (next.IsZero() || at.Before(next)) {
		next = at
	}
	return next, nil
}

// snapshotDue says whether a snapshot is due, else when age makes it so (zero: never).
func (q *Quorum) snapshotDue(now time.Time) (due bool, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := &q.maintenance
	if m.bytes > q.o.SnapshotBytes {
		return true, time.Time{}
	}
	if q.o.SnapshotInterval <= 0 || m.bytes == 0 {
		return false, time.Time{}
	}
	at = m.lastSnapshot.Add(q.o.SnapshotInterval)
	return !at.After(now), at
}

// WriteSnapshot writes the committed state to a snapshot file, unless there is
// one already, and removes what retention no longer wants. Appends go on
// meanwhile. One goroutine at a time, and no subscriber: it waits for the batch
// that is being published, since a snapshot that ends inside one cannot be
// continued from.
func (q *Quorum) WriteSnapshot() error {
	q.mu.Lock()
	for q.writing { // until the image is that of a whole batch
		q.changed.Wait()
	}
	if q.owes() {
		q.mu.Unlock()
		return nil // the log does not reach to where the snapshot would
	}
	image := q.Image()
	id := snapshotID{image.End, image.Epoch}
	last := q.maintenance.snapshot
	counted := q.maintenance.bytes
	q.mu.Unlock()
	if id.end <= last.end {
		return nil
	}
	content := snapshotContent{
		epoch:         id.epoch,
		kraft:         q.kraft,
		lastContained: image.Timestamp,
		now:           kafka.TimestampOf(q.o.Now()),
		records:       image.SnapshotRecords(),
		level:         image.Feature(metadata.MetadataVersion),
	}
	file, err := content.encode()
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", id.name(), err)
	}
	if err := writeSnapshotFile(q.o.FS, q.dir, id, file); err != nil {
		return fmt.Errorf("snapshot %s: %w", id.name(), err)
	}
	q.mu.Lock()
	q.maintenance.snapshot, q.maintenance.lastSnapshot = id, q.o.Now()
	q.maintenance.bytes = max(0, q.maintenance.bytes-counted)
	q.mu.Unlock()
	q.o.Logger.Info("metadata snapshot written", "offset", id.end, "epoch", id.epoch, "bytes", len(file))
	return q.clean()
}

// clean removes snapshots beyond retention, oldest first and never the newest,
// then the segments below the oldest that is left (KafkaMetadataLog.maybeClean).
func (q *Quorum) clean() error {
	files, err := listFiles(q.o.FS, q.dir)
	if err != nil {
		return err
	}
	total := q.log.Size()
	sizes := make([]int64, len(files.snapshots))
	ages := make([]time.Duration, len(files.snapshots))
	for i, id := range files.snapshots {
		info, err := q.o.FS.Stat(q.path(id.name()))
		if err != nil {
			return err
		}
		sizes[i], ages[i] = info.Size(), q.o.Now().Sub(info.ModTime())
		total += info.Size()
	}
	gone := 0
	for gone < len(files.snapshots)-1 {
		bySize := q.o.RetentionBytes >= 0 && total > q.o.RetentionBytes
		byAge := q.o.RetentionTime >= 0 && ages[gone] > q.o.RetentionTime
		if !bySize && !byAge {
			break
		}
		total -= sizes[gone]
		gone++
	}
	if gone == 0 {
		return nil
	}
	if _, err := q.log.MaybeIncrementStartOffset(files.snapshots[gone].end); err != nil {
		return err
	}
	if _, err := q.log.DeleteOldSegments(); err != nil {
		return err
	}
	for _, id := range files.snapshots[:gone] {
		if err := q.o.FS.Remove(q.path(id.name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return q.o.FS.SyncDir(q.dir)
}

// removeLeftovers deletes what a crash left of snapshots being written or removed.
func (q *Quorum) removeLeftovers() error {
	entries, err := q.o.FS.ReadDir(q.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), snapshotSuffix+partSuffix) || strings.HasSuffix(e.Name(), snapshotSuffix+".deleted") {
			if err := q.o.FS.Remove(filepath.Join(q.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
