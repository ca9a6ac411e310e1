package logdir

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// checkpointKind is one of the offset checkpoints of a data directory.
type checkpointKind int

const (
	recoveryPoints checkpointKind = iota
	logStarts
	highWatermarks
	firstDirties // what the cleaner has not been through
	checkpointKinds
)

func (k checkpointKind) fileName() string {
	return [checkpointKinds]string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile, checkpoint.CleanerFile}[k]
}

// offset is what the file holds for a log; false when it has no entry.
func (k checkpointKind) offset(p *partition) (kafka.Offset, bool) {
	switch k {
	case recoveryPoints:
		return p.log.RecoveryPoint(), true
	case logStarts:
		// An entry only where the files do not say it themselves.
		start := p.log.StartOffset()
		return start, start > p.log.Segments()[0].BaseOffset()
	case firstDirties:
		return p.firstDirty()
	}
	return p.log.HighWatermark(), true
}

// offsets is the content of an offset checkpoint.
type offsets = map[kafka.TopicPartition]kafka.Offset

// checkpointFile is one checkpoint file of one directory.
type checkpointFile struct {
	mu      sync.Mutex // held while it is written
	written offsets    // content of the file; nil when that is not known
	carried offsets    // entries of partitions that are on disk but not open
	// unopened are the entries that Load has found, while it has not opened all of
	// the logs they are for; nil when the file could not be read, and after Load.
	unopened offsets
	blank    bool // the file has 0 bytes: never written
}

// readCheckpoints reads the files. What cannot be read as a checkpoint is
// taken as empty and written anew at the end of Load: a recovery point of 0
// means a full scan, nothing is lost by it. An error is one of the disk.
func (m *Manager) readCheckpoints(d *dir) error {
	for k := range checkpointKinds {
		path := filepath.Join(d.path, k.fileName())
		var read offsets
		err := vfs.Twice(func() (err error) {
			read, err = checkpoint.ReadOffsets(m.o.FS, path)
			return err
		})
		switch {
		case err == nil:
			d.checkpoints[k].written, d.checkpoints[k].unopened = read, read
			d.checkpoints[k].blank = len(read) == 0 && isBlank(m.o.FS, path)
		case errors.Is(err, fs.ErrNotExist):
			if m.holdsPartitions(d) {
				m.o.Logger.Warn("checkpoint rebuilt", "event", "checkpoint-rebuilt", "file", path, "reason", "the file is missing in a directory with partitions")
			}
			if err := m.createEmpty(path); err != nil && !vfs.IsFull(err) {
				return err
			}
			d.checkpoints[k].written, d.checkpoints[k].blank = offsets{}, true
		case errors.Is(err, checkpoint.ErrCorrupt):
			m.o.Logger.Warn("checkpoint rebuilt", "event", "checkpoint-rebuilt", "file", path, "reason", err)
		case errors.Is(err, vfs.ErrNotRegular):
			moved, moveErr := m.moveAway(d, k.fileName())
			if moveErr != nil {
				return moveErr
			}
			m.o.Logger.Warn("checkpoint rebuilt", "event", "checkpoint-rebuilt", "file", path, "reason", err, "movedTo", moved)
		default:
			return err
		}
	}
	return nil
}

// holdsPartitions reports whether a directory had the checkpoints before: a new
// one has no partition, but for the metadata log.
func (m *Manager) holdsPartitions(d *dir) bool {
	entries, err := m.o.FS.ReadDir(d.path)
	return err == nil && slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		what, _ := classify(e.Name())
		return what == livePartition && e.IsDir()
	})
}

// moveAway gives what has the name of a file and is none, such as a directory,
// the name of a stray partition: that is the only kind of unknown directory on
// which Apache Kafka starts. What it holds stays as it is.
func (m *Manager) moveAway(d *dir, name string) (moved string, err error) {
	moved = uniqueName(kafka.TopicPartition{Topic: name}, m.o.NewID(), straySuffix)
	if err := m.o.FS.Rename(filepath.Join(d.path, name), filepath.Join(d.path, moved)); err != nil {
		return "", err
	}
	return moved, m.o.FS.SyncDir(d.path)
}

// createEmpty makes a checkpoint without entries. It need not be durable: a
// missing file means the same.
func (m *Manager) createEmpty(path string) error {
	f, err := m.o.FS.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func isBlank(fsys vfs.FS, path string) bool {
	info, err := fsys.Stat(path)
	return err == nil && info.Size() == 0
}

// checkpointAll writes one kind in every directory.
func (m *Manager) checkpointAll(k checkpointKind) {
	for _, d := range m.dirs {
		_ = m.writeCheckpoint(d, k, nil) // an error has taken the directory offline
	}
}

// writeCheckpoint replaces a checkpoint file when its content changed. override
// holds entries that are to be written although the logs do not have them yet.
// On a full disk the old file stays, and the next round tries again; any other
// error takes the directory offline.
func (m *Manager) writeCheckpoint(d *dir, k checkpointKind, override offsets) error {
	if err := d.err(); err != nil {
		return err
	}
	file := &d.checkpoints[k]
	file.mu.Lock()
	content, err := file.written, m.stillMounted(d)
	if err == nil {
		content, err = m.writeLocked(d, k, override)
	}
	if err == nil {
		file.written = content
	} else {
		file.written = nil
	}
	file.mu.Unlock()
	switch {
	case err == nil:
		return nil
	case Transient(err):
		m.o.Logger.Warn("checkpoint not written", "dir", d.path, "file", k.fileName(), "err", err)
		return err
	}
	m.goOffline(d, "checkpoint", err)
	return d.err()
}

func (m *Manager) writeLocked(d *dir, k checkpointKind, override offsets) (offsets, error) {
	file := &d.checkpoints[k]
	content := offsets{}
	maps.Copy(content, file.unopened)
	maps.Copy(content, file.carried)
	maps.Copy(content, override)
	for _, p := range m.partitions(d) {
		offset, ok := k.offset(p)
		if asked, known := override[p.tp]; known && (k != recoveryPoints || asked < offset) {
			continue // a recovery point that was read before the log was cut is not written after it
		}
		if ok {
			content[p.tp] = offset
		}
	}
	if file.written != nil && maps.Equal(content, file.written) {
		return content, nil
	}
	file.blank = false
	return content, checkpoint.WriteOffsets(m.o.FS, filepath.Join(d.path, k.fileName()), content)
}

// persistLogStart makes a raised log start offset durable before the log
// removes or hides anything below it, so that deleted records do not come back
// (faults O9; Kafka writes it up to a minute later).
func (m *Manager) persistLogStart(p *partition, offset kafka.Offset) error {
	return m.writeCheckpoint(p.dir, logStarts, offsets{p.tp: offset})
}

// persistRecoveryPoint makes a lowered recovery point durable before the log is
// cut (faults O10): what is written there later has not been checked.
func (m *Manager) persistRecoveryPoint(p *partition, offset kafka.Offset) error {
	return m.writeCheckpoint(p.dir, recoveryPoints, offsets{p.tp: offset})
}
