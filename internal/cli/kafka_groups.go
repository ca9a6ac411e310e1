package cli

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

func consumerGroupsOptions() []kafkaOption {
	return []kafkaOption{
		{"bootstrap-server", requiredArg, true, "Host and port of a broker."},
		{"command-config", requiredArg, false, "File of client properties."},
		{"list", noArg, false, "List consumer groups."},
		{"describe", noArg, false, "Show offsets, members or states of groups."},
		{"delete", noArg, false, "Delete groups."},
		{"delete-offsets", noArg, false, "Delete offsets of topics."},
		{"reset-offsets", noArg, false, "Move offsets of a group without members."},
		{"group", requiredArg, false, "A group; may be repeated."},
		{"all-groups", noArg, false, "Every group."},
		{"topic", requiredArg, false, "A topic, or TOPIC:PARTITION,...; may be repeated."},
		{"all-topics", noArg, false, "Every topic that the group has offsets of."},
		{"members", noArg, false, "With --describe: members."},
		{"offsets", noArg, false, "With --describe: offsets; the default."},
		{"state", optionalArg, false, "With --describe: the state. With --list: states, or only groups of these."},
		{"type", optionalArg, false, "With --list: types, or only groups of these."},
		{"verbose", noArg, false, "With --describe: more columns."},
		{"timeout", requiredArg, false, "Milliseconds to wait for an answer."},
		{"dry-run", noArg, false, "With --reset-offsets: show what would change."},
		{"execute", noArg, false, "With --reset-offsets: change it."},
		{"export", noArg, false, "With --reset-offsets: print CSV."},
		{"to-earliest", noArg, false, "Reset to the first record there is."},
		{"to-latest", noArg, false, "Reset to the end."},
		{"to-current", noArg, false, "Reset to where it is."},
		{"to-offset", requiredArg, false, "Reset to an offset."},
		{"to-datetime", requiredArg, false, "Reset to a time: YYYY-MM-DDThh:mm:ss.sss."},
		{"by-duration", requiredArg, false, "Reset to a time before now: PnDTnHnMnS."},
		{"shift-by", requiredArg, false, "Reset by a number of records."},
		{"from-file", requiredArg, false, "Reset to the offsets of a CSV file."},
		{"validate-regex", requiredArg, false, "Check a regular expression of topics."},
	}
}

// consumerGroups is kafka-consumer-groups.sh (ConsumerGroupCommand). What goes
// wrong after the options were understood is printed on stdout, with status 0.
func (r *kafkaRun) consumerGroups(ctx context.Context) error {
	if err := r.checkGroups(); err != nil {
		return err
	}
	limit, err := r.opts.integer("timeout", requestLimit.Milliseconds())
	if err != nil {
		return err
	}
	c, err := r.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(limit)*time.Millisecond)
	defer cancel()
	switch {
	case r.opts.has("list"):
		err = r.listGroups(ctx, c)
	case r.opts.has("describe"):
		err = r.describeGroups(ctx, c)
	case r.opts.has("delete"):
		err = r.deleteGroups(ctx, c)
	case r.opts.has("delete-offsets"):
		err = r.deleteGroupOffsets(ctx, c)
	default:
		err = r.resetGroups(ctx, c)
	}
	var usage *toolUsage
	if err == nil || errors.As(err, &usage) {
		return err
	}
	var java *javaError
	r.groupError("Executing consumer group command failed due to " + messageOf("", err))
	if errors.As(err, &java) {
		fmt.Fprintln(r.Stderr, java.class+": "+java.message)
	}
	return nil
}

func (r *kafkaRun) groupError(message string) { fmt.Fprintln(r.Stdout, "\nError: "+message) }

// checkGroups is ConsumerGroupCommandOptions.checkArgs.
func (r *kafkaRun) checkGroups() error {
	o := r.opts
	if err := o.need("bootstrap-server"); err != nil {
		return err
	}
	oneOf := o.has("group") || o.has("all-groups")
	if o.has("describe") {
		if !oneOf {
			return &toolUsage{"Option [describe] takes one of these options: [all-groups], [group]"}
		}
		if o.count("members", "offsets", "state") > 1 {
			return &toolUsage{"Option [describe] takes at most one of these options: [members], [offsets], [state]"}
		}
		if o.one("state") != "" {
			return &toolUsage{"Option [describe] does not take a value for [state]"}
		}
	}
	if o.has("delete") {
		if !oneOf {
			return &toolUsage{"Option [delete] takes one of these options: [all-groups], [group]"}
		}
		if o.has("topic") {
			return &toolUsage{"The consumer does not support topic-specific offset deletion from a consumer group."}
		}
	}
	if o.has("delete-offsets") && (!o.has("group") || !o.has("topic")) {
		return &toolUsage{"Option [delete-offsets] takes the following options: [group], [topic]"}
	}
	if o.has("reset-offsets") {
		if o.has("dry-run") && o.has("execute") {
			return &toolUsage{"Option [reset-offsets] only accepts one of [execute], [dry-run]"}
		}
		if !o.has("dry-run") && !o.has("execute") {
			fmt.Fprintln(r.Stderr, "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are scripting this command and want to keep the current default behavior without prompting.")
		}
		if !oneOf {
			return &toolUsage{"Option [reset-offsets] takes one of these options: [all-groups], [group]"}
		}
		if o.count(resetScenarios()...) > 1 {
			return &toolUsage{"Option [reset-offsets] only accepts one of: " + bracketed(resetScenarios())}
		}
	}
	if o.count("list", "describe", "delete", "delete-offsets", "reset-offsets") != 1 {
		return &toolUsage{"Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets"}
	}
	return nil
}

