package logdir

import (
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/vfs"
)

// readErrors remembers when reads of a directory failed last. One bad sector is
// the matter of the partition that it lies in; a disk that keeps failing is not
// to be written to (faults E3).
type readErrors struct {
	mu    sync.Mutex
	times []time.Time // of the last ones, at most readErrorsAllowed; guarded by mu
}

// The third failed read within a minute takes the directory offline.
const (
	readErrorsAllowed = 2
	readErrorsWithin  = time.Minute
)

// add notes a failure and reports whether it is one too many.
func (r *readErrors) add(now time.Time) (tooMany bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.times) == readErrorsAllowed {
		tooMany = now.Sub(r.times[0]) < readErrorsWithin
		r.times = append(r.times[:0], r.times[1:]...)
	}
	r.times = append(r.times, now)
	return tooMany
}

// readFailed is told about a read that failed, and failed again when it was
// tried once more.
func (m *Manager) readFailed(d *dir, op string, err error) {
	if d.err() != nil {
		return
	}
	m.o.Logger.Error("read failed", "event", "read-failed", "dir", d.path, "op", op, "err", err,
		"hint", "check the disk; the third failure within a minute takes the directory offline")
	if d.reads.add(m.o.Now()) {
		m.goOffline(d, "read", err)
	}
}

// ReadFailed notes that a file of the directory could not be read, for op. What
// is no error of the disk is passed over.
func (h Health) ReadFailed(op string, err error) {
	if h.dir != nil && vfs.IsReadError(err) {
		h.m.readFailed(h.dir, op, err)
	}
}

// ReadFailed is Health.ReadFailed for who knows only the name of the file: a
// connection that was sending it. A file that became shorter counts.
func (m *Manager) ReadFailed(file, op string, err error) {
	for _, d := range m.dirs {
		if rest, ok := strings.CutPrefix(file, d.path); ok && strings.HasPrefix(rest, string(filepath.Separator)) {
			m.readFailed(d, op, err)
			return
		}
	}
}

// compactionFailed is told about a read that failed in a round of the cleaner.
func (m *Manager) compactionFailed(l *commitlog.Log, err error) {
	m.Health(l.Partition()).ReadFailed("compact", err)
}
