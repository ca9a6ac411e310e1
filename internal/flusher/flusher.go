// Package flusher shares syncs among those who wait for them. There is one
// flusher for each file system: two syncs side by side on one disk wait for
// the same journal and the same cache of the drive.
//
// Before it on the path: commitlog, whose logs ask. After it: the logs again,
// which sync their own files.
package flusher

import "sync"

// Job is what can be made durable: a log.
type Job interface {
	// Sync makes durable what was written before the call, and tells those who
	// wait for it. It keeps its error to itself and its waiters. With alone it
	// syncs although nothing was written since it last did.
	Sync(alone bool)
}

// Flusher runs the jobs of one file system on one goroutine, in rounds: a job
// that is added while a round runs belongs to the next one. No time is waited
// for more of them to come; they gather by themselves while a sync runs.
//
// The goroutine lives while there is something to do. The zero value is ready.
type Flusher struct {
	mu      sync.Mutex
	queue   []entry // the next round; guarded by mu
	spare   []entry // of the round before, for its memory; guarded by mu
	running bool    // guarded by mu
	idle    *sync.Cond
}

type entry struct {
	job   Job
	alone bool
}

// Add has the job run in the next round, once for each call: who does not want
// that keeps account of whether it was added since it last ran.
func (f *Flusher) Add(j Job, alone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queue = append(f.queue, entry{j, alone})
	if !f.running {
		f.running = true
		go f.run()
	}
}

// Wait returns when nothing is queued and nothing runs. It is called at a stop,
// when nobody adds any more.
func (f *Flusher) Wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle == nil {
		f.idle = sync.NewCond(&f.mu)
	}
	for f.running {
		f.idle.Wait()
	}
}

func (f *Flusher) run() {
	for {
		round := f.next()
		if len(round) == 0 {
			return
		}
		for i, e := range round {
			round[i] = entry{}
			e.job.Sync(e.alone)
		}
	}
}

// next takes the round that has gathered, and ends the goroutine without one.
func (f *Flusher) next() []entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) == 0 {
		f.running = false
		if f.idle != nil {
			f.idle.Broadcast()
		}
		return nil
	}
	round := f.queue
	f.queue, f.spare = f.spare[:0], round
	return round
}
