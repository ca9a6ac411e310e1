package logdir

import (
	"sync"
	"sync/atomic"
	"time"
)

// fullDisk is whether a data directory's disk has refused writes for lack of
// room, for the operator: each write finds out for itself.
type fullDisk struct {
	now atomic.Bool // changed under mu

	mu          sync.Mutex
	since, last time.Time // of the first and the last refusal; guarded by mu
}

// roomAfter is how long nothing may have been refused before an append that
// succeeds is taken for the end of it. On a full disk small appends get through
// beside large ones that do not.
const roomAfter = time.Second

// noteFull logs that the disk of a directory is full, once until it has room again.
func (m *Manager) noteFull(d *dir, op string, err error) {
	d.full.mu.Lock()
	defer d.full.mu.Unlock()
	d.full.last = m.o.Now()
	if d.full.now.Load() {
		return
	}
	d.full.since = d.full.last
	d.full.now.Store(true)
	m.o.Logger.Error("disk full", "event", "disk-full", "dir", d.path, "op", op, "file", fileOf(err), "err", err,
		"hint", "make room; writes resume by themselves")
}

// noteRoom is called after an append that succeeded on a disk that was full.
func (m *Manager) noteRoom(d *dir) {
	d.full.mu.Lock()
	defer d.full.mu.Unlock()
	now := m.o.Now()
	if !d.full.now.Load() || now.Sub(d.full.last) < roomAfter || d.space.refuses.Load() {
		return // or producers are refused still, and the look at the disk ends both
	}
	d.full.now.Store(false)
	m.o.Logger.Info("disk has room again, writes resume", "event", "disk-room", "dir", d.path, "durationMs", now.Sub(d.full.since).Milliseconds())
}

// passed ends a full disk that is known to have room. It returns since when it
// was full; ok is false when it was not.
func (f *fullDisk) passed() (since time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.since, f.now.Swap(false)
}
