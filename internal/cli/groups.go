package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func (a *app) groupsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "groups", Short: "list, describe, reset and delete consumer groups", GroupID: groupData,
		Long: "Lists, describes, resets and deletes consumer groups.",
		Example: `  varve groups list                                                  # or, as Kafka's tools: groups --list
  varve groups describe billing
  varve groups reset billing --topic orders --to-earliest            # shows what would change
  varve groups reset billing --topic orders --to-earliest --execute
  varve groups delete billing --yes`,
		Args: cobra.ArbitraryArgs,
		RunE: a.groupRun,
	}
	a.clientFlags(cmd)
	cmd.AddCommand(a.groupsList(), a.groupsDescribe(), a.groupsReset(), a.groupsDelete(), a.groupsDeleteOffsets())
	return cmd
}

// groupNames are a command's groups: its arguments, and Kafka's --group.
func (a *app) groupNames(cmd *cobra.Command, flag *[]string) func(args []string) ([]string, error) {
	cmd.Flags().StringSliceVar(flag, "group", nil, "`NAME` of a group, as Kafka's tools take it")
	_ = cmd.Flags().MarkHidden("group")
	cmd.ValidArgsFunction = a.completeGroups
	return func(args []string) ([]string, error) {
		all := append(append([]string(nil), args...), *flag...)
		return all, nameEach("group", all)
	}
}

type groupRow struct {
	Group    string `json:"group"`
	Type     string `json:"type"`
	Protocol string `json:"protocolType"`
	State    string `json:"state"`
}

func (a *app) groupsList() *cobra.Command {
	var states []string
	cmd := &cobra.Command{
		Use: "list", Short: "list all groups", Args: noArguments,
		Long:    "Lists all groups with their states.",
		Example: "  varve groups list\n  varve groups list --state Stable",
		RunE: func(cmd *cobra.Command, _ []string) error {
			for i, state := range states {
				j := slices.IndexFunc(groupStates(), func(s string) bool { return strings.EqualFold(s, strings.TrimSpace(state)) })
				if j < 0 {
					return usageError("--state %s: the states are %s", state, strings.Join(groupStates(), ", "))
				}
				states[i] = groupStates()[j]
			}
			return a.withClient(cmd.Context(), func(ctx context.Context, c *client) error {
				groups, err := c.admin.ListGroups(ctx, states...)
				if err != nil {
					return failed("list groups", err)
				}
				rows := []groupRow{}
				for _, g := range groups.Sorted() {
					rows = append(rows, groupRow{g.Group, g.GroupType, g.ProtocolType, g.State})
				}
				return a.print(map[string]any{"groups": rows}, func() {
					t := newTable("GROUP", "TYPE", "PROTOCOL", "STATE")
					for _, r := range rows {
						t.add(r.Group, dash(r.Type), dash(r.Protocol), dash(r.State))
					}
					t.write(a.Stdout)
				})
			})
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "`STATE` of the groups to list: "+strings.Join(groupStates(), ", "))
	completeFlag(cmd, "state", groupStates()...)
	a.outputFlag(cmd)
	return cmd
}

// groupStates are the states that a group can be in.
func groupStates() []string {
	return []string{"Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Dead"}
}

type lagRow struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Committed *bigInt `json:"committedOffset"`
	End       *bigInt `json:"endOffset"`
	Lag       *bigInt `json:"lag"`
	Metadata  string  `json:"metadata"`
	Member    *string `json:"memberId"`
	Host      *string `json:"host"`
	Client    *string `json:"clientId"`
}

type memberRow struct {
	ID         string           `json:"memberId"`
	Instance   *string          `json:"instanceId"`
	Client     string           `json:"clientId"`
	Host       string           `json:"host"`
	Partitions map[string][]any `json:"partitions"`
	assigned   int
}

type groupDetail struct {
	Group       string      `json:"group"`
	State       string      `json:"state"`
	Coordinator int32       `json:"coordinator"`
	Type        string      `json:"protocolType"`
	Assignor    string      `json:"assignor"`
	Lag         bigInt      `json:"totalLag"`
	Offsets     []lagRow    `json:"offsets"`
	Members     []memberRow `json:"members"`
}

