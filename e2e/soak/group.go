package main

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const groupName = "soak-group"

type topicPartition struct {
	topic  string
	number int32
}

// group is a consumer group of two members that stay and one that comes and
// goes. It must skip nothing, and its acknowledged commits must last.
type group struct {
	s *soak

	mu        sync.Mutex
	delivered map[topicPartition]int64 // the next offset, of all members
	committed map[topicPartition]int64 // acknowledged
}

func newGroup(s *soak) *group {
	return &group{s: s, delivered: map[topicPartition]int64{}, committed: map[topicPartition]int64{}}
}

func (g *group) start(ctx context.Context, wg *sync.WaitGroup) {
	for range 2 {
		wg.Go(func() { g.member(ctx) })
	}
	wg.Go(func() {
		for g.s.pause(ctx, 3*g.s.unit) {
			life, cancel := context.WithTimeout(ctx, 3*g.s.unit)
			g.member(life)
			cancel()
		}
	})
}

// member consumes and commits until ctx ends, then leaves.
func (g *group) member(ctx context.Context) {
	c, err := g.s.client(kgo.ConsumerGroup(groupName), kgo.ConsumeTopics("soak.size", "soak.time", "soak.trim"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(time.Second), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		g.s.findings.add("group: %v", err)
		return
	}
	defer c.CloseAllowingRebalance()
	last := time.Now()
	for ctx.Err() == nil {
		poll, stop := context.WithTimeout(ctx, time.Second)
		fetches := c.PollFetches(poll)
		stop()
		fetches.EachError(func(topic string, n int32, err error) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) && !away(err) && !errors.Is(err, kerr.RebalanceInProgress) {
				g.s.findings.add("group: %s-%d: %v", topic, n, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) { g.deliver(ctx, r) })
		if time.Since(last) > time.Second {
			g.commit(ctx, c)
			last = time.Now()
		}
		c.AllowRebalance()
	}
}

// deliver enters a record that some member got.
func (g *group) deliver(ctx context.Context, r *kgo.Record) {
	p := g.s.model.partitions[r.Topic][r.Partition]
	tp := topicPartition{r.Topic, r.Partition}
	g.mu.Lock()
	next := g.delivered[tp]
	g.delivered[tp] = max(next, r.Offset+1)
	g.mu.Unlock()
	if r.Offset > next {
		g.s.jumped(ctx, p, next, r.Offset)
	}
	p.check("group", r)
	g.s.counts.group.Add(1)
}

func (g *group) commit(ctx context.Context, c *kgo.Client) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	offsets := c.UncommittedOffsets()
	if len(offsets) == 0 {
		return
	}
	c.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			return // nothing was acknowledged
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode == 0 {
					tp := topicPartition{t.Topic, p.Partition}
					g.committed[tp] = max(g.committed[tp], offsets[t.Topic][p.Partition].Offset)
					g.s.counts.commits.Add(1)
				}
			}
		}
	})
}

func (g *group) acknowledged() map[topicPartition]int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.committed)
}

// checkCommitted has every commit that was acknowledged before a restart still be there.
func (g *group) checkCommitted(ctx context.Context, acked map[topicPartition]int64) {
	var offsets kadm.OffsetResponses
	err := again(ctx, func(ctx context.Context) (err error) {
		offsets, err = g.s.admin.FetchOffsets(ctx, groupName)
		return err
	})
	if err != nil {
		g.s.findings.add("group offsets after a restart: %v", err)
		return
	}
	for tp, want := range acked {
		if got, ok := offsets.Lookup(tp.topic, tp.number); !ok || got.At < want {
			g.s.findings.add("group offset of %s-%d is %d after a restart, acknowledged was %d", tp.topic, tp.number, got.At, want)
		}
	}
}
