package cli

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// resetFlags say where a group's offsets shall be.
type resetFlags struct {
	earliest, latest, current bool
	offset, shift             int64
	at                        string
	duration                  string
	file                      string
	topics                    []string
	allTopics                 bool
	execute, dryRun           bool
}

type moveRow struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Before    *bigInt `json:"committedOffset"`
	After     bigInt  `json:"newOffset"`
	Start     bigInt  `json:"startOffset"`
	End       bigInt  `json:"endOffset"`
	wanted    int64   // what was asked for, which may not exist
}

func (a *app) groupsReset() *cobra.Command {
	var names []string
	var r resetFlags
	cmd := &cobra.Command{
		Use: "reset GROUP --topic TOPIC --to-...", Short: "move the offsets of a group",
		Long: "Moves the committed offsets of a group without members. It shows what would change;\nwith --execute it changes it. Offsets that do not exist become the nearest that do.",
		Example: `  varve groups reset billing --topic orders --to-earliest
  varve groups reset billing --topic orders:0,1 --to-offset 1500 --execute
  varve groups reset billing --all-topics --to-datetime 2026-03-01T00:00:00Z --execute
  varve groups reset billing --topic orders --by-duration 1h --execute
  varve groups reset billing --topic orders --shift-by -100 --execute`,
	}
	groups := a.groupNames(cmd, &names)
	f := cmd.Flags()
	f.StringArrayVar(&r.topics, "topic", nil, "`TOPIC` or TOPIC:PARTITION,...; may be repeated")
	f.BoolVar(&r.allTopics, "all-topics", false, "every topic the group has offsets of")
	f.BoolVar(&r.earliest, "to-earliest", false, "to the first record there is")
	f.BoolVar(&r.latest, "to-latest", false, "to the end: only records that come later are read")
	f.BoolVar(&r.current, "to-current", false, "to where they are")
	f.Int64Var(&r.offset, "to-offset", -1, "to offset `N`")
	f.Int64Var(&r.shift, "shift-by", 0, "by `N` records, back when it is negative")
	f.StringVar(&r.at, "to-datetime", "", "to the first record at or after `TIME`: 2026-03-01T00:00:00Z, or milliseconds since 1970")
	f.StringVar(&r.duration, "by-duration", "", "to the first record of the last `DURATION`: 90m, 24h")
	f.StringVar(&r.file, "from-file", "", "to the offsets of a CSV `FILE`: topic,partition,offset")
	f.BoolVar(&r.execute, "execute", false, "change the offsets")
	f.BoolVar(&r.dryRun, "dry-run", false, "show what would change; this is the default")
	_ = cmd.RegisterFlagCompletionFunc("topic", a.completeTopics)
	a.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		wanted, err := groups(args)
		if err != nil {
			return err
		}
		if len(wanted) != 1 {
			return usageError("name one group")
		}
		if err := r.check(cmd); err != nil {
			return err
		}
		return a.withClient(cmd.Context(), func(ctx context.Context, c *client) error { return a.reset(ctx, c, wanted[0], &r) })
	}
	return cmd
}

