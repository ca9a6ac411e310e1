package cli

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// change is one thing that a command did, or would do under --dry-run.
type change struct {
	Action string `json:"action"`
	Topic  string `json:"topic"`
	Detail string `json:"detail"`
	Done   bool   `json:"done"`
}

// printChanges says what was done, or what would have been.
func (a *app) printChanges(changes []change) error {
	if changes == nil {
		changes = []change{}
	}
	return a.print(map[string]any{"changes": changes}, func() {
		for _, c := range changes {
			line := c.Action + " " + c.Topic
			if c.Detail != "" {
				line += ": " + c.Detail
			}
			if !c.Done {
				line = "would " + line
			}
			fmt.Fprintln(a.Stdout, line)
		}
	})
}

func (a *app) topicsCreate() *cobra.Command {
	var flag, settings []string
	var partitions, replication int
	var ifNotExists, dryRun bool
	cmd := &cobra.Command{
		Use: "create TOPIC...", Short: "create topics",
		Long: "Creates topics. What is not given is the broker's default: num.partitions and\ndefault.replication.factor.",
		Example: `  varve topics create orders
  varve topics create orders --partitions 6 --config retention.ms=86400000
  varve topics create state --config cleanup.policy=compact --if-not-exists`,
	}
	names := a.topicNames(cmd, &flag)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		topics, err := names(args)
		if err != nil {
			return err
		}
		configs, err := parseConfigs(settings)
		if err != nil {
			return err
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client) error {
			create := c.admin.CreateTopics
			if dryRun {
				create = c.admin.ValidateCreateTopics
			}
			answers, err := create(ctx, int32(partitions), int16(replication), configs, topics...)
			if err != nil {
				return failed("create topics", err)
			}
			var changes []change
			var errs []error
			for _, r := range answers.Sorted() {
				switch {
				case errors.Is(r.Err, kerr.TopicAlreadyExists) && ifNotExists:
				case r.Err != nil:
					errs = append(errs, failedWith("create topic "+r.Topic, r.ErrMessage, r.Err))
				default:
					detail := count(int64(r.NumPartitions), "partition") + ", " + count(int64(r.ReplicationFactor), "replica")
					changes = append(changes, change{"create", r.Topic, detail, !dryRun})
				}
			}
			return a.finish(changes, errs)
		})
	}
	f := cmd.Flags()
	f.IntVar(&partitions, "partitions", -1, "`N` partitions")
	f.IntVar(&replication, "replication-factor", -1, "`N` replicas of each partition")
	f.StringArrayVar(&settings, "config", nil, "`KEY=VALUE` of the topic; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("config", completeTopicKeys)
	f.BoolVar(&ifNotExists, "if-not-exists", false, "no error when the topic is there")
	f.BoolVar(&dryRun, "dry-run", false, "check, and change nothing")
	a.outputFlag(cmd)
	return cmd
}

// finish prints what was done and returns what was not, the first error with
// the others after it.
func (a *app) finish(changes []change, errs []error) error {
	sort.SliceStable(changes, func(i, j int) bool { return changes[i].Topic < changes[j].Topic })
	if len(changes) > 0 || len(errs) == 0 {
		if err := a.printChanges(changes); err != nil {
			return err
		}
	}
	for i, err := range errs {
		if i < len(errs)-1 {
			fmt.Fprintln(a.Stderr, "varve: "+err.Error())
		}
	}
	if len(errs) > 0 {
		return errs[len(errs)-1]
	}
	return nil
}

func parseConfigs(settings []string) (map[string]*string, error) {
	configs := map[string]*string{}
	for _, s := range settings {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" {
			return nil, usageError("--config %s: settings are KEY=VALUE", s)
		}
		configs[key] = &value
	}
	return configs, nil
}

func (a *app) topicsAlter() *cobra.Command {
	var flag, settings, remove []string
	var partitions int
	var dryRun bool
	cmd := &cobra.Command{
		Use: "alter TOPIC...", Short: "add partitions, change settings",
		Long: "Adds partitions and changes settings. A topic never loses partitions; records that\nare there stay where they are, and keys may go to other partitions from then on.",
		Example: `  varve topics alter orders --partitions 12
  varve topics alter orders --config retention.ms=3600000 --delete-config max.message.bytes`,
	}
	names := a.topicNames(cmd, &flag)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		topics, err := names(args)
		if err != nil {
			return err
		}
		configs, err := parseConfigs(settings)
		if err != nil {
			return err
		}
		if partitions < 0 && len(configs)+len(remove) == 0 {
			return usageError("nothing to change: give --partitions, --config or --delete-config")
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client) error {
			var changes []change
			var errs []error
			if partitions >= 0 {
				more, bad := setPartitions(ctx, c, partitions, dryRun, topics)
				changes, errs = append(changes, more...), append(errs, bad...)
			}
			if len(configs)+len(remove) > 0 {
				more, bad := setConfigs(ctx, c, configs, remove, dryRun, topics)
				changes, errs = append(changes, more...), append(errs, bad...)
			}
			return a.finish(changes, errs)
		})
	}
	f := cmd.Flags()
	f.IntVar(&partitions, "partitions", -1, "`N` partitions in all; more than there are")
	f.StringArrayVar(&settings, "config", nil, "`KEY=VALUE` to set; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("config", completeTopicKeys)
	f.StringSliceVar(&remove, "delete-config", nil, "`KEY` to set back to its default; may be repeated")
	alsoSpelt(cmd, "add-config", "config")
	f.BoolVar(&dryRun, "dry-run", false, "check, and change nothing")
	a.outputFlag(cmd)
	return cmd
}

