package broker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/node"
)

// cluster is one broker in a directory, which can be restarted at its address.
type cluster struct {
	t    *testing.T
	ctx  context.Context
	dir  string
	addr string
	node *node.Node
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	c := &cluster{t: t, ctx: ctx, dir: t.TempDir(), addr: "127.0.0.1:0"}
	c.start()
	t.Cleanup(func() { c.stop() })
	return c
}

func (c *cluster) start() {
	c.t.Helper()
	flags := []config.Setting{
		{Key: "listeners", Value: "PLAINTEXT://" + c.addr},
		{Key: "group.initial.rebalance.delay.ms", Value: "100"},
		{Key: "offsets.topic.num.partitions", Value: "4"},
	}
	cfg, _, err := config.Load(config.Sources{Flags: flags, DataDir: c.dir})
	if err != nil {
		c.t.Fatal(err)
	}
	if c.node, err = node.Start(c.ctx, cfg, node.Options{}); err != nil {
		c.t.Fatal(err)
	}
	c.addr = c.node.Addr("").(*net.TCPAddr).String()
}

func (c *cluster) stop() {
	if err := c.node.Stop(context.Background()); err != nil {
		c.t.Errorf("Stop: %v", err)
	}
}

func (c *cluster) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.addr)}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	return cl
}

// topic creates a topic and returns a client for administration and producing.
func (c *cluster) topic(name string, partitions int32) (*kgo.Client, *kadm.Client) {
	c.t.Helper()
	cl := c.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	c.t.Cleanup(cl.Close)
	adm := kadm.NewClient(cl)
	if _, err := adm.CreateTopic(c.ctx, partitions, 1, nil, name); err != nil {
		c.t.Fatal(err)
	}
	return cl, adm
}

func (c *cluster) produce(cl *kgo.Client, topic string, partitions int32, from, to int) {
	c.t.Helper()
	for i := from; i < to; i++ {
		r := &kgo.Record{Topic: topic, Partition: int32(i) % partitions, Value: fmt.Append(nil, i)}
		if err := cl.ProduceSync(c.ctx, r).FirstErr(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// consumer is a member of a group that counts what it reads.
type consumer struct {
	*kgo.Client
	mu       sync.Mutex
	assigned map[int32]bool
	done     chan struct{}
}

// tally is what all members of a group have read: how often each value.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
	more chan struct{}
}

func newTally() *tally { return &tally{seen: map[string]int{}, more: make(chan struct{}, 1)} }

// wait returns when n different values have been read.
func (y *tally) wait(c *cluster, n int) {
	c.t.Helper()
	for {
		y.mu.Lock()
		got := len(y.seen)
		y.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-y.more:
		case <-c.ctx.Done():
			c.t.Fatalf("read %d of %d records in time", got, n)
		}
	}
}

func (c *cluster) consume(topic, group string, y *tally, opts ...kgo.Opt) *consumer {
	c.t.Helper()
	m := &consumer{assigned: map[int32]bool{}, done: make(chan struct{})}
	change := func(has bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, parts map[string][]int32) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range parts[topic] {
				if m.assigned[p] = has; !has {
					delete(m.assigned, p)
				}
			}
		}
	}
	m.Client = c.client(append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(change(false)), kgo.OnPartitionsLost(change(false)),
		kgo.HeartbeatInterval(100 * time.Millisecond), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
	}, opts...)...)
	go func() {
		defer close(m.done)
		for {
			f := m.PollFetches(c.ctx)
			if f.IsClientClosed() || c.ctx.Err() != nil {
				return
			}
			f.EachRecord(func(r *kgo.Record) {
				y.mu.Lock()
				y.seen[string(r.Value)]++
				y.mu.Unlock()
			})
			if err := m.CommitUncommittedOffsets(c.ctx); err != nil && !errors.Is(err, kerr.RebalanceInProgress) && c.ctx.Err() == nil {
				c.t.Logf("commit: %v", err)
			}
			m.AllowRebalance()
			select {
			case y.more <- struct{}{}:
			default:
			}
		}
	}()
	return m
}

