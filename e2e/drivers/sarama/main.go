// Command sarama drives github.com/IBM/sarama for the scenarios of e2e.
package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/varvelog/varve/e2e/protocol"
)

type driver struct {
	client  sarama.ConsumerGroup
	cancel  context.CancelFunc
	done    chan struct{}
	records chan *sarama.ConsumerMessage

	mu      sync.Mutex
	session sarama.ConsumerGroupSession
}

func main() { d := &driver{}; protocol.Serve(d.handle) }

func config(r protocol.Request) *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V4_0_0_0
	c.ClientID = "e2e"
	c.Consumer.Return.Errors = true
	c.Consumer.Offsets.AutoCommit.Enable = false
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Group.Session.Timeout = 10 * time.Second
	c.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	c.Consumer.Fetch.Max = 64 << 20
	c.Producer.Return.Successes = true
	c.Producer.MaxMessageBytes = 64 << 20
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Producer.Compression = map[string]sarama.CompressionCodec{"gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD}[r.Codec]
	switch r.Acks {
	case "0":
		c.Producer.RequiredAcks = sarama.NoResponse
	case "1":
		c.Producer.RequiredAcks = sarama.WaitForLocal
	default:
		c.Producer.RequiredAcks = sarama.WaitForAll
	}
	if r.Idempotent {
		c.Producer.Idempotent = true
		c.Net.MaxOpenRequests = 1
		c.Producer.Retry.Max = 5
	}
	return c
}

func (d *driver) handle(r protocol.Request) (protocol.Response, error) {
	switch r.Op {
	case "hello":
		return protocol.Response{Client: "sarama", Version: version()}, nil
	case "produce":
		return produce(r)
	case "consume":
		return consume(r)
	case "join", "poll", "commit", "leave":
		return d.group(r)
	}
	return admin(r)
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dep := range info.Deps {
		if dep.Path == "github.com/IBM/sarama" {
			return dep.Version
		}
	}
	return "?"
}

func produce(r protocol.Request) (protocol.Response, error) {
	p, err := sarama.NewSyncProducer([]string{r.Bootstrap}, config(r))
	if err != nil {
		return protocol.Response{}, err
	}
	defer p.Close()
	msgs := make([]*sarama.ProducerMessage, len(r.Records))
	for i, x := range r.Records {
		m := &sarama.ProducerMessage{Topic: r.Topic, Partition: x.Partition}
		if x.Key != nil {
			m.Key = sarama.ByteEncoder(x.Key)
		}
		if x.Value != nil {
			m.Value = sarama.ByteEncoder(x.Value)
		}
		if x.Timestamp != 0 {
			m.Timestamp = time.UnixMilli(x.Timestamp)
		}
		for _, h := range x.Headers {
			m.Headers = append(m.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value})
		}
		msgs[i] = m
	}
	if err := p.SendMessages(msgs); err != nil {
		if errs, ok := err.(sarama.ProducerErrors); ok && len(errs) > 0 {
			err = errs[0].Err
		}
		return protocol.Response{}, err
	}
	var out protocol.Response
	for _, m := range msgs {
		out.Records = append(out.Records, protocol.Record{Partition: m.Partition, Offset: m.Offset})
	}
	return out, nil
}

func record(m *sarama.ConsumerMessage) protocol.Record {
	rec := protocol.Record{Partition: m.Partition, Offset: m.Offset, Timestamp: m.Timestamp.UnixMilli(), Key: m.Key, Value: m.Value}
	for _, h := range m.Headers {
		rec.Headers = append(rec.Headers, protocol.Header{Key: string(h.Key), Value: h.Value})
	}
	return rec
}

func consume(r protocol.Request) (protocol.Response, error) {
	client, err := sarama.NewClient([]string{r.Bootstrap}, config(r))
	if err != nil {
		return protocol.Response{}, err
	}
	defer client.Close()
	at := sarama.OffsetOldest
	switch r.From {
	case "offset":
		at = r.Value
	case "time":
		if at, err = client.GetOffset(r.Topic, r.Partition, r.Value); err != nil {
			return protocol.Response{}, err
		}
	}
	c, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return protocol.Response{}, err
	}
	defer c.Close()
	pc, err := c.ConsumePartition(r.Topic, r.Partition, at)
	if err != nil {
		return protocol.Response{}, err
	}
	defer pc.Close()
	var out protocol.Response
	timeout := time.After(time.Duration(max(r.TimeoutMs, 1)) * time.Millisecond)
	for len(out.Records) < r.Count {
		select {
		case m := <-pc.Messages():
			out.Records = append(out.Records, record(m))
		case e := <-pc.Errors():
			return out, e
		case <-timeout:
			return out, nil
		}
	}
	return out, nil
}

