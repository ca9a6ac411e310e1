package group

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// SyncGroup hands out the assignment of a generation. The leader brings it; it
// is recorded before anyone is answered. The others wait for that.
func (m *Machine) SyncGroup(c Context, r *kmsg.SyncGroupRequest) Effects {
	var fx Effects
	if r.Group == "" {
		fx.reply(c.Waiter, syncError(kafka.ErrInvalidGroupID))
		return fx
	}
	size := 0
	for i := range r.GroupAssignment {
		size += len(r.GroupAssignment[i].MemberAssignment)
	}
	if size > maxAssignment {
		fx.reply(c.Waiter, syncError(kafka.ErrInvalidRequest))
		return fx
	}
	g := m.classic[r.Group]
	if g == nil || g.state == Empty {
		fx.reply(c.Waiter, syncError(kafka.ErrUnknownMemberID))
		return fx
	}
	if code := g.checkSync(r); code != kafka.None {
		fx.reply(c.Waiter, syncError(code))
		return fx
	}
	mb := g.member(r.MemberID)
	switch g.state {
	case PreparingRebalance:
		fx.reply(c.Waiter, syncError(kafka.ErrRebalanceInProgress))
	case CompletingRebalance:
		m.synced(&fx, g, mb)
		g.answerSync(&fx, mb, syncError(kafka.ErrRebalanceInProgress)) // a connection that is gone
		mb.sync = c.Waiter
		if g.isLeader(mb.id) {
			m.assign(&fx, g, r)
		}
	case Stable:
		m.synced(&fx, g, mb)
		fx.reply(c.Waiter, g.syncedAnswer(mb))
	}
	return fx
}

func (g *classicGroup) checkSync(r *kmsg.SyncGroupRequest) kafka.ErrorCode {
	if code := g.validate(r.MemberID, r.InstanceID); code != kafka.None {
		return code
	}
	differs := func(asked, is *string) bool { return asked != nil && is != nil && *asked != *is }
	switch {
	case r.Generation != g.generation:
		return kafka.ErrIllegalGeneration
	case differs(r.ProtocolType, g.typeOrNil()), differs(r.Protocol, g.protocol):
		return kafka.ErrInconsistentGroupProtocol
	}
	return kafka.None
}

// synced notes that a member has sent its SyncGroup. The timer stops with the last.
func (m *Machine) synced(fx *Effects, g *classicGroup, mb *member) {
	delete(g.unsynced, mb.id)
	if len(g.unsynced) == 0 {
		fx.cancel(SyncTimer, g.id, "")
	}
}

// assign records the leader's assignment. Members that it left out get an
// empty one.
func (m *Machine) assign(fx *Effects, g *classicGroup, r *kmsg.SyncGroupRequest) {
	assignment := make(map[string][]byte, len(g.members))
	for _, mb := range g.members {
		assignment[mb.id] = []byte{}
	}
	for _, a := range r.GroupAssignment {
		if _, ok := assignment[a.MemberID]; ok {
			assignment[a.MemberID] = append([]byte{}, bytes.Clone(a.MemberAssignment)...)
		}
	}
	generation := g.generation
	fx.record(groupRecord(g, assignment))
	fx.then(func(o Outcome) Effects {
		var fx Effects
		// The group may have moved on while the record was on its way.
		if m.classic[g.id] != g || g.state != CompletingRebalance || g.generation != generation {
			return fx
		}
		if o.Err != kafka.None {
			m.resetAssignment(&fx, g, coordinatorError(o.Err))
			m.rebalanceOrComplete(&fx, g, o.Now)
			return fx
		}
		for _, mb := range g.members {
			mb.assignment = assignment[mb.id]
		}
		g.moveTo(Stable, o.Now)
		m.answerSyncs(&fx, g, func(mb *member) *kmsg.SyncGroupResponse { return g.syncedAnswer(mb) })
		return fx
	})
}

// resetAssignment takes all assignments away and sends the error to all who wait for one.
func (m *Machine) resetAssignment(fx *Effects, g *classicGroup, code kafka.ErrorCode) {
	for _, mb := range g.members {
		mb.assignment = nil
	}
	m.answerSyncs(fx, g, func(*member) *kmsg.SyncGroupResponse { return syncError(code) })
}

// answerSyncs answers all who wait for SyncGroup and starts their sessions anew:
// those that ended while they waited were passed over.
func (m *Machine) answerSyncs(fx *Effects, g *classicGroup, answer func(*member) *kmsg.SyncGroupResponse) {
	for _, mb := range g.members {
		if g.answerSync(fx, mb, answer(mb)) {
			m.heartbeat(fx, g, mb)
		}
	}
}

func (g *classicGroup) syncedAnswer(mb *member) *kmsg.SyncGroupResponse {
	r := syncError(kafka.None)
	r.ProtocolType, r.Protocol, r.MemberAssignment = g.typeOrNil(), g.protocol, mb.assignment
	return r
}

// expireSync removes the members that did not ask for their assignment in time,
// and rebalances without them.
func (m *Machine) expireSync(fx *Effects, g *classicGroup, now kafka.Timestamp) {
	if g.syncsGeneration != g.generation || g.state != CompletingRebalance && g.state != Stable || len(g.unsynced) == 0 {
		return
	}
	for _, mb := range g.snapshot() {
		if _, ok := g.unsynced[mb.id]; ok {
			g.remove(mb.id)
			fx.cancel(SessionTimer, g.id, mb.id)
		}
	}
	m.prepareRebalance(fx, g, now)
}
