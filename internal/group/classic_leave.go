package group

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// Heartbeat gives a member another session and tells it whether to rejoin.
func (m *Machine) Heartbeat(c Context, r *kmsg.HeartbeatRequest) Effects {
	var fx Effects
	a := kmsg.NewPtrHeartbeatResponse()
	a.ErrorCode = int16(m.beat(&fx, r))
	fx.reply(c.Waiter, a)
	return fx
}

func (m *Machine) beat(fx *Effects, r *kmsg.HeartbeatRequest) kafka.ErrorCode {
	if r.Group == "" {
		return kafka.ErrInvalidGroupID
	}
	g := m.classic[r.Group]
	if g == nil {
		return kafka.ErrUnknownMemberID
	}
	if code := g.validate(r.MemberID, r.InstanceID); code != kafka.None {
		return code
	}
	if r.Generation != g.generation {
		return kafka.ErrIllegalGeneration
	}
	m.heartbeat(fx, g, g.member(r.MemberID))
	if g.state == PreparingRebalance {
		return kafka.ErrRebalanceInProgress
	}
	return kafka.None
}

// LeaveGroup removes members, by id or, for static ones, by instance id alone.
// Versions 0 to 2 name one member, and its error is the answer's.
func (m *Machine) LeaveGroup(c Context, r *kmsg.LeaveGroupRequest) Effects {
	var fx Effects
	a := kmsg.NewPtrLeaveGroupResponse()
	members := r.Members
	if r.Version < 3 {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: r.MemberID}}
	}
	if r.Group == "" {
		a.ErrorCode = int16(kafka.ErrInvalidGroupID)
		fx.reply(c.Waiter, a)
		return fx
	}
	g := m.classic[r.Group]
	left := false
	for _, one := range members {
		code := kafka.ErrUnknownMemberID
		if g != nil {
			code = m.leave(&fx, g, one)
		}
		left = left || code == kafka.None
		row := kmsg.NewLeaveGroupResponseMember()
		row.MemberID, row.InstanceID, row.ErrorCode = one.MemberID, one.InstanceID, int16(code)
		a.Members = append(a.Members, row)
	}
	if r.Version < 3 {
		a.ErrorCode, a.Members = a.Members[0].ErrorCode, nil
	}
	if left {
		switch g.state {
		case Stable, CompletingRebalance:
			m.prepareRebalance(&fx, g, c.Now)
		case PreparingRebalance:
			m.maybeComplete(&fx, g, c.Now)
		}
	}
	if len(fx.Records) == 0 {
		fx.reply(c.Waiter, a)
		return fx
	}
	fx.then(func(o Outcome) Effects {
		var fx Effects
		if o.Err != kafka.None {
			a.ErrorCode, a.Members = int16(coordinatorError(o.Err)), nil
		}
		fx.reply(c.Waiter, a)
		return fx
	})
	return fx
}

func (m *Machine) leave(fx *Effects, g *classicGroup, one kmsg.LeaveGroupRequestMember) kafka.ErrorCode {
	id := one.MemberID
	switch {
	case id == "":
		if one.InstanceID == nil {
			return kafka.ErrUnknownMemberID
		}
		existing, ok := g.static[*one.InstanceID]
		if !ok {
			return kafka.ErrUnknownMemberID
		}
		id = existing
	case g.isPending(id):
		g.remove(id)
		fx.cancel(SessionTimer, g.id, id)
		return kafka.None
	default:
		if code := g.validate(id, one.InstanceID); code != kafka.None {
			return code
		}
	}
	m.dropMember(fx, g, g.member(id))
	return kafka.None
}
