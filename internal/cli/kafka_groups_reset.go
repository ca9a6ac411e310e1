package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// resetGroups is kafka-consumer-groups --reset-offsets.
func (r *kafkaRun) resetGroups(ctx context.Context, c *client) error {
	names, err := r.wantedGroups(ctx, c)
	if err != nil {
		return err
	}
	described, err := c.admin.DescribeGroups(ctx, names...)
	if err != nil {
		return err
	}
	t := &paddedTable{widths: []int{15, 15, 10, 0}}
	t.add("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
	var lines []string
	for _, name := range names {
		d := described[name]
		if d.Err == nil && d.State != "Empty" && d.State != "Dead" {
			r.groupError("Assignments can only be reset if the group '" + name + "' is inactive, but the current state is " + d.State + ".")
			continue
		}
		moves, err := r.groupMoves(ctx, c, name)
		if err != nil {
			return err
		}
		offsets := kadm.Offsets{}
		for _, m := range moves {
			offsets.AddOffset(m.Topic, m.Partition, int64(m.After), -1)
			t.add(name, m.Topic, strconv.Itoa(int(m.Partition)), strconv.FormatInt(int64(m.After), 10))
			line := fmt.Sprintf("%s,%d,%d", m.Topic, m.Partition, int64(m.After))
			if len(names) > 1 {
				line = name + "," + line
			}
			lines = append(lines, line)
		}
		if r.opts.has("execute") && len(moves) > 0 {
			if err := c.admin.CommitAllOffsets(ctx, name, offsets); err != nil {
				return err
			}
		}
	}
	if r.opts.has("export") {
		fmt.Fprintln(r.Stdout, strings.Join(lines, "\n")+"\n")
		return nil
	}
	t.write(r.Stdout, true)
	return nil
}

// groupMoves works out the new offsets of one group with the code of `varve
// groups reset`, and the texts of Kafka's tool.
func (r *kafkaRun) groupMoves(ctx context.Context, c *client, group string) ([]moveRow, error) {
	o := r.opts
	if o.count(resetScenarios()...) == 0 {
		return nil, &toolUsage{"Option '[reset-offsets]' requires one of the following scenarios: " + bracketed(resetScenarios())}
	}
	if !o.has("topic") && !o.has("all-topics") && !o.has("from-file") {
		return nil, &toolUsage{"One of the reset scopes should be defined: --all-topics, --topic."}
	}
	committed, err := c.admin.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, err
	}
	f := &resetFlags{earliest: o.has("to-earliest"), latest: o.has("to-latest"), current: o.has("to-current"), offset: -1,
		file: o.one("from-file"), topics: o.values["topic"], allTopics: o.has("all-topics")}
	if f.offset, err = o.integer("to-offset", -1); err != nil {
		return nil, err
	}
	if f.shift, err = o.integer("shift-by", 0); err != nil {
		return nil, err
	}
	if o.has("shift-by") && f.shift == 0 {
		f.current = true
	}
	if f.at, err = r.resetMoment(); err != nil {
		return nil, err
	}
	if f.file != "" {
		if _, err := os.Stat(f.file); err != nil {
			return nil, &javaError{"java.lang.RuntimeException", "java.io.IOException: Unable to read file " + f.file}
		}
	}
	moves, err := f.moves(ctx, c, committed)
	if err != nil {
		return nil, groupTopicError(err)
	}
	if f.at != "" {
		r.warnOfEmpty(moves)
	}
	return moves, nil
}

// resetMoment is the time of --to-datetime or --by-duration in milliseconds, or
// empty without either.
func (r *kafkaRun) resetMoment() (string, error) {
	switch {
	case r.opts.has("by-duration"):
		text := r.opts.one("by-duration")
		if !isoDurationText.MatchString(text) {
			return "", &javaError{"java.time.format.DateTimeParseException", "Text cannot be parsed to a Duration"}
		}
		d, err := parseDuration(text)
		if err != nil {
			return "", &javaError{"java.time.format.DateTimeParseException", "Text cannot be parsed to a Duration"}
		}
		return strconv.FormatInt(time.Now().Add(-d).UnixMilli(), 10), nil
	case r.opts.has("to-datetime"):
		text := r.opts.one("to-datetime")
		if !strings.Contains(text, "T") {
			return "", &javaError{"java.lang.RuntimeException", "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"}
		}
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999-0700", "2006-01-02T15:04:05.999-07", "2006-01-02T15:04:05.999"} {
			if t, err := time.Parse(layout, text); err == nil {
				return strconv.FormatInt(t.UnixMilli(), 10), nil
			}
		}
		return "", &javaError{"java.lang.RuntimeException", `java.text.ParseException: Unparseable date: "` + text + `"`}
	}
	return "", nil
}

var isoDurationText = regexp.MustCompile(`^[Pp](\d+[Dd])?([Tt](\d+[Hh])?(\d+[Mm])?(\d+(\.\d+)?[Ss])?)?$`)

// warnOfEmpty names the partitions without a record at or after the time: a
// record that there is has an offset below the end.
func (r *kafkaRun) warnOfEmpty(moves []moveRow) {
	for _, m := range moves {
		if m.After == m.End {
			fmt.Fprintf(r.Stdout, "\nWarn: Partition %d from topic %s is empty. Falling back to latest known offset.\n", m.Partition, m.Topic)
		}
	}
}

// groupTopicError gives an unknown topic or partition the text of Kafka's tool.
func groupTopicError(err error) error {
	var f *failure
	if !errors.As(err, &f) {
		return err
	}
	if topic, partition, ok := strings.Cut(strings.TrimPrefix(f.why, "topic "), " has no partition "); ok {
		return &javaError{"org.apache.kafka.common.errors.UnknownTopicOrPartitionException", `The partitions "` + topic + "-" + partition + `" do not exist`}
	}
	if f.kafk != nil {
		return &javaError{javaClass(f.kafk), f.kafk.Description}
	}
	return err
}
