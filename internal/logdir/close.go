package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/vfs"
)

// Close is a clean stop (faults O14): the background tasks end, every log is
// flushed and closed, the checkpoints are written, and last, in each directory
// whose logs all got that far, the clean-shutdown marker with this run's broker
// epoch. Then the lock file goes. No request may be in the logs any more.
//
// An error says what was not clean; the directories are released in any case.
func (m *Manager) Close(brokerEpoch int64) error {
	if m.closed.Swap(true) {
		return nil
	}
	m.changing.Lock() // a creation or deletion that is under way ends first
	defer m.changing.Unlock()
	m.stopCleaner()
	m.jobs.stop()
	m.waitForFlushers()
	var wg sync.WaitGroup
	errs := make([]error, len(m.dirs))
	for i, d := range m.dirs {
		wg.Go(func() { errs[i] = m.closeDir(d, brokerEpoch) })
	}
	wg.Wait()
	m.unlock()
	return errors.Join(errs...)
}

func (m *Manager) closeDir(d *dir, brokerEpoch int64) error {
	defer func() {
		for _, p := range m.partitions(d) {
			_ = p.log.Abandon() // what was not closed cleanly is closed as it is; nothing is written
		}
	}()
	if err := d.err(); err != nil {
		return err
	}
	if !m.loaded.Load() {
		return m.removeLock(d)
	}
	if err := m.stillMounted(d); err != nil {
		m.goOffline(d, "stop", err)
		return d.err()
	}
	err := m.closeFiles(d, brokerEpoch)
	if err != nil && !vfs.IsFull(err) {
		return err
	}
	if err != nil {
		// Nothing is lost: what could not be written is found again. The lock file
		// stays, because the next start may find no room to make it.
		m.o.Logger.Warn("stopped without the clean marker: the disk is full, the next start recovers", "event", "disk-full", "dir", d.path, "err", err)
		return nil
	}
	return m.removeLock(d)
}

// closeFiles closes the logs and says so on the disk: checkpoints, and last the
// clean marker.
func (m *Manager) closeFiles(d *dir, brokerEpoch int64) error {
	if err := m.closeLogs(d); err != nil {
		// What was closed is closed; without the marker all of it is recovered.
		return err
	}
	for k := range checkpointKinds {
		if file := &d.checkpoints[k]; file.blank && k != highWatermarks && k != firstDirties {
			file.written = nil // a clean stop leaves a header without entries in these two, as Kafka's does
		}
		if err := m.writeCheckpoint(d, k, nil); err != nil {
			return err
		}
	}
	if !d.complete {
		return nil
	}
	err := checkpoint.WriteCleanShutdown(m.o.FS, d.path, brokerEpoch)
	if err != nil && !vfs.IsFull(err) {
		m.goOffline(d, "stop", err)
	}
	return err
}

// closeLogs closes the logs of a directory, several at a time. An error that is
// a full disk's is only that.
func (m *Manager) closeLogs(d *dir) error {
	list := m.partitions(d)
	errs := make([]error, len(list))
	slots := make(chan struct{}, 4*runtime.GOMAXPROCS(0)) // most of the work is waiting for the disk
	var wg sync.WaitGroup
	for i, p := range list {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := d.err(); err != nil {
				errs[i] = errors.Join(err, p.log.Abandon())
			} else if err := p.log.Close(); err != nil {
				errs[i] = fmt.Errorf("close %s: %w", p.tp, err)
			}
		})
	}
	wg.Wait()
	if other := slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return vfs.IsFull(err) }); errors.Join(other...) != nil {
		return errors.Join(other...)
	}
	return errors.Join(errs...)
}

// removeLock unlinks the lock file while it is still locked, as a clean stop of
// Kafka does. Whoever locks the path from now on has another file.
func (m *Manager) removeLock(d *dir) error {
	err := m.o.FS.Remove(filepath.Join(d.path, checkpoint.LockFile))
	if errors.Is(err, fs.ErrNotExist) || vfs.IsFull(err) {
		return nil // one that stays is taken again
	}
	return err
}
