package logdir

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/segment"
)

// jobs runs what happens beside the requests: periodic tasks, delayed unlinks,
// flushes after a roll. Its owner is the Manager, which stops it and waits.
type jobs struct {
	stopping chan struct{}
	slots    chan struct{} // one for each background job that may run at a time
	running  sync.WaitGroup

	mu      sync.Mutex
	stopped bool
	timers  map[*time.Timer]bool
}

// backgroundJobs bounds the goroutines that flush; with all of them busy an
// appender that rolls flushes itself, which slows it to the disk's pace.
const backgroundJobs = 8

func (j *jobs) init() {
	j.stopping = make(chan struct{})
	j.slots = make(chan struct{}, backgroundJobs)
	j.timers = map[*time.Timer]bool{}
}

// start counts a goroutine in, unless the jobs are being stopped.
func (j *jobs) start() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.stopped {
		j.running.Add(1)
	}
	return !j.stopped
}

// every runs f after initial and then each period, until stop. A period of 0
// or of centuries is never.
func (j *jobs) every(initial, period time.Duration, f func()) {
	if period <= 0 || period == math.MaxInt64 {
		return
	}
	j.loop(initial, func() time.Duration { f(); return period })
}

// loop runs f after initial and then each time after what f returns, until stop.
func (j *jobs) loop(initial time.Duration, f func() time.Duration) {
	if !j.start() {
		return
	}
	go func() {
		defer j.running.Done()
		timer := time.NewTimer(max(initial, time.Millisecond))
		defer timer.Stop()
		for {
			select {
			case <-j.stopping:
				return
			case <-timer.C:
			}
			timer.Reset(f())
		}
	}()
}

// after runs f once d has passed. What has not run at stop is dropped: the next
// start finds the files by their names.
func (j *jobs) after(d time.Duration, f func()) {
	if d <= 0 { // a stop waits for what is due already
		if j.start() {
			go func() {
				defer j.running.Done()
				f()
			}()
		}
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(d, func() {
		j.mu.Lock()
		due := j.timers[timer] && !j.stopped
		delete(j.timers, timer)
		if due {
			j.running.Add(1)
		}
		j.mu.Unlock()
		if due {
			defer j.running.Done()
			f()
		}
	})
	j.timers[timer] = true
}

// background runs f soon on another goroutine, or at once when too many run.
func (j *jobs) background(f func()) {
	select {
	case j.slots <- struct{}{}:
	default:
		f()
		return
	}
	if !j.start() {
		<-j.slots
		f()
		return
	}
	go func() {
		defer j.running.Done()
		defer func() { <-j.slots }()
		f()
	}()
}

// stop ends the periodic tasks, drops what is delayed, and waits for what runs.
func (j *jobs) stop() {
	j.mu.Lock()
	if j.stopped {
		j.mu.Unlock()
		return
	}
	j.stopped = true
	close(j.stopping)
	for t := range j.timers {
		t.Stop()
	}
	j.timers = map[*time.Timer]bool{}
	j.mu.Unlock()
	j.running.Wait()
}

// schedule starts the periodic tasks; Load calls it when the logs are open.
func (m *Manager) schedule() {
	i := m.o.Intervals
	m.jobs.every(i.Initial, i.RecoveryPoint, func() {
		m.checkpointAll(recoveryPoints)
		m.storeEpochs()
	})
	m.jobs.every(i.Initial, i.LogStart, func() { m.checkpointAll(logStarts) })
	m.jobs.every(i.HighWatermark, i.HighWatermark, func() { m.checkpointAll(highWatermarks) })
	m.jobs.every(i.Initial, i.Retention, m.retain)
	m.jobs.every(i.Initial, i.Flush, m.flushIdle)
	m.jobs.every(i.Synced, i.Synced, m.checkpointSynced)
	if m.o.CutRetention > 0 {
		m.jobs.every(i.Initial, cutCheck, m.removeCuts)
	}
	m.jobs.every(i.ProducerExpired, i.ProducerExpired, m.expireProducers)
	if m.o.Reserve != nil {
		m.jobs.loop(m.lookAtSpace(), m.lookAtSpace)
	}
}

// each calls f for every log whose directory is online.
func (m *Manager) each(f func(p *partition)) {
	for _, p := range m.partitions(nil) {
		if p.dir.err() == nil {
			f(p)
		}
	}
}

// retain applies retention. Compacted logs are the cleaner's (LogManager.cleanupLogs).
func (m *Manager) retain() {
	m.each(func(p *partition) {
		if p.log.Config().CleanupCompact {
			return
		}
		if n, err := p.log.DeleteOldSegments(); err != nil {
			m.report(p, "retention", err)
		} else if n > 0 {
			m.o.Logger.Info("segments deleted", "topic", p.tp.Topic, "partition", p.tp.Partition, "segments", n, "logStartOffset", p.log.StartOffset())
		}
	})
}

// flushIdle flushes the logs whose flush.ms has passed since they were flushed
// (LogManager.flushDirtyLogs).
func (m *Manager) flushIdle() {
	m.each(func(p *partition) {
		if !flushEnabled(p.log.Config()) {
			return
		}
		if err := p.log.FlushIfDue(); err != nil {
			m.report(p, "flush", err)
		}
	})
}

// storeEpochs writes the leader epochs of logs that got no record since the
// epoch began; a log that gets one does it before.
func (m *Manager) storeEpochs() {
	m.each(func(p *partition) {
		if err := p.log.StoreEpochs(); err != nil {
			m.report(p, "leader epochs", err)
		}
	})
}

func (m *Manager) expireProducers() {
	m.each(func(p *partition) { p.log.ExpireProducers() })
}

// report logs what a background task met, unless it is that the partition was
// deleted meanwhile. Whether it takes the directory offline was decided where the
// call failed (commitlog.Options.OnFailure).
func (m *Manager) report(p *partition, task string, err error) {
	if errors.Is(err, commitlog.ErrClosed) || errors.Is(err, segment.ErrClosed) {
		return
	}
	m.o.Logger.Error("background task failed", "task", task, "topic", p.tp.Topic, "partition", p.tp.Partition, "err", err)
}
