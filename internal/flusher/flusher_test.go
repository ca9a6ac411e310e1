package flusher

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// slow is a job whose syncs take until somebody lets them go on.
type slow struct {
	entered, leave chan struct{}
	asked          atomic.Bool
	syncs          atomic.Int32
}

func newSlow() *slow { return &slow{entered: make(chan struct{}), leave: make(chan struct{})} }

func (s *slow) Sync(bool) {
	s.asked.Store(false)
	s.entered <- struct{}{}
	<-s.leave
	s.syncs.Add(1)
}

func TestWhoeverComesDuringARoundSharesTheNextOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f Flusher
		s := newSlow()
		ask := func() {
			if s.asked.CompareAndSwap(false, true) {
				f.Add(s, false)
			}
		}
		ask()
		<-s.entered
		for range 100 {
			ask()
		}
		s.leave <- struct{}{}
		<-s.entered
		s.leave <- struct{}{}
		f.Wait()
		if n := s.syncs.Load(); n != 2 {
			t.Errorf("101 requests made %d syncs, want 2", n)
		}
	})
}

// order notes the order of jobs.
type order struct {
	name string
	list *[]string
	then func()
}

func (o *order) Sync(bool) {
	*o.list = append(*o.list, o.name)
	if o.then != nil {
		then := o.then
		o.then = nil
		then()
	}
}

func TestJobsRunOneAtATimeInTheOrderTheyCame(t *testing.T) {
	var f Flusher
	var list []string
	c := &order{"c", &list, nil}
	b := &order{"b", &list, nil}
	a := &order{"a", &list, func() {
		f.Add(b, false)
		f.Add(c, true)
		f.Add(b, false)
	}}
	f.Add(a, false)
	f.Wait()
	if got := len(list); got != 4 || list[0] != "a" || list[1] != "b" || list[2] != "c" || list[3] != "b" {
		t.Errorf("jobs ran as %v, want a b c b", list)
	}
	f.Wait() // nothing to wait for
	f.Add(a, false)
	f.Wait()
	if len(list) != 5 {
		t.Errorf("a flusher that was idle ran %v", list[4:])
	}
}

func TestRoundsDoNotAllocate(t *testing.T) {
	var f Flusher
	var list []string
	job := &order{"a", &list, nil}
	list = make([]string, 0, 10_000)
	f.Add(job, false)
	f.Wait()
	// The goroutine itself may cost one.
	if n := testing.AllocsPerRun(100, func() { f.Add(job, false); f.Wait() }); n > 1 {
		t.Errorf("%v allocations a round, want 1 at most", n)
	}
}
