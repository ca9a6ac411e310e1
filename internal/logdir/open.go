package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// Open locks the directories and finds out whose they are. It refuses what does
// not fit together before anything is changed: *InUseError, *RefusedError,
// *SameDirectoryError. A directory that cannot be read is offline from the
// start, as long as another one can.
//
// The clean-shutdown markers are read here and removed by Load.
func Open(o Options) (*Manager, error) {
	o.withDefaults()
	m := &Manager{
		o:      o,
		logs:   map[kafka.TopicPartition]*partition{},
		failed: map[kafka.TopicPartition]failure{},
		begun:  map[kafka.TopicPartition]*dir{},
		files:  segment.NewFiles(maxOpenSegments),
	}
	for _, path := range o.Dirs {
		m.dirs = append(m.dirs, &dir{path: path, brokerEpoch: checkpoint.NoBrokerEpoch})
	}
	m.jobs.init()
	m.newCleaner()
	if err := m.open(); err != nil {
		m.unlock()
		return nil, err
	}
	return m, nil
}

func (o *Options) withDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.NewID == nil {
		o.NewID = metadata.RandomUUID
	}
	if o.Jitter == nil {
		o.Jitter = rand.Int64N
	}
	if o.Scratch == nil {
		o.Scratch = commitlog.NewScratch(0)
	}
}

func (m *Manager) open() error {
	if len(m.dirs) == 0 {
		return errors.New("log.dirs is empty")
	}
	var unusable []*UnusableError
	failed := map[*dir]*UnusableError{}
	for _, d := range m.dirs {
		err := m.lock(d)
		var u *UnusableError
		switch {
		case err == nil:
		case errors.As(err, &u) && isDiskError(err):
			failed[d] = u
			unusable = append(unusable, u)
		default:
			return err
		}
	}
	if len(unusable) == len(m.dirs) { // no disk that fails, but a path that is wrong
		return unusable[0]
	}
	for _, d := range m.dirs {
		if u := failed[d]; u != nil {
			m.goOffline(d, "lock", u.Err)
		}
	}
	if err := m.distinct(); err != nil {
		return err
	}
	return m.identify()
}

// lock makes the directory when it is missing and takes its lock.
func (m *Manager) lock(d *dir) error {
	err := m.o.FS.MkdirAll(d.path, 0o755)
	if err == nil {
		d.lock, err = m.o.FS.Lock(filepath.Join(d.path, checkpoint.LockFile))
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vfs.ErrLocked):
		return &InUseError{Dir: d.path, Err: err}
	}
	// Also a file system that cannot lock: never run unlocked.
	return &UnusableError{Dir: d.path, Err: err}
}

// distinct refuses one directory under two names. The locks cannot tell: they
// are this process's own.
func (m *Manager) distinct() error {
	infos := make([]fs.FileInfo, len(m.dirs))
	for i, d := range m.dirs {
		info, err := m.o.FS.Stat(d.path)
		if err != nil {
			continue // offline already, or found out by identify
		}
		infos[i] = info
		d.device, _ = vfs.Device(info)
		for j := range i {
			if infos[j] != nil && (os.SameFile(infos[j], info) || filepath.Clean(m.dirs[j].path) == filepath.Clean(d.path)) {
				return &SameDirectoryError{m.dirs[j].path, d.path}
			}
		}
	}
	return nil
}

// identify reads the meta.properties, has new directories formatted and fills
// in what is missing.
func (m *Manager) identify() error {
	metas, err := m.readMetas()
	if err != nil {
		return err
	}
	if len(metas) == 0 {
		if err := m.format(); err != nil {
			return err
		}
		if metas, err = m.readMetas(); err != nil {
			return err
		}
	}
	if err := m.agree(metas); err != nil {
		return err
	}
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		if err := m.complete(d, metas); err != nil {
			return err
		}
		if err := m.readMarker(d); err != nil {
			m.goOffline(d, "read", err)
		}
	}
	return nil
}

func (m *Manager) readMetas() (map[*dir]checkpoint.MetaProperties, error) {
	metas := map[*dir]checkpoint.MetaProperties{}
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		meta, err := checkpoint.ReadMeta(m.o.FS, filepath.Join(d.path, checkpoint.MetaFile))
		switch {
		case err == nil:
			metas[d] = meta
		case errors.Is(err, fs.ErrNotExist):
		case errors.Is(err, checkpoint.ErrCorrupt):
			return nil, &RefusedError{d.path, err.Error(), "restore the file, or copy it from another data directory of this node without its directory.id"}
		default:
			m.goOffline(d, "read", err)
		}
	}
	return metas, nil
}

