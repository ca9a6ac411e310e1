package logdir

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
)

// space is what is known of the room on a directory's disk. Producers are
// refused while less than the reserve is free, so that what goes on without them
// has room: internal topics, retention, compaction, checkpoints, metadata.
type space struct {
	refuses atomic.Bool // producers; low or held, changed under mu

	mu        sync.Mutex
	low, held bool
	since     time.Time // of low
}

// ErrLow refuses a producer on a disk whose free space is below the reserve. It
// wraps commitlog.ErrFull: clients get the same code and try again.
var ErrLow = fmt.Errorf("%w: less is free than varve.disk.reserve", commitlog.ErrFull)

// How often the disks are looked at. In between a disk cannot fill up faster
// than it can be written; while producers are refused, they wait for the look.
const (
	fastestFill = 4 << 30 // bytes a second
	lookOften   = time.Second
	lookRarely  = 30 * time.Second
	lookWhenLow = 100 * time.Millisecond
)

// lookAtSpace compares each directory's disk with its reserve, and returns when
// to look again.
func (m *Manager) lookAtSpace() time.Duration {
	wait := lookRarely
	for _, d := range m.dirs {
		if d.err() != nil {
			continue
		}
		total, free, err := m.o.FS.Usage(d.path)
		if err != nil {
			continue // not known here: each write finds out for itself
		}
		wait = min(wait, m.compare(d, free, m.o.Reserve(total)))
	}
	return wait
}

// compare notes and logs whether producers are refused. Room is a little more
// than the reserve, so that the two do not take turns.
func (m *Manager) compare(d *dir, free, reserve int64) (wait time.Duration) {
	s := &d.space
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.low && free < reserve:
		s.low, s.since = true, m.o.Now()
		m.o.Logger.Warn("disk below reserve, writes refused", "event", "disk-low", "dir", d.path, "free", free, "reserve", reserve,
			"hint", "make room, by retention or on the disk; writes resume by themselves. varve.disk.reserve sets the reserve, 0 turns it off")
	case s.low && free >= reserve+reserve/16:
		s.low = false
		if since, full := d.full.passed(); full && since.Before(s.since) {
			s.since = since
		}
		m.o.Logger.Info("disk has room again, writes resume", "event", "disk-room", "dir", d.path, "free", free,
			"durationMs", m.o.Now().Sub(s.since).Milliseconds())
	}
	s.refuses.Store(s.low || s.held)
	if s.low {
		return lookWhenLow
	}
	return min(max(time.Duration(float64(free-reserve)/fastestFill*float64(time.Second)), lookOften), lookRarely)
}

// Hold refuses producers, or stops refusing them, whatever room there is: while
// the records of a start are not yet on the disk.
func (m *Manager) Hold(held bool) {
	for _, d := range m.dirs {
		d.space.mu.Lock()
		d.space.held = held
		d.space.refuses.Store(d.space.low || held)
		d.space.mu.Unlock()
	}
}
