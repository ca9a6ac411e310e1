package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// describedPartition is a partition as kafka-topics prints it.
type describedPartition struct {
	kmsg.DescribeTopicPartitionsResponseTopicPartition
	elrKnown bool // only DescribeTopicPartitions tells the eligible leader replicas
}

type describedTopic struct {
	name       string
	id         kafka.TopicID
	partitions []describedPartition
}

// describeTopics is kafka-topics --describe.
func (r *kafkaRun) describeTopics(ctx context.Context, c *client) error {
	topics, err := r.wantedTopics(ctx, c)
	if err != nil || len(topics) == 0 {
		return err
	}
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.name
	}
	configs, err := c.admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return err
	}
	for _, t := range topics {
		rc, err := configs.On(t.name, nil)
		if err != nil {
			return err
		}
		r.printTopic(t, rc.Configs)
	}
	return nil
}

func (r *kafkaRun) wantedTopics(ctx context.Context, c *client) ([]describedTopic, error) {
	if !r.opts.has("topic-id") {
		names, err := r.existingTopics(ctx, c)
		if err != nil || len(names) == 0 {
			return nil, err
		}
		return r.describePaged(ctx, c, names)
	}
	id, err := parseTopicID(r.opts.one("topic-id"))
	if err != nil {
		return nil, err
	}
	topics, err := c.admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		if kafka.TopicID(t.ID) != id {
			continue
		}
		d := describedTopic{name: t.Topic, id: id}
		for _, p := range t.Partitions.Sorted() {
			part := describedPartition{}
			part.Partition, part.LeaderID, part.Replicas, part.ISR = p.Partition, p.Leader, p.Replicas, p.ISR
			d.partitions = append(d.partitions, part)
		}
		return []describedTopic{d}, nil
	}
	if r.opts.has("if-exists") {
		return nil, nil
	}
	return nil, errors.New("TopicId '" + id.String() + "' does not exist as expected")
}

// describePaged asks with DescribeTopicPartitions (KIP-966), page by page.
func (r *kafkaRun) describePaged(ctx context.Context, c *client, names []string) ([]describedTopic, error) {
	limit, err := r.opts.integer("partition-size-limit-per-response", 2000)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = int32(limit)
	for _, name := range names {
		t := kmsg.NewDescribeTopicPartitionsRequestTopic()
		t.Topic = name
		req.Topics = append(req.Topics, t)
	}
	var topics []describedTopic
	for {
		answer, err := req.RequestWith(ctx, c.Client)
		if err != nil {
			return nil, err
		}
		for _, t := range answer.Topics {
			if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
				return nil, err
			}
			name := ""
			if t.Topic != nil {
				name = *t.Topic
			}
			if n := len(topics); n == 0 || topics[n-1].name != name {
				topics = append(topics, describedTopic{name: name, id: t.TopicID})
			}
			last := &topics[len(topics)-1]
			for _, p := range t.Partitions {
				last.partitions = append(last.partitions, describedPartition{p, true})
			}
		}
		if answer.NextCursor == nil {
			return topics, nil
		}
		cursor := kmsg.NewDescribeTopicPartitionsRequestCursor()
		cursor.Topic, cursor.Partition = answer.NextCursor.Topic, answer.NextCursor.Partition
		for len(req.Topics) > 0 && req.Topics[0].Topic < cursor.Topic {
			req.Topics = req.Topics[1:]
		}
		req.Cursor = &cursor
	}
}

func (r *kafkaRun) printTopic(t describedTopic, configs []kadm.Config) {
	var own []string
	minISR := 1
	for _, c := range configs {
		if c.Key == "min.insync.replicas" && c.Value != nil {
			minISR, _ = strconv.Atoi(*c.Value)
		}
		if c.Source != kmsg.ConfigSourceDefaultConfig && c.Value != nil {
			own = append(own, c.Key+"="+*c.Value)
		}
	}
	report := r.opts.count(topicReports()...) > 0
	overrides := r.opts.has("topics-with-overrides")
	replicas := 0
	if len(t.partitions) > 0 {
		replicas = len(t.partitions[0].Replicas)
	}
	if !report && (!overrides || len(own) > 0) {
		fmt.Fprintf(r.Stdout, "Topic: %s\tTopicId: %s\tPartitionCount: %d\tReplicationFactor: %d\tConfigs: %s\n",
			t.name, t.id, len(t.partitions), replicas, strings.Join(own, ","))
	}
	if overrides {
		return
	}
	for _, p := range t.partitions {
		if !report || r.reported(p, minISR) {
			r.printPartition(t.name, p)
		}
	}
}

// reported says whether a partition is of those that the report asks for.
func (r *kafkaRun) reported(p describedPartition, minISR int) bool {
	switch {
	case r.opts.has("under-replicated-partitions"):
		return len(p.ISR) < len(p.Replicas)
	case r.opts.has("under-min-isr-partitions"):
		return len(p.ISR) < minISR
	case r.opts.has("at-min-isr-partitions"):
		return len(p.ISR) == minISR
	}
	return p.LeaderID < 0
}

func (r *kafkaRun) printPartition(topic string, p describedPartition) {
	leader := "none"
	if p.LeaderID >= 0 {
		leader = strconv.Itoa(int(p.LeaderID))
	}
	elr, last := "N/A", "N/A"
	if p.elrKnown {
		elr, last = ids(p.EligibleLeaderReplicas), ids(p.LastKnownELR)
	}
	fmt.Fprintf(r.Stdout, "\tTopic: %s\tPartition: %d\tLeader: %s\tReplicas: %s\tIsr: %s\tElr: %s\tLastKnownElr: %s\n",
		topic, p.Partition, leader, ids(p.Replicas), ids(p.ISR), elr, last)
}
