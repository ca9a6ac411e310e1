package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"syscall"
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
		files:  segment.NewFiles(o.OpenSegments),
	}
	for _, path := range o.Dirs {
		m.dirs = append(m.dirs, &dir{path: path, brokerEpoch: checkpoint.NoBrokerEpoch})
	}
	m.stopAtFailedSyncs()
	m.jobs.init()
	m.newCleaner()
	if err := m.open(); err != nil {
		m.leaveNothing()
		m.unlock()
		return nil, err
	}
	return m, nil
}

func (o *Options) withDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OpenSegments <= 0 {
		o.OpenSegments = maxOpenSegments
	}
	if o.Expiry == nil {
		o.Expiry = o.Now
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
	for _, step := range []func(*dir) error{m.makeDir, m.lock} {
		for _, d := range m.dirs {
			if failed[d] != nil {
				continue
			}
			err := step(d)
			var u *UnusableError
			switch {
			case err == nil:
			case errors.As(err, &u) && (isDiskError(err) || errors.Is(err, fs.ErrPermission)):
				failed[d] = u
				unusable = append(unusable, u)
			default:
				return err
			}
		}
		// Before the locks: the second name of a directory would find it locked by
		// this very process.
		if err := m.distinct(); err != nil {
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
	return m.identify()
}

// leavings are what a start made of a directory, to take back when it comes to
// nothing.
type leavings struct {
	dirs []string // made, the innermost first
	lock bool     // the lock file was made
}

// makeDir makes the directory when it is missing.
func (m *Manager) makeDir(d *dir) error {
	var missing []string
	for path := filepath.Clean(d.path); ; path = filepath.Dir(path) {
		if _, err := m.o.FS.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = append(missing, path)
	}
	if info, err := m.o.FS.Stat(d.path); err == nil && info.IsDir() {
		return nil
	}
	if err := m.o.FS.MkdirAll(d.path, 0o755); err != nil {
		return &UnusableError{Dir: d.path, Err: err}
	}
	d.made.dirs = missing
	return nil
}

// lock takes the lock of the directory.
func (m *Manager) lock(d *dir) error {
	path := filepath.Join(d.path, checkpoint.LockFile)
	_, statErr := m.o.FS.Stat(path)
	var err error
	d.lock, err = m.o.FS.Lock(path)
	switch {
	case err == nil:
		d.made.lock = errors.Is(statErr, fs.ErrNotExist)
		return nil
	case errors.Is(err, vfs.ErrLocked):
		return &InUseError{Dir: d.path, Err: err}
	case cannotLock(err):
		return &RefusedError{d.path, "cannot be locked: " + err.Error(), "use a file system that has locks (NFS: mount it with them); a directory is never used without its lock"}
	}
	return &UnusableError{Dir: d.path, Err: err}
}

// cannotLock tells a file system without locks from one that fails (faults E10).
func cannotLock(err error) bool {
	for _, errno := range []syscall.Errno{syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EINVAL} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// leaveNothing takes back what a start made that comes to nothing: the lock file
// while it is locked, and directories that are still empty.
func (m *Manager) leaveNothing() {
	for _, d := range m.dirs {
		if d.lock != nil && d.made.lock {
			_ = m.removeLock(d) // the next start takes one that is there
		}
		for _, path := range d.made.dirs {
			if m.o.FS.Remove(path) != nil {
				break // something is in it
			}
		}
	}
}

// distinct refuses one directory under two names (faults X5).
func (m *Manager) distinct() error {
	for i, d := range m.dirs {
		info, err := m.o.FS.Stat(d.path)
		if err != nil {
			continue // offline soon
		}
		d.info = info
		for _, other := range m.dirs[:i] {
			same := filepath.Clean(other.path) == filepath.Clean(d.path)
			if other.info != nil && !same {
				same, _ = vfs.SameDirectory(other.info, info)
			}
			if same {
				return &SameDirectoryError{other.path, d.path}
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
		if err := vfs.Twice(func() error { return m.readMarker(d) }); Transient(err) {
			return err
		} else if err != nil {
			m.goOffline(d, "read", err)
		}
	}
	return nil
}

func (m *Manager) readMetas() (map[*dir]checkpoint.MetaProperties, error) {
	metas := map[*dir]checkpoint.MetaProperties{}
	damaged := map[*dir]error{}
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		var meta checkpoint.MetaProperties
		err := vfs.Twice(func() (err error) {
			meta, err = checkpoint.ReadMeta(m.o.FS, filepath.Join(d.path, checkpoint.MetaFile))
			return err
		})
		switch {
		case err == nil:
			metas[d] = meta
		case errors.Is(err, fs.ErrNotExist):
		case Transient(err):
			return nil, err // of descriptors or memory: no word about the disk
		case errors.Is(err, checkpoint.ErrCorrupt), errors.Is(err, vfs.ErrNotRegular):
			damaged[d] = err
		default:
			m.goOffline(d, "read", err)
		}
	}
	return metas, m.mendMetas(metas, damaged)
}

// format has directories made that hold nothing yet.
func (m *Manager) format() error {
	for _, d := range m.dirs {
		if d.err() != nil {
			return d.err() // it may hold what the others do not
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

// readMarker reads the clean-shutdown marker. What has its name and is no file
// was not left by a stop.
func (m *Manager) readMarker(d *dir) (err error) {
	d.brokerEpoch, d.clean, err = checkpoint.ReadCleanShutdown(m.o.FS, d.path)
	if errors.Is(err, vfs.ErrNotRegular) {
		m.o.Logger.Warn("entry moved away", "event", "left-alone", "path", filepath.Join(d.path, checkpoint.CleanShutdownFile), "kind", err)
		_, err = m.moveAway(d, checkpoint.CleanShutdownFile)
	}
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
