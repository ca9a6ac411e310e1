package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// NewPartition asks for a partition.
type NewPartition struct {
	Partition kafka.TopicPartition
	TopicID   kafka.TopicID
	Config    commitlog.Config
	// Dir is the directory.id that the metadata assigns. Zero, and one that is
	// not known, mean the directory with the fewest partitions; one that is
	// offline holds the partition, and nothing is made in its place.
	Dir kafka.UUID
}

// Created is the outcome for one NewPartition.
type Created struct {
	Log *commitlog.Log
	Err error
}

// Create makes a partition, durable when it returns.
func (m *Manager) Create(n NewPartition) (*commitlog.Log, error) {
	c := m.CreateAll([]NewPartition{n})[0]
	return c.Log, c.Err
}

// CreateAll makes partitions, several at a time, and syncs the names of all of
// them in a data directory at once. A partition that is there already keeps its log.
//
// Order (faults O3): the directory, partition.metadata, the segment's files,
// the partition's directory synced, the data directory synced; then appends.
func (m *Manager) CreateAll(list []NewPartition) []Created {
	out := make([]Created, len(list))
	m.changing.Lock()
	defer m.changing.Unlock()
	made := make([]*partition, len(list))
	counts := m.counts()
	var wg sync.WaitGroup
	slots := make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))
	for i, n := range list {
		d, log, err := m.creatable(n)
		if log != nil || err != nil {
			out[i] = Created{log, err}
			continue
		}
		if out[i].Err = m.elsewhere(d, n); out[i].Err != nil {
			continue
		}
		if d == nil {
			d = m.choose(n.Dir, counts)
		}
		if d == nil {
			out[i].Err = fmt.Errorf("create %s: %w", n.Partition, ErrOffline)
			continue
		}
		counts[d]++
		made[i] = &partition{tp: n.Partition, dir: d, reopened: m.Failure(n.Partition) != nil}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if made[i].reopened {
				made[i].log, out[i].Err = m.reopen(made[i], n)
			} else {
				made[i].log, out[i].Err = m.makeFiles(made[i], n)
			}
		})
	}
	wg.Wait()
	m.publish(list, made, out)
	return out
}

// creatable returns what is there already under that name: its log, or why it
// must not be made, or the directory in which an attempt before this one failed.
func (m *Manager) creatable(n NewPartition) (*dir, *commitlog.Log, error) {
	if !m.loaded.Load() || m.closed.Load() {
		return nil, nil, ErrNotLoaded
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := m.logs[n.Partition]; p != nil {
		return nil, p.log, p.dir.err()
	}
	if f, ok := m.failed[n.Partition]; ok {
		if !Transient(f.err) {
			return nil, nil, f.err
		}
		return f.dir, nil, f.dir.err()
	}
	return m.begun[n.Partition], nil, nil
}

// counts is how many partitions each directory holds.
func (m *Manager) counts() map[*dir]int {
	counts := map[*dir]int{}
	for _, p := range m.partitions(nil) {
		counts[p.dir]++
	}
	return counts
}

// elsewhere refuses a partition that lies in a directory which is offline, or was
// begun there. Made anew in another one it would be served empty, and the next
// start would find it twice. begun may be nil.
func (m *Manager) elsewhere(begun *dir, n NewPartition) error {
	if begun != nil {
		if err := begun.err(); err != nil {
			return fmt.Errorf("create %s: %w", n.Partition, err)
		}
		return nil
	}
	known, hidden := false, error(nil)
	for _, d := range m.dirs {
		err := d.err()
		if d.id == n.Dir && err != nil && !n.Dir.IsZero() {
			return fmt.Errorf("create %s: %w", n.Partition, err)
		}
		known = known || d.id == n.Dir
		if d.id.IsZero() && err != nil {
			hidden = err // it may be the one: its meta.properties was not read
		}
	}
	if !known && hidden != nil && !reservedDirectory(n.Dir) {
		return fmt.Errorf("create %s: %w", n.Partition, hidden)
	}
	return nil
}

// reservedDirectory tells the ids that name no directory, such as "unassigned"
// and "lost" (KIP-858 keeps the first 100).
func reservedDirectory(id kafka.UUID) bool {
	return id[15] < 100 && kafka.UUID(append(id[:15:15], 0)).IsZero()
}

// choose picks the directory with the fewest partitions, the first of equals,
// unless a usable one is wanted. Nil: all are offline. While a directory is not
// here that the metadata names, an empty one may be the place where it is to be
// mounted: it gets nothing when there is another.
func (m *Manager) choose(want kafka.UUID, counts map[*dir]int) *dir {
	var best *dir
	absent := m.absent() > 0
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		if d.id == want {
			return d
		}
		switch {
		case best == nil:
			best = d
		case absent && (counts[d] == 0) != (counts[best] == 0):
			if counts[best] == 0 {
				best = d
			}
		case counts[d] < counts[best]:
			best = d
		}
	}
	return best
}

func (m *Manager) makeFiles(p *partition, n NewPartition) (*commitlog.Log, error) {
	path := filepath.Join(p.dir.path, n.Partition.String())
	if err := m.stillMounted(p.dir); err != nil {
		m.goOffline(p.dir, "create", err)
		return nil, fmt.Errorf("create %s: %w", n.Partition, err)
	}
	log, err := m.tryMakeFiles(p, path, n)
	if err != nil {
		if isDiskError(err) {
			m.goOffline(p.dir, "create", err)
		}
		m.begin(p)
		return nil, fmt.Errorf("create %s: %w", n.Partition, err)
	}
	return log, nil
}