func (r *resetFlags) check(cmd *cobra.Command) error {
	var given []string
	for _, name := range []string{"to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "to-datetime", "by-duration", "from-file"} {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	ways := len(given)
	if len(r.topics) > 0 {
		if err := nameEach("topic", r.topics); err != nil {
			return err
		}
	}
	switch {
	case ways > 1:
		return usageError("%s exclude each other", strings.Join(given, " and "))
	case ways == 0:
		return usageError("say where to: one of --to-earliest, --to-latest, --to-current, --to-offset, --shift-by, --to-datetime, --by-duration, --from-file")
	case r.execute && r.dryRun:
		return usageError("--execute and --dry-run exclude each other")
	case len(r.topics) == 0 && !r.allTopics && r.file == "":
		return usageError("say of which topics: --topic or --all-topics")
	}
	return nil
}

func (a *app) reset(ctx context.Context, c *client, group string, r *resetFlags) error {
	described, err := c.admin.DescribeGroups(ctx, group)
	if err != nil {
		return failed("group "+group, err)
	}
	if d := described[group]; d.Err == nil && len(d.Members) > 0 {
		return refused("stop its members first", "group %s has %s: they would overwrite the offsets", group, count(int64(len(d.Members)), "member"))
	}
	committed, err := c.admin.FetchOffsets(ctx, group)
	if err != nil {
		return failed("offsets of group "+group, err)
	}
	moves, err := r.moves(ctx, c, committed)
	if err != nil {
		return err
	}
	if r.execute && len(moves) > 0 {
		offsets := kadm.Offsets{}
		for _, m := range moves {
			offsets.AddOffset(m.Topic, m.Partition, int64(m.After), -1)
		}
		if err := c.admin.CommitAllOffsets(ctx, group, offsets); err != nil {
			return failed("change offsets of group "+group, err)
		}
	}
	done := r.execute
	return a.print(map[string]any{"group": group, "done": done, "offsets": moves}, func() {
		t := newTable("TOPIC", "PARTITION", "COMMITTED", "NEW", "START", "END").numbers(1, 2, 3, 4, 5)
		for _, m := range moves {
			t.add(m.Topic, fmt.Sprint(m.Partition), offsetText(m.Before), fmt.Sprint(int64(m.After)), fmt.Sprint(int64(m.Start)), fmt.Sprint(int64(m.End)))
		}
		t.write(a.Stdout)
		for _, m := range moves {
			if m.wanted != int64(m.After) {
				fmt.Fprintf(a.Stderr, "%s-%d has no offset %d: %d is the nearest that it has\n", m.Topic, m.Partition, m.wanted, int64(m.After))
			}
		}
		if !done {
			fmt.Fprintln(a.Stderr, "nothing was changed; add --execute to change it")
		}
	})
}

// moves works out the new offset of each partition, within what there is.
func (r *resetFlags) moves(ctx context.Context, c *client, committed kadm.OffsetResponses) ([]moveRow, error) {
	targets, err := r.partitions(ctx, c, committed)
	if err != nil {
		return nil, err
	}
	topics := targets.Topics()
	if len(topics) == 0 {
		return []moveRow{}, nil
	}
	starts, err := c.admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, failed("read start offsets", err)
	}
	ends, err := c.admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, failed("read end offsets", err)
	}
	goal, err := r.goal(ctx, c, topics)
	if err != nil {
		return nil, err
	}
	moves := []moveRow{}
	for _, tp := range targets.Sorted() {
		for _, p := range tp.Partitions {
			start, _ := starts.Lookup(tp.Topic, p)
			end, ok := ends.Lookup(tp.Topic, p)
			if !ok || end.Err != nil || start.Err != nil {
				return nil, failed(fmt.Sprintf("offsets of %s-%d", tp.Topic, p), errors.Join(start.Err, end.Err))
			}
			m := moveRow{Topic: tp.Topic, Partition: p, Start: bigInt(start.Offset), End: bigInt(end.Offset)}
			before := int64(-1)
			if o, ok := committed.Lookup(tp.Topic, p); ok && o.Err == nil {
				before = o.At
			}
			m.Before = known(before)
			if r.shift != 0 && before < 0 {
				return nil, &failure{code: exitFailed, why: fmt.Sprintf("%s-%d has no committed offset to move from", tp.Topic, p), hint: "name partitions that have one, as --topic TOPIC:PARTITION,..."}
			}
			after := goal(tp.Topic, p, before, start.Offset, end.Offset)
			m.wanted = after
			m.After = bigInt(min(max(after, start.Offset), end.Offset))
			moves = append(moves, m)
		}
	}
	sort.SliceStable(moves, func(i, j int) bool {
		return moves[i].Topic < moves[j].Topic || moves[i].Topic == moves[j].Topic && moves[i].Partition < moves[j].Partition
	})
	return moves, nil
}

