package group

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/varvelog/varve/internal/kafka"
)

// world is a group under random clients, lost answers, failing appends, held
// commits, time and restarts.
type world struct {
	*harness
	waiter  Waiter
	open    map[Waiter]bool        // requests that are owed an answer
	clients map[string]*client     // by client id
	seen    map[int32]genesis      // generation → what the leader was told
	highest int32                  // generation
	offsets map[int32]kafka.Offset // what was acknowledged
	checked int                    // replies looked at
}

type client struct {
	id         string
	instance   string
	member     string
	generation int32
	join, sync Waiter
	leader     bool
	members    []string
}

type genesis struct {
	leader  string
	members []string
}

func newWorld() *world {
	h := newHarness()
	h.quiet = true
	h.cfg.MaxSize = 5
	h.m = New(h.cfg)
	return &world{harness: h, open: map[Waiter]bool{}, clients: map[string]*client{}, seen: map[int32]genesis{}, offsets: map[int32]kafka.Offset{}}
}

func (w *world) context(c *client) Context {
	w.waiter++
	w.open[w.waiter] = true
	return Context{Waiter: w.waiter, ClientID: c.id, ClientHost: "/h", Now: w.now}
}

func (w *world) client(t *rapid.T) *client {
	id := rapid.SampledFrom([]string{"a", "b", "c", "d", "s1", "s2"}).Draw(t, "client")
	c := w.clients[id]
	if c == nil {
		c = &client{id: id}
		if id[0] == 's' {
			c.instance = id
		}
		w.clients[id] = c
	}
	return c
}

func (c *client) instanceID() *string {
	if c.instance == "" {
		return nil
	}
	return &c.instance
}

func (w *world) join(t *rapid.T) {
	c := w.client(t)
	if rapid.IntRange(0, 5).Draw(t, "forgets") == 0 {
		c.member = ""
	}
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version = rapid.SampledFrom([]int16{3, 5, 9}).Draw(t, "version")
	r.Group, r.MemberID, r.InstanceID = "g", c.member, c.instanceID()
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 10000, 15000
	r.ProtocolType = "consumer"
	names := rapid.SampledFrom([][]string{{"range"}, {"range", "rr"}, {"rr", "range"}}).Draw(t, "protocols")
	for _, n := range names {
		r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: n, Metadata: subscription("t")})
	}
	ctx := w.context(c)
	c.join = ctx.Waiter
	w.apply(w.m.JoinGroup(ctx, r))
}

func (w *world) sync(t *rapid.T) {
	c := w.client(t)
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.InstanceID, r.Generation = "g", c.member, c.instanceID(), c.generation
	if c.leader {
		for _, m := range c.members {
			r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{
				MemberID: m, MemberAssignment: fmt.Appendf(nil, "%d:%s", c.generation, m)})
		}
	}
	ctx := w.context(c)
	c.sync = ctx.Waiter
	w.apply(w.m.SyncGroup(ctx, r))
}

func (w *world) heartbeat(t *rapid.T) {
	c := w.client(t)
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.MemberID, r.InstanceID, r.Generation = "g", c.member, c.instanceID(), c.generation
	w.apply(w.m.Heartbeat(w.context(c), r))
}

func (w *world) leave(t *rapid.T) {
	c := w.client(t)
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version, r.Group = 5, "g"
	r.Members = []kmsg.LeaveGroupRequestMember{{MemberID: c.member, InstanceID: c.instanceID()}}
	w.apply(w.m.LeaveGroup(w.context(c), r))
}

func (w *world) commit(t *rapid.T) {
	c := w.client(t)
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = 9, "g", c.member, c.instanceID(), c.generation
	cell := kmsg.NewOffsetCommitRequestTopicPartition()
	cell.Partition = rapid.Int32Range(0, 2).Draw(t, "partition")
	cell.Offset = int64(w.waiter)
	r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{cell}}}
	before := len(w.log)
	w.apply(w.m.OffsetCommit(w.context(c), r))
	if len(w.log) > before {
		w.offsets[cell.Partition] = kafka.Offset(cell.Offset)
	}
}

