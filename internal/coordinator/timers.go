package coordinator

import (
	"container/heap"
	"time"

	"github.com/varvelog/varve/internal/group"
)

// timers is a heap of a shard's timers by deadline. A key has one timer.
type timers struct {
	heap []*timerEntry
	keys map[group.TimerKey]*timerEntry
}

type timerEntry struct {
	key group.TimerKey
	at  time.Time
	pos int
}

func (t *timers) Len() int           { return len(t.heap) }
func (t *timers) Less(i, j int) bool { return t.heap[i].at.Before(t.heap[j].at) }
func (t *timers) Swap(i, j int) {
	t.heap[i], t.heap[j] = t.heap[j], t.heap[i]
	t.heap[i].pos, t.heap[j].pos = i, j
}

// Push is for package heap.
func (t *timers) Push(x any) {
	e := x.(*timerEntry)
	e.pos = len(t.heap)
	t.heap = append(t.heap, e)
}

// Pop is for package heap.
func (t *timers) Pop() any {
	last := len(t.heap) - 1
	e := t.heap[last]
	t.heap[last] = nil
	t.heap = t.heap[:last]
	return e
}

func (t *timers) set(key group.TimerKey, at time.Time) {
	if e := t.keys[key]; e != nil {
		e.at = at
		heap.Fix(t, e.pos)
		return
	}
	if t.keys == nil {
		t.keys = map[group.TimerKey]*timerEntry{}
	}
	e := &timerEntry{key: key, at: at}
	t.keys[key] = e
	heap.Push(t, e)
}

func (t *timers) cancel(key group.TimerKey) {
	if e := t.keys[key]; e != nil {
		delete(t.keys, key)
		heap.Remove(t, e.pos)
	}
}

// takeDue removes and returns the key of a timer that has run out.
func (t *timers) takeDue(now time.Time) (group.TimerKey, bool) {
	if len(t.heap) == 0 || t.heap[0].at.After(now) {
		return group.TimerKey{}, false
	}
	e := heap.Pop(t).(*timerEntry)
	delete(t.keys, e.key)
	return e.key, true
}

func (t *timers) next() (time.Time, bool) {
	if len(t.heap) == 0 {
		return time.Time{}, false
	}
	return t.heap[0].at, true
}