// Setup, Cleanup and ConsumeClaim make the driver a sarama.ConsumerGroupHandler.
func (d *driver) Setup(s sarama.ConsumerGroupSession) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session = s
	return nil
}

func (d *driver) Cleanup(sarama.ConsumerGroupSession) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session = nil
	return nil
}

func (d *driver) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			select {
			case d.records <- m:
				s.MarkMessage(m, "")
			case <-s.Context().Done():
				return nil
			}
		case <-s.Context().Done():
			return nil
		}
	}
}

func (d *driver) group(r protocol.Request) (protocol.Response, error) {
	var out protocol.Response
	switch r.Op {
	case "join":
		c := config(r)
		c.Consumer.Return.Errors = false
		g, err := sarama.NewConsumerGroup([]string{r.Bootstrap}, r.Group, c)
		if err != nil {
			return out, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		d.client, d.cancel, d.done, d.records = g, cancel, make(chan struct{}), make(chan *sarama.ConsumerMessage)
		go func() {
			defer close(d.done)
			for ctx.Err() == nil {
				if err := g.Consume(ctx, r.Topics, d); err != nil && ctx.Err() == nil {
					time.Sleep(100 * time.Millisecond)
				}
			}
		}()
	case "poll":
		timeout := time.After(time.Duration(r.TimeoutMs) * time.Millisecond)
	poll:
		for len(out.Records) < r.Count {
			select {
			case m := <-d.records:
				out.Records = append(out.Records, record(m))
			case <-timeout:
				break poll
			}
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.session != nil {
			for t, ps := range d.session.Claims() {
				for _, p := range ps {
					out.Assignment = append(out.Assignment, protocol.Assigned{Topic: t, Partition: p})
				}
			}
		}
	case "commit":
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.session == nil {
			return out, fmt.Errorf("no session")
		}
		d.session.Commit()
	case "leave":
		d.cancel()
		<-d.done
		return out, d.client.Close()
	}
	return out, nil
}

func admin(r protocol.Request) (protocol.Response, error) {
	var out protocol.Response
	a, err := sarama.NewClusterAdmin([]string{r.Bootstrap}, config(r))
	if err != nil {
		return out, err
	}
	defer a.Close()
	switch r.Op {
	case "create":
		entries := map[string]*string{}
		for k, v := range r.Configs {
			entries[k] = &v
		}
		return out, a.CreateTopic(r.Topic, &sarama.TopicDetail{NumPartitions: r.Partitions, ReplicationFactor: 1, ConfigEntries: entries}, false)
	case "delete-records":
		return out, a.DeleteRecords(r.Topic, map[int32]int64{r.Partition: r.Value})
	case "configs":
		entries, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: r.Topic})
		out.Configs = map[string]string{}
		for _, e := range entries {
			out.Configs[e.Name] = e.Value
		}
		return out, err
	case "alter-configs":
		entries := map[string]sarama.IncrementalAlterConfigsEntry{}
		for k, v := range r.Configs {
			entries[k] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &v}
		}
		return out, a.IncrementalAlterConfig(sarama.TopicResource, r.Topic, entries, false)
	case "groups":
		groups, err := a.ListConsumerGroups()
		for g := range groups {
			out.Groups = append(out.Groups, g)
		}
		return out, err
	case "describe-group":
		res, err := a.DescribeConsumerGroups([]string{r.Group})
		if err != nil {
			return out, err
		}
		if len(res) != 1 {
			return out, fmt.Errorf("described %s groups, want 1", strconv.Itoa(len(res)))
		}
		out.State, out.Members = res[0].State, len(res[0].Members)
		if res[0].Err != sarama.ErrNoError {
			err = res[0].Err
		}
		return out, err
	}
	return out, protocol.ErrUnsupported(r.Op)
}