func setPartitions(ctx context.Context, c *client, n int, dryRun bool, topics []string) (changes []change, errs []error) {
	set := c.admin.UpdatePartitions
	if dryRun {
		set = c.admin.ValidateUpdatePartitions
	}
	answers, err := set(ctx, n, topics...)
	if err != nil {
		return nil, []error{failed("change partitions", err)}
	}
	for _, r := range answers.Sorted() {
		if r.Err != nil {
			errs = append(errs, failedWith("change partitions of "+r.Topic, r.ErrMessage, r.Err))
			continue
		}
		changes = append(changes, change{"alter", r.Topic, count(int64(n), "partition"), !dryRun})
	}
	return changes, errs
}

func setConfigs(ctx context.Context, c *client, configs map[string]*string, remove []string, dryRun bool, topics []string) (changes []change, errs []error) {
	var ops []kadm.AlterConfig
	var words []string
	for _, key := range sortedKeys(configs) {
		ops = append(ops, kadm.AlterConfig{Op: kadm.SetConfig, Name: key, Value: configs[key]})
		words = append(words, key+"="+*configs[key])
	}
	for _, key := range remove {
		ops = append(ops, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: key})
		words = append(words, key+" set back to its default")
	}
	alter := c.admin.AlterTopicConfigs
	if dryRun {
		alter = c.admin.ValidateAlterTopicConfigs
	}
	answers, err := alter(ctx, ops, topics...)
	if err != nil {
		return nil, []error{failed("change settings", err)}
	}
	for _, r := range answers {
		if r.Err != nil {
			errs = append(errs, failedWith("change settings of "+r.Name, r.ErrMessage, r.Err))
			continue
		}
		changes = append(changes, change{"alter", r.Name, strings.Join(words, ", "), !dryRun})
	}
	return changes, errs
}

func (a *app) topicsDelete() *cobra.Command {
	var flag []string
	var ifExists, dryRun, yes bool
	cmd := &cobra.Command{
		Use: "delete TOPIC...", Short: "delete topics and their records",
		Long:    "Deletes topics with all their records. It asks first on a terminal; elsewhere it\nneeds --yes.",
		Example: "  varve topics delete orders --dry-run\n  varve topics delete orders --yes",
	}
	names := a.topicNames(cmd, &flag)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		topics, err := names(args)
		if err != nil {
			return err
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client) error {
			there, err := c.admin.ListTopicsWithInternal(ctx, topics...)
			if err != nil {
				return failed("delete topics", err)
			}
			var doomed []string
			for _, t := range there.Sorted() {
				switch {
				case errors.Is(t.Err, kerr.UnknownTopicOrPartition) && ifExists:
				case t.Err != nil:
					return failed("delete topic "+t.Topic, t.Err)
				default:
					doomed = append(doomed, t.Topic)
				}
			}
			if dryRun || len(doomed) == 0 {
				return a.finish(changesOf("delete", doomed, false), nil)
			}
			if err := a.confirm(yes, "delete "+count(int64(len(doomed)), "topic")+" with all records: "+strings.Join(doomed, ", ")); err != nil {
				return err
			}
			answers, err := c.admin.DeleteTopics(ctx, doomed...)
			if err != nil {
				return failed("delete topics", err)
			}
			var gone []string
			var errs []error
			for _, r := range answers.Sorted() {
				if r.Err != nil {
					errs = append(errs, failedWith("delete topic "+r.Topic, r.ErrMessage, r.Err))
					continue
				}
				gone = append(gone, r.Topic)
			}
			return a.finish(changesOf("delete", gone, true), errs)
		})
	}
	f := cmd.Flags()
	f.BoolVarP(&yes, "yes", "y", false, "do not ask")
	f.BoolVar(&ifExists, "if-exists", false, "no error when the topic is not there")
	f.BoolVar(&dryRun, "dry-run", false, "say what would be deleted, and delete nothing")
	a.outputFlag(cmd)
	return cmd
}

func changesOf(action string, topics []string, done bool) []change {
	var changes []change
	for _, t := range topics {
		changes = append(changes, change{action, t, "", done})
	}
	return changes
}
