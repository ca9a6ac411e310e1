// Command kafkago drives github.com/segmentio/kafka-go for the scenarios of e2e.
package main

import (
	"context"
	"errors"
	"io"
	"runtime/debug"
	"sort"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/varvelog/varve/e2e/protocol"
)

type driver struct {
	reader *kafka.Reader
	marked []kafka.Message
}

func main() { d := &driver{}; protocol.Serve(d.handle) }

func (d *driver) handle(r protocol.Request) (protocol.Response, error) {
	timeout := 60 * time.Second
	if r.TimeoutMs > 0 {
		timeout = time.Duration(r.TimeoutMs) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	switch r.Op {
	case "hello":
		return protocol.Response{Client: "kafka-go", Version: version()}, nil
	case "produce":
		return produce(ctx, r)
	case "consume":
		return consume(ctx, r)
	case "join", "poll", "commit", "leave":
		return d.group(ctx, r)
	}
	return admin(ctx, r)
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "github.com/segmentio/kafka-go" {
			return dep.Version
		}
	}
	return "?"
}

func produce(ctx context.Context, r protocol.Request) (protocol.Response, error) {
	if r.Idempotent {
		return protocol.Response{}, protocol.ErrUnsupported("idempotent producer")
	}
	acks := kafka.RequireAll
	switch r.Acks {
	case "0":
		acks = kafka.RequireNone
	case "1":
		acks = kafka.RequireOne
	}
	w := &kafka.Writer{
		Addr: kafka.TCP(r.Bootstrap), Topic: r.Topic, RequiredAcks: acks, BatchBytes: 64 << 20, BatchTimeout: 5 * time.Millisecond, BatchSize: len(r.Records),
		Compression: map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}[r.Codec],
		Balancer:    kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return m.WriterData.(int) }),
	}
	msgs := make([]kafka.Message, len(r.Records))
	for i, x := range r.Records {
		msgs[i] = kafka.Message{Key: x.Key, Value: x.Value, WriterData: int(x.Partition)}
		if x.Timestamp != 0 {
			msgs[i].Time = time.UnixMilli(x.Timestamp)
		}
		for _, h := range x.Headers {
			msgs[i].Headers = append(msgs[i].Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
	}
	if err := w.WriteMessages(ctx, msgs...); err != nil {
		return protocol.Response{}, err
	}
	return protocol.Response{}, w.Close()
}

func record(m kafka.Message) protocol.Record {
	rec := protocol.Record{Partition: int32(m.Partition), Offset: m.Offset, Timestamp: m.Time.UnixMilli(), Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		rec.Headers = append(rec.Headers, protocol.Header{Key: h.Key, Value: h.Value})
	}
	return rec
}

func consume(ctx context.Context, r protocol.Request) (protocol.Response, error) {
	var out protocol.Response
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{r.Bootstrap}, Topic: r.Topic, Partition: int(r.Partition), MaxBytes: 64 << 20, MaxWait: 100 * time.Millisecond})
	defer reader.Close()
	var err error
	switch r.From {
	case "offset":
		err = reader.SetOffset(r.Value)
	case "time":
		err = reader.SetOffsetAt(ctx, time.UnixMilli(r.Value))
	default:
		err = reader.SetOffset(kafka.FirstOffset)
	}
	if err != nil {
		return out, err
	}
	for len(out.Records) < r.Count {
		m, err := reader.ReadMessage(ctx)
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out.Records = append(out.Records, record(m))
	}
	return out, nil
}

func (d *driver) group(ctx context.Context, r protocol.Request) (protocol.Response, error) {
	var out protocol.Response
	switch r.Op {
	case "join":
		d.reader = kafka.NewReader(kafka.ReaderConfig{Brokers: []string{r.Bootstrap}, GroupID: r.Group, GroupTopics: r.Topics, StartOffset: kafka.FirstOffset,
			SessionTimeout: 10 * time.Second, RebalanceTimeout: 10 * time.Second, HeartbeatInterval: 500 * time.Millisecond, MaxWait: 100 * time.Millisecond})
	case "poll":
		held := map[protocol.Assigned]bool{}
		for len(out.Records) < r.Count {
			m, err := d.reader.FetchMessage(ctx)
			if errors.Is(err, context.DeadlineExceeded) {
				break
			}
			if err != nil {
				return out, err
			}
			d.marked = append(d.marked, m)
			held[protocol.Assigned{Topic: m.Topic, Partition: int32(m.Partition)}] = true
			out.Records = append(out.Records, record(m))
		}
		// The library does not say what a member holds; what it was given records of is the nearest.
		for a := range held {
			out.Assignment = append(out.Assignment, a)
		}
		sort.Slice(out.Assignment, func(i, j int) bool { return out.Assignment[i].Partition < out.Assignment[j].Partition })
	case "commit":
		err := d.reader.CommitMessages(ctx, d.marked...)
		d.marked = nil
		return out, err
	case "leave":
		return out, d.reader.Close()
	}
	return out, nil
}

func admin(ctx context.Context, r protocol.Request) (protocol.Response, error) {
	var out protocol.Response
	c := &kafka.Client{Addr: kafka.TCP(r.Bootstrap), Timeout: 30 * time.Second}
	switch r.Op {
	case "create":
		var entries []kafka.ConfigEntry
		for k, v := range r.Configs {
			entries = append(entries, kafka.ConfigEntry{ConfigName: k, ConfigValue: v})
		}
		res, err := c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: r.Topic, NumPartitions: int(r.Partitions), ReplicationFactor: 1, ConfigEntries: entries}}})
		if err == nil {
			err = res.Errors[r.Topic]
		}
		return out, err
	case "configs":
		res, err := c.DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{Resources: []kafka.DescribeConfigRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: r.Topic}}})
		if err != nil {
			return out, err
		}
		out.Configs = map[string]string{}
		for _, x := range res.Resources {
			if x.Error != nil {
				return out, x.Error
			}
			for _, e := range x.ConfigEntries {
				out.Configs[e.ConfigName] = e.ConfigValue
			}
		}
		return out, nil
	case "alter-configs":
		var set []kafka.IncrementalAlterConfigsRequestConfig
		for k, v := range r.Configs {
			set = append(set, kafka.IncrementalAlterConfigsRequestConfig{Name: k, Value: v, ConfigOperation: kafka.ConfigOperationSet})
		}
		res, err := c.IncrementalAlterConfigs(ctx, &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{{ResourceType: kafka.ResourceTypeTopic, ResourceName: r.Topic, Configs: set}}})
		if err != nil {
			return out, err
		}
		return out, res.Resources[0].Error
	case "groups":
		res, err := c.ListGroups(ctx, &kafka.ListGroupsRequest{})
		if err != nil {
			return out, err
		}
		for _, g := range res.Groups {
			out.Groups = append(out.Groups, g.GroupID)
		}
		return out, res.Error
	case "describe-group":
		res, err := c.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{r.Group}})
		if err != nil {
			return out, err
		}
		g := res.Groups[0]
		out.State, out.Members = g.GroupState, len(g.Members)
		return out, g.Error
	}
	return out, protocol.ErrUnsupported(r.Op)
}
