package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (s *soak) startReaders(ctx context.Context, wg *sync.WaitGroup) {
	wg.Go(func() { s.tail(ctx) })
	wg.Go(func() { s.cold(ctx) })
	wg.Go(func() { s.watchKeyed(ctx) })
	wg.Go(func() { s.watchBounds(ctx) })
	s.group.start(ctx, wg)
}

// tail reads every partition that is not compacted from its first record on,
// for the whole of the run with one client.
func (s *soak) tail(ctx context.Context) {
	from := map[string]map[int32]kgo.Offset{}
	s.model.each(func(p *partition) {
		if from[p.topic] == nil {
			from[p.topic] = map[int32]kgo.Offset{}
		}
		from[p.topic][p.number] = kgo.NewOffset().At(0)
	})
	c, err := s.client(kgo.ConsumePartitions(from), kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		s.findings.add("tail reader: %v", err)
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		fetches := c.PollFetches(ctx)
		fetches.EachError(func(topic string, n int32, err error) {
			if ctx.Err() == nil && !away(err) {
				s.findings.add("tail reader: %s-%d: %v", topic, n, err)
			}
		})
		fetches.EachRecord(func(r *kgo.Record) {
			s.model.partitions[r.Topic][r.Partition].read(r)
			s.counts.tail.Add(1)
		})
	}
}

// cold reads a stretch of a random partition with a new client: from the log
// start, from an offset within, or from a time.
func (s *soak) cold(ctx context.Context) {
	rnd := rand.New(rand.NewPCG(s.seed, 2))
	for s.pause(ctx, s.unit/2) {
		list := s.model.partitions[plainTopics[rnd.IntN(len(plainTopics))].name]
		p := list[rnd.IntN(len(list))]
		start, next, _ := p.bounds()
		if next-start < 10 {
			continue
		}
		at, want := kgo.NewOffset().AtStart(), int64(-1)
		switch rnd.IntN(3) {
		case 1:
			want = start + rnd.Int64N(next-start)
			at = kgo.NewOffset().At(want)
		case 2:
			if t := p.timeOf(start + rnd.Int64N(next-start)); t > 0 {
				want = p.firstAt(t)
				at = kgo.NewOffset().AfterMilli(t)
			}
		}
		expect := int64(-1)
		err := s.readPartition(ctx, p.topic, p.number, at, 300, func(r *kgo.Record) {
			if expect < 0 {
				// Retention may have passed the offset since; nothing else moves it.
				if now, _, _ := p.bounds(); want >= 0 && r.Offset != want && r.Offset < want {
					s.findings.add("cold reader: %v: asked for %v, expected offset %d, got %d; log start is %d", p, at, want, r.Offset, now)
				} else if want >= 0 && r.Offset > want {
					s.jumped(ctx, p, want, r.Offset)
				}
			} else if r.Offset != expect {
				s.findings.add("cold reader: %v: offset %d after %d", p, r.Offset, expect-1)
			}
			expect = r.Offset + 1
			p.check("cold reader", r)
			s.counts.cold.Add(1)
		})
		if err == nil {
			s.counts.coldReads.Add(1)
		}
	}
}

// jumped reports a reader that got a later offset than it asked for, unless
// the log starts behind what it asked for by now.
func (s *soak) jumped(ctx context.Context, p *partition, want, got int64) {
	start, err := s.logStart(ctx, p.topic, p.number)
	if err == nil && start <= want {
		s.findings.add("%v: a reader asked for offset %d and got %d; the log starts at %d", p, want, got, start)
	}
}

// timeOf is the timestamp of an offset, 0 when it is gone.
func (p *partition) timeOf(offset int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := offset - p.base; i >= 0 && i < int64(len(p.seen)) {
		return p.seen[i].at
	}
	return 0
}

// readPartition reads from an offset to the end as it is now, or most records.
// It gives up when the broker is away for long.
func (s *soak) readPartition(ctx context.Context, topic string, n int32, from kgo.Offset, most int, f func(*kgo.Record)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {n: from}}), kgo.FetchMaxWait(500*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.Close()
	ends, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return err
	}
	end, _ := ends.Lookup(topic, n)
	for at, count := int64(0), 0; at < end.Offset; {
		if start, err := s.logStart(ctx, topic, n); err != nil || start >= end.Offset {
			return err
		}
		poll, stop := context.WithTimeout(ctx, 5*time.Second)
		fetches := c.PollFetches(poll)
		stop()
		if ctx.Err() != nil {
			return fmt.Errorf("reading %s-%d stopped at offset %d of %d", topic, n, at, end.Offset)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if most < 0 || count < most {
				f(r)
			}
			at = r.Offset + 1
			count++
		})
		if most >= 0 && count >= most {
			return nil
		}
	}
	return nil
}

