package commitlog

import (
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/internal/kafka"
)

// synced is how far a log is on the disk, and those who wait for that.
//
// It is not the recovery point: below that the indexes are durable too, and a
// load checks nothing. A sync before an answer is one fdatasync of the .log.
type synced struct {
	to    offsetCell  // everything below is in .log files that are durable, names included
	asked atomic.Bool // a round is to come that begins after now
	// tickets and alone count the syncs that appends asked for by themselves, and
	// those that were made.
	tickets, alone atomic.Uint64
	mu             sync.Mutex // excludes truncation, renaming and deletion from a round; after flushMu, before Log.mu

	waitMu sync.Mutex // a leaf
	moved  *sync.Cond // of waitMu: to has moved, or never will
	notify atomic.Pointer[func()]
}

func (s *synced) init() { s.moved = sync.NewCond(&s.waitMu) }

// raise publishes that everything below offset is durable.
func (s *synced) raise(offset kafka.Offset) (raised bool) {
	for {
		old := s.to.Load()
		if int64(offset) <= old {
			return false
		}
		if s.to.CompareAndSwap(old, int64(offset)) {
			return true
		}
	}
}

// wake has those who wait look again.
func (s *synced) wake() {
	s.waitMu.Lock()
	s.moved.Broadcast()
	s.waitMu.Unlock()
}

// SyncPoint is what an append must wait for before it may be acknowledged. The
// zero value is nothing.
type SyncPoint struct {
	end        kafka.Offset
	generation uint64
	ticket     uint64 // of a sync of its own; 0: any will do
}

// IsZero reports that nothing has to be waited for.
func (p SyncPoint) IsZero() bool { return p.end == 0 }

// SyncedOffset is the offset below which every record survives a power cut.
func (l *Log) SyncedOffset() kafka.Offset { return l.synced.to.get() }

// CommittableOffset is how far this replica lets the high watermark rise: to the
// end of the log, or in a topic that syncs each append only as far as the disk
// has it. A consumer there reads nothing that a power cut could take back.
func (l *Log) CommittableOffset() kafka.Offset {
	end := l.end.get()
	if l.config.Load().SyncsEachAppend() {
		return min(end, l.synced.to.get())
	}
	return end
}

// OnSynced has f called, without any lock of the log, after SyncedOffset has
// moved by a round. It replaces what was given before. f must not wait for a sync.
func (l *Log) OnSynced(f func()) { l.synced.notify.Store(&f) }

// RequestSync asks for a round that covers everything appended so far, and
// does not wait for it.
func (l *Log) RequestSync() { l.requestSync(false) }

func (l *Log) requestSync(alone bool) {
	switch f := l.opts.Flusher; {
	case f == nil:
		l.Sync(alone)
	case alone:
		f.Add(l, true)
	case l.synced.asked.CompareAndSwap(false, true):
		f.Add(l, false)
	}
}

// AwaitSync waits until what p stands for is durable. The error says that it is
// not and will not be: the log went offline, was closed, or cut.
func (l *Log) AwaitSync(p SyncPoint) error {
	if p.IsZero() {
		return nil
	}
	l.synced.waitMu.Lock()
	defer l.synced.waitMu.Unlock()
	for {
		to := l.synced.to.get()
		if l.truncations.Load() != p.generation {
			return ErrCut
		}
		if to >= p.end && l.synced.alone.Load() >= p.ticket {
			return nil
		}
		if err := l.usable(); err != nil {
			return err
		}
		l.synced.moved.Wait()
	}
}

// Sync is one round: it makes durable what was appended before, while appends
// go on, and wakes those who wait for that. The flusher calls it. A failure
// takes the log offline, and its directory with it.
func (l *Log) Sync(alone bool) {
	l.synced.asked.Store(false) // before the end is read: who asks from here on gets another round
	if l.syncRound(alone) {
		l.wakeSynced()
	} else {
		l.synced.wake()
	}
}

// wakeSynced tells that SyncedOffset has moved.
func (l *Log) wakeSynced() {
	if f := l.synced.notify.Load(); f != nil {
		(*f)() // first, so that the high watermark has moved for those who are woken
	}
	l.synced.wake()
}

func (l *Log) syncRound(alone bool) (raised bool) {
	l.synced.mu.Lock()
	defer l.synced.mu.Unlock()
	if l.usable() != nil {
		return false
	}
	end, from := l.end.get(), l.synced.to.get()
	if end <= from && !alone {
		return false
	}
	list := l.segments.Load()
	names := false
	for _, s := range list.span(from, max(end, from+1)) {
		if err := s.SyncData(alone && s == list.active()); err != nil {
			_ = l.fail("sync", err) // kept as the log's failure
			return false
		}
		// A file that is new since then: without its name it is not there.
		names = names || s.BaseOffset() >= from
	}
	if names {
		if err := l.fs.SyncDir(l.Dir()); err != nil {
			_ = l.fail("sync", err)
			return false
		}
	}
	if l.usable() != nil { // it was closed beside this, or another log's sync failed
		return false
	}
	if alone {
		l.synced.alone.Add(1)
	}
	return l.synced.raise(end)
}

// owedLocked is what an append has to wait for before it is acknowledged: its
// own sync, or with flush.messages=N one that leaves fewer than N records to a
// power cut. A duplicate waits too: its first copy may not be durable yet.
func (l *Log) owedLocked(c *Config, info *AppendInfo) SyncPoint {
	if info.LastOffset == kafka.NoOffset {
		return SyncPoint{}
	}
	p := SyncPoint{end: info.LastOffset + 1, generation: l.truncations.Load()}
	synced := l.synced.to.get()
	switch {
	case c.SyncAlone && info.Size > 0:
		p.ticket = l.synced.tickets.Add(1)
		return p
	case p.end > synced && int64(l.end.get()-synced) >= c.FlushMessages:
		return p
	}
	return SyncPoint{}
}
