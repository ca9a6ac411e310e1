package coordinator

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// shard runs the groups of one partition. Its mutex makes it one goroutine's at
// a time; nothing blocks while it is held but the append of a batch.
type shard struct {
	partition int32
	opts      *Options
	logger    *slog.Logger
	log       Log
	schedule  *schedule
	stopWatch func()

	// uncommitted is set while pending may be other than empty, so that the
	// watch of the high watermark costs nothing when nobody waits for it.
	uncommitted atomic.Bool

	mu      sync.Mutex
	state   shardState
	machine *group.Machine
	builder record.Builder
	timers  timers
	expiry  time.Time // when offsets are next looked through
	pending []pending // operations whose records are not committed yet, in the order of the log
	waiters map[group.Waiter]chan kmsg.Response
	last    group.Waiter
}

type shardState uint8

const (
	loading shardState = iota
	active
	unloaded
)

// pending is an operation that waits for its records to be committed.
type pending struct {
	end      kafka.Offset
	deadline time.Time
	then     func(group.Outcome) group.Effects
}

// codeLocked is the error of requests that the shard cannot take now.
func (s *shard) codeLocked() kafka.ErrorCode {
	switch s.state {
	case loading:
		return kafka.ErrCoordinatorLoadInProgress
	case active:
		return kafka.None
	}
	return kafka.ErrNotCoordinator
}

// call runs an operation and waits for its answer. When ctx ends first it
// returns ctx's error and the answer is dropped. The code is not None when the
// shard did not take the request, or was unloaded before it answered.
func (s *shard) call(ctx context.Context, c Client, op func(*group.Machine, group.Context) group.Effects) (kmsg.Response, kafka.ErrorCode, error) {
	s.mu.Lock()
	if code := s.codeLocked(); code != kafka.None {
		s.mu.Unlock()
		return nil, code, nil
	}
	s.last++
	id, answer := s.last, make(chan kmsg.Response, 1)
	s.waiters[id] = answer
	s.applyLocked(op(s.machine, group.Context{
		Waiter:     id,
		ClientID:   c.ID,
		ClientHost: c.Host,
		Now:        s.now(),
	}))
	s.rearmLocked()
	s.mu.Unlock()

	select {
	case r, ok := <-answer:
		if !ok {
			return nil, kafka.ErrNotCoordinator, nil
		}
		return r, kafka.None, nil
	case <-ctx.Done():
		s.mu.Lock()
		delete(s.waiters, id)
		s.mu.Unlock()
		return nil, kafka.None, ctx.Err()
	}
}

// read runs f on the machine's state.
func (s *shard) read(f func(*group.Machine)) kafka.ErrorCode {
	s.mu.Lock()
	defer s.mu.Unlock()
	if code := s.codeLocked(); code != kafka.None {
		return code
	}
	f(s.machine)
	return kafka.None
}

func (s *shard) now() kafka.Timestamp { return kafka.TimestampOf(s.opts.Now()) }

// tick does what is due: operations that were committed or took too long,
// timers, and the search for expired offsets.
func (s *shard) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != active {
		return
	}
	s.committedLocked()
	for {
		key, ok := s.timers.takeDue(time.Now())
		if !ok {
			break
		}
		s.applyLocked(s.machine.Fire(key, s.now()))
	}
	if now := time.Now(); !now.Before(s.expiry) {
		s.expiry = now.Add(s.opts.CheckInterval)
		s.applyLocked(s.machine.Expire(kafka.TimestampOf(s.opts.Expiry())))
	}
	s.rearmLocked()
}

// rearmLocked tells the schedule when the shard has something to do next.
func (s *shard) rearmLocked() {
	next := s.expiry
	if at, ok := s.timers.next(); ok && at.Before(next) {
		next = at
	}
	if len(s.pending) > 0 && s.pending[0].deadline.Before(next) {
		next = s.pending[0].deadline
	}
	s.schedule.set(s, next, true)
}

// unload gives the partition up. Whoever still waits is told that the
// coordinator is elsewhere.
func (s *shard) unload() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == unloaded {
		return
	}
	was := s.state
	s.state = unloaded
	s.schedule.set(s, time.Time{}, false)
	s.stopWatch()
	if was == active {
		for _, p := range s.pending {
			fx := p.then(group.Outcome{Err: kafka.ErrNotLeaderOrFollower, Appended: true, Now: s.now()})
			s.repliesLocked(fx.Replies)
		}
		s.repliesLocked(s.machine.Abandon(kafka.ErrNotCoordinator))
	}
	for id, answer := range s.waiters {
		close(answer)
		delete(s.waiters, id)
	}
	s.pending, s.machine = nil, nil
}