func (m *consumer) partitions() []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.assigned))
}

func (m *consumer) leave() {
	m.CloseAllowingRebalance()
	<-m.done
}

// settle waits until the group is stable with so many members, each with its
// share of the partitions.
func (c *cluster) settle(adm *kadm.Client, group string, partitions int, members ...*consumer) kadm.DescribedGroup {
	c.t.Helper()
	for c.ctx.Err() == nil {
		// The members are asked first: what the group says after that is not older.
		total, fair := 0, true
		for _, m := range members {
			n := len(m.partitions())
			total += n
			fair = fair && n >= partitions/len(members)
		}
		d, err := adm.DescribeGroups(c.ctx, group)
		if err == nil && d[group].State == "Stable" && len(d[group].Members) == len(members) && fair && total == partitions {
			return d[group]
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-c.ctx.Done():
		}
	}
	for i, m := range members {
		c.t.Logf("member %d has %v", i, m.partitions())
	}
	c.t.Fatal("the group did not settle in time")
	return kadm.DescribedGroup{}
}

func TestThreeMembersShareATopicAndResumeAfterARestart(t *testing.T) {
	for name, balancer := range map[string]kgo.GroupBalancer{
		"eager range":        kgo.RangeBalancer(),
		"cooperative sticky": kgo.CooperativeStickyBalancer(),
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			producer, adm := c.topic("t", 6)
			c.produce(producer, "t", 6, 0, 120)
			y := newTally()
			members := make([]*consumer, 3)
			for i := range members {
				members[i] = c.consume("t", "g", y, kgo.Balancers(balancer), kgo.ClientID(fmt.Sprintf("member-%d", i)))
			}
			d := c.settle(adm, "g", 6, members...)
			if d.ProtocolType != "consumer" || d.Members[0].ClientHost != "/127.0.0.1" {
				t.Errorf("group is described as %+v", d)
			}
			y.wait(c, 120)

			// A member leaves; the others take its partitions over.
			members[1].leave()
			c.settle(adm, "g", 6, members[0], members[2])
			c.produce(producer, "t", 6, 120, 180)
			y.wait(c, 180)

			// The broker restarts beneath them.
			c.stop()
			c.start()
			c.produce(producer, "t", 6, 180, 240)
			y.wait(c, 240)
			c.settle(adm, "g", 6, members[0], members[2])
			for _, m := range []*consumer{members[0], members[2]} {
				m.leave()
			}

			// Those that come later go on where the group had committed.
			c.stop()
			c.start()
			committed, err := adm.FetchOffsets(c.ctx, "g")
			if err != nil {
				t.Fatal(err)
			}
			for p := range int32(6) {
				if o, ok := committed.Lookup("t", p); !ok || o.At != 40 {
					t.Errorf("committed offset of t-%d is %+v, want 40", p, o.At)
				}
			}
			late := newTally()
			m := c.consume("t", "g", late)
			c.settle(adm, "g", 6, m)
			c.produce(producer, "t", 6, 240, 246)
			late.wait(c, 6)
			if len(late.seen) != 6 {
				t.Errorf("a member that came late read %d records, want the 6 new ones", len(late.seen))
			}
			m.leave()
		})
	}
}

