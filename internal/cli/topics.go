package cli

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
)

func (a *app) topicsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "topics", Short: "list, describe, create, change and delete topics", GroupID: groupData,
		Long: "Lists, describes, creates, changes and deletes the topics of a running broker.",
		Example: `  varve topics list                                    # or, as Kafka's tools: topics --list
  varve topics create orders --partitions 6 --config retention.ms=86400000
  varve topics describe orders                         # or: topics --describe --topic orders
  varve topics alter orders --partitions 12 --config cleanup.policy=compact
  varve topics delete orders --yes`,
		Args: cobra.ArbitraryArgs,
		RunE: a.groupRun,
	}
	a.clientFlags(cmd)
	cmd.AddCommand(a.topicsList(), a.topicsDescribe(), a.topicsCreate(), a.topicsAlter(), a.topicsDelete())
	return cmd
}

// topicNames are a command's topics: its arguments, and Kafka's --topic.
func (a *app) topicNames(cmd *cobra.Command, names *[]string) func(args []string) ([]string, error) {
	cmd.Flags().StringSliceVar(names, "topic", nil, "`NAME` of a topic, as Kafka's tools take it")
	_ = cmd.Flags().MarkHidden("topic")
	cmd.ValidArgsFunction = a.completeTopics
	return func(args []string) ([]string, error) {
		all := append(append([]string(nil), args...), *names...)
		return all, nameEach("topic", all)
	}
}

type topicRow struct {
	Name        string `json:"name"`
	ID          string `json:"id"`
	Partitions  int    `json:"partitions"`
	Replication int    `json:"replicationFactor"`
	Internal    bool   `json:"internal"`
}

func (a *app) topicsList() *cobra.Command {
	var exclude, names bool
	cmd := &cobra.Command{
		Use: "list", Short: "list all topics", Args: noArguments,
		Long:    "Lists all topics, internal ones included.",
		Example: "  varve topics list\n  varve topics list --names --exclude-internal",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client) error {
				topics, err := c.admin.ListTopicsWithInternal(ctx)
				if err != nil {
					return failed("list topics", err)
				}
				rows := []topicRow{}
				for _, t := range topics.Sorted() {
					if t.IsInternal && exclude {
						continue
					}
					rows = append(rows, topicRow{t.Topic, kafka.UUID(t.ID).String(), len(t.Partitions), t.Partitions.NumReplicas(), t.IsInternal})
				}
				return a.print(map[string]any{"topics": rows}, func() { a.printTopics(rows, names) })
			})
		},
	}
	cmd.Flags().BoolVar(&exclude, "exclude-internal", false, "leave out the topics that the broker itself writes")
	cmd.Flags().BoolVar(&names, "names", false, "print names alone, one a line")
	a.outputFlag(cmd)
	return cmd
}

func (a *app) printTopics(rows []topicRow, names bool) {
	if names {
		for _, r := range rows {
			fmt.Fprintln(a.Stdout, r.Name)
		}
		return
	}
	t := newTable("TOPIC", "PARTITIONS", "REPLICAS").numbers(1, 2)
	for _, r := range rows {
		t.add(r.Name, fmt.Sprint(r.Partitions), fmt.Sprint(r.Replication))
	}
	t.write(a.Stdout)
}

type partitionRow struct {
	Partition   int32   `json:"partition"`
	Leader      *int32  `json:"leader"`
	LeaderEpoch int32   `json:"leaderEpoch"`
	Replicas    []int32 `json:"replicas"`
	InSync      []int32 `json:"isr"`
	Offline     []int32 `json:"offlineReplicas"`
	Start       *bigInt `json:"startOffset"`
	End         *bigInt `json:"endOffset"`
}

type configRow struct {
	Name   string  `json:"name"`
	Value  *string `json:"value"`
	Source string  `json:"source"`
}

type topicDetail struct {
	topicRow
	Configs []configRow    `json:"configs"`
	Parts   []partitionRow `json:"partitionDetails"`
}

func (a *app) topicsDescribe() *cobra.Command {
	var flag []string
	var all bool
	cmd := &cobra.Command{
		Use: "describe [TOPIC...]", Short: "show partitions, offsets and settings",
		Long: "Shows partitions with their leaders, replicas and offsets, and the settings that\nare not defaults. Without a name, of all topics.",
		Example: `  varve topics describe orders
  varve topics describe orders -o json`,
	}
	names := a.topicNames(cmd, &flag)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var wanted []string
		if len(args)+len(flag) > 0 {
			var err error
			if wanted, err = names(args); err != nil {
				return err
			}
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client) error {
			details, err := describeTopics(ctx, c, wanted, all)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"topics": details}, func() { a.printDetails(details) })
		})
	}
	cmd.Flags().BoolVar(&all, "all-configs", false, "show settings with default values too")
	a.outputFlag(cmd)
	return cmd
}