func (w *world) someTime(t *rapid.T) {
	w.advance(time.Duration(rapid.IntRange(1, 12000).Draw(t, "ms")) * time.Millisecond)
}

func (w *world) failNext(t *rapid.T) {
	w.fail = rapid.SampledFrom([]kafka.ErrorCode{kafka.ErrKafkaStorageError, kafka.ErrNotEnoughReplicas}).Draw(t, "code")
}

func (w *world) holdCommits(*rapid.T) { w.hold = true }

func (w *world) releaseCommits(t *rapid.T) {
	w.hold = false
	held := w.held
	w.held = nil
	code := rapid.SampledFrom([]kafka.ErrorCode{kafka.None, kafka.None, kafka.ErrRequestTimedOut}).Draw(t, "code")
	for _, then := range held {
		w.apply(then(Outcome{Appended: true, Err: code, Now: w.now}))
	}
}

// restartBroker loses every connection and everything but the log.
func (w *world) restartBroker(t *rapid.T) {
	w.releaseCommits(t)
	w.fail = kafka.None
	w.check(t)
	clear(w.open)
	for _, c := range w.clients {
		c.join, c.sync = 0, 0
	}
	w.restart()
	// A generation that was not synced is not recorded, and its number used again.
	clear(w.seen)
	if w.highest = 0; w.m.classic["g"] != nil {
		w.highest = w.m.classic["g"].generation
	}
}

// check looks at every new answer and at the machine.
func (w *world) check(t *rapid.T) {
	for ; w.checked < len(w.replies); w.checked++ {
		r := w.replies[w.checked]
		if !w.open[r.To] {
			t.Fatalf("request %d is answered twice or after a restart: %s", r.To, formatResponse(r.Response))
		}
		delete(w.open, r.To)
		switch a := r.Response.(type) {
		case *kmsg.JoinGroupResponse:
			w.joined(t, r.To, a)
		case *kmsg.SyncGroupResponse:
			w.synced(t, r.To, a)
		}
	}
	if g := w.m.classic["g"]; g != nil {
		w.checkGroup(t, g)
	}
	for p, want := range w.offsets {
		if o := w.m.offsets.groups["g"].get("t", p); o == nil || o.Offset != want {
			t.Fatalf("offset of t-%d is %+v, want %d", p, o, want)
		}
	}
}

func (w *world) joined(t *rapid.T, to Waiter, a *kmsg.JoinGroupResponse) {
	for _, c := range w.clients {
		if c.join != to {
			continue
		}
		c.join = 0
		switch kafka.ErrorCode(a.ErrorCode) {
		case kafka.None:
			c.member, c.generation, c.leader, c.members = a.MemberID, a.Generation, a.LeaderID == a.MemberID, nil
			for _, m := range a.Members {
				c.members = append(c.members, m.MemberID)
			}
			if len(a.Members) > 0 && !a.SkipAssignment {
				w.generation(t, a.Generation, genesis{a.LeaderID, c.members})
			}
		case kafka.ErrMemberIDRequired:
			c.member = a.MemberID
		case kafka.ErrUnknownMemberID, kafka.ErrFencedInstanceID, kafka.ErrGroupMaxSizeReached:
			c.member = ""
		}
	}
}

// generation checks that a generation has one set of members, and that
// generations only rise. A static member may be replaced within one.
func (w *world) generation(t *rapid.T, n int32, g genesis) {
	slices.Sort(g.members)
	if n < w.highest {
		t.Fatalf("generation %d after %d", n, w.highest)
	}
	w.highest = n
	if was, ok := w.seen[n]; ok && !cmp.Equal(dynamic(was.members), dynamic(g.members)) {
		t.Fatalf("generation %d has members %v and %v", n, was.members, g.members)
	}
	w.seen[n] = g
}

func dynamic(members []string) (list []string) {
	for _, m := range members {
		if m[0] != 's' {
			list = append(list, m)
		}
	}
	return list
}

