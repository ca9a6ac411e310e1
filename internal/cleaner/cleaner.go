// Package cleaner compacts logs: of each key it leaves the newest record, and
// removes what was deleted and what was aborted (Kafka's LogCleaner, Cleaner and
// LogCleanerManager).
//
// Before it on the path: logdir, which owns one Cleaner, tells it which logs
// there are and keeps how far each was cleaned. After it: commitlog, for the
// segments to read and for putting the rewritten ones in their place.
//
// A round is choose.go (which log), offsetmap.go (the keys of its dirty part),
// retain.go and rewrite.go (what is left of each batch, and where it goes),
// swap.go (the new segments for the old).
package cleaner

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
)

// Config are the broker's log.cleaner settings. Zero values are Kafka's defaults.
type Config struct {
	Threads     int     // log.cleaner.threads; 0: 1
	DedupeBytes int64   // log.cleaner.dedupe.buffer.size, of all threads together; 0: 128 MiB
	LoadFactor  float64 // log.cleaner.io.buffer.load.factor; 0: 0.9
	BufferBytes int     // log.cleaner.io.buffer.size, of all threads together; 0: 512 KiB
	// BytesPerSecond is log.cleaner.io.max.bytes.per.second; 0: no limit.
	BytesPerSecond float64
	Backoff        time.Duration // log.cleaner.backoff.ms; 0: 15 s
}

func (c Config) withDefaults() Config {
	if c.Threads <= 0 {
		c.Threads = 1
	}
	if c.DedupeBytes <= 0 {
		c.DedupeBytes = 128 << 20
	}
	if c.LoadFactor <= 0 || c.LoadFactor > 1 {
		c.LoadFactor = 0.9
	}
	if c.BufferBytes <= 0 {
		c.BufferBytes = 512 << 10
	}
	if c.Backoff <= 0 {
		c.Backoff = 15 * time.Second
	}
	return c
}

// Candidate is a log and how far it has been cleaned: NoOffset when that is not known.
type Candidate struct {
	Log     *commitlog.Log
	Cleaned kafka.Offset
}

// Options say whose logs are cleaned. All but Logger and OnRound are needed.
type Options struct {
	// Logs lists the compacted logs that are open and whose disk is well, in a
	// slice that becomes the cleaner's. One that is paused when it leaves the list
	// never comes back.
	Logs func() []Candidate
	// SetCleaned makes durable how far a log is clean, unless the log was cut since
	// the generation (commitlog.Log.Generation) or is gone.
	SetCleaned func(l *commitlog.Log, generation uint64, offset kafka.Offset) error
	Now        func() time.Time
	Logger     *slog.Logger
	// OnRound is told about each round that came to its end. May be nil.
	OnRound func(l *commitlog.Log, s Stats)
	// OnReadError is told when the disk failed to give bytes of a log. May be nil.
	OnReadError func(l *commitlog.Log, err error)
}

// Cleaner compacts logs on its own goroutines, between Start and Stop.
type Cleaner struct {
	o      Options
	config atomic.Pointer[Config]
	pacer  pacer

	choosing sync.Mutex // one choice at a time; taken before mu

	mu     sync.Mutex
	idle   sync.Cond // a log is no longer worked on; its lock is mu
	states map[*commitlog.Log]*state

	lifecycle sync.Mutex // held by Start, Stop and Configure; taken before the others
	stopping  chan struct{}
	workers   sync.WaitGroup
}

// state is what is known of a log besides its files. A log without one is neither
// worked on nor kept from it.
type state struct {
	cancel   chan struct{} // of the work under way; nil while there is none
	canceled bool          // cancel is closed
	paused   int           // calls of Pause that were not undone
	failed   error         // why the log cannot be cleaned; until the next start
}

// New makes a cleaner that does nothing until Start.
func New(o Options, c Config) *Cleaner {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	cl := &Cleaner{o: o, states: map[*commitlog.Log]*state{}}
	cl.idle.L = &cl.mu
	cl.set(c)
	return cl
}

func (c *Cleaner) set(config Config) {
	config = config.withDefaults()
	c.config.Store(&config)
	c.pacer.setRate(config.BytesPerSecond)
}

// Start begins to clean. A cleaner that runs goes on.
func (c *Cleaner) Start() {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	c.startLocked()
}

func (c *Cleaner) startLocked() {
	if c.stopping != nil {
		return
	}
	c.stopping = make(chan struct{})
	for range c.config.Load().Threads {
		w := &worker{c: c, stopping: c.stopping}
		c.workers.Go(w.run)
	}
}

// Stop ends the rounds under way, which leave no file behind, and waits for that.
func (c *Cleaner) Stop() {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	c.stopLocked()
}

func (c *Cleaner) stopLocked() {
	if c.stopping == nil {
		return
	}
	close(c.stopping)
	c.mu.Lock()
	for _, s := range c.states {
		s.cancelNow()
	}
	c.mu.Unlock()
	c.workers.Wait()
	c.stopping = nil
}

// Configure changes the settings. Rounds under way keep theirs; when the number
// of threads changes they end and begin anew.
func (c *Cleaner) Configure(config Config) {
	c.lifecycle.Lock()
	defer c.lifecycle.Unlock()
	threads := c.config.Load().Threads
	c.set(config)
	if c.stopping != nil && threads != c.config.Load().Threads {
		c.stopLocked()
		c.startLocked()
	}
}

// Pause ends the round of a log, if one is under way, waits for that, and keeps
// the log from being cleaned until resume is called. The owner pauses a log
// before it renames or deletes its directory; a log that does not come back is
// forgotten.
func (c *Cleaner) Pause(l *commitlog.Log) (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stateLocked(l)
	s.paused++
	s.cancelNow()
	for s.cancel != nil {
		c.idle.Wait()
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		s.paused--
		c.forgetLocked(l)
	})
}

// Uncleanable lists the logs that cannot be cleaned until the next start, with
// the reason.
func (c *Cleaner) Uncleanable() map[kafka.TopicPartition]error {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := map[kafka.TopicPartition]error{}
	for l, s := range c.states {
		if s.failed != nil {
			list[l.Partition()] = s.failed
		}
	}
	return list
}

func (c *Cleaner) stateLocked(l *commitlog.Log) *state {
	s := c.states[l]
	if s == nil {
		s = &state{}
		c.states[l] = s
	}
	return s
}

// forgetLocked drops a state that says nothing.
func (c *Cleaner) forgetLocked(l *commitlog.Log) {
	if s := c.states[l]; s != nil && s.cancel == nil && s.paused == 0 && s.failed == nil {
		delete(c.states, l)
	}
}

func (s *state) cancelNow() {
	if s.cancel != nil && !s.canceled {
		close(s.cancel)
		s.canceled = true
	}
}

// take begins work on a log; ok is false when somebody else works on it or it is
// kept from being cleaned. cancel is closed when the work is to end.
func (c *Cleaner) take(l *commitlog.Log, stopping <-chan struct{}) (cancel <-chan struct{}, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-stopping:
		return nil, false
	default:
	}
	if s := c.states[l]; s != nil && (s.cancel != nil || s.paused > 0 || s.failed != nil) {
		return nil, false
	}
	s := c.stateLocked(l)
	s.cancel, s.canceled = make(chan struct{}), false
	return s.cancel, true
}

// done ends the work on a log. failed, unless nil, is why it cannot be cleaned.
func (c *Cleaner) done(l *commitlog.Log, failed error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.states[l]
	s.cancel, s.failed = nil, failed
	c.forgetLocked(l)
	c.idle.Broadcast()
}
