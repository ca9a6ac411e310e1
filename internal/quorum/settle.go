package quorum

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// put makes a batch durable, behind what waits for room. While the broker
// starts, a batch that finds no room waits too (faults S5): it tells of this
// process alone, and one that dies before it is written begins again.
func (q *Quorum) put(batch record.Batch) error {
	err := q.settle()
	if err == nil {
		err = q.appendDurably(batch)
	}
	if !errors.Is(err, commitlog.ErrFull) {
		return err
	}
	q.mu.Lock()
	starting := q.starting
	q.mu.Unlock()
	if !starting {
		return err
	}
	if len(q.owed) == 0 {
		q.o.Logger.Error("disk full", "event", "disk-full", "dir", q.o.Dir, "op", "metadata", "err", err,
			"hint", "make room; what the start has to write is written then, and writes resume by themselves")
	}
	q.owed = append(q.owed, batch)
	return nil
}

// settle writes what waits for room. commitlog.ErrFull: there is none yet.
func (q *Quorum) settle() error {
	if q.owedState != nil {
		err := checkpoint.WriteQuorumState(q.o.FS, q.path(checkpoint.QuorumStateFile), *q.owedState)
		if vfs.IsFull(err) {
			err = fmt.Errorf("%w: %w", commitlog.ErrFull, err)
		}
		if err != nil {
			return err
		}
		q.owedState = nil
	}
	for len(q.owed) > 0 {
		if err := q.appendDurably(q.owed[0]); err != nil {
			return err
		}
		q.owed = q.owed[1:]
	}
	return nil
}

// owes reports whether something waits for room. The caller writes, or holds the
// lock while nobody does.
func (q *Quorum) owes() bool { return q.owedState != nil || len(q.owed) > 0 }

// EndStart says that the records of the start are given: from now on one that
// finds no room is refused. It reports whether any of them wait for room.
func (q *Quorum) EndStart() (owes bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.writing {
		q.changed.Wait()
	}
	q.starting = false
	return q.owes()
}

// Settle tries to write what waits for room; nil says that nothing does any
// more. Every Update tries it too.
func (q *Quorum) Settle() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.writing {
		q.changed.Wait()
	}
	if q.failed != nil || !q.owes() {
		return q.failed
	}
	q.writing = true
	q.mu.Unlock()
	err := q.settle()
	q.mu.Lock()
	q.writing = false
	if err != nil && !errors.Is(err, commitlog.ErrFull) {
		q.failLocked(err)
	}
	q.changed.Broadcast()
	return err
}