// begin notes where a creation has failed. Made in another directory the next
// time, the partition would be in two of them.
func (m *Manager) begin(p *partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.begun[p.tp] = p.dir
}

// reopen opens a partition that Load could not open for a reason that may be
// gone. The end of its log is checked from the recovery point on.
func (m *Manager) reopen(p *partition, n NewPartition) (*commitlog.Log, error) {
	o := m.logOptions(p, filepath.Join(p.dir.path, n.Partition.String()), n.TopicID, n.Config)
	log, err := m.openAt(p, o, func(k checkpointKind) (kafka.Offset, bool) {
		file := &p.dir.checkpoints[k]
		file.mu.Lock()
		defer file.mu.Unlock()
		offset, ok := file.carried[p.tp]
		return offset, ok
	})
	if err == nil {
		return log, nil
	}
	if vfs.IsReadError(err) {
		m.readFailed(p.dir, "", "load", err)
	} else if isDiskError(err) {
		m.goOffline(p.dir, "load", err)
	}
	m.mu.Lock()
	m.failed[p.tp] = failure{p.dir, err}
	m.mu.Unlock()
	return nil, fmt.Errorf("open %s: %w", n.Partition, err)
}

// stillMounted checks that the path leads to the directory that was locked: one
// that was unmounted or moved away must not be begun anew in its place, which is
// an empty directory of the file system above it (faults X7).
func (m *Manager) stillMounted(d *dir) error {
	info, err := m.o.FS.Stat(d.path)
	if err != nil {
		return err
	}
	if d.info == nil {
		return nil
	}
	if same, known := vfs.SameDirectory(d.info, info); known && !same {
		return &fs.PathError{Op: "find", Path: d.path, Err: errMoved}
	}
	return nil
}

func (m *Manager) tryMakeFiles(p *partition, path string, n NewPartition) (*commitlog.Log, error) {
	err := m.o.FS.Mkdir(path, 0o755)
	adopted := errors.Is(err, fs.ErrExist)
	if adopted {
		err = m.adopt(p.dir, n)
	}
	if err != nil {
		return nil, err
	}
	log, err := commitlog.Open(m.logOptions(p, path, n.TopicID, n.Config)) // syncs the names that it makes
	if err == nil && adopted {
		if err = m.o.FS.SyncDir(path); err != nil {
			err = errors.Join(err, log.Abandon())
		}
	}
	if err != nil {
		if !adopted && Transient(err) {
			_ = m.removeTree(path) // else what is left is adopted or set aside by the next attempt
		}
		return nil, err
	}
	return log, nil
}

// adopt deals with a directory that has the name already: what an interrupted
// creation left is used, another directory is set aside. What is no directory,
// such as a link that leads out of the data directory, is not followed.
func (m *Manager) adopt(d *dir, n NewPartition) error {
	name := n.Partition.String()
	if err := m.isDirectory(d, name); err != nil {
		return err
	}
	id, err := checkpoint.ReadPartitionMetadata(m.o.FS, filepath.Join(d.path, name, checkpoint.PartitionFile))
	if err == nil && id == n.TopicID {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, checkpoint.ErrCorrupt) {
		return err
	}
	if list, listErr := m.o.FS.ReadDir(filepath.Join(d.path, name)); listErr == nil && len(list) == 0 {
		return nil
	}
	if err := m.disown(d, n.Partition); err != nil {
		return err
	}
	if err := m.setAside(d, name, n.Partition, "in the way of a new partition"); err != nil {
		return err
	}
	return m.o.FS.Mkdir(filepath.Join(d.path, name), 0o755)
}

// isDirectory refuses an entry of a data directory that is something else. It
// asks the entry itself, as Load does: Stat would follow a link.
func (m *Manager) isDirectory(d *dir, name string) error {
	list, err := m.o.FS.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Name() == name && !e.IsDir() {
			return &NotDirectoryError{Path: filepath.Join(d.path, name), Kind: e.Type()}
		}
	}
	return nil
}

// publish syncs the data directories that got partitions and makes them known.
func (m *Manager) publish(list []NewPartition, made []*partition, out []Created) {
	for _, d := range m.dirs {
		touched := false
		for i, p := range made {
			touched = touched || p != nil && p.dir == d && out[i].Err == nil
		}
		if !touched {
			continue
		}
		err := m.o.FS.SyncDir(d.path)
		if err != nil && !Transient(err) {
			m.goOffline(d, "create", err)
			err = nil
		}
		for i, p := range made {
			if err != nil && p != nil && p.dir == d && out[i].Err == nil {
				out[i].Err = fmt.Errorf("create %s: %w", p.tp, errors.Join(err, p.log.Abandon()))
				m.begin(p)
			}
		}
	}
	for i, p := range made {
		if p == nil || out[i].Err != nil {
			continue
		}
		if err := p.dir.err(); err != nil {
			out[i].Err = fmt.Errorf("create %s: %w", list[i].Partition, errors.Join(err, p.log.Abandon()))
			continue
		}
		m.mu.Lock()
		m.logs[p.tp] = p
		delete(m.begun, p.tp)
		f := m.failed[p.tp]
		if p.reopened {
			delete(m.failed, p.tp)
		}
		m.mu.Unlock()
		if p.reopened {
			m.dropCarried(p.tp, f) // what the checkpoints carried of it is the log's now
		}
		out[i].Log = p.log
	}
}
