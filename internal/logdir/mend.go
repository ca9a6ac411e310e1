package logdir

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// mendMetas makes the meta.properties that cannot be read anew out of those of
// the other directories: all belong to one cluster and node. Without another one
// nothing says whose the directory is, and it is refused; so it is when what can
// be read of the file says that it is somebody else's.
func (m *Manager) mendMetas(metas map[*dir]checkpoint.MetaProperties, damaged map[*dir]error) error {
	var from *checkpoint.MetaProperties
	for _, d := range m.dirs {
		if meta, ok := metas[d]; ok && from == nil {
			from = &meta
		}
	}
	for _, d := range m.dirs {
		damage := damaged[d]
		if damage == nil {
			continue
		}
		if from == nil {
			return &RefusedError{d.path, damage.Error(), "restore the file from a copy: nothing else says whose data this is"}
		}
		path := filepath.Join(d.path, checkpoint.MetaFile)
		left := checkpoint.SalvageMeta(m.o.FS, path)
		if left.ClusterID != "" && left.ClusterID != from.ClusterID || left.NodeID != kafka.NoBroker && left.NodeID != from.NodeID {
			return &RefusedError{d.path, fmt.Sprintf("%v; what can be read says cluster %q, node %d, the other directories say cluster %q, node %d",
				damage, left.ClusterID, left.NodeID, from.ClusterID, from.NodeID), "restore the file from a copy, or name another directory"}
		}
		if err := m.mendMeta(d, path, *from, left.DirectoryID, damage); err != nil {
			return err
		}
		meta, err := checkpoint.ReadMeta(m.o.FS, path)
		if err != nil {
			return err
		}
		metas[d] = meta
	}
	return nil
}

func (m *Manager) mendMeta(d *dir, path string, from checkpoint.MetaProperties, id kafka.UUID, damage error) error {
	moved := checkpoint.MetaFile + commitlog.CutSuffix
	var err error
	if errors.Is(damage, vfs.ErrNotRegular) {
		moved, err = m.moveAway(d, checkpoint.MetaFile)
	} else {
		err = m.o.FS.Rename(path, filepath.Join(d.path, moved))
	}
	if id.IsZero() {
		id = m.o.NewID()
	}
	from.DirectoryID = id
	if err == nil {
		err = checkpoint.WriteMeta(m.o.FS, path, from, m.o.Now())
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.path, err)
	}
	m.o.Logger.Warn("meta.properties rebuilt", "event", "checkpoint-rebuilt", "file", path, "reason", damage, "movedTo", moved, "directoryId", id)
	return nil
}