func (a *app) groupsDescribe() *cobra.Command {
	var flag []string
	var members, all bool
	cmd := &cobra.Command{
		Use: "describe GROUP...", Short: "show members, offsets and lag",
		Long:    "Shows how far each partition has been read, how much there is left, and by whom.",
		Example: "  varve groups describe billing\n  varve groups describe billing --members\n  varve groups describe billing -o json",
	}
	names := a.groupNames(cmd, &flag)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		wanted, err := names(args)
		if err != nil && (!all || len(args)+len(flag) > 0) {
			return err
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client) error {
			if all {
				groups, err := c.admin.ListGroups(ctx)
				if err != nil {
					return failed("list groups", err)
				}
				wanted = groups.Groups()
			}
			lags, err := c.admin.Lag(ctx, wanted...)
			if err != nil {
				return failed("describe groups", err)
			}
			details := []groupDetail{}
			for _, l := range lags.Sorted() {
				if err := groupProblem(l); err != nil {
					return err
				}
				details = append(details, detailOf(l))
			}
			return a.print(map[string]any{"groups": details}, func() { a.printGroups(details, members) })
		})
	}
	cmd.Flags().BoolVar(&all, "all-groups", false, "all groups there are")
	cmd.Flags().BoolVar(&members, "members", false, "show members in place of offsets")
	a.outputFlag(cmd)
	return cmd
}

// groupProblem is why a group cannot be described. A group that nobody knows is
// "Dead" to older protocol versions.
func groupProblem(l kadm.DescribedGroupLag) error {
	if l.DescribeErr != nil {
		return failed("group "+l.Group, l.DescribeErr)
	}
	if l.State == "Dead" && len(l.Members) == 0 {
		return failed("group "+l.Group, kerr.GroupIDNotFound)
	}
	if l.FetchErr != nil {
		return failed("offsets of group "+l.Group, l.FetchErr)
	}
	return nil
}

func detailOf(l kadm.DescribedGroupLag) groupDetail {
	d := groupDetail{Group: l.Group, State: l.State, Coordinator: l.Coordinator.NodeID, Type: l.ProtocolType, Assignor: l.Protocol,
		Offsets: []lagRow{}, Members: []memberRow{}}
	for _, p := range l.Lag.Sorted() {
		if p.Member == nil && p.Commit.At < 0 {
			continue // nobody reads it and nobody has
		}
		row := lagRow{Topic: p.Topic, Partition: p.Partition, Metadata: p.Commit.Metadata}
		row.Committed = known(p.Commit.At)
		if p.End.Err == nil {
			row.End = known(p.End.Offset)
		}
		if row.Committed != nil {
			row.Lag = known(p.Lag)
			d.Lag += bigInt(max(p.Lag, 0)) // the total is that of the rows
		}
		if m := p.Member; m != nil {
			row.Member, row.Host, row.Client = &m.MemberID, &m.ClientHost, &m.ClientID
		}
		d.Offsets = append(d.Offsets, row)
	}
	for _, m := range l.Members {
		row := memberRow{ID: m.MemberID, Instance: m.InstanceID, Client: m.ClientID, Host: m.ClientHost, Partitions: map[string][]any{}}
		if assigned, ok := m.Assigned.AsConsumer(); ok {
			for _, t := range assigned.Topics {
				for _, p := range t.Partitions {
					row.Partitions[t.Topic] = append(row.Partitions[t.Topic], p)
					row.assigned++
				}
			}
		}
		d.Members = append(d.Members, row)
	}
	return d
}

// known is nil for the -1 that stands for an unknown offset.
func known(n int64) *bigInt {
	if n < 0 {
		return nil
	}
	b := bigInt(n)
	return &b
}

func (a *app) printGroups(details []groupDetail, members bool) {
	for i, d := range details {
		if i > 0 {
			fmt.Fprintln(a.Stdout)
		}
		fmt.Fprintf(a.Stdout, "%s  state=%s  members=%d  assignor=%s  coordinator=%d  lag=%d\n",
			d.Group, d.State, len(d.Members), dash(d.Assignor), d.Coordinator, int64(d.Lag))
		if members {
			t := newTable("  MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS")
			for _, m := range d.Members {
				instance := "-"
				if m.Instance != nil {
					instance = *m.Instance
				}
				t.add("  "+m.ID, instance, dash(m.Client), dash(m.Host), assignedText(m))
			}
			t.write(a.Stdout)
			continue
		}
		t := newTable("  TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "HOST", "CLIENT").numbers(1, 2, 3, 4)
		for _, o := range d.Offsets {
			t.add("  "+o.Topic, fmt.Sprint(o.Partition), offsetText(o.Committed), offsetText(o.End), offsetText(o.Lag), text(o.Member), text(o.Host), text(o.Client))
		}
		t.write(a.Stdout)
	}
}

func assignedText(m memberRow) string {
	var words []string
	for _, topic := range sortedKeys(m.Partitions) {
		var parts []string
		for _, p := range m.Partitions[topic] {
			parts = append(parts, fmt.Sprint(p))
		}
		words = append(words, topic+":"+strings.Join(parts, ","))
	}
	return dash(strings.Join(words, " "))
}

func text(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return *s
}
