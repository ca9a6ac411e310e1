package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// topic is one of the topics under load.
type topic struct {
	name       string
	partitions int32
	configs    func(p pacing) map[string]string
}

const sizeLimit = 3 << 20 // retention.bytes

var plainTopics = []topic{
	{"soak.size", 2, func(pacing) map[string]string {
		return map[string]string{"segment.bytes": "1048576", "retention.bytes": fmt.Sprint(sizeLimit), "index.interval.bytes": "512"}
	}},
	{"soak.time", 2, func(p pacing) map[string]string {
		return map[string]string{"segment.ms": ms(p.segment), "retention.ms": ms(p.retention)}
	}},
	{"soak.trim", 2, func(p pacing) map[string]string {
		return map[string]string{"segment.ms": ms(p.segment * 2)}
	}},
}

var keyedTopics = []topic{
	{"soak.compact", 2, func(p pacing) map[string]string {
		return map[string]string{"cleanup.policy": "compact", "segment.ms": ms(p.segment), "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": ms(p.retention / 2)}
	}},
	{"soak.both", 1, func(p pacing) map[string]string {
		return map[string]string{"cleanup.policy": "compact,delete", "segment.ms": ms(p.segment), "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": ms(p.retention / 2), "retention.ms": ms(p.retention)}
	}},
}

// producerKind is one way to produce; its index is the producer's number.
type producerKind struct {
	name   string
	topics []string
	keys   int // of a compacted topic, per partition; 0 for the others
	share  int // of the rate, in parts
	opts   []kgo.Opt
}

func plainProducer(acks kgo.Acks, codec kgo.CompressionCodec) []kgo.Opt {
	return []kgo.Opt{kgo.DisableIdempotentWrite(), kgo.RequiredAcks(acks), kgo.MaxProduceRequestsInflightPerBroker(1), kgo.ProducerBatchCompression(codec)}
}

func codec(c kgo.CompressionCodec) []kgo.Opt { return []kgo.Opt{kgo.ProducerBatchCompression(c)} }

var producerKinds = []producerKind{
	{"idempotent", []string{"soak.size", "soak.time"}, 0, 4, codec(kgo.NoCompression())},
	{"idempotent lz4", []string{"soak.size", "soak.trim"}, 0, 3, codec(kgo.Lz4Compression())},
	{"idempotent zstd", []string{"soak.time", "soak.trim"}, 0, 2, codec(kgo.ZstdCompression())},
	{"plain gzip acks=1", []string{"soak.size", "soak.time", "soak.trim"}, 0, 2, plainProducer(kgo.LeaderAck(), kgo.GzipCompression())},
	{"plain snappy acks=all", []string{"soak.size", "soak.trim"}, 0, 3, plainProducer(kgo.AllISRAcks(), kgo.SnappyCompression())},
	{"keyed", []string{"soak.compact"}, 40, 3, codec(kgo.NoCompression())},
	{"keyed lz4", []string{"soak.both"}, 15, 2, codec(kgo.Lz4Compression())},
}

// idempotent says whether the broker has to keep this producer's records
// single and in order.
func idempotent(producer int) bool { return producer < 3 || producer > 4 }

func (s *soak) client(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.broker.addr), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond }),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.UnknownTopicRetries(-1)}, opts...)...)
}

func (s *soak) createTopics(ctx context.Context) error {
	for _, t := range append(append([]topic(nil), plainTopics...), keyedTopics...) {
		configs := map[string]*string{}
		for k, v := range t.configs(s.pacing) {
			configs[k] = &v
		}
		if _, err := s.admin.CreateTopic(ctx, t.partitions, 1, configs, t.name); err != nil {
			return fmt.Errorf("create %s: %w", t.name, err)
		}
	}
	for _, t := range keyedTopics {
		for n := range t.partitions {
			s.keyed = append(s.keyed, newKeyed(t.name, n, s.findings))
		}
	}
	return nil
}

// lane is one partition as one producer sees it.
type lane struct {
	topic  string
	number int32
	plain  *partition
	keyed  *keyed
	seq    int64
}

func (s *soak) startProducers(ctx context.Context, wg *sync.WaitGroup, quiet chan struct{}) error {
	shares := 0
	for _, k := range producerKinds {
		shares += k.share
	}
	for n, kind := range producerKinds {
		c, err := s.client(append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(20 * time.Millisecond)}, kind.opts...)...)
		if err != nil {
			return err
		}
		var lanes []*lane
		for _, name := range kind.topics {
			for i, p := range s.model.partitions[name] {
				lanes = append(lanes, &lane{topic: name, number: int32(i), plain: p})
			}
			for _, k := range s.keyed {
				if k.topic == name {
					lanes = append(lanes, &lane{topic: name, number: k.number, keyed: k})
				}
			}
		}
		perSecond := float64(s.rate*kind.share) / float64(shares)
		wg.Go(func() {
			defer c.Close()
			s.produce(ctx, c, n, kind, lanes, perSecond, quiet)
		})
	}
	return nil
}

// produce sends at its rate until it is told to be quiet. A record is never
// given up: the client tries until the broker is back.
func (s *soak) produce(ctx context.Context, c *kgo.Client, n int, kind producerKind, lanes []*lane, perSecond float64, quiet chan struct{}) {
	const tick = 200 * time.Millisecond
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	due := 0.0
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-quiet:
			if err := c.Flush(ctx); err != nil && ctx.Err() == nil {
				s.findings.add("producer %d (%s): flush: %v", n, kind.name, err)
			}
			return
		case <-ticker.C:
		}
		if c.BufferedProduceRecords() > 2000 {
			continue // the broker is away; what is waiting is enough
		}
		for due += perSecond * tick.Seconds(); due >= 1; due-- {
			s.send(ctx, c, n, kind, lanes[i%len(lanes)])
			i++
		}
	}
}

func (s *soak) send(ctx context.Context, c *kgo.Client, n int, kind producerKind, l *lane) {
	id := newID(n, l.seq)
	l.seq++
	r := &kgo.Record{Topic: l.topic, Partition: l.number, Timestamp: time.Now(), Value: payload(id)}
	key := int(id.seq()) % max(kind.keys, 1)
	if l.keyed != nil {
		r.Key = fmt.Appendf(nil, "key-%d", key)
		if tombstone(id.seq()) {
			r.Value = nil
		}
		r.Headers = []kgo.RecordHeader{{Key: "seq", Value: fmt.Append(nil, id.seq())}}
	} else if id.seq()%3 > 0 {
		r.Key = fmt.Appendf(nil, "key-%d", id.seq()%50)
	}
	c.Produce(ctx, r, func(r *kgo.Record, err error) {
		switch {
		case err != nil && ctx.Err() == nil:
			s.findings.add("producer %d (%s) was refused record %d of %s-%d: %v", n, kind.name, id.seq(), l.topic, l.number, err)
		case err != nil:
		case l.keyed != nil:
			s.model.acked.Add(1)
			l.keyed.acknowledge(string(r.Key), id.seq(), r.Timestamp.UnixMilli())
		default:
			s.model.acked.Add(1)
			l.plain.acknowledge(id, r.Offset)
		}
	})
}

// tombstone says whether a record of a compacted topic has no value.
func tombstone(seq int64) bool { return seq%7 == 3 }
