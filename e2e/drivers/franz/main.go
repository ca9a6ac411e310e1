// Command franz drives github.com/twmb/franz-go for the scenarios of e2e.
package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/protocol"
)

type driver struct {
	member   *kgo.Client
	mu       sync.Mutex
	assigned map[string]map[int32]bool
}

func main() { d := &driver{}; protocol.Serve(d.handle) }

func (d *driver) handle(r protocol.Request) (protocol.Response, error) {
	timeout := 60 * time.Second
	if r.TimeoutMs > 0 && r.Op != "poll" {
		timeout = time.Duration(r.TimeoutMs) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	switch r.Op {
	case "hello":
		return protocol.Response{Client: "franz-go", Version: version("github.com/twmb/franz-go")}, nil
	case "produce":
		return d.produce(ctx, r)
	case "consume":
		return d.consume(ctx, r)
	case "join", "poll", "commit", "leave":
		return d.group(ctx, r)
	}
	return d.admin(ctx, r)
}

func version(path string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == path {
			return dep.Version
		}
	}
	return "?"
}

func (d *driver) produce(ctx context.Context, r protocol.Request) (protocol.Response, error) {
	codec := map[string]kgo.CompressionCodec{"": kgo.NoCompression(), "none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}[r.Codec]
	opts := []kgo.Opt{kgo.SeedBrokers(r.Bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(1 << 20), kgo.AllowAutoTopicCreation()}
	switch r.Acks {
	case "0":
		opts = append(opts, kgo.RequiredAcks(kgo.NoAck()))
	case "1":
		opts = append(opts, kgo.RequiredAcks(kgo.LeaderAck()))
	default:
		opts = append(opts, kgo.RequiredAcks(kgo.AllISRAcks()))
	}
	if !r.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	c, err := kgo.NewClient(opts...)
	if err != nil {
		return protocol.Response{}, err
	}
	defer c.Close()
	recs := make([]*kgo.Record, len(r.Records))
	for i, x := range r.Records {
		recs[i] = &kgo.Record{Topic: r.Topic, Partition: x.Partition, Key: x.Key, Value: x.Value}
		if x.Timestamp != 0 {
			recs[i].Timestamp = time.UnixMilli(x.Timestamp)
		}
		for _, h := range x.Headers {
			recs[i].Headers = append(recs[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	var out protocol.Response
	for _, res := range c.ProduceSync(ctx, recs...) {
		if res.Err != nil {
			return out, res.Err
		}
		out.Records = append(out.Records, protocol.Record{Partition: res.Record.Partition, Offset: res.Record.Offset})
	}
	return out, nil
}

func record(x *kgo.Record) protocol.Record {
	rec := protocol.Record{Partition: x.Partition, Offset: x.Offset, Timestamp: x.Timestamp.UnixMilli(), Key: x.Key, Value: x.Value}
	for _, h := range x.Headers {
		rec.Headers = append(rec.Headers, protocol.Header{Key: h.Key, Value: h.Value})
	}
	return rec
}

func (d *driver) consume(ctx context.Context, r protocol.Request) (protocol.Response, error) {
	at := kgo.NewOffset().AtStart()
	switch r.From {
	case "offset":
		at = kgo.NewOffset().At(r.Value)
	case "time":
		at = kgo.NewOffset().AfterMilli(r.Value)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(r.Bootstrap), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{r.Topic: {r.Partition: at}}))
	if err != nil {
		return protocol.Response{}, err
	}
	defer c.Close()
	return poll(ctx, c, r.Count)
}

func poll(ctx context.Context, c *kgo.Client, count int) (protocol.Response, error) {
	var out protocol.Response
	for len(out.Records) < count {
		fetches := c.PollFetches(ctx)
		if ctx.Err() != nil {
			return out, nil
		}
		for _, e := range fetches.Errors() {
			return out, fmt.Errorf("fetch %s-%d: %w", e.Topic, e.Partition, e.Err)
		}
		fetches.EachRecord(func(x *kgo.Record) { out.Records = append(out.Records, record(x)) })
	}
	return out, nil
}

func (d *driver) group(ctx context.Context, r protocol.Request) (protocol.Response, error) {
	switch r.Op {
	case "join":
		d.assigned = map[string]map[int32]bool{}
		set := func(on bool) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
				d.mu.Lock()
				defer d.mu.Unlock()
				for t, ps := range m {
					if d.assigned[t] == nil {
						d.assigned[t] = map[int32]bool{}
					}
					for _, p := range ps {
						d.assigned[t][p] = on
					}
				}
			}
		}
		c, err := kgo.NewClient(kgo.SeedBrokers(r.Bootstrap), kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(r.Topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.DisableAutoCommit(), kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
			kgo.OnPartitionsAssigned(set(true)), kgo.OnPartitionsRevoked(set(false)), kgo.OnPartitionsLost(set(false)))
		d.member = c
		return protocol.Response{}, err
	case "poll":
		pollCtx, cancel := context.WithTimeout(context.Background(), time.Duration(r.TimeoutMs)*time.Millisecond)
		defer cancel()
		out, err := poll(pollCtx, d.member, r.Count)
		d.mu.Lock()
		defer d.mu.Unlock()
		for t, ps := range d.assigned {
			for p, on := range ps {
				if on {
					out.Assignment = append(out.Assignment, protocol.Assigned{Topic: t, Partition: p})
				}
			}
		}
		return out, err
	case "commit":
		return protocol.Response{}, d.member.CommitUncommittedOffsets(ctx)
	default:
		d.member.Close()
		return protocol.Response{}, nil
	}
}

func (d *driver) admin(ctx context.Context, r protocol.Request) (protocol.Response, error) {
	c, err := kgo.NewClient(kgo.SeedBrokers(r.Bootstrap))
	if err != nil {
		return protocol.Response{}, err
	}
	defer c.Close()
	adm := kadm.NewClient(c)
	var out protocol.Response
	switch r.Op {
	case "create":
		configs := map[string]*string{}
		for k, v := range r.Configs {
			configs[k] = &v
		}
		_, err := adm.CreateTopic(ctx, r.Partitions, 1, configs, r.Topic)
		return out, err
	case "delete-records":
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: r.Topic, Partition: r.Partition, At: r.Value})
		res, err := adm.DeleteRecords(ctx, offsets)
		if err == nil {
			err = res.Error()
		}
		return out, err
	case "configs":
		res, err := adm.DescribeTopicConfigs(ctx, r.Topic)
		if err != nil {
			return out, err
		}
		rc, err := res.On(r.Topic, nil)
		if err != nil {
			return out, err
		}
		out.Configs = map[string]string{}
		for _, k := range rc.Configs {
			out.Configs[k.Key] = k.MaybeValue()
		}
		return out, rc.Err
	case "alter-configs":
		var alter []kadm.AlterConfig
		for k, v := range r.Configs {
			alter = append(alter, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: &v})
		}
		res, err := adm.AlterTopicConfigs(ctx, alter, r.Topic)
		if err == nil {
			for _, x := range res {
				if x.Err != nil {
					err = x.Err
				}
			}
		}
		return out, err
	case "groups":
		res, err := adm.ListGroups(ctx)
		if err != nil {
			return out, err
		}
		out.Groups = res.Groups()
		return out, nil
	case "describe-group":
		res, err := adm.DescribeGroups(ctx, r.Group)
		if err != nil {
			return out, err
		}
		g := res[r.Group]
		out.State, out.Members = g.State, len(g.Members)
		return out, g.Err
	}
	return out, protocol.ErrUnsupported(r.Op)
}
