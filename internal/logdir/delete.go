package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
)

// Delete takes partitions away: their directories are renamed to -delete at
// once and removed after FileDeleteDelay. The checkpoints are rewritten before
// Delete returns, so that a partition that is created under the name later does
// not inherit a recovery point. A partition without a log is not an error; one
// that could not be opened is forgotten, and its files stay to be set aside.
func (m *Manager) Delete(tps ...kafka.TopicPartition) error {
	if !m.loaded.Load() || m.closed.Load() {
		return ErrNotLoaded
	}
	m.changing.Lock()
	defer m.changing.Unlock()
	touched := map[*dir]bool{}
	var errs []error
	for _, tp := range tps {
		m.mu.Lock()
		p := m.logs[tp]
		delete(m.logs, tp)
		m.mu.Unlock()
		if p == nil {
			for _, d := range m.forget(tp) {
				touched[d] = true
			}
			continue
		}
		if err := m.deleteOne(p); err != nil {
			errs = append(errs, fmt.Errorf("delete %s: %w", tp, err))
			continue
		}
		touched[p.dir] = true
	}
	for d := range touched {
		for k := range checkpointKinds {
			if err := m.writeCheckpoint(d, k, nil); err != nil {
				errs = append(errs, err)
				break
			}
		}
	}
	return errors.Join(errs...)
}

// forget drops what is known of a partition that could not be opened, and
// returns the directories whose checkpoints change by it. One that was refused
// for its id is another topic's.
func (m *Manager) forget(tp kafka.TopicPartition) []*dir {
	m.mu.Lock()
	delete(m.begun, tp)
	f, ok := m.failed[tp]
	ok = ok && !errors.As(f.err, new(*IdentityError))
	if ok {
		delete(m.failed, tp)
	}
	m.mu.Unlock()
	if !ok {
		return nil
	}
	return m.dropCarried(tp, f)
}

// dropCarried takes out what the checkpoints carry of a partition that had failed.
// Not under m.mu, which the writer of a checkpoint takes while it holds the file's.
func (m *Manager) dropCarried(tp kafka.TopicPartition, f failure) (touched []*dir) {
	for _, d := range m.dirs {
		carried := d == f.dir
		for k := range checkpointKinds {
			file := &d.checkpoints[k]
			file.mu.Lock()
			_, ok := file.carried[tp]
			carried = carried || ok
			delete(file.carried, tp)
			file.mu.Unlock()
		}
		if carried {
			touched = append(touched, d)
		}
	}
	return touched
}

// deleteOne renames the directory, durably. An offline directory is left as it is: the
// partition is stray or deleted by name after the next start.
func (m *Manager) deleteOne(p *partition) error {
	// Whatever comes of it, nobody else knows of the log any more.
	defer func() { _ = p.log.Abandon() }()
	if err := p.dir.err(); err != nil {
		return err
	}
	m.endCleaning(p.log)
	path := filepath.Join(p.dir.path, uniqueName(p.tp, m.o.NewID(), deleteSuffix))
	if err := p.log.Rename(path); err != nil {
		if errors.Is(err, commitlog.ErrFull) {
			// No room for the name: the next start, or who creates the name
			// again, sees by the topic id that it is over.
			return err
		}
		m.goOffline(p.dir, "delete", err)
		return err
	}
	// Nothing is read or written there any more but what is being sent.
	if err := p.log.Abandon(); err != nil {
		m.o.Logger.Warn("deleted partition not closed", "path", path, "err", err)
	}
	m.jobs.after(m.o.FileDeleteDelay, p.dir.unlessOffline(func() {
		if err := p.log.Delete(); err != nil {
			m.o.Logger.Error("deleted partition not removed", "path", path, "err", err)
			if isDiskError(err) {
				m.goOffline(p.dir, "delete", err)
			}
		}
	}))
	m.o.Logger.Info("partition deleted", "topic", p.tp.Topic, "partition", p.tp.Partition, "dir", path)
	return nil
}

// removeLater removes a directory that an earlier run renamed to -delete.
func (m *Manager) removeLater(d *dir, path string) {
	m.jobs.after(m.o.FileDeleteDelay, d.unlessOffline(func() {
		if err := m.removeTree(path); err != nil {
			m.o.Logger.Error("deleted partition not removed", "path", path, "err", err)
			if isDiskError(err) {
				m.goOffline(d, "delete", err)
			}
			return
		}
		m.o.Logger.Info("deleted partition removed", "path", path)
	}))
}

// removeTree removes the files of a partition directory and then it. What is
// not a file in it is not varve's and stays, and with it the directory.
func (m *Manager) removeTree(path string) error {
	list, err := m.o.FS.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.IsDir() {
			return fmt.Errorf("%s is not empty: %s is a directory", path, e.Name())
		}
		if err := m.o.FS.Remove(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	if err := m.o.FS.Remove(path); err != nil {
		return err
	}
	return m.o.FS.SyncDir(filepath.Dir(path))
}
