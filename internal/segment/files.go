package segment

import (
	"slices"
	"sync"
)

// Files bounds how many sealed segments have their files open. A broker may hold
// a hundred thousand segments, and each that was once read would keep three
// descriptors. Beyond the bound, segments that nobody used lately are closed; the
// next use opens them again. Active segments are not counted and not closed.
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
	var victims []*Segment
	// Each is passed once at most before it counts as unused.
	for pass := 2 * len(c.open); len(c.open) > c.limit && pass > 0; pass-- {
		if c.hand >= len(c.open) {
			c.hand = 0
		}
		if v := c.open[c.hand]; v == s || v.used.Swap(false) {
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
	s.coolMu.Unlock()
}

// cool closes the files of a segment that nobody used lately. Regions that are
// being sent keep the .log open until they are done.
func (s *Segment) cool() {
	s.coolMu.Lock()
	defer s.coolMu.Unlock()
	old := s.hold.Load()
	if old == nil || s.active.Load() {
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
