package logdir

import (
	"github.com/varvelog/varve/internal/cleaner"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
)

// firstDirty is the first offset that no compaction has been through; ok is
// false for a log that was never compacted, or when that is not known.
func (p *partition) firstDirty() (first kafka.Offset, ok bool) {
	p.cleanedMu.Lock()
	defer p.cleanedMu.Unlock()
	return p.cleaned, p.isCleaned
}

func (m *Manager) newCleaner() {
	if m.o.Cleaner != nil {
		m.cleaner = cleaner.New(cleaner.Options{
			Logs: m.compacted, SetCleaned: m.setCleaned, Now: m.o.Expiry, Logger: m.o.Logger, OnRound: m.o.OnCompacted,
			OnReadError: m.compactionFailed,
		}, *m.o.Cleaner)
	}
}

// startCleaner begins compaction and the scrub; Load calls it when the logs are open.
func (m *Manager) startCleaner() {
	m.startScrub()
	if m.cleaner != nil {
		m.cleaner.Start()
	}
}

func (m *Manager) stopCleaner() {
	m.stopScrub()
	if m.cleaner != nil {
		m.cleaner.Stop()
	}
}

// ConfigureCleaner changes the settings of compaction, where there is any.
func (m *Manager) ConfigureCleaner(c cleaner.Config) {
	if m.cleaner != nil {
		m.cleaner.Configure(c)
	}
}

// compacted lists the logs of compacted topics whose directory is online.
func (m *Manager) compacted() []cleaner.Candidate {
	var list []cleaner.Candidate
	m.each(func(p *partition) {
		if !p.log.Config().CleanupCompact {
			return
		}
		c := cleaner.Candidate{Log: p.log, Cleaned: kafka.NoOffset}
		if first, ok := p.firstDirty(); ok {
			c.Cleaned = first
		}
		list = append(list, c)
	})
	return list
}

// setCleaned makes durable how far a log has been compacted. It does nothing for
// a log that is gone, and for one that was cut since generation: what is there
// now is not what was compacted.
func (m *Manager) setCleaned(l *commitlog.Log, generation uint64, offset kafka.Offset) error {
	m.mu.RLock()
	p := m.logs[l.Partition()]
	m.mu.RUnlock()
	if p == nil || p.log != l {
		return nil
	}
	p.cleanedMu.Lock()
	current := l.Generation() == generation
	if current {
		p.cleaned, p.isCleaned = offset, true
	}
	p.cleanedMu.Unlock()
	if !current {
		return nil
	}
	return m.writeCheckpoint(p.dir, firstDirties, nil)
}

// cutCleaned lowers the checkpoint of a log that is about to be cut to offset.
// Any error takes the directory offline, a full disk too: the cut meets that,
// and has no other way to hear of it.
func (m *Manager) cutCleaned(p *partition, offset kafka.Offset) {
	p.cleanedMu.Lock()
	lowered := p.isCleaned && p.cleaned > offset
	if lowered {
		p.cleaned = offset
	}
	p.cleanedMu.Unlock()
	if lowered {
		if err := m.writeCheckpoint(p.dir, firstDirties, nil); err != nil {
			m.goOffline(p.dir, "checkpoint", err)
		}
	}
}

// endCleaning waits until nothing is written for a log whose directory is going.
func (m *Manager) endCleaning(l *commitlog.Log) {
	if m.cleaner != nil {
		m.cleaner.Pause(l)
	}
}