// synced checks that an assignment is the one for this member's generation:
// only members of a stable group are given one.
func (w *world) synced(t *rapid.T, to Waiter, a *kmsg.SyncGroupResponse) {
	for _, c := range w.clients {
		if c.sync != to {
			continue
		}
		c.sync = 0
		if a.ErrorCode != 0 {
			continue
		}
		if g := w.m.classic["g"]; g == nil || g.member(c.member) == nil && c.instance == "" {
			continue // it has left in the same step
		}
		if s := string(a.MemberAssignment); s != "" && c.instance == "" && s != fmt.Sprintf("%d:%s", c.generation, c.member) {
			t.Fatalf("%s in generation %d is assigned %q", c.member, c.generation, s)
		}
	}
}

// checkGroup checks what always holds.
func (w *world) checkGroup(t *rapid.T, g *classicGroup) {
	waiting, supported := 0, map[string]int{}
	for _, mb := range g.members {
		if g.byID[mb.id] != mb {
			t.Fatalf("member %s is not found by its id", mb.id)
		}
		if mb.join != 0 {
			waiting++
			if !w.open[mb.join] {
				t.Fatalf("member %s waits for a request that was answered", mb.id)
			}
		}
		if mb.sync != 0 && g.state != CompletingRebalance {
			t.Fatalf("member %s waits for an assignment in state %v", mb.id, g.state)
		}
		if mb.instance != nil && g.static[*mb.instance] != mb.id {
			t.Fatalf("instance %s leads to %s, want %s", *mb.instance, g.static[*mb.instance], mb.id)
		}
		for _, p := range mb.protocols {
			supported[p.Name]++
		}
		if _, ok := w.timers[TimerKey{SessionTimer, g.id, mb.id}]; !ok && mb.join == 0 && mb.sync == 0 {
			t.Fatalf("member %s, waiting for nothing, has no session timer", mb.id)
		}
	}
	if waiting != g.awaiting {
		t.Fatalf("%d members wait to join, counted %d", waiting, g.awaiting)
	}
	if len(g.byID) != len(g.members) {
		t.Fatalf("%d members by id, %d in order", len(g.byID), len(g.members))
	}
	if len(supported) != len(g.supported) {
		t.Fatalf("supported protocols %v, counted %v", supported, g.supported)
	}
	if (g.leader == nil) != (len(g.members) == 0) || g.leader != nil && g.member(*g.leader) == nil {
		t.Fatalf("leader %s of %d members", show(g.leader), len(g.members))
	}
	if g.state == Empty && len(g.members) > 0 || (g.state == Stable || g.state == CompletingRebalance) && len(g.members) == 0 {
		t.Fatalf("%d members in state %v", len(g.members), g.state)
	}
	if g.state == PreparingRebalance {
		if _, ok := w.timers[TimerKey{JoinTimer, g.id, ""}]; !ok {
			t.Fatal("no timer ends the join phase")
		}
	}
	if g.state == CompletingRebalance && len(g.unsynced) > 0 {
		if _, ok := w.timers[TimerKey{SyncTimer, g.id, ""}]; !ok {
			t.Fatal("no timer ends the wait for SyncGroup")
		}
	}
	for to := range w.open {
		if len(w.held) == 0 && !slices.ContainsFunc(g.members, func(mb *member) bool { return mb.join == to || mb.sync == to }) {
			t.Fatalf("request %d waits and nobody knows", to)
		}
	}
}

func TestRandomClientsNeverBreakAGroup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		t.Repeat(map[string]func(*rapid.T){
			"join":      w.join,
			"join2":     w.join,
			"sync":      w.sync,
			"sync2":     w.sync,
			"heartbeat": w.heartbeat,
			"leave":     w.leave,
			"commit":    w.commit,
			"time":      w.someTime,
			"fail":      w.failNext,
			"hold":      w.holdCommits,
			"release":   w.releaseCommits,
			"restart":   w.restartBroker,
			"":          w.check,
		})
		// In the end everyone is answered.
		w.releaseCommits(t)
		w.fail = kafka.None
		w.advance(time.Hour)
		w.check(t)
		if len(w.open) > 0 {
			t.Fatalf("requests %v were never answered", w.open)
		}
	})
}