func (s *soak) logStart(ctx context.Context, topic string, n int32) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	starts, err := s.admin.ListStartOffsets(ctx, topic)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return 0, err
	}
	o, _ := starts.Lookup(topic, n)
	return o.Offset, nil
}

func (s *soak) watchKeyed(ctx context.Context) {
	for s.pause(ctx, s.unit) {
		for _, k := range s.keyed {
			s.checkKeyed(ctx, k, false)
		}
	}
}

// watchBounds observes log starts and sizes.
func (s *soak) watchBounds(ctx context.Context) {
	for s.pause(ctx, s.unit/2) {
		s.model.each(func(p *partition) {
			before, _, _ := p.bounds()
			start, err := s.logStart(ctx, p.topic, p.number)
			if err != nil {
				return
			}
			var retention time.Duration
			if p.topic == "soak.time" {
				retention = s.retention
			}
			p.observe(start, retention)
			if p.topic == "soak.size" {
				s.checkSize(ctx, p, start > before)
			}
			// Late is: a segment, some looks of the broker, and a restart between.
			if _, _, first := p.bounds(); retention > 0 && first > 0 && time.Since(time.UnixMilli(first)) > retention+4*s.segment+6*s.check+30*time.Second {
				if _, _, up := s.broker.pid(); time.Since(up) > 4*s.check+10*time.Second {
					s.findings.add("%v: record of %v ago is still there, retention is %v", p, time.Since(time.UnixMilli(first)).Round(time.Second), retention)
				}
			}
		})
	}
}

// checkSize holds a partition's size against retention.bytes.
func (s *soak) checkSize(ctx context.Context, p *partition, cut bool) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var set kadm.TopicsSet
	set.Add(p.topic, p.number)
	dirs, err := s.admin.DescribeAllLogDirs(ctx, set)
	if err != nil {
		return
	}
	size, found := int64(0), false
	dirs.Each(func(d kadm.DescribedLogDir) {
		if x, ok := d.Topics.Lookup(p.topic, p.number); ok {
			size, found = x.Size, true
		}
	})
	if !found {
		return // the broker is starting
	}
	if cut && size < sizeLimit {
		s.findings.add("%v: retention by size left %d bytes of %d", p, size, sizeLimit)
	}
	if _, _, up := s.broker.pid(); size > sizeLimit+(3<<20) && time.Since(up) > 4*s.check+10*time.Second {
		s.findings.add("%v: %d bytes, retention.bytes is %d", p, size, sizeLimit)
	}
}

// checkStarts has what was deleted before a restart stay deleted.
func (s *soak) checkStarts(ctx context.Context, before map[*partition]int64) {
	for p, want := range before {
		var start int64
		err := again(ctx, func(ctx context.Context) (err error) {
			start, err = s.logStart(ctx, p.topic, p.number)
			return err
		})
		if err != nil {
			s.findings.add("%v: log start after a restart: %v", p, err)
		} else if start < want {
			s.findings.add("%v: the log starts at %d after a restart, before it was %d", p, start, want)
		}
	}
}

// readEverything reads what is left in every partition, at the end of a run.
func (s *soak) readEverything(ctx context.Context) {
	s.model.each(func(p *partition) {
		next := int64(-1)
		err := s.readPartition(ctx, p.topic, p.number, kgo.NewOffset().AtStart(), -1, func(r *kgo.Record) {
			if next >= 0 && r.Offset != next {
				s.findings.add("last reading: %v: offset %d after %d", p, r.Offset, next-1)
			}
			next = r.Offset + 1
			if !p.check("last reading", r) {
				s.findings.add("last reading: %v: offset %d was never read by the tail reader", p, r.Offset)
			}
		})
		if err != nil {
			s.findings.add("last reading: %v: %v", p, err)
		}
		if _, end, _ := p.bounds(); next >= 0 && next < end {
			s.findings.add("last reading: %v ends at %d, before it was %d", p, next, end)
		}
	})
}

// pause waits; false when the run is over.
func (s *soak) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
