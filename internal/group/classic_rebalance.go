package group

import (
	"time"

	"github.com/varvelog/varve/internal/kafka"
)

// rebalanceOrComplete starts a rebalance where one can start, and otherwise
// sees whether the one that runs has all its members.
func (m *Machine) rebalanceOrComplete(fx *Effects, g *classicGroup, now kafka.Timestamp) {
	if mayFollow(g.state, PreparingRebalance) {
		m.prepareRebalance(fx, g, now)
		return
	}
	m.maybeComplete(fx, g, now)
}

// prepareRebalance begins the join phase. A group that was empty waits for
// group.initial.rebalance.delay.ms so that members that start together end up
// in one generation; any other waits until all its members have rejoined.
func (m *Machine) prepareRebalance(fx *Effects, g *classicGroup, now kafka.Timestamp) {
	if g.state == CompletingRebalance {
		m.resetAssignment(fx, g, kafka.ErrRebalanceInProgress)
	}
	clear(g.unsynced)
	fx.cancel(SyncTimer, g.id, "")

	initial := g.state == Empty
	g.moveTo(PreparingRebalance, now)
	g.initialJoin = initial
	switch {
	case initial:
		g.initialAdded = false
		g.initialDelay = m.cfg.InitialRebalanceDelay
		g.initialLeft = max(g.rebalanceTimeout()-m.cfg.InitialRebalanceDelay, 0)
		fx.set(JoinTimer, g.id, "", g.initialDelay)
	case g.allJoined():
		m.completeJoin(fx, g, now)
	default:
		fx.set(JoinTimer, g.id, "", g.rebalanceTimeout())
	}
}

// endInitialDelay extends the initial delay when members have come during it,
// up to the longest rebalance timeout, and else ends the join phase.
func (m *Machine) endInitialDelay(fx *Effects, g *classicGroup, now kafka.Timestamp) {
	if !g.initialAdded || g.initialLeft == 0 {
		m.completeJoin(fx, g, now)
		return
	}
	g.initialAdded = false
	delay := min(m.cfg.InitialRebalanceDelay, g.initialLeft)
	g.initialLeft = max(g.initialLeft-g.initialDelay, 0)
	g.initialDelay = delay
	fx.set(JoinTimer, g.id, "", delay)
}

// maybeComplete ends the join phase when everyone is there. The initial delay
// is always waited for.
func (m *Machine) maybeComplete(fx *Effects, g *classicGroup, now kafka.Timestamp) {
	if g.state == PreparingRebalance && g.previous != Empty && g.allJoined() {
		m.completeJoin(fx, g, now)
	}
}

// completeJoin ends the join phase: dynamic members that did not rejoin are
// dropped, static ones stay, and the rest become the next generation.
func (m *Machine) completeJoin(fx *Effects, g *classicGroup, now kafka.Timestamp) {
	if g.state != PreparingRebalance {
		return
	}
	fx.cancel(JoinTimer, g.id, "")
	g.initialJoin = false
	for _, mb := range g.snapshot() {
		if mb.join == 0 && mb.instance == nil {
			g.remove(mb.id)
			fx.cancel(SessionTimer, g.id, mb.id)
		}
	}
	if !g.electJoinedLeader() && len(g.members) > 0 {
		// Only static members are left and none has come back: wait until they
		// do, or their sessions end.
		fx.set(JoinTimer, g.id, "", g.rebalanceTimeout())
		return
	}
	g.nextGeneration(now)
	if g.state == Empty {
		fx.record(groupRecord(g, nil))
		return
	}
	for _, mb := range g.members {
		g.answerJoin(fx, mb, g.joined(mb))
		m.heartbeat(fx, g, mb)
		mb.fresh = false
		g.unsynced[mb.id] = struct{}{}
	}
	g.syncsGeneration = g.generation
	fx.set(SyncTimer, g.id, "", g.rebalanceTimeout())
}

// snapshot returns the members for a loop that removes some.
func (g *classicGroup) snapshot() []*member { return append([]*member(nil), g.members...) }

// heartbeat gives a member another session.
func (m *Machine) heartbeat(fx *Effects, g *classicGroup, mb *member) {
	fx.set(SessionTimer, g.id, mb.id, time.Duration(mb.sessionTimeout)*time.Millisecond)
}

// expireMember ends the session of a member, or of an id that never joined.
// Members that wait for the group, and not the group for them, stay; except
// that one that has waited for its first answer too long is given up.
func (m *Machine) expireMember(fx *Effects, g *classicGroup, id string, now kafka.Timestamp) {
	if g.isPending(id) {
		g.remove(id)
		if g.state == PreparingRebalance && g.allJoined() {
			m.completeJoin(fx, g, now)
		}
		return
	}
	mb := g.member(id)
	if mb == nil || !mb.fresh && (mb.join != 0 || mb.sync != 0) {
		return
	}
	m.dropMember(fx, g, mb)
	switch {
	case g.state == Stable || g.state == CompletingRebalance:
		m.prepareRebalance(fx, g, now)
	case g.state == PreparingRebalance && g.allJoined():
		m.completeJoin(fx, g, now)
	}
}

// dropMember removes a member. If it still waits it is told that it is unknown,
// so that a client that lives joins anew.
func (m *Machine) dropMember(fx *Effects, g *classicGroup, mb *member) {
	g.answerJoin(fx, mb, joinError("", kafka.ErrUnknownMemberID))
	g.answerSync(fx, mb, syncError(kafka.ErrUnknownMemberID))
	g.remove(mb.id)
	fx.cancel(SessionTimer, g.id, mb.id)
}
