package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/invariant"
	"github.com/varvelog/varve/internal/kafka"
)

// State is the state of a classic group.
type State uint8

// The states of a classic group (ClassicGroupState).
const (
	Dead State = iota
	Empty
	PreparingRebalance
	CompletingRebalance
	Stable
)

// String is the state's name on the wire.
func (s State) String() string {
	switch s {
	case Dead:
		return "Dead"
	case Empty:
		return "Empty"
	case PreparingRebalance:
		return "PreparingRebalance"
	case CompletingRebalance:
		return "CompletingRebalance"
	case Stable:
		return "Stable"
	}
	return "Unknown"
}

// mayFollow reports whether the state machine has a move from one state to another.
func mayFollow(from, to State) bool {
	switch to {
	case Empty, CompletingRebalance:
		return from == PreparingRebalance
	case PreparingRebalance:
		return from == Stable || from == CompletingRebalance || from == Empty
	case Stable:
		return from == CompletingRebalance
	}
	return false
}

const consumerProtocolType = "consumer"

// classicGroup is a group of the classic protocol, or a simple group: one
// without a protocol type, which exists because offsets were committed to it.
type classicGroup struct {
	id           string
	state        State
	previous     State           // the state before this one: Empty while the first rebalance runs
	stateSince   kafka.Timestamp // -1 when a record older than version 2 did not say
	protocolType string          // "" for a simple group
	protocol     *string
	generation   int32
	leader       *string // a member's id; nil without members

	members   []*member            // in the order they joined
	byID      map[string]*member   // nil until the first member
	static    map[string]string    // instance id → member id
	pending   map[string]struct{}  // ids given out with MEMBER_ID_REQUIRED and not yet used
	unsynced  map[string]struct{}  // members that have not sent SyncGroup for this generation
	supported map[string]int       // protocol name → how many members support it
	topics    *map[string]struct{} // what consumers subscribe to; nil when not known
	awaiting  int                  // members waiting for the answer to JoinGroup

	// The join timer's job: the initial delay, to be extended while members come,
	// or the end of the join phase.
	initialJoin     bool
	initialAdded    bool          // a member came during this delay
	initialDelay    time.Duration // the delay that is running
	initialLeft     time.Duration // by how much it may be extended
	syncsGeneration int32         // the generation that the sync timer is for
}

// member is one member of a classic group.
type member struct {
	id               string
	instance         *string // group.instance.id of a static member
	clientID         string
	clientHost       string
	rebalanceTimeout int32 // ms
	sessionTimeout   int32 // ms
	protocols        []kmsg.JoinGroupRequestProtocol
	assignment       []byte
	join             Waiter // who waits for the answer to JoinGroup
	sync             Waiter // who waits for the answer to SyncGroup
	fresh            bool   // has never had an answer to JoinGroup, so cannot heartbeat
}

