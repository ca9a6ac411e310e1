package segment

import (
	"slices"
	"sync"
)

// Files bounds how many sealed segments have their files open. A broker may hold
// a hundred thousand segments, and each that was once read would keep three
// descriptors. Beyond the bound, segments that nobody used lately are closed; the
// next use opens them again. Active segments are not counted and not closed, nor
// are those that are not durable yet.
//
// One Files serves all logs of a directory.
type Files struct {
	limit int

	mu   sync.Mutex
	open []*Segment // in no order; guarded by mu
	hand int        // where the search for an unused one goes on; guarded by mu
}

// NewFiles keeps at most limit sealed segments open.
func NewFiles(limit int) *Files { return &Files{limit: limit} }

// add notes that s is open, and closes others beyond the limit.
func (c *Files) add(s *Segment) {
	c.mu.Lock()
	c.open = append(c.open, s)
	c.mu.Unlock()
	c.shrink(s)
}

// shrink closes segments beyond the limit, but not keep, which may be nil.
func (c *Files) shrink(keep *Segment) {
	if c == nil {
		return
	}
	c.mu.Lock()
	var victims []*Segment
	// Each is passed once at most before it counts as unused.
	for pass := 2 * len(c.open); len(c.open) > c.limit && pass > 0; pass-- {
		if c.hand >= len(c.open) {
			c.hand = 0
		}
		if v := c.open[c.hand]; v == keep || v.used.Swap(false) || v.owesSync() {
			c.hand++
		} else {
			victims = append(victims, v)
			c.removeLocked(c.hand)
		}
	}
	c.mu.Unlock()
	for _, v := range victims {
		v.cool()
	}
}

// crowded reports whether more are open than there should be.
func (c *Files) crowded() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) > c.limit
}

func (c *Files) removeLocked(i int) {
	last := len(c.open) - 1
	c.open[i].listed.Store(false)
	c.open[i] = c.open[last]
	c.open[last] = nil
	c.open = c.open[:last]
}

// forget drops a segment that was closed or deleted.
func (c *Files) forget(s *Segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.open, s); i >= 0 {
		c.removeLocked(i)
	}
}

// touch says that a sealed segment is about to be used.
func (s *Segment) touch() {
	if s.files == nil || s.active.Load() {
		return
	}
	if !s.used.Load() {
		s.used.Store(true)
	}
	if !s.listed.Load() && s.listed.CompareAndSwap(false, true) {
		s.files.add(s)
	}
}

// activate makes sure that the segment is not closed for want of use, from now on.
func (s *Segment) activate() {
	s.coolMu.Lock()
	s.active.Store(true)
	s.unflushed.Store(true) // its indexes are about to change
	s.coolMu.Unlock()
}

// owesSync says that something in the segment's files is not durable. It must be
// synced by the descriptors that it was written with: an error of writing it back
// is not told to one that is opened afterwards, once the kernel let the file go.
func (s *Segment) owesSync() bool { return s.unsynced.Load() || s.unflushed.Load() }

// cool closes the files of a segment that nobody used lately. Regions that are
// being sent keep the .log open until they are done.
func (s *Segment) cool() {
	s.coolMu.Lock()
	defer s.coolMu.Unlock()
	old := s.hold.Load()
	if old == nil || s.active.Load() {
		return
	}
	if !s.flushMu.TryLock() {
		return // being flushed
	}
	defer s.flushMu.Unlock()
	if !s.syncMu.TryLock() {
		return
	}
	defer s.syncMu.Unlock()
	if s.owesSync() {
		return
	}
	s.hold.Store(newHold(s.opts.OnError))
	_, err := old.drop()
	for _, cool := range []func() error{s.offsets.Cool, s.times.Cool, s.txns.Cool} {
		if e := cool(); err == nil {
			err = e
		}
	}
	if err != nil && s.opts.OnError != nil {
		s.opts.OnError(err)
	}
}

// Open is how many sealed segments are open, and how many may be.
func (c *Files) Open() (open, limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open), c.limit
}