func (r *resetFlags) partitions(ctx context.Context, c *client, committed kadm.OffsetResponses) (kadm.TopicsSet, error) {
	if r.file != "" && len(r.topics) == 0 && !r.allTopics {
		lines, err := readOffsetsFile(r.file)
		if err != nil {
			return nil, err
		}
		set := kadm.TopicsSet{}
		for tp := range lines {
			set.Add(tp.topic, tp.partition)
		}
		return set, nil
	}
	set, err := partitionsOf(ctx, c, r.topics)
	if err != nil {
		return nil, err
	}
	if r.allTopics {
		committed.Each(func(o kadm.OffsetResponse) { set.Add(o.Topic, o.Partition) })
	}
	return set, nil
}

// goal returns the rule that gives each partition its new offset.
func (r *resetFlags) goal(ctx context.Context, c *client, topics []string) (func(topic string, p int32, before, start, end int64) int64, error) {
	switch {
	case r.earliest:
		return func(_ string, _ int32, _, start, _ int64) int64 { return start }, nil
	case r.latest:
		return func(_ string, _ int32, _, _, end int64) int64 { return end }, nil
	case r.offset >= 0:
		return func(string, int32, int64, int64, int64) int64 { return r.offset }, nil
	case r.at != "" || r.duration != "":
		ms, err := r.moment()
		if err != nil {
			return nil, err
		}
		found, err := c.admin.ListOffsetsAfterMilli(ctx, ms, topics...)
		if err != nil {
			return nil, failed("find offsets by time", err)
		}
		return func(topic string, p int32, _, _, end int64) int64 {
			if o, ok := found.Lookup(topic, p); ok && o.Err == nil && o.Offset >= 0 {
				return o.Offset
			}
			return end
		}, nil
	case r.file != "":
		lines, err := readOffsetsFile(r.file)
		if err != nil {
			return nil, err
		}
		return func(topic string, p int32, before, _, end int64) int64 {
			if n, ok := lines[topicPartition{topic, p}]; ok {
				return n
			}
			return orEnd(before, end)
		}, nil
	case r.shift != 0:
		return func(_ string, _ int32, before, _, end int64) int64 { return orEnd(before, end) + r.shift }, nil
	}
	return func(_ string, _ int32, before, _, end int64) int64 { return orEnd(before, end) }, nil
}

func orEnd(before, end int64) int64 {
	if before < 0 {
		return end
	}
	return before
}

func (r *resetFlags) moment() (ms int64, err error) {
	if r.duration != "" {
		d, err := parseDuration(r.duration)
		if err != nil {
			return 0, err
		}
		return time.Now().Add(-d).UnixMilli(), nil
	}
	return parseTime(r.at)
}

type topicPartition struct {
	topic     string
	partition int32
}

// readOffsetsFile reads the CSV that Kafka's tools write: topic,partition,offset.
func readOffsetsFile(path string) (map[topicPartition]int64, error) {
	a := &app{}
	in, err := a.openInput(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	rows := csv.NewReader(in)
	rows.FieldsPerRecord = -1
	rows.Comment = '#'
	lines := map[topicPartition]int64{}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		line, _ := rows.FieldPos(0)
		if err != nil {
			return nil, &failure{code: exitUsage, what: path, why: err.Error()}
		}
		if len(row) != 3 {
			return nil, &failure{code: exitUsage, what: fmt.Sprintf("%s:%d", path, line), why: "a line is topic,partition,offset"}
		}
		p, errP := strconv.ParseInt(row[1], 10, 32)
		o, errO := strconv.ParseInt(row[2], 10, 64)
		if errP != nil || errO != nil {
			return nil, &failure{code: exitUsage, what: fmt.Sprintf("%s:%d", path, line), why: "a line is topic,partition,offset"}
		}
		lines[topicPartition{row[0], int32(p)}] = o
	}
}
