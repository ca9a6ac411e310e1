package logdir

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/vfs"
)

// readErrors remembers which files of a directory could not be read, and when.
// One bad sector is the matter of the partition that it lies in, however often a
// consumer asks for it; a disk that fails here and there is not to be written to
// (faults E3).
type readErrors struct {
	mu    sync.Mutex
	files []failedFile // the last ones, at most readErrorsAllowed; guarded by mu
}

type failedFile struct {
	name string // empty: not known
	at   time.Time
}

// The third file that cannot be read within a minute takes the directory offline.
const (
	readErrorsAllowed = 2
	readErrorsWithin  = time.Minute
)

// add notes a failure and reports whether it is one too many.
func (r *readErrors) add(name string, now time.Time) (tooMany bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.files {
		if f := &r.files[i]; name != "" && f.name == name && now.Sub(f.at) < readErrorsWithin {
			return false
		}
	}
	if len(r.files) == readErrorsAllowed {
		tooMany = now.Sub(r.files[0].at) < readErrorsWithin
		r.files = append(r.files[:0], r.files[1:]...)
	}
	r.files = append(r.files, failedFile{name, now})
	return tooMany
}

// readFailed is told about a read that failed, and failed again when it was
// tried once more.
func (m *Manager) readFailed(d *dir, file, op string, err error) {
	if d.err() != nil {
		return
	}
	var path *fs.PathError
	if file == "" && errors.As(err, &path) {
		file = path.Path
	}
	m.o.Logger.Error("read failed", "event", "read-failed", "dir", d.path, "file", file, "op", op, "err", err,
		"hint", "check the disk; the third file within a minute takes the directory offline")
	if d.reads.add(file, m.o.Now()) {
		m.goOffline(d, "read", err)
	}
}

// ReadFailed notes that a file of the directory could not be read, for op. What
// is no error of the disk is passed over.
func (h Health) ReadFailed(op string, err error) {
	if h.dir != nil && vfs.IsReadError(err) {
		h.m.readFailed(h.dir, "", op, err)
	}
}

// ReadFailed is Health.ReadFailed for who knows only the name of the file: a
// connection that was sending it. A file that became shorter counts.
func (m *Manager) ReadFailed(file, op string, err error) {
	for _, d := range m.dirs {
		if rest, ok := strings.CutPrefix(file, d.path); ok && strings.HasPrefix(rest, string(filepath.Separator)) {
			m.readFailed(d, file, op, err)
			return
		}
	}
}

// compactionFailed is told about a read that failed in a round of the cleaner.
func (m *Manager) compactionFailed(l *commitlog.Log, err error) {
	m.Health(l.Partition()).ReadFailed("compact", err)
}