func resetScenarios() []string {
	return []string{"to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "shift-by", "from-file", "to-current"}
}

func bracketed(names []string) string { return "[" + strings.Join(names, "], [") + "]" }

func (r *kafkaRun) listGroups(ctx context.Context, c *client) error {
	states := []string{"Empty", "Stable", "Reconciling", "Assigning", "CompletingRebalance", "PreparingRebalance", "Dead"}
	types := []string{"Consumer", "Classic"}
	wantedStates, bad := chosen(r.opts.one("state"), states)
	if bad {
		return &toolUsage{"Invalid state list '" + r.opts.one("state") + "'. Valid states are: " + strings.Join(states, ", ")}
	}
	wantedTypes, bad := chosen(r.opts.one("type"), types)
	if bad {
		return &toolUsage{"Invalid types list '" + r.opts.one("type") + "'. Valid types are: " + strings.Join(types, ", ")}
	}
	groups, err := c.admin.ListGroups(ctx, wantedStates...)
	if err != nil {
		return err
	}
	header := []string{"GROUP"}
	if r.opts.has("type") {
		header = append(header, "TYPE")
	}
	if r.opts.has("state") {
		header = append(header, "STATE")
	}
	t := &paddedTable{widths: []int{25, 20, 20}}
	if len(header) > 1 {
		t.add(header...)
	}
	for _, g := range groups.Sorted() {
		kind := "Classic"
		if strings.EqualFold(g.GroupType, "consumer") {
			kind = "Consumer"
		} else if g.GroupType != "" && !strings.EqualFold(g.GroupType, "classic") || g.ProtocolType != "" && g.ProtocolType != "consumer" {
			continue
		}
		if len(wantedTypes) > 0 && !contains(wantedTypes, kind) {
			continue
		}
		row := []string{g.Group}
		if r.opts.has("type") {
			row = append(row, kind)
		}
		if r.opts.has("state") {
			row = append(row, g.State)
		}
		t.add(row...)
	}
	if len(header) == 1 {
		for _, row := range t.rows {
			fmt.Fprintln(r.Stdout, row[0])
		}
		return nil
	}
	t.write(r.Stdout, false)
	return nil
}

// chosen reads a list of words of which each has to be known, in any case.
func chosen(list string, known []string) (words []string, bad bool) {
	for _, w := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		found := false
		for _, k := range known {
			if strings.EqualFold(w, k) {
				words, found = append(words, k), true
			}
		}
		if !found {
			return nil, true
		}
	}
	return words, false
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}

// wantedGroups are those of --group, in order, or all of them.
func (r *kafkaRun) wantedGroups(ctx context.Context, c *client) ([]string, error) {
	if !r.opts.has("all-groups") {
		return r.opts.values["group"], nil
	}
	groups, err := c.admin.ListGroups(ctx)
	if err != nil {
		return nil, err
	}
	names := groups.Groups()
	sort.Strings(names)
	return names, nil
}

func (r *kafkaRun) deleteGroups(ctx context.Context, c *client) error {
	names, err := r.wantedGroups(ctx, c)
	if err != nil {
		return err
	}
	answers, err := c.admin.DeleteGroups(ctx, names...)
	if err != nil {
		return err
	}
	var gone, kept []string
	for _, a := range answers.Sorted() {
		if a.Err != nil {
			kept = append(kept, "* Group '"+a.Group+"' could not be deleted due to: "+javaText(a.Err, a.ErrMessage))
		} else {
			gone = append(gone, "'"+a.Group+"'")
		}
	}
	if len(kept) == 0 {
		fmt.Fprintln(r.Stdout, "Deletion of requested consumer groups ("+strings.Join(gone, ", ")+") was successful.")
		return nil
	}
	r.groupError("Deletion of some consumer groups failed:")
	fmt.Fprintln(r.Stdout, strings.Join(kept, "\n"))
	if len(gone) > 0 {
		fmt.Fprintln(r.Stdout, "\nThese consumer groups were deleted successfully: "+strings.Join(gone, ", "))
	}
	return nil
}

func (r *kafkaRun) deleteGroupOffsets(ctx context.Context, c *client) error {
	group := r.opts.one("group")
	set := kadm.TopicsSet{}
	t := &paddedTable{widths: []int{15, 10, 15}}
	t.add("TOPIC", "PARTITION", "STATUS")
	failed := false
	status := func(topic, partition string, err error) {
		text := "Successful"
		if err != nil {
			failed, text = true, "Error: "+javaText(err, "")
		}
		t.add(topic, partition, text)
	}
	for _, word := range r.opts.values["topic"] {
		one, err := partitionsOf(ctx, c, []string{word})
		if err != nil {
			topic, _, _ := strings.Cut(word, ":")
			status(topic, "-", kerr.UnknownTopicOrPartition)
			failed = false // Kafka calls this one a success
			continue
		}
		set.Merge(one)
	}
	var top error
	if len(set) > 0 {
		answers, err := c.admin.DeleteOffsets(ctx, group, set)
		var k *kerr.Error
		if err != nil && !errors.As(err, &k) {
			return err
		}
		top = err
		for _, tp := range set.Sorted() {
			for _, p := range tp.Partitions {
				partErr := top
				if top == nil {
					partErr, _ = answers.Lookup(tp.Topic, p)
				}
				status(tp.Topic, fmt.Sprint(p), partErr)
			}
		}
	}
	switch {
	case top != nil:
		r.groupError(messageOf("", top))
	case failed:
		r.groupError("Encountered some partition-level error, see the follow-up details.")
	default:
		fmt.Fprintln(r.Stdout, "Request succeeded for deleting offsets from group "+group+".")
	}
	fmt.Fprintln(r.Stdout)
	t.write(r.Stdout, false)
	return nil
}
