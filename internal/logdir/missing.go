package logdir

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// MissingError says that a partition which has held records is in none of the
// data directories. It is not made anew: that would serve it empty, from offset 0,
// and nothing would tell (Apache Kafka does so).
type MissingError struct {
	Partition kafka.TopicPartition
	// Dir is the data directory whose checkpoints know the partition; empty when
	// the metadata names a directory that is not there, DirectoryID.
	Dir         string
	DirectoryID kafka.UUID
	Offset      kafka.Offset // the highest that the checkpoints know; 0 without Dir
}

// Error says what is missing and from where.
func (e *MissingError) Error() string {
	if e.Dir == "" {
		return fmt.Sprintf("%s is missing: it lies in the data directory with the directory.id %s, which is none of log.dirs", e.Partition, e.DirectoryID)
	}
	return fmt.Sprintf("%s is missing: the checkpoints of %s know it up to offset %d", filepath.Join(e.Dir, e.Partition.String()), e.Dir, e.Offset)
}

func (e *MissingError) hint() string {
	if e.Dir == "" {
		return "mount or restore that directory and restart; or delete the topic; or, to have this partition begin empty, make a directory of its name in one of log.dirs and restart"
	}
	return "put the directory back and restart; or delete the topic; or, to have the partition begin empty, make an empty directory of that name and restart"
}

// missing refuses the partitions of the metadata that are in no data directory
// although records of them were there: an entry above 0 in a checkpoint says so,
// or the metadata, which names a directory that is not here. A new partition has
// neither until its directory is durable, and a deleted one has its entries taken
// out before its name can be made again (see Delete and disown).
func (l *loading) missing() {
	m := l.m
	if l.o.Image == nil {
		return
	}
	for name, topic := range l.o.Image.Topics.All() {
		for n, p := range topic.Partitions.All() {
			tp := kafka.TopicPartition{Topic: name, Partition: n}
			if l.present[tp] || !slices.Contains(p.Replicas, m.o.NodeID) {
				continue
			}
			if err := m.missing(tp, p); err != nil && !l.wasDeleted(tp, topic.ID) {
				l.refuseMissing(err)
			}
		}
	}
}

// missing says why a partition without a directory is not a new one; nil: it is,
// or its directory is offline, of which elsewhere speaks.
func (m *Manager) missing(tp kafka.TopicPartition, p *metadata.Partition) *MissingError {
	at := p.Directory(m.o.NodeID)
	known, hidden := reservedDirectory(at), false
	for _, d := range m.dirs {
		if offline := d.err() != nil; offline && d.id == at && !at.IsZero() {
			return nil
		}
		known = known || d.id == at
		hidden = hidden || d.id.IsZero()
	}
	if !known {
		if hidden {
			return nil
		}
		return &MissingError{Partition: tp, DirectoryID: at}
	}
	var found *MissingError
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		for _, k := range knowRecords() {
			if offset := d.checkpoints[k].unopened[tp]; offset > 0 && (found == nil || offset > found.Offset) {
				found = &MissingError{Partition: tp, Dir: d.path, DirectoryID: d.id, Offset: offset}
			}
		}
	}
	return found
}

// knowRecords are the checkpoints in which an entry above 0 means that a partition
// had records.
func knowRecords() []checkpointKind {
	return []checkpointKind{recoveryPoints, logStarts, highWatermarks}
}

// refuseMissing notes a partition that is not made anew. Its entries stay in the
// checkpoints, or the next start would not know any more.
func (l *loading) refuseMissing(err *MissingError) {
	m := l.m
	f := failure{err: err}
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		if d.path == err.Dir {
			f.dir = d
			d.complete = false // what is put back may not have been closed by this run
		}
		for k := range checkpointKinds {
			d.checkpoints[k].carry(err.Partition)
		}
	}
	m.mu.Lock()
	m.failed[err.Partition] = f
	m.mu.Unlock()
	attrs := []any{"event", "partition-missing", "topic", err.Partition.Topic, "partition", err.Partition.Partition}
	if err.Dir != "" {
		attrs = append(attrs, "dir", err.Dir, "offset", err.Offset)
	}
	m.o.Logger.Error("partition is missing and not made anew", append(attrs, "directoryId", err.DirectoryID, "err", err, "hint", err.hint())...)
}

// carry keeps the entry that Load has found for a partition that is not opened.
func (f *checkpointFile) carry(tp kafka.TopicPartition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	offset, ok := f.unopened[tp]
	if !ok {
		return
	}
	if f.carried == nil {
		f.carried = offsets{}
	}
	f.carried[tp] = offset
}

// deletion is a directory that waits to be removed.
type deletion struct {
	dir  *dir
	path string
	keep bool
}

// deletedKey is what the names have in common under which a partition's directory
// waits to be removed; the topic in it may be cut.
func deletedKey(name string) string { return name[:strings.LastIndexByte(name, '.')] }

// wasDeleted reports whether an earlier topic of the name was being deleted: then
// what the checkpoints know is of that one. A directory of this very topic under
// such a name is kept, since it may be all that is left of it.
func (l *loading) wasDeleted(tp kafka.TopicPartition, id kafka.TopicID) (was bool) {
	list := l.deleted[deletedKey(uniqueName(tp, kafka.UUID{}, deleteSuffix))]
	for i := range list {
		found, err := checkpoint.ReadPartitionMetadata(l.m.o.FS, filepath.Join(list[i].path, checkpoint.PartitionFile))
		if err == nil && found == id {
			list[i].keep = true
			l.m.o.Logger.Warn("entry left alone", "event", "left-alone", "path", list[i].path, "kind", "a deleted directory of a topic that is there")
			continue
		}
		was = true
	}
	return was
}

// removeDeleted has the directories removed that wait for it, once the checkpoints
// do not know them any more.
func (l *loading) removeDeleted() {
	for _, key := range slices.Sorted(maps.Keys(l.deleted)) {
		for _, e := range l.deleted[key] {
			if !e.keep {
				l.m.removeLater(e.dir, e.path)
			}
		}
	}
}

// disown takes the entries of a directory out of the checkpoints before it gets
// another name: a crash in between must not leave them to the partition that is
// made in its place, which would be refused as missing. With a full disk they
// stay for now, which is the safe side.
func (m *Manager) disown(d *dir, tp kafka.TopicPartition) error {
	for _, k := range knowRecords() {
		file := &d.checkpoints[k]
		file.mu.Lock()
		_, has := file.written[tp]
		has = has || file.written == nil && m.loaded.Load()
		if _, ok := file.unopened[tp]; ok {
			rest := offsets{}
			for other, offset := range file.unopened {
				if other != tp {
					rest[other] = offset
				}
			}
			file.unopened = rest // not in place: it is also what was written
		}
		delete(file.carried, tp)
		file.mu.Unlock()
		if !has {
			continue
		}
		if err := m.writeCheckpoint(d, k, nil); err != nil && !Transient(err) {
			return err
		}
	}
	return nil
}

// absent is how many partitions lie in a data directory that is not here.
func (m *Manager) absent() (n int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, f := range m.failed {
		var missing *MissingError
		if errors.As(f.err, &missing) && missing.Dir == "" {
			n++
		}
	}
	return n
}