// metadata returns the member's metadata for a protocol, nil when it has none.
func (mb *member) metadata(protocol string) []byte {
	for _, p := range mb.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

// sameProtocols reports whether a rejoin brings nothing new.
func (mb *member) sameProtocols(ps []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(mb.protocols, ps, func(a, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

func (g *classicGroup) member(id string) *member { return g.byID[id] }

func (g *classicGroup) isLeader(id string) bool { return g.leader != nil && *g.leader == id }

func (g *classicGroup) leaderID() string { return deref(g.leader) }

func (g *classicGroup) isConsumer() bool { return g.protocolType == consumerProtocolType }

func (g *classicGroup) isPending(id string) bool { _, ok := g.pending[id]; return ok }

func (g *classicGroup) moveTo(s State, now kafka.Timestamp) {
	if !mayFollow(g.state, s) {
		invariant.Violated("group %q cannot move from %v to %v", g.id, g.state, s)
	}
	g.previous, g.state, g.stateSince = g.state, s, now
}

// add puts a member into the group. The first one decides the protocol type.
func (g *classicGroup) add(mb *member, protocolType string) {
	if g.byID == nil {
		g.byID, g.static = map[string]*member{}, map[string]string{}
		g.supported, g.unsynced = map[string]int{}, map[string]struct{}{}
	}
	if mb.instance != nil {
		g.static[*mb.instance] = mb.id
	}
	if len(g.members) == 0 {
		g.protocolType = protocolType
	}
	if g.leader == nil {
		g.leader = &mb.id
	}
	g.members = append(g.members, mb)
	g.byID[mb.id] = mb
	g.support(mb, 1)
	if mb.join != 0 {
		g.awaiting++
	}
	delete(g.pending, mb.id)
}

// remove takes a member, or the promise of one, out of the group.
func (g *classicGroup) remove(id string) {
	if mb := g.byID[id]; mb != nil {
		delete(g.byID, id)
		i := slices.Index(g.members, mb)
		g.members = slices.Delete(g.members, i, i+1)
		g.support(mb, -1)
		if mb.join != 0 {
			g.awaiting--
		}
		if mb.instance != nil {
			delete(g.static, *mb.instance)
		}
	}
	if g.isLeader(id) {
		g.leader = nil
		if len(g.members) > 0 {
			g.leader = &g.members[0].id
		}
	}
	delete(g.pending, id)
	delete(g.unsynced, id)
}

func (g *classicGroup) support(mb *member, by int) {
	for _, p := range mb.protocols {
		if g.supported[p.Name] += by; g.supported[p.Name] == 0 {
			delete(g.supported, p.Name)
		}
	}
}

func (g *classicGroup) addPending(id string) {
	if g.pending == nil {
		g.pending = map[string]struct{}{}
	}
	g.pending[id] = struct{}{}
}

// supports reports whether a member with these protocols can be in the group.
func (g *classicGroup) supports(protocolType string, ps []kmsg.JoinGroupRequestProtocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(ps) > 0
	}
	return g.protocolType != "" && g.protocolType == protocolType &&
		slices.ContainsFunc(ps, func(p kmsg.JoinGroupRequestProtocol) bool {
			return g.supported[p.Name] == len(g.members)
		})
}

// selectProtocol lets each member vote for the first of its protocols that all
// members support, and returns the one with the most votes. Of protocols with
// as many votes the first one voted for wins.
func (g *classicGroup) selectProtocol() string {
	votes := map[string]int{}
	var best string
	for _, mb := range g.members {
		for _, p := range mb.protocols {
			if g.supported[p.Name] == len(g.members) {
				votes[p.Name]++
				break
			}
		}
	}
	for _, mb := range g.members {
		for _, p := range mb.protocols {
			if votes[p.Name] > votes[best] {
				best = p.Name
			}
		}
	}
	return best
}

func (g *classicGroup) allJoined() bool {
	return len(g.members) == g.awaiting && len(g.pending) == 0
}

// rebalanceTimeout is the longest of the members' rebalance timeouts.
func (g *classicGroup) rebalanceTimeout() time.Duration {
	var ms int32
	for _, mb := range g.members {
		ms = max(ms, mb.rebalanceTimeout)
	}
	return time.Duration(ms) * time.Millisecond
}

// validate checks that a request comes from a member that is not fenced.
func (g *classicGroup) validate(memberID string, instance *string) kafka.ErrorCode {
	if instance != nil {
		switch existing, ok := g.static[*instance]; {
		case !ok:
			return kafka.ErrUnknownMemberID
		case existing != memberID:
			return kafka.ErrFencedInstanceID
		}
	}
	if g.byID[memberID] == nil {
		return kafka.ErrUnknownMemberID
	}
	return kafka.None
}

// electJoinedLeader makes sure that the leader is a member that has joined
// this rebalance. It reports false when there is no such member.
func (g *classicGroup) electJoinedLeader() bool {
	if g.leader == nil {
		return false
	}
	if g.byID[*g.leader].join != 0 {
		return true
	}
	for _, mb := range g.members {
		if mb.join != 0 {
			g.leader = &mb.id
			return true
		}
	}
	return false
}

// nextGeneration ends a rebalance: the group waits for its leader's assignment,
// or is empty when nobody is left.
func (g *classicGroup) nextGeneration(now kafka.Timestamp) {
	g.generation++
	if len(g.members) > 0 {
		p := g.selectProtocol()
		g.protocol = &p
		g.topics = g.subscribedTopics()
		g.moveTo(CompletingRebalance, now)
	} else {
		g.protocol = nil
		g.topics = g.subscribedTopics()
		g.moveTo(Empty, now)
	}
	clear(g.unsynced)
}

// subscribedTopics reads the members' subscriptions. It returns nil for groups
// that are not consumers, and for subscriptions that cannot be read.
func (g *classicGroup) subscribedTopics() *map[string]struct{} {
	if !g.isConsumer() {
		return nil
	}
	topics := map[string]struct{}{}
	if len(g.members) == 0 {
		return &topics
	}
	if g.protocol == nil {
		return nil
	}
	for _, mb := range g.members {
		names, ok := subscriptionTopics(mb.metadata(*g.protocol))
		if !ok {
			return nil
		}
		for _, name := range names {
			topics[name] = struct{}{}
		}
	}
	return &topics
}

// subscribes reports whether the group may be reading the topic: a group of
// consumers whose subscriptions are not known may be reading any.
func (g *classicGroup) subscribes(topic string) bool {
	if g.topics == nil {
		return g.isConsumer()
	}
	_, ok := (*g.topics)[topic]
	return ok
}

// update takes over what a rejoining member brings.
func (g *classicGroup) update(fx *Effects, mb *member, r *kmsg.JoinGroupRequest, to Waiter) {
	g.support(mb, -1)
	mb.protocols = r.Protocols
	g.support(mb, 1)
	mb.rebalanceTimeout, mb.sessionTimeout = r.RebalanceTimeoutMillis, r.SessionTimeoutMillis
	g.await(fx, mb, to)
}

// await parks a join. Whoever was parked before, a connection that is gone,
// is told to try again so that no answer stays owed.
func (g *classicGroup) await(fx *Effects, mb *member, to Waiter) {
	g.answerJoin(fx, mb, joinError(mb.id, kafka.ErrRebalanceInProgress))
	if mb.join = to; to != 0 {
		g.awaiting++
	}
}

func (g *classicGroup) answerJoin(fx *Effects, mb *member, r *kmsg.JoinGroupResponse) bool {
	if mb.join == 0 {
		return false
	}
	fx.reply(mb.join, r)
	mb.join = 0
	g.awaiting--
	return true
}

func (g *classicGroup) answerSync(fx *Effects, mb *member, r *kmsg.SyncGroupResponse) bool {
	if mb.sync == 0 {
		return false
	}
	fx.reply(mb.sync, r)
	mb.sync = 0
	return true
}

// joined is the answer to JoinGroup that describes the current generation. Only
// the leader is told who the members are.
func (g *classicGroup) joined(mb *member) *kmsg.JoinGroupResponse {
	r := joinError(mb.id, kafka.None)
	r.Generation = g.generation
	r.ProtocolType, r.Protocol = g.typeOrNil(), g.protocol
	r.LeaderID = g.leaderID()
	if g.isLeader(mb.id) {
		r.Members = g.joinMembers()
	}
	return r
}

func (g *classicGroup) joinMembers() []kmsg.JoinGroupResponseMember {
	list := make([]kmsg.JoinGroupResponseMember, 0, len(g.members))
	for _, mb := range g.members {
		e := kmsg.NewJoinGroupResponseMember()
		e.MemberID, e.InstanceID, e.ProtocolMetadata = mb.id, mb.instance, mb.metadata(deref(g.protocol))
		list = append(list, e)
	}
	return list
}

// typeOrNil returns a copy of the protocol type, since answers outlive the call.
func (g *classicGroup) typeOrNil() *string {
	if g.protocolType == "" {
		return nil
	}
	t := g.protocolType
	return &t
}

// assignments returns the current assignment of every member by its id.
func (g *classicGroup) assignments() map[string][]byte {
	a := make(map[string][]byte, len(g.members))
	for _, mb := range g.members {
		a[mb.id] = mb.assignment
	}
	return a
}

func joinError(memberID string, code kafka.ErrorCode) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupResponse()
	r.ErrorCode, r.MemberID, r.Generation = int16(code), memberID, -1
	return r
}

func syncError(code kafka.ErrorCode) *kmsg.SyncGroupResponse {
	r := kmsg.NewPtrSyncGroupResponse()
	r.ErrorCode = int16(code)
	return r
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
