package group

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// TestScripts runs rebalances step by step: testdata/script holds requests and
// everything that came of them, each record, answer and timer.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		h := newHarness()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			h.out.Reset()
			h.run(t, d)
			return h.out.String()
		})
	})
}

// harness is a coordinator of the smallest kind: a log that is a slice, timers
// that fire when the script lets time pass.
type harness struct {
	m       *Machine
	cfg     Config
	now     kafka.Timestamp
	log     []Logged
	fail    kafka.ErrorCode // of the next append
	hold    bool            // commits wait for release
	held    []func(Outcome) Effects
	timers  map[TimerKey]kafka.Timestamp
	out     strings.Builder
	ids     int
	quiet   bool
	replies []Reply
}

func newHarness() *harness {
	h := &harness{now: 1000, timers: map[TimerKey]kafka.Timestamp{}}
	h.cfg = DefaultConfig()
	h.cfg.NewID = func() string { h.ids++; return strconv.Itoa(h.ids) }
	h.m = New(h.cfg)
	return h
}

func (h *harness) printf(format string, args ...any) {
	if !h.quiet {
		fmt.Fprintf(&h.out, format+"\n", args...)
	}
}

func (h *harness) run(t *testing.T, d *datadriven.TestData) {
	a := args{t, d}
	c := Context{Waiter: Waiter(a.int("w", 0)), ClientID: a.str("client", "c"), ClientHost: "/127.0.0.1", Now: h.now}
	switch d.Cmd {
	case "config":
		h.cfg.MaxSize = int(a.int("max-size", 1<<31-1))
		h.m = New(h.cfg)
	case "fail":
		h.fail = kafka.ErrorCode(a.int("code", 0))
	case "hold":
		h.hold = true
	case "release":
		h.hold = false
		held := h.held
		h.held = nil
		for _, then := range held {
			h.apply(then(Outcome{Appended: true, Err: kafka.ErrorCode(a.int("code", 0)), Now: h.now}))
		}
	case "advance":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		h.advance(by)
	case "skip": // time in which nothing happens, as if members had sent heartbeats
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		h.now += kafka.Timestamp(by.Milliseconds())
	case "timers":
		h.printTimers()
	case "restart":
		h.restart()
	case "join":
		h.apply(h.m.JoinGroup(c, a.join()))
	case "sync":
		h.apply(h.m.SyncGroup(c, a.sync()))
	case "heartbeat":
		r := kmsg.NewPtrHeartbeatRequest()
		r.Group, r.MemberID, r.InstanceID, r.Generation = a.str("group", ""), a.str("member", ""), a.opt("instance"), a.int("generation", 0)
		h.apply(h.m.Heartbeat(c, r))
	case "leave":
		h.apply(h.m.LeaveGroup(c, a.leave()))
	case "commit":
		h.apply(h.m.OffsetCommit(c, a.commit()))
	case "fetch":
		r := a.fetch()
		h.apply(h.m.OffsetFetch(c, r, a.has("stable")))
	case "offset-delete":
		h.apply(h.m.OffsetDelete(c, a.offsetDelete()))
	case "delete":
		h.apply(h.m.DeleteGroups(c, a.list("groups")))
	case "expire":
		h.apply(h.m.Expire(h.now))
	case "topic-deleted":
		h.apply(h.m.TopicsDeleted([]DeletedTopic{{Name: a.str("topic", ""), ID: topicID(a.str("topic", ""))}}))
	case "list":
		for _, g := range h.m.ListGroups(a.list("states"), a.list("types")) {
			h.printf("%s: %q %s %s", g.Group, g.ProtocolType, g.GroupState, g.GroupType)
		}
	case "describe":
		h.describe(a)
	case "replay":
		h.replay(t, a)
	case "end-transaction":
		h.m.ReplayEndTransaction(kafka.ProducerID(a.int("pid", 0)), a.has("committed"))
	default:
		t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
}

// apply does what a shard does with effects.
func (h *harness) apply(fx Effects) {
	out := Outcome{Now: h.now}
	if len(fx.Records) > 0 {
		if out.Err = h.fail; out.Err != kafka.None {
			h.printf("append of %d records fails: %v", len(fx.Records), out.Err)
		}
		h.fail = kafka.None
	}
	if out.Err == kafka.None {
		for _, r := range fx.Records {
			l := Logged{Record: r, Offset: kafka.Offset(len(h.log)), Producer: -1, Now: h.now}
			h.log = append(h.log, l)
			h.printf("record %d %s", l.Offset, formatRecord(r))
			if fx.Replay {
				if err := h.m.Replay(l); err != nil {
					panic(err)
				}
			}
		}
	}
	for _, t := range fx.Timers {
		if t.Cancel {
			delete(h.timers, t.Key)
		} else {
			h.timers[t.Key] = h.now + kafka.Timestamp(t.After.Milliseconds())
		}
	}
	for _, r := range fx.Replies {
		h.replies = append(h.replies, r)
		h.printf("answer %d %s", r.To, formatResponse(r.Response))
	}
	switch {
	case fx.Then == nil:
	case h.hold && len(fx.Records) > 0 && out.Err == kafka.None:
		h.held = append(h.held, fx.Then)
	default:
		h.apply(fx.Then(out))
	}
}

// advance lets time pass and fires the timers that run out, the earliest first.
func (h *harness) advance(by time.Duration) {
	end := h.now + kafka.Timestamp(by.Milliseconds())
	for {
		var first *TimerKey
		for _, k := range h.sortedTimers() {
			if at := h.timers[k]; at <= end && (first == nil || at < h.timers[*first]) {
				first = &k
			}
		}
		if first == nil {
			break
		}
		h.now = max(h.now, h.timers[*first])
		delete(h.timers, *first)
		h.printf("at %dms timer %s", h.now, formatTimer(*first))
		h.apply(h.m.Fire(*first, h.now))
	}
	h.now = end
}

func (h *harness) sortedTimers() []TimerKey {
	return slices.SortedFunc(maps.Keys(h.timers), func(a, b TimerKey) int {
		return strings.Compare(formatTimer(a), formatTimer(b))
	})
}

func (h *harness) printTimers() {
	for _, k := range h.sortedTimers() {
		h.printf("%s in %dms", formatTimer(k), h.timers[k]-h.now)
	}
}

func formatTimer(k TimerKey) string {
	if k.Member == "" {
		return fmt.Sprintf("%v %s", k.Kind, k.Group)
	}
	return fmt.Sprintf("%v %s/%s", k.Kind, k.Group, k.Member)
}

// restart loses everything but the log.
func (h *harness) restart() {
	h.m = New(h.cfg)
	h.timers = map[TimerKey]kafka.Timestamp{}
	for _, l := range h.log {
		if err := h.m.Replay(l); err != nil {
			panic(err)
		}
	}
	h.apply(h.m.Loaded(h.now))
}

func (h *harness) describe(a args) {
	g := h.m.DescribeGroup(a.str("group", ""), 6)
	h.printf("%s: %s type=%q protocol=%q error=%v %s", g.Group, g.State, g.ProtocolType, g.Protocol, kafka.ErrorCode(g.ErrorCode), deref(g.ErrorMessage))
	for _, m := range g.Members {
		h.printf("  %s instance=%s client=%s host=%s metadata=%q assignment=%q", m.MemberID, show(m.InstanceID), m.ClientID, m.ClientHost, m.ProtocolMetadata, m.MemberAssignment)
	}
}

// replay gives the machine a record as if it had been read from the log.
func (h *harness) replay(t *testing.T, a args) {
	k := Key{Type: KeyType(a.int("type", 1)), Group: a.str("group", ""), Topic: a.str("topic", ""), Partition: a.int("partition", 0), Member: a.str("member", "")}
	l := Logged{Offset: kafka.Offset(len(h.log)), Producer: kafka.ProducerID(a.int("pid", -1)), Now: h.now}
	l.Key = k.encode()
	switch {
	case a.has("tombstone"):
	case k.Type <= OffsetCommitKey:
		l.Value = offsetRecord(k.Group, k.Topic, k.Partition, Offset{Offset: kafka.Offset(a.int("offset", 0)), LeaderEpoch: -1, Committed: h.now, Expires: -1}).Value
	case k.Type == ConsumerGroupMetadataKey || k.Type == ConsumerGroupTargetKey || k.Type == ShareGroupMetadataKey:
		l.Value = []byte{0, 0, 0, 0, 0, byte(a.int("epoch", 0)), 0}
	case k.Type == ConsumerGroupMemberKey:
		topic := a.str("subscribes", "t")
		l.Value = append([]byte{0, 0, 0, 0, 2, 'c', 2, 'h', 2, byte(len(topic) + 1)}, topic...)
	case k.Type == ConsumerGroupCurrentMemberKey:
		l.Value = []byte{0, 0, 0, 0, 0, byte(a.int("epoch", 0)), 0, 0, 0, 0, byte(a.int("state", 0)), 1, 1, 0}
	}
	h.log = append(h.log, l)
	if err := h.m.Replay(l); err != nil {
		h.printf("error: %v", err)
	}
}

// args reads a command's arguments.
type args struct {
	t *testing.T
	d *datadriven.TestData
}

func (a args) has(name string) bool { return a.d.HasArg(name) }

func (a args) str(name, otherwise string) string {
	if a.has(name) {
		arg, _ := a.d.Arg(name)
		return arg.SingleVal(a.t)
	}
	return otherwise
}

func (a args) opt(name string) *string {
	if !a.has(name) {
		return nil
	}
	s := a.str(name, "")
	return &s
}

func (a args) int(name string, otherwise int32) int32 {
	if !a.has(name) {
		return otherwise
	}
	n, err := strconv.ParseInt(a.str(name, ""), 10, 32)
	if err != nil {
		a.t.Fatal(err)
	}
	return int32(n)
}

func (a args) list(name string) []string {
	if !a.has(name) {
		return nil
	}
	arg, _ := a.d.Arg(name)
	return arg.Vals
}

func (a args) pairs(name string) (pairs [][2]string) {
	for _, v := range a.list(name) {
		k, w, _ := strings.Cut(v, ":")
		pairs = append(pairs, [2]string{k, w})
	}
	return pairs
}

func (a args) join() *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version = int16(a.int("v", 9))
	r.Group, r.MemberID, r.InstanceID = a.str("group", ""), a.str("member", ""), a.opt("instance")
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = a.int("session", 10000), a.int("rebalance", 60000)
	r.ProtocolType = a.str("type", "consumer")
	for _, p := range a.pairs("protocols") {
		metadata := []byte(p[1])
		if r.ProtocolType == "consumer" {
			metadata = subscription(strings.Split(p[1], "+")...)
		}
		r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: p[0], Metadata: metadata})
	}
	return r
}

