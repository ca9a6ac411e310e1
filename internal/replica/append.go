package replica

import (
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
)

// acksAll is required acks -1.
const acksAll = -1

// AppendOptions go with Append. The zero value is a client's append with acks=0.
type AppendOptions struct {
	Origin commitlog.Origin
	Acks   int16 // -1, 0 or 1
	// TxnVersion and Guard are those of commitlog.AppendOptions.
	TxnVersion int16
	Guard      producer.Guard
	// InEpoch, when Fenced is set, is the only leader epoch to append in: a
	// coordinator must not write for a leadership that is over.
	InEpoch kafka.LeaderEpoch
	Fenced  bool
}

// AppendInfo is what an append did.
type AppendInfo struct {
	commitlog.AppendInfo
	// Committed says that the high watermark has passed the records, so that
	// acks=all can be answered; otherwise Watch for it with Bound HighWatermark
	// and Offset LastOffset.
	Committed bool
	// Wake says that somebody waits for news: call Partition.Wake once the
	// answer is written.
	Wake bool
}

// Append appends the records field of one partition as its leader and commits
// it as far as the in-sync replicas allow. The bytes of buf are patched, and
// the caller's again afterwards.
//
// Where the topic asks for a sync before the answer, Append has asked for it and
// AppendInfo.Owed goes to AwaitSync; the high watermark follows the disk.
//
// Append wakes nobody: a waiting fetch that ran at once would compete with the
// producer's answer. The caller calls Wake when AppendInfo.Wake says so.
func (p *Partition) Append(buf []byte, o AppendOptions) (AppendInfo, error) {
	p.roleMu.RLock()
	role, err := p.lead(kafka.NoLeaderEpoch)
	if err == nil && o.Origin == commitlog.Client {
		err = p.health.Room()
	}
	if err == nil && o.Fenced && o.InEpoch != role.LeaderEpoch {
		err = ErrNotLeader
	}
	if err == nil && o.Acks == acksAll && len(role.ISR) < role.MinISR {
		err = ErrNotEnoughReplicas
	}
	if err != nil {
		p.roleMu.RUnlock()
		return AppendInfo{}, err
	}
	info, err := p.log.AppendAsLeader(buf, role.LeaderEpoch, commitlog.AppendOptions{
		Origin: o.Origin, TxnVersion: o.TxnVersion, Guard: o.Guard, SyncLater: true,
	})
	raised := false
	if err == nil {
		raised = p.commit(role)
	}
	p.roleMu.RUnlock()
	if info.Size > 0 {
		p.watches.appended(info.Size, info.Rolled)
	}
	if raised {
		p.committed()
	}
	if err != nil {
		p.health.ReadFailed("append", err)
		return AppendInfo{AppendInfo: info}, err
	}
	return AppendInfo{
		AppendInfo: info,
		Committed:  p.log.HighWatermark() > info.LastOffset,
		Wake:       p.watches.waiting(),
	}, nil
}

// AwaitSync waits until an append is durable, so that it can be acknowledged.
// After an error it must not be. The zero point is nothing to wait for.
func (p *Partition) AwaitSync(owed commitlog.SyncPoint) error {
	if owed.IsZero() {
		return nil
	}
	if err := p.log.AwaitSync(owed); err != nil {
		return err
	}
	p.raise() // whoever made the round may not have come to it yet
	return nil
}

// synced follows a round of the log's syncs: what was waiting for it is
// committed. The flusher calls it, and nobody else may be there to wake fetches.
//
// A roll may flush within an append, which holds roleMu: to wait for it here
// behind somebody who wants to change the role would be for ever. Who changes
// the role makes up for it.
func (p *Partition) synced() {
	p.missed.Store(true) // before the attempt: who holds the lock looks after
	if !p.roleMu.TryRLock() {
		return
	}
	p.missed.Store(false)
	p.raiseLocked()
	p.roleMu.RUnlock()
	p.committed() // in any case: a coordinator's is behind it, see CoordinatorLog.HighWatermark
	p.Wake()
}

// raise moves the high watermark as far as the role and the log allow.
func (p *Partition) raise() {
	p.roleMu.RLock()
	raised := p.raiseLocked()
	p.roleMu.RUnlock()
	if raised {
		p.committed()
	}
}

func (p *Partition) raiseLocked() (raised bool) {
	role := p.role.Load()
	return role.leading && p.commit(role)
}

// DeleteRecords raises the log start offset to offset, -1 meaning the high
// watermark, and returns what it is now. The answer is durable.
func (p *Partition) DeleteRecords(offset kafka.Offset) (kafka.Offset, error) {
	p.roleMu.RLock()
	defer p.roleMu.RUnlock()
	if _, err := p.lead(kafka.NoLeaderEpoch); err != nil {
		return kafka.NoOffset, err
	}
	return p.log.DeleteRecordsTo(offset)
}

// commitHook is one caller of OnCommit.
type commitHook struct{ f func() }

// OnCommit has f called after the high watermark has moved, from any goroutine
// and possibly from within Append. f must not block nor call the partition.
func (p *Partition) OnCommit(f func()) (stop func()) {
	hook := &commitHook{f}
	p.changeHooks(func(hooks []*commitHook) []*commitHook { return append(hooks, hook) })
	return func() {
		p.changeHooks(func(hooks []*commitHook) []*commitHook {
			kept := hooks[:0]
			for _, h := range hooks {
				if h != hook {
					kept = append(kept, h)
				}
			}
			return kept
		})
	}
}

// changeHooks publishes a changed copy of the hooks.
func (p *Partition) changeHooks(change func([]*commitHook) []*commitHook) {
	p.hookMu.Lock()
	defer p.hookMu.Unlock()
	var hooks []*commitHook
	if old := p.onCommit.Load(); old != nil {
		hooks = append(hooks, *old...)
	}
	hooks = change(hooks)
	p.onCommit.Store(&hooks)
}

func (p *Partition) committed() {
	if hooks := p.onCommit.Load(); hooks != nil {
		for _, h := range *hooks {
			h.f()
		}
	}
}
