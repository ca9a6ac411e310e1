package logdir

import (
	"errors"
	"io"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/scrub"
	"github.com/varvelog/varve/internal/vfs"
)

// scrubDelay is how long after the start the first pass begins.
const scrubDelay = 30 * time.Second

// startScrub begins to check what lies in the directories.
func (m *Manager) startScrub() {
	if m.o.ScrubRate <= 0 && !m.o.ScrubNow {
		return
	}
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		o := scrub.Options{
			Logs: func() []*commitlog.Log { return m.logsOf(d) }, BytesPerSecond: m.o.ScrubRate, Delay: scrubDelay,
			Now: m.o.Now, Logger: m.o.Logger,
			OnError: func(l *commitlog.Log, err error) { m.scrubFailed(d, l, err) },
			OnPass: func(s scrub.Stats) {
				m.o.Logger.Info("data directory scrubbed", "event", "scrubbed", "dir", d.path, "passes", s.Passes, "segments", s.Segments,
					"bytes", s.Bytes, "corruptBatches", s.CorruptBatches, "indexesRebuilt", s.IndexesRebuilt, "readErrors", s.ReadErrors)
			},
		}
		if m.o.ScrubNow {
			o.BytesPerSecond, o.Delay = 0, 0
		}
		d.scrub = scrub.New(o)
		d.scrub.Start()
	}
}

func (m *Manager) stopScrub() {
	for _, d := range m.dirs {
		if d.scrub != nil {
			d.scrub.Stop()
		}
	}
}

// logsOf lists the open logs of a directory, none once it is offline.
func (m *Manager) logsOf(d *dir) []*commitlog.Log {
	if d.err() != nil {
		return nil
	}
	var logs []*commitlog.Log
	for _, p := range m.partitions(d) {
		logs = append(logs, p.log)
	}
	return logs
}

// scrubFailed takes an error of a read for what it is: one of the disk, and no
// damage of what lies on it.
func (m *Manager) scrubFailed(d *dir, l *commitlog.Log, err error) {
	if d.err() != nil || l.Failure() != nil {
		return
	}
	if vfs.IsReadError(err) || errors.Is(err, io.ErrUnexpectedEOF) {
		m.readFailed(d, "", "scrub", err)
	}
}

// ScrubStats counts what the scrub of each directory has done, by path; a
// directory that is not scrubbed is not in it.
func (m *Manager) ScrubStats() map[string]scrub.Stats {
	stats := map[string]scrub.Stats{}
	if !m.loaded.Load() {
		return stats
	}
	for _, d := range m.dirs {
		if d.scrub != nil {
			stats[d.path] = d.scrub.Stats()
		}
	}
	return stats
}
