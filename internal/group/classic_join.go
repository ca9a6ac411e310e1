package group

import (
	"bytes"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// JoinGroup takes a member into a group, or back into it. The answer comes when
// the join phase of the rebalance ends. From version 4 on a dynamic member
// without an id is given one and asked to come again (KIP-394).
func (m *Machine) JoinGroup(c Context, r *kmsg.JoinGroupRequest) Effects {
	var fx Effects
	if code := m.checkJoin(r); code != kafka.None {
		fx.reply(c.Waiter, joinError(r.MemberID, code))
		return fx
	}
	r = ownJoin(r)
	if mg := m.modern[r.Group]; mg != nil {
		if mg.kind != Consumer || len(mg.members) > 0 {
			fx.reply(c.Waiter, joinError("", kafka.ErrInconsistentGroupProtocol))
			return fx
		}
		// An empty KIP-848 group becomes a classic one. A member id can only be
		// one that the group does not know.
		if r.MemberID != "" {
			fx.reply(c.Waiter, joinError(r.MemberID, kafka.ErrUnknownMemberID))
			return fx
		}
		mg.tombstones(&fx)
		delete(m.modern, r.Group)
		return m.joinNewGroup(fx, c, r, mg)
	}
	g := m.classic[r.Group]
	if g == nil {
		if r.MemberID != "" {
			fx.reply(c.Waiter, joinError(r.MemberID, kafka.ErrUnknownMemberID))
			return fx
		}
		return m.joinNewGroup(fx, c, r, nil)
	}
	m.joinClassic(&fx, g, c, r)
	return fx
}

// checkJoin holds the checks that need no group.
func (m *Machine) checkJoin(r *kmsg.JoinGroupRequest) kafka.ErrorCode {
	session := time.Duration(r.SessionTimeoutMillis) * time.Millisecond
	switch {
	case r.Group == "":
		return kafka.ErrInvalidGroupID
	case session < m.cfg.MinSessionTimeout || session > m.cfg.MaxSessionTimeout:
		return kafka.ErrInvalidSessionTimeout
	}
	size := 0
	for _, p := range r.Protocols {
		size += len(p.Name) + len(p.Metadata)
	}
	if size > maxMemberMetadata || len(r.Group) > maxID || r.InstanceID != nil && len(*r.InstanceID) > maxID {
		return kafka.ErrInvalidRequest
	}
	return kafka.None
}

// What a member may bring: it is kept in memory, and written into one record.
const (
	maxMemberMetadata = 1 << 20
	maxAssignment     = 4 << 20 // of all members together
	maxID             = 1024    // of a group, and of an instance
)

// ownJoin copies what the group keeps of a request beyond the life of its
// frame. Of protocols with the same name the first counts; version 0 knows no
// rebalance timeout and uses the session timeout.
func ownJoin(r *kmsg.JoinGroupRequest) *kmsg.JoinGroupRequest {
	own := *r
	own.Protocols = make([]kmsg.JoinGroupRequestProtocol, 0, len(r.Protocols))
	seen := make(map[string]struct{}, len(r.Protocols))
	for _, p := range r.Protocols {
		if _, dup := seen[p.Name]; dup {
			continue
		}
		seen[p.Name] = struct{}{}
		p.Metadata = bytes.Clone(p.Metadata)
		own.Protocols = append(own.Protocols, p)
	}
	if r.Version == 0 {
		own.RebalanceTimeoutMillis = r.SessionTimeoutMillis
	}
	return &own
}

// joinNewGroup creates the group that a member wants to join. Its existence is
// recorded before the member is answered; was is the empty KIP-848 group that
// it replaces, if there was one.
func (m *Machine) joinNewGroup(fx Effects, c Context, r *kmsg.JoinGroupRequest, was *modernGroup) Effects {
	g := m.createClassic(r.Group, c.Now)
	m.joinClassic(&fx, g, c, r)
	fx.record(emptyGroupRecord(g))
	answers := fx.Replies
	fx.Replies = nil
	fx.then(func(o Outcome) Effects {
		var fx Effects
		if o.Err == kafka.None {
			fx.Replies = answers
			return fx
		}
		if !o.Appended && m.classic[g.id] == g {
			m.forget(&fx, g)
			if was != nil {
				m.modern[was.id] = was
			}
		}
		owed := len(answers) > 0
		for _, mb := range g.members {
			if mb.join == c.Waiter {
				mb.join, owed = 0, true
				g.awaiting--
			}
		}
		if owed { // else the rebalance was over before the record's time was
			fx.reply(c.Waiter, joinError("", coordinatorError(o.Err)))
		}
		return fx
	})
	return fx
}

// forget removes a group that has never become known, and its timers.
func (m *Machine) forget(fx *Effects, g *classicGroup) {
	delete(m.classic, g.id)
	fx.cancel(JoinTimer, g.id, "")
	fx.cancel(SyncTimer, g.id, "")
	for _, mb := range g.members {
		fx.cancel(SessionTimer, g.id, mb.id)
	}
	for id := range g.pending {
		fx.cancel(SessionTimer, g.id, id)
	}
}

func (m *Machine) joinClassic(fx *Effects, g *classicGroup, c Context, r *kmsg.JoinGroupRequest) {
	switch {
	case !m.accepts(g, r.MemberID):
		g.remove(r.MemberID)
		fx.reply(c.Waiter, joinError("", kafka.ErrGroupMaxSizeReached))
	case !g.supports(r.ProtocolType, r.Protocols):
		fx.reply(c.Waiter, joinError(r.MemberID, kafka.ErrInconsistentGroupProtocol))
	case r.MemberID != "":
		m.rejoin(fx, g, c, r)
	case r.InstanceID != nil:
		id := *r.InstanceID + "-" + m.cfg.NewID()
		if old, ok := g.static[*r.InstanceID]; ok {
			m.replaceStatic(fx, g, c, r, g.member(old), id)
		} else {
			m.addMember(fx, g, c, r, id)
		}
	default:
		id := idPrefix(c.ClientID) + "-" + m.cfg.NewID()
		if r.Version < 4 {
			m.addMember(fx, g, c, r, id)
			return
		}
		if len(g.pending) >= maxPending {
			fx.reply(c.Waiter, joinError("", kafka.ErrGroupMaxSizeReached))
			return
		}
		g.addPending(id)
		fx.set(SessionTimer, g.id, id, time.Duration(r.SessionTimeoutMillis)*time.Millisecond)
		fx.reply(c.Waiter, joinError(id, kafka.ErrMemberIDRequired))
	}
}

// An id that was given out is remembered until its session timeout, which the
// client chooses, and costs it nothing: so many of a group, and so much of a
// client's id in each.
const (
	maxPending  = 1000
	maxIDPrefix = 256
)

// idPrefix is what the member ids of a client begin with.
func idPrefix(clientID string) string {
	if len(clientID) > maxIDPrefix {
		return strings.ToValidUTF8(clientID[:maxIDPrefix], "")
	}
	return clientID
}

// accepts reports whether the group has room for the member. While a rebalance
// is prepared those that have joined count, so that a group over its limit
// sheds the last to come; later all members count.
func (m *Machine) accepts(g *classicGroup, memberID string) bool {
	mb := g.member(memberID)
	switch g.state {
	case PreparingRebalance:
		return mb != nil && mb.join != 0 || g.awaiting < m.cfg.MaxSize
	case CompletingRebalance, Stable:
		return mb != nil || len(g.members) < m.cfg.MaxSize
	}
	return true
}

// addMember takes a new member in and rebalances. It cannot heartbeat until it
// has had an answer, so its session is the time it may wait for that.
func (m *Machine) addMember(fx *Effects, g *classicGroup, c Context, r *kmsg.JoinGroupRequest, id string) {
	mb := &member{
		id:               id,
		instance:         r.InstanceID,
		clientID:         c.ClientID,
		clientHost:       c.ClientHost,
		rebalanceTimeout: r.RebalanceTimeoutMillis,
		sessionTimeout:   r.SessionTimeoutMillis,
		protocols:        r.Protocols,
		join:             c.Waiter,
		fresh:            true,
	}
	if g.state == PreparingRebalance && g.previous == Empty {
		g.initialAdded = true
	}
	g.add(mb, r.ProtocolType)
	fx.set(SessionTimer, g.id, id, m.cfg.NewMemberJoinTimeout)
	m.rebalanceOrComplete(fx, g, c.Now)
}

// rejoin handles a join with a member id.
func (m *Machine) rejoin(fx *Effects, g *classicGroup, c Context, r *kmsg.JoinGroupRequest) {
	if g.isPending(r.MemberID) {
		if r.InstanceID != nil { // ids of static members are never pending
			fx.reply(c.Waiter, joinError(r.MemberID, kafka.ErrUnknownMemberID))
			return
		}
		m.addMember(fx, g, c, r, r.MemberID)
		return
	}
	if code := g.validate(r.MemberID, r.InstanceID); code != kafka.None {
		fx.reply(c.Waiter, joinError(r.MemberID, code))
		return
	}
	mb := g.member(r.MemberID)
	same := mb.sameProtocols(r.Protocols)
	switch {
	case g.state == CompletingRebalance && same, g.state == Stable && same && !g.isLeader(mb.id):
		// It may have missed the answer, or wants to sync again: the current
		// generation stands. A leader's join in a stable group always counts as
		// a wish to rebalance, since the topics may have changed.
		fx.reply(c.Waiter, g.joined(mb))
	case g.state == Empty:
		fx.reply(c.Waiter, joinError(r.MemberID, kafka.ErrUnknownMemberID))
	default:
		g.update(fx, mb, r, c.Waiter)
		m.rebalanceOrComplete(fx, g, c.Now)
	}
}

// replaceStatic gives a static member that comes back without an id a new one
// (KIP-345). The old id is fenced at once. In a stable group whose protocol
// stays the same nothing else changes: the new id is recorded and answered
// without a rebalance.
func (m *Machine) replaceStatic(fx *Effects, g *classicGroup, c Context, r *kmsg.JoinGroupRequest, old *member, id string) {
	wasLeader := g.leaderID()
	mb := g.swap(fx, old, id)
	before := *mb
	fx.cancel(SessionTimer, g.id, old.id)
	m.heartbeat(fx, g, mb)
	g.update(fx, mb, r, c.Waiter)

	switch {
	case g.state == Stable && g.selectProtocol() == deref(g.protocol):
		fx.record(groupRecord(g, g.assignments()))
		fx.then(func(o Outcome) Effects {
			return m.staticReplaced(g, mb, old, before, wasLeader, c.Waiter, r.Version, o)
		})
	case g.state == Stable:
		m.rebalanceOrComplete(fx, g, c.Now)
	case g.state == CompletingRebalance:
		// The leader may have been told the old id already, so its assignment
		// would miss the new one.
		m.prepareRebalance(fx, g, c.Now)
	default:
		m.maybeComplete(fx, g, c.Now)
	}
}

// swap puts a new id in the place of a static member and fences the old one.
func (g *classicGroup) swap(fx *Effects, old *member, id string) *member {
	g.answerJoin(fx, old, joinError(old.id, kafka.ErrFencedInstanceID))
	g.answerSync(fx, old, syncError(kafka.ErrFencedInstanceID))
	mb := *old
	mb.id, mb.fresh = id, false
	g.put(old, &mb)
	return &mb
}

// put replaces one member by another with the same instance id.
func (g *classicGroup) put(old, mb *member) {
	for i := range g.members {
		if g.members[i] == old {
			g.members[i] = mb
		}
	}
	delete(g.byID, old.id)
	delete(g.unsynced, old.id)
	g.byID[mb.id] = mb
	g.static[*mb.instance] = mb.id
	if g.isLeader(old.id) {
		g.leader = &mb.id
	}
}

// staticReplaced answers a static member once its new id is recorded, or takes
// the replacement back when the record could not be appended.
func (m *Machine) staticReplaced(g *classicGroup, mb, old *member, before member, wasLeader string, to Waiter, version int16, o Outcome) Effects {
	var fx Effects
	if o.Err == kafka.None {
		answer := g.joined(mb)
		if answer.SkipAssignment = version >= 9 && g.isLeader(mb.id); version < 9 {
			// Before KIP-814 a leader would compute an assignment that nobody
			// waits for, so it is told that the old id leads.
			answer.Members, answer.LeaderID = nil, wasLeader
		}
		if mb.join == to {
			g.answerJoin(&fx, mb, answer)
		}
		return fx
	}
	if mb.join == to {
		answer := g.joined(mb)
		answer.ErrorCode, answer.MemberID = int16(coordinatorError(o.Err)), ""
		answer.LeaderID, answer.Members = wasLeader, nil
		g.answerJoin(&fx, mb, answer)
	}
	if !o.Appended && g.member(mb.id) == mb {
		g.support(mb, -1)
		restored := before
		restored.id = old.id
		g.put(mb, &restored)
		g.support(&restored, 1)
		fx.cancel(SessionTimer, g.id, mb.id)
		m.heartbeat(&fx, g, &restored)
	}
	return fx
}
