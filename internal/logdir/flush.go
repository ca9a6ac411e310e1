package logdir

import (
	"github.com/varvelog/varve/internal/flusher"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/failstop"
)

// stopAtFailedSyncs puts a disk under the directories that changes nothing more
// in one of them once a sync there has failed (faults O15).
func (m *Manager) stopAtFailedSyncs() {
	roots := make([]failstop.Root, len(m.dirs))
	for i, d := range m.dirs {
		roots[i] = failstop.Root{Path: d.path, Failed: &d.broken}
	}
	m.o.FS = failstop.Wrap(m.o.FS, roots, func(path string, err error) {
		for i, d := range m.dirs {
			if roots[i].Path == path {
				m.goOffline(d, "sync", err)
			}
		}
	})
}

// FS is the disk for whoever else works in the directories, such as the metadata
// log: after a failed sync in one of them nothing is changed there.
func (m *Manager) FS() vfs.FS { return m.o.FS }

// assignFlushers gives each directory the flusher of its file system.
func (m *Manager) assignFlushers() {
	byDevice := map[uint64]*flusher.Flusher{}
	for _, d := range m.dirs {
		var device uint64 // 0 on disks without numbers: one for all of it
		if d.info != nil {
			device, _ = vfs.Device(d.info)
		}
		if byDevice[device] == nil {
			byDevice[device] = new(flusher.Flusher)
		}
		d.flusher = byDevice[device]
	}
}

// waitForFlushers lets the syncs end that nobody waits for.
func (m *Manager) waitForFlushers() {
	for _, d := range m.dirs {
		if d.flusher != nil {
			d.flusher.Wait()
		}
	}
}

// checkpointSynced moves the recovery points of logs that sync each append to
// their ends. What lies below is known to be durable, and damage to it is told
// from a torn end. The .log is synced already; an index is when it has an entry
// more, since a load believes it below the recovery point (order O7). It is one
// sync at a time, with a pause behind the last one: producers' come in between.
func (m *Manager) checkpointSynced() {
	moved := false
	m.each(func(p *partition) {
		end := p.log.EndOffset()
		if !p.log.Config().SyncsEachAppend() || p.log.RecoveryPoint() >= end {
			return
		}
		moved = true
		if err := p.log.Flush(end); err != nil {
			m.report(p, "flush", err)
		}
	})
	if moved {
		m.checkpointAll(recoveryPoints)
	}
}
