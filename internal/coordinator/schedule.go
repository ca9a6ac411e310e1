package coordinator

import (
	"sync"
	"time"
)

// schedule wakes shards: when their next timer is due, and when the high
// watermark of their partition has moved. One goroutine serves all shards.
type schedule struct {
	mu     sync.Mutex
	due    map[*shard]time.Time // guarded by mu; the zero time means now
	next   time.Time            // guarded by mu; what the goroutine sleeps until, zero for ever
	wake   chan struct{}
	closed chan struct{}
	done   chan struct{}
}

func newSchedule() *schedule {
	s := &schedule{
		due:    map[*shard]time.Time{},
		wake:   make(chan struct{}, 1),
		closed: make(chan struct{}),
		done:   make(chan struct{}),
	}
	go s.run()
	return s
}

// close stops the goroutine and waits for it.
func (s *schedule) close() {
	close(s.closed)
	<-s.done
}

// set tells when the shard wants to be woken next; ok is false for never.
func (s *schedule) set(sh *shard, at time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !ok {
		delete(s.due, sh)
		return
	}
	if was, set := s.due[sh]; set && was.IsZero() {
		return // it is to be woken now, and will say again when it is next
	}
	s.due[sh] = at
	if s.next.IsZero() || at.Before(s.next) {
		s.pokeLocked()
	}
}

// now has the shard woken as soon as possible.
func (s *schedule) now(sh *shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due[sh] = time.Time{}
	s.pokeLocked()
}

func (s *schedule) pokeLocked() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *schedule) run() {
	defer close(s.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		for _, sh := range s.take() {
			sh.tick()
		}
		sleep, ok := s.untilNext()
		if ok {
			timer.Reset(sleep)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.closed:
			return
		}
	}
}

// take removes and returns the shards that are due.
func (s *schedule) take() []*shard {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []*shard
	for sh, at := range s.due {
		if !at.After(now) {
			list = append(list, sh)
			delete(s.due, sh)
		}
	}
	return list
}

func (s *schedule) untilNext() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = time.Time{}
	first := true
	for _, at := range s.due {
		if first || at.Before(s.next) {
			s.next, first = at, false
		}
	}
	return time.Until(s.next), !first
}