func TestAStaticMemberComesBackWithoutARebalance(t *testing.T) {
	c := newCluster(t)
	producer, adm := c.topic("t", 4)
	y := newTally()
	a := c.consume("t", "g", y, kgo.InstanceID("a"))
	b := c.consume("t", "g", y, kgo.InstanceID("b"))
	before := c.settle(adm, "g", 4, a, b)
	had := a.partitions()
	a.leave() // static members do not send LeaveGroup

	a = c.consume("t", "g", y, kgo.InstanceID("a"))
	after := c.settle(adm, "g", 4, a, b)
	if !slices.Equal(a.partitions(), had) {
		t.Errorf("the member that came back has %v, want %v", a.partitions(), had)
	}
	ids := func(d kadm.DescribedGroup) (list []string) {
		for _, m := range d.Members {
			list = append(list, *m.InstanceID+" "+m.MemberID)
		}
		slices.Sort(list)
		return list
	}
	if was, is := ids(before), ids(after); was[0] == is[0] || was[1] != is[1] {
		t.Errorf("members were %v and are %v, want a new id for a alone", was, is)
	}
	c.produce(producer, "t", 4, 0, 40)
	y.wait(c, 40)
	a.leave()
	b.leave()
	removed, err := adm.LeaveGroup(c.ctx, kadm.LeaveGroup("g").InstanceIDs("a", "b", "nobody"))
	if err != nil || len(removed) != 3 || removed["a"].Err != nil || !errors.Is(removed["nobody"].Err, kerr.UnknownMemberID) {
		t.Errorf("LeaveGroup = %+v, %v", removed, err)
	}
}

func TestGroupsAreListedAndDeleted(t *testing.T) {
	c := newCluster(t)
	producer, adm := c.topic("t", 2)
	c.produce(producer, "t", 2, 0, 4)
	y := newTally()
	m := c.consume("t", "busy", y)
	c.settle(adm, "busy", 2, m)
	y.wait(c, 4)
	offsets := kadm.Offsets{}
	offsets.AddOffset("t", 0, 2, -1)
	offsets.AddOffset("t", 1, 1, -1)
	for _, g := range []string{"idle", "other", ""} {
		if err := adm.CommitAllOffsets(c.ctx, g, offsets); err != nil {
			t.Fatalf("commit to %q: %v", g, err)
		}
	}
	gone := kadm.Offsets{}
	gone.AddOffset("nowhere", 0, 2, -1)
	if r, err := adm.CommitOffsets(c.ctx, "idle", gone); err != nil || !errors.Is(r.Error(), kerr.UnknownTopicOrPartition) && !errors.Is(r.Error(), kerr.UnknownTopicID) {
		t.Errorf("commit to an unknown topic = %v, %v", r.Error(), err)
	}
	listed, err := adm.ListGroups(c.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := listed.Groups(); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"", "busy", "idle", "other"}) {
		t.Errorf("ListGroups = %q", got)
	}
	if listed, err = adm.ListGroups(c.ctx, "stable"); err != nil || !slices.Equal(listed.Groups(), []string{"busy"}) {
		t.Errorf("ListGroups of state Stable = %q, %v", listed.Groups(), err)
	}
	var set kadm.TopicsSet
	set.Add("t", 0)
	if r, err := adm.DeleteOffsets(c.ctx, "idle", set); err != nil || r.Error() != nil {
		t.Errorf("DeleteOffsets = %v, %v", r.Error(), err)
	}
	if r, err := adm.DeleteOffsets(c.ctx, "busy", set); err != nil || !errors.Is(r.Error(), kerr.GroupSubscribedToTopic) {
		t.Errorf("DeleteOffsets of a subscribed topic = %v, %v", r.Error(), err)
	}
	if o, err := adm.FetchOffsets(c.ctx, "idle"); err != nil || len(o["t"]) != 1 {
		t.Errorf("FetchOffsets = %v, %v, want t-1 alone", o, err)
	}
	deleted, err := adm.DeleteGroups(c.ctx, "busy", "idle", "absent", "")
	if err != nil {
		t.Fatal(err)
	}
	for group, want := range map[string]error{"busy": kerr.NonEmptyGroup, "idle": nil, "absent": kerr.GroupIDNotFound, "": nil} {
		if got := deleted[group].Err; !errors.Is(got, want) {
			t.Errorf("DeleteGroups(%q) = %v, want %v", group, got, want)
		}
	}
	m.leave()
	// A topic takes the offsets of all groups along.
	if _, err := adm.DeleteTopic(c.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if o, err := adm.FetchOffsets(c.ctx, "other"); err != nil || len(o) != 0 {
		t.Errorf("FetchOffsets after the topic is gone = %v, %v, want none", o, err)
	}
}
