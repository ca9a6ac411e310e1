// Package replica is this broker's part in its partitions: leading them, in
// which epoch, how far they are committed, and who waits for news of them.
//
// Before it on the path: broker, which answers requests, and coordinator, whose
// state lies in internal partitions. After it: commitlog for the records and
// logdir for where they lie.
package replica

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
)

// Partition is one partition that has a replica on this broker. It stays the
// same object until the topic is deleted, or until another attempt at opening
// its log succeeds: then another one takes its place.
type Partition struct {
	tp      kafka.TopicPartition
	topicID kafka.TopicID
	self    kafka.BrokerID
	log     *commitlog.Log // nil: it could not be opened, and failure says why
	health  logdir.Health
	failure error // set before the partition is published, then constant

	// roleMu keeps the role in place while records are appended in its epoch.
	// Changing it waits for the appends under way.
	roleMu sync.RWMutex
	role   atomic.Pointer[Role] // never nil; replaced under roleMu
	// missed: news of the disk came while the role was being changed.
	missed atomic.Bool

	watches  watches
	onCommit atomic.Pointer[[]*commitHook]
	hookMu   sync.Mutex // guards changes of onCommit
}

// Role is what the metadata says about a partition. It is never changed once
// it was published.
type Role struct {
	Leader         kafka.BrokerID // kafka.NoBroker: none
	LeaderEpoch    kafka.LeaderEpoch
	PartitionEpoch int32
	Replicas, ISR  []kafka.BrokerID
	// MinISR is min.insync.replicas of the topic, capped by the replicas.
	MinISR int
	// EpochStart is the end of the log when this broker began to lead.
	EpochStart kafka.Offset

	leading bool // this broker is the leader and ready for appends
	deleted bool
}

// Name is the topic and the number of the partition.
func (p *Partition) Name() kafka.TopicPartition { return p.tp }

// TopicID is the id of the topic.
func (p *Partition) TopicID() kafka.TopicID { return p.topicID }

// Role is what the metadata says now.
func (p *Partition) Role() *Role { return p.role.Load() }

// LeaderEpoch is the current leader epoch.
func (p *Partition) LeaderEpoch() kafka.LeaderEpoch { return p.role.Load().LeaderEpoch }

// Err says why nothing can be read or written: deleted, or offline. Nil while
// all is well, also when another broker leads.
func (p *Partition) Err() error {
	if p.role.Load().deleted {
		return ErrUnknownPartition
	}
	if p.failure != nil {
		return p.failure
	}
	if err := p.health.Err(); err != nil {
		return &storageError{err}
	}
	return nil
}

// Log is the partition's log for what needs no leader, such as its size. It is
// nil when the log could not be opened; Err is not nil then.
func (p *Partition) Log() *commitlog.Log { return p.log }

// Lead returns the log when this broker leads the partition in the epoch that
// the request names; kafka.NoLeaderEpoch names none. The errors are Err's,
// ErrNotLeader, ErrFencedEpoch and ErrUnknownEpoch.
func (p *Partition) Lead(current kafka.LeaderEpoch) (*commitlog.Log, error) {
	if err := p.CheckEpoch(current); err != nil {
		return nil, err
	}
	return p.log, nil
}

// CheckEpoch is Lead without the log (Partition.checkCurrentLeaderEpoch).
func (p *Partition) CheckEpoch(current kafka.LeaderEpoch) error {
	_, err := p.lead(current)
	return err
}

func (p *Partition) lead(current kafka.LeaderEpoch) (*Role, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	role := p.role.Load()
	switch {
	case current != kafka.NoLeaderEpoch && current < role.LeaderEpoch:
		return nil, ErrFencedEpoch
	case current > role.LeaderEpoch:
		return nil, ErrUnknownEpoch
	case !role.leading:
		return nil, ErrNotLeader
	}
	return role, nil
}

// apply takes over what the metadata says. A new epoch that this broker leads
// is in the epoch file before the first append (faults O12).
func (p *Partition) apply(next Role) error {
	var err error
	p.change(func() { err = p.applyLocked(next) })
	p.WakeAll()
	return err
}

// change runs f, which replaces the role, when no append is under way.
func (p *Partition) change(f func()) {
	p.roleMu.Lock()
	f()
	p.roleMu.Unlock()
	if p.missed.Load() {
		p.synced()
	}
}

func (p *Partition) applyLocked(next Role) error {
	old := p.role.Load()
	next.leading = next.Leader == p.self && p.log != nil && p.Err() == nil
	next.deleted = old.deleted
	switch {
	case !next.leading:
	case old.leading && old.LeaderEpoch == next.LeaderEpoch:
		next.EpochStart = old.EpochStart
	default:
		next.EpochStart = p.log.EndOffset()
		if err := p.log.AssignEpoch(next.LeaderEpoch, next.EpochStart); err != nil {
			next.leading = false
			p.role.Store(&next)
			return fmt.Errorf("lead %s in epoch %d: %w", p.tp, next.LeaderEpoch, err)
		}
	}
	p.role.Store(&next)
	if next.leading {
		p.commit(&next)
		if p.log.CommittableOffset() < p.log.EndOffset() {
			p.log.RequestSync() // of what a recovery found; nobody waits for it
		}
	}
	return nil
}

// SetMinISR takes over a changed min.insync.replicas.
func (p *Partition) SetMinISR(n int) {
	p.change(func() {
		next := *p.role.Load()
		next.MinISR = min(n, len(next.Replicas))
		p.role.Store(&next)
	})
}

// commit raises the high watermark as far as the in-sync replicas allow. Alone
// in the set, that is the end of the log, or what is durable of it where the
// topic syncs each append; below min.insync.replicas it does not
// move at all (Partition.maybeIncrementLeaderHW).
func (p *Partition) commit(role *Role) (raised bool) {
	if len(role.ISR) < role.MinISR || !role.alone(p.self) {
		return false
	}
	return p.log.MaybeIncrementHighWatermark(p.log.CommittableOffset())
}

// alone reports whether self is the only in-sync replica.
func (r *Role) alone(self kafka.BrokerID) bool { return len(r.ISR) == 1 && r.ISR[0] == self }

// HasReplica reports whether a broker has a replica of the partition.
func (r *Role) HasReplica(id kafka.BrokerID) bool { return slices.Contains(r.Replicas, id) }

// Leading reports whether this broker leads the partition now.
func (p *Partition) Leading() bool { return p.Err() == nil && p.role.Load().leading }

// markDeleted ends the partition: appends under way end first, everybody who
// waits is woken, and every later call is ErrUnknownPartition.
func (p *Partition) markDeleted() {
	p.change(func() {
		next := *p.role.Load()
		next.leading, next.deleted = false, true
		p.role.Store(&next)
	})
	p.WakeAll()
}