// format has directories made that hold nothing yet.
func (m *Manager) format() error {
	for _, d := range m.dirs {
		if d.err() != nil {
			return fmt.Errorf("format data directories: %w", d.err())
		}
		list, err := m.o.FS.ReadDir(d.path)
		if err != nil {
			return fmt.Errorf("format %s: %w", d.path, err)
		}
		for _, e := range list {
			if _, err := kafka.ParseTopicPartition(e.Name()); e.IsDir() && err == nil && !emptyMetadata(m.o.FS, d.path, e.Name()) {
				return &RefusedError{d.path, "holds " + e.Name() + " and no meta.properties", "restore meta.properties: nothing else says whose data this is"}
			}
		}
	}
	if m.o.Format == nil {
		return &RefusedError{m.dirs[0].path, "is not formatted", "run the format command, or allow formatting at the first start"}
	}
	return m.o.Format()
}

// emptyMetadata tells the metadata directory of a format that was cut short,
// which holds a bootstrap snapshot at most, from one with a log.
func emptyMetadata(fsys vfs.FS, dir, name string) bool {
	if name != metadataDirName {
		return false
	}
	list, err := fsys.ReadDir(filepath.Join(dir, name))
	if err != nil {
		return false
	}
	for _, e := range list {
		if filepath.Ext(e.Name()) == ".log" {
			return false
		}
	}
	return true
}

// agree checks the identity of all directories against each other and against
// the configuration.
func (m *Manager) agree(metas map[*dir]checkpoint.MetaProperties) error {
	var first *dir
	for _, d := range m.dirs {
		meta, ok := metas[d]
		if !ok {
			continue
		}
		if meta.Version != 1 {
			return &RefusedError{d.path, fmt.Sprintf("meta.properties has version %d", meta.Version), "migrate the cluster to KRaft with Apache Kafka first"}
		}
		if meta.NodeID != m.o.NodeID {
			return &RefusedError{d.path, fmt.Sprintf("belongs to node %d, this is node %d", meta.NodeID, m.o.NodeID), "set node.id, or name another directory"}
		}
		if m.o.ClusterID != "" && meta.ClusterID != m.o.ClusterID {
			return &RefusedError{d.path, fmt.Sprintf("belongs to cluster %s, configured is %s", meta.ClusterID, m.o.ClusterID), "remove the configured cluster id, or name another directory"}
		}
		if first == nil {
			first = d
			m.clusterID = meta.ClusterID
			continue
		}
		if meta.ClusterID != m.clusterID {
			return &RefusedError{d.path, fmt.Sprintf("belongs to cluster %s, %s to %s", meta.ClusterID, first.path, m.clusterID), "name directories of one cluster"}
		}
		for other, otherMeta := range metas {
			if other != d && otherMeta.DirectoryID == meta.DirectoryID && !meta.DirectoryID.IsZero() {
				return &RefusedError{d.path, fmt.Sprintf("has the directory.id %s of %s", meta.DirectoryID, other.path), "one is a copy of the other: name only one of them"}
			}
		}
	}
	if first == nil {
		return &RefusedError{m.dirs[0].path, "is not formatted", ""}
	}
	return nil
}

// complete writes a missing meta.properties or directory.id, as Kafka does.
func (m *Manager) complete(d *dir, metas map[*dir]checkpoint.MetaProperties) error {
	meta, ok := metas[d]
	if ok && !meta.DirectoryID.IsZero() {
		d.id = meta.DirectoryID
		return nil
	}
	if !ok {
		meta = checkpoint.MetaProperties{Version: 1, NodeID: m.o.NodeID, ClusterID: m.clusterID}
	}
	meta.DirectoryID = m.o.NewID()
	if err := checkpoint.WriteMeta(m.o.FS, filepath.Join(d.path, checkpoint.MetaFile), meta, m.o.Now()); err != nil {
		m.goOffline(d, "write", err)
		return nil
	}
	d.id = meta.DirectoryID
	m.o.Logger.Warn("meta.properties completed", "dir", d.path, "directoryId", d.id, "fileWasMissing", !ok)
	return nil
}

func (m *Manager) readMarker(d *dir) (err error) {
	d.brokerEpoch, d.clean, err = checkpoint.ReadCleanShutdown(m.o.FS, d.path)
	return err
}

// unlock gives back all locks and leaves the files.
func (m *Manager) unlock() {
	for _, d := range m.dirs {
		if d.lock != nil {
			_ = d.lock.Close() // the lock goes with the descriptor, whatever close says
			d.lock = nil
		}
	}
}