func describeTopics(ctx context.Context, c *client, names []string, all bool) ([]topicDetail, error) {
	topics, err := c.admin.ListTopicsWithInternal(ctx, names...)
	if err != nil {
		return nil, failed("describe topics", err)
	}
	var found []string
	for _, t := range topics.Sorted() {
		if t.Err != nil {
			return nil, failed("topic "+t.Topic, t.Err)
		}
		found = append(found, t.Topic)
	}
	details := []topicDetail{}
	if len(found) == 0 {
		return details, nil
	}
	starts, err := c.admin.ListStartOffsets(ctx, found...)
	if err != nil {
		return nil, failed("read start offsets", err)
	}
	ends, err := c.admin.ListEndOffsets(ctx, found...)
	if err != nil {
		return nil, failed("read end offsets", err)
	}
	configs, err := c.admin.DescribeTopicConfigs(ctx, found...)
	if err != nil {
		return nil, failed("read settings", err)
	}
	for _, t := range topics.Sorted() {
		d := topicDetail{topicRow: topicRow{t.Topic, kafka.UUID(t.ID).String(), len(t.Partitions), t.Partitions.NumReplicas(), t.IsInternal}, Configs: []configRow{}, Parts: []partitionRow{}}
		for _, p := range t.Partitions.Sorted() {
			d.Parts = append(d.Parts, partitionOf(p, starts, ends))
		}
		if rc, err := configs.On(t.Topic, nil); err == nil && rc.Err == nil {
			d.Configs = configRows(rc.Configs, all)
		}
		details = append(details, d)
	}
	return details, nil
}

func partitionOf(p kadm.PartitionDetail, starts, ends kadm.ListedOffsets) partitionRow {
	row := partitionRow{Partition: p.Partition, LeaderEpoch: p.LeaderEpoch, Replicas: nonNil(p.Replicas), InSync: nonNil(p.ISR), Offline: nonNil(p.OfflineReplicas)}
	if p.Leader >= 0 {
		row.Leader = &p.Leader
	}
	offset := func(list kadm.ListedOffsets) *bigInt {
		o, ok := list.Lookup(p.Topic, p.Partition)
		if !ok || o.Err != nil {
			return nil
		}
		n := bigInt(o.Offset)
		return &n
	}
	row.Start, row.End = offset(starts), offset(ends)
	return row
}

func nonNil(ids []int32) []int32 {
	if ids == nil {
		return []int32{}
	}
	return ids
}

func configRows(configs []kadm.Config, all bool) []configRow {
	rows := []configRow{}
	for _, c := range configs {
		source := c.Source.String()
		if k, ok := config.Lookup(config.ScopeTopic, c.Key); ok && source != "DYNAMIC_TOPIC_CONFIG" && c.Value != nil && *c.Value == k.Default {
			source = "DEFAULT_CONFIG" // a default that was written down, as a new cluster does, is still one
		}
		if all || source != "DEFAULT_CONFIG" {
			rows = append(rows, configRow{c.Key, c.Value, strings.ToLower(strings.ReplaceAll(c.Source.String(), "_", "-"))})
		}
	}
	sort.Slice(rows, func(i, j int) bool { return rows[i].Name < rows[j].Name })
	return rows
}

func (a *app) printDetails(details []topicDetail) {
	for i, d := range details {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		fmt.Fprintf(a.Stdout, "%s  id=%s  partitions=%d  replicas=%d\n", d.Name, d.ID, d.Partitions, d.Replication)
		for _, c := range d.Configs {
			value := "-"
			if c.Value != nil {
				value = *c.Value
			}
			fmt.Fprintf(a.Stdout, "  %s=%s  (%s)\n", c.Name, value, c.Source)
		}
		t := newTable("  PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "START", "END").numbers(0, 1, 2, 5, 6)
		for _, p := range d.Parts {
			leader := "none"
			if p.Leader != nil {
				leader = fmt.Sprint(*p.Leader)
			}
			t.add(fmt.Sprint(p.Partition), leader, fmt.Sprint(p.LeaderEpoch), ids(p.Replicas), ids(p.InSync), offsetText(p.Start), offsetText(p.End))
		}
		t.write(a.Stdout)
	}
}

func offsetText(n *bigInt) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(int64(*n))
}

func ids(list []int32) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = fmt.Sprint(n)
	}
	return strings.Join(words, ",")
}
