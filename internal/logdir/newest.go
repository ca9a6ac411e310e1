package logdir

import (
	"path/filepath"
	"time"
)

// NewestFile is when the youngest of the files that are written all the time
// was modified: the checkpoints. Zero when there is none. Asked before Load,
// which writes them, it says what time the last run has seen.
func (m *Manager) NewestFile() time.Time {
	var newest time.Time
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		for k := range checkpointKinds {
			if info, err := m.o.FS.Stat(filepath.Join(d.path, k.fileName())); err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
		}
	}
	return newest
}