func (a args) sync() *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.MemberID, r.InstanceID, r.Generation = a.str("group", ""), a.str("member", ""), a.opt("instance"), a.int("generation", 1)
	r.ProtocolType, r.Protocol = a.opt("type"), a.opt("protocol")
	for _, p := range a.pairs("assign") {
		r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: p[0], MemberAssignment: []byte(p[1])})
	}
	return r
}

func (a args) leave() *kmsg.LeaveGroupRequest {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version = int16(a.int("v", 5))
	r.Group, r.MemberID = a.str("group", ""), a.str("member", "")
	for _, p := range a.pairs("members") {
		m := kmsg.LeaveGroupRequestMember{MemberID: p[0]}
		if p[1] != "" {
			m.InstanceID = &p[1]
		}
		r.Members = append(r.Members, m)
	}
	return r
}

func (a args) commit() *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version = int16(a.int("v", 10))
	r.Group, r.MemberID, r.InstanceID, r.Generation = a.str("group", ""), a.str("member", ""), a.opt("instance"), a.int("generation", -1)
	r.RetentionTimeMillis = int64(a.int("retention", -1))
	for _, p := range a.pairs("offsets") {
		topic, partition := splitPartition(a.t, p[0])
		offset, _ := strconv.ParseInt(p[1], 10, 64)
		if n := len(r.Topics); n == 0 || r.Topics[n-1].Topic != topic {
			r.Topics = append(r.Topics, kmsg.OffsetCommitRequestTopic{Topic: topic, TopicID: topicID(topic)})
		}
		cell := kmsg.NewOffsetCommitRequestTopicPartition()
		cell.Partition, cell.Offset, cell.Metadata = partition, offset, a.opt("metadata")
		row := &r.Topics[len(r.Topics)-1]
		row.Partitions = append(row.Partitions, cell)
	}
	return r
}

