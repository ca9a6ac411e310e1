package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func (a *app) groupsDelete() *cobra.Command {
	var flag []string
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use: "delete GROUP...", Short: "delete groups and their offsets",
		Long:    "Deletes groups without members, with all their committed offsets. It asks first on a\nterminal; elsewhere it needs --yes.",
		Example: "  varve groups delete billing --dry-run\n  varve groups delete billing --yes",
	}
	names := a.groupNames(cmd, &flag)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		groups, err := names(args)
		if err != nil {
			return err
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client) error {
			described, err := c.admin.DescribeGroups(ctx, groups...)
			if err != nil {
				return failed("delete groups", err)
			}
			for _, g := range described.Sorted() {
				if err := groupProblem(kadm.DescribedGroupLag{Group: g.Group, State: g.State, Members: g.Members, DescribeErr: g.Err}); err != nil {
					return err
				}
			}
			if dryRun {
				return a.finish(changesOf("delete group", groups, false), nil)
			}
			if err := a.confirm(yes, "delete "+count(int64(len(groups)), "group")+": "+strings.Join(groups, ", ")); err != nil {
				return err
			}
			answers, err := c.admin.DeleteGroups(ctx, groups...)
			if err != nil {
				return failed("delete groups", err)
			}
			var gone []string
			var errs []error
			for _, r := range answers.Sorted() {
				if r.Err != nil {
					errs = append(errs, failedWith("delete group "+r.Group, r.ErrMessage, r.Err))
					continue
				}
				gone = append(gone, r.Group)
			}
			return a.finish(changesOf("delete group", gone, true), errs)
		})
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be deleted, and delete nothing")
	a.outputFlag(cmd)
	return cmd
}

func (a *app) groupsDeleteOffsets() *cobra.Command {
	var flag, topics []string
	var yes, dryRun bool
	cmd := &cobra.Command{
		Use: "delete-offsets GROUP --topic TOPIC[:PARTITION,...]", Short: "forget the offsets of topics",
		Long:    "Forgets the offsets that a group has committed for topics that none of its members\nreads.",
		Example: "  varve groups delete-offsets billing --topic orders --yes\n  varve groups delete-offsets billing --topic orders:0,1 --yes",
	}
	names := a.groupNames(cmd, &flag)
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "`TOPIC` or TOPIC:PARTITION,...; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("topic", a.completeTopics)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be forgotten, and forget nothing")
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		groups, err := names(args)
		if err != nil {
			return err
		}
		if len(groups) != 1 || len(topics) == 0 {
			return usageError("name one group, and at least one --topic")
		}
		if err := nameEach("topic", topics); err != nil {
			return err
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client) error {
			wanted, err := partitionsOf(ctx, c, topics)
			if err != nil {
				return err
			}
			committed, err := c.admin.FetchOffsets(ctx, groups[0])
			if err != nil {
				return failed("offsets of group "+groups[0], err)
			}
			doomed := kadm.TopicsSet{}
			var list []string
			for _, o := range committed.Sorted() {
				if wanted.Lookup(o.Topic, o.Partition) && o.At >= 0 {
					doomed.Add(o.Topic, o.Partition)
					list = append(list, fmt.Sprintf("%s-%d", o.Topic, o.Partition))
				}
			}
			if dryRun || len(list) == 0 {
				return a.finish(changesOf("forget", list, false), nil)
			}
			if err := a.confirm(yes, "forget "+count(int64(len(list)), "offset")+" of "+groups[0]+": "+strings.Join(list, ", ")); err != nil {
				return err
			}
			answers, err := c.admin.DeleteOffsets(ctx, groups[0], doomed)
			if err != nil {
				return failed("forget offsets of group "+groups[0], err)
			}
			var gone []string
			var errs []error
			for _, tp := range doomed.Sorted() {
				for _, p := range tp.Partitions {
					name := fmt.Sprintf("%s-%d", tp.Topic, p)
					if err, _ := answers.Lookup(tp.Topic, p); err != nil {
						errs = append(errs, failed("forget "+name, err))
						continue
					}
					gone = append(gone, name)
				}
			}
			return a.finish(changesOf("forget", gone, true), errs)
		})
	}
	return cmd
}

// partitionsOf reads TOPIC and TOPIC:PARTITION,... and looks up the partitions
// of the former. An unknown topic is an error.
func partitionsOf(ctx context.Context, c *client, words []string) (kadm.TopicsSet, error) {
	set := kadm.TopicsSet{}
	for _, w := range words {
		topic, list, some := strings.Cut(w, ":")
		details, err := c.admin.ListTopicsWithInternal(ctx, topic)
		if err != nil {
			return nil, failed("topic "+topic, err)
		}
		d := details[topic]
		if d.Err != nil {
			return nil, failed("topic "+topic, d.Err)
		}
		if !some {
			set.Add(topic, d.Partitions.Numbers()...)
			continue
		}
		numbers, err := parsePartitions(list)
		if err != nil {
			return nil, err
		}
		for _, p := range numbers {
			if _, ok := d.Partitions[p]; !ok {
				return nil, &failure{code: exitMissing, why: fmt.Sprintf("topic %s has no partition %d", topic, p)}
			}
			set.Add(topic, p)
		}
	}
	return set, nil
}
