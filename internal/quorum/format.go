package quorum

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs"
)

// FormatOptions say what a new node's data directories are given.
type FormatOptions struct {
	FS          vfs.FS
	Dirs        []string // log.dirs; each gets a meta.properties
	MetadataDir string   // metadata.log.dir; empty: the first of Dirs
	NodeID      kafka.BrokerID
	ClusterID   string
	// Features are the levels to begin with; nil: DefaultFeatureLevels.
	Features []metadata.FeatureLevelRecord
	Now      time.Time
	// NewID makes directory ids; nil: metadata.RandomUUID.
	NewID func() kafka.UUID
}

// Format makes new data directories as kafka-storage format of 4.4.0 leaves
// them: the bootstrap snapshot of the metadata log, then a meta.properties in
// each directory. The caller has seen that nothing is in them. A crash on the
// way leaves directories without meta.properties, which are formatted anew.
func Format(o FormatOptions) error {
	if o.MetadataDir == "" {
		o.MetadataDir = o.Dirs[0]
	}
	if o.Features == nil {
		o.Features = metadata.DefaultFeatureLevels()
	}
	if o.NewID == nil {
		o.NewID = metadata.RandomUUID
	}
	dirs := o.Dirs
	if !slices.Contains(dirs, o.MetadataDir) {
		dirs = append(slices.Clone(dirs), o.MetadataDir)
	}
	for _, dir := range dirs {
		if err := makeDir(o.FS, dir); err != nil {
			return err
		}
	}
	if err := o.writeBootstrap(); err != nil {
		return err
	}
	for _, dir := range dirs {
		meta := checkpoint.MetaProperties{Version: 1, NodeID: o.NodeID, ClusterID: o.ClusterID, DirectoryID: o.NewID()}
		if err := checkpoint.WriteMeta(o.FS, filepath.Join(dir, checkpoint.MetaFile), meta, o.Now); err != nil {
			return err
		}
	}
	return nil
}

// writeBootstrap writes the snapshot 0-0 with the feature levels.
func (o *FormatOptions) writeBootstrap() error {
	logDir := filepath.Join(o.MetadataDir, DirName)
	if err := makeDir(o.FS, logDir); err != nil {
		return err
	}
	now := kafka.TimestampOf(o.Now)
	content := snapshotContent{lastContained: now, now: now, level: o.Features[0].Level}
	content.records = func(yield func(metadata.Record) bool) {
		for i := range o.Features {
			if !yield(&o.Features[i]) {
				return
			}
		}
	}
	file, err := content.encode()
	if err != nil {
		return err
	}
	if err := writeSnapshotFile(o.FS, logDir, snapshotID{}, file); err != nil {
		return fmt.Errorf("format %s: %w", o.MetadataDir, err)
	}
	return nil
}

// makeDir makes a directory and those above it that are missing, and makes
// their names durable.
func makeDir(fsys vfs.FS, dir string) error {
	parent := filepath.Dir(dir)
	if _, err := fsys.Stat(parent); errors.Is(err, fs.ErrNotExist) && parent != dir {
		if err := makeDir(fsys, parent); err != nil {
			return err
		}
	}
	if err := fsys.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fsys.SyncDir(parent)
}
