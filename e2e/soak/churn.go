package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// counts say how much of everything a run did.
type counts struct {
	kills, stops, tail, cold, coldReads, group, commits, passes, reborn, trims, connections atomic.Int64
}

func (s *soak) startChurn(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() { s.rebirth(ctx) })
	wg.Go(func() { s.trim(ctx) })
	wg.Go(func() { s.connect(ctx) })
}

// away says that an error is that of a broker that is down or starting: one
// that is not the protocol's, or one that the protocol calls retriable.
func away(err error) bool {
	var k *kerr.Error
	return !errors.As(err, &k) || k.Retriable
}

// again calls f until it succeeds, for half a minute: connections of the last
// process fail first, and what it served may still be loading.
func again(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil || !away(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// rebirth creates a topic, fills it, reads it back, deletes it, and begins
// again under the same name: nothing of an earlier topic may show.
func (s *soak) rebirth(ctx context.Context) {
	const name = "soak.reborn"
	for generation := 0; s.pause(ctx, s.unit); generation++ {
		if err := s.oneLife(ctx, name, generation); err != nil && ctx.Err() == nil && !away(err) {
			s.findings.add("%s, generation %d: %v", name, generation, err)
		}
	}
}

func (s *soak) oneLife(ctx context.Context, name string, generation int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(name))
	if err != nil {
		return err
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	// A topic of the last life may be left: the broker went away in its middle.
	if _, err := adm.DeleteTopic(ctx, name); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return err
	}
	if _, err := adm.CreateTopic(ctx, 2, 1, nil, name); err != nil {
		if errors.Is(err, kerr.TopicAlreadyExists) {
			return nil // created, and the answer was lost
		}
		return err
	}
	var records []*kgo.Record
	for i := range 60 {
		records = append(records, &kgo.Record{Partition: int32(i % 2), Value: fmt.Appendf(nil, "%d %d", generation, i/2)})
	}
	if err := c.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return err
	}
	for n := range int32(2) {
		count := 0
		err := s.readPartition(ctx, name, n, kgo.NewOffset().AtStart(), -1, func(r *kgo.Record) {
			if want := fmt.Sprintf("%d %d", generation, count); string(r.Value) != want || r.Offset != int64(count) {
				s.findings.add("%s-%d offset %d holds %.40q, want %q at %d", name, n, r.Offset, r.Value, want, count)
			}
			count++
		})
		if err != nil {
			return err
		}
		if count != 30 {
			s.findings.add("%s-%d has %d records, 30 were acknowledged", name, n, count)
		}
	}
	if _, err := adm.DeleteTopic(ctx, name); err != nil {
		return err
	}
	s.counts.reborn.Add(1)
	return nil
}

// trim deletes records by DeleteRecords, not far behind the tail reader.
func (s *soak) trim(ctx context.Context) {
	for i := 0; s.pause(ctx, s.unit); i++ {
		p := s.model.partitions["soak.trim"][i%2]
		start, next, _ := p.bounds()
		to := start + (next-start)/2
		if next-to < 200 {
			continue
		}
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: p.topic, Partition: p.number, At: to})
		tctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		res, err := s.admin.DeleteRecords(tctx, offsets)
		cancel()
		if err == nil {
			err = res.Error()
		}
		if err != nil {
			if ctx.Err() == nil && !away(err) {
				s.findings.add("DeleteRecords of %v to %d: %v", p, to, err)
			}
			continue
		}
		if got, _ := res.Lookup(p.topic, p.number); got.LowWatermark < to {
			s.findings.add("DeleteRecords of %v to %d answered %d", p, to, got.LowWatermark)
		}
		p.observe(to, 0)
		s.counts.trims.Add(1)
	}
}

// connect opens connections that say nothing, half of something or rubbish,
// drops most at once and holds a few for a while.
func (s *soak) connect(ctx context.Context) {
	rnd := rand.New(rand.NewPCG(s.seed, 3))
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for s.pause(ctx, s.unit/4) {
		c, err := net.DialTimeout("tcp", s.broker.addr, time.Second)
		if err != nil {
			continue
		}
		s.counts.connections.Add(1)
		switch rnd.IntN(4) {
		case 0: // half a frame
			_, _ = c.Write([]byte{0, 0, 0, 100, 0, 18, 0, 3})
		case 1: // a length that nobody means
			_, _ = c.Write([]byte{0x7f, 0xff, 0xff, 0xff, 1, 2, 3, 4})
		case 2: // another protocol
			_, _ = c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
		}
		if rnd.IntN(3) == 0 {
			held = append(held, c)
		} else {
			c.Close()
		}
		for len(held) > 4 {
			held[0].Close()
			held = held[1:]
		}
	}
}