func (a args) fetch() *kmsg.OffsetFetchRequestGroup {
	r := kmsg.NewOffsetFetchRequestGroup()
	r.Group, r.MemberID, r.MemberEpoch = a.str("group", ""), a.opt("member"), a.int("epoch", -1)
	for _, v := range a.list("partitions") {
		topic, partition := splitPartition(a.t, v)
		id := topicID(topic)
		if a.has("recreated") {
			id[0]++
		}
		r.Topics = append(r.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: topic, TopicID: id, Partitions: []int32{partition}})
	}
	return &r
}

func (a args) offsetDelete() *kmsg.OffsetDeleteRequest {
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = a.str("group", "")
	for _, v := range a.list("partitions") {
		topic, partition := splitPartition(a.t, v)
		r.Topics = append(r.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: partition}}})
	}
	return r
}

func splitPartition(t *testing.T, s string) (string, int32) {
	tp, err := kafka.ParseTopicPartition(s)
	if err != nil {
		t.Fatal(err)
	}
	return tp.Topic, tp.Partition
}

// topicID derives an id from a name.
func topicID(name string) (id kafka.TopicID) {
	copy(id[:], name+"................")
	return id
}

// subscription is version 0 of the consumer protocol's subscription.
func subscription(topics ...string) []byte {
	b := []byte{0, 0, 0, 0, 0, byte(len(topics))}
	for _, t := range topics {
		b = appendString(b, t)
	}
	return b
}
