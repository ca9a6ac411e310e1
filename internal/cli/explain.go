package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/internal/explain"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

func (a *app) explainCommand() *cobra.Command {
	var offset int64
	var when string
	cmd := &cobra.Command{
		Use: "explain DIR TOPIC-PARTITION", Short: "walk one lookup through segments and indexes", GroupID: groupFiles,
		Long: `Shows how the record at an offset, or the first one at or after a time, is found in
the files of a data directory: the segment, each probe of its index, the entry found,
the batch headers read in the .log, and what a fetch there would send. Nothing is
written, and a broker may be running. An index entry that contradicts the .log is shown
as a doubt and not followed, as by a broker; damaged bytes are shown and passed over.
Status 4: not in the log, with the offsets that are; 3: in damaged bytes of it.

An index is sparse: one entry for every few kilobytes of the .log, pairing the last
offset of a batch with the byte at which that batch starts. A lookup finds the greatest
entry not above its target and walks the batch headers from there. The last 8192 bytes
of an index, its warm section, are searched first: most lookups end there.`,
		Example: `  varve explain /var/lib/varve orders-0 --offset 41822
  varve explain data orders-0 --timestamp 2026-01-31T08:00:00Z
  varve explain data orders-0 --timestamp now-1h
  varve explain data orders-0 --timestamp 1769846400000 -o json`,
		ValidArgsFunction: completePartition,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageError("name a data directory and a partition, such as data orders-0")
			}
			byOffset, byTime := cmd.Flags().Changed("offset"), cmd.Flags().Changed("timestamp")
			if byOffset == byTime {
				return usageError("give --offset or --timestamp")
			}
			tp, err := partitionArgument(args[1])
			if err != nil {
				return err
			}
			o := explain.Options{FS: vfs.OS(), Dir: args[0], Partition: tp, Offset: kafka.Offset(offset), ByTime: byTime}
			if byTime {
				if o.Timestamp, err = timeArgument(when, time.Now()); err != nil {
					return err
				}
			}
			return a.explain(o)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&offset, "offset", 0, "`N` to look up")
	f.StringVar(&when, "timestamp", "", "`TIME` to look up: milliseconds since 1970, RFC 3339, a date, or now-1h")
	a.outputFlag(cmd)
	return cmd
}

// completePartition completes a data directory, and then its partitions.
func completePartition(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return nil, cobra.ShellCompDirectiveFilterDirs
	case 1:
		entries, err := os.ReadDir(args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, e := range entries {
			if _, err := kafka.ParseTopicPartition(e.Name()); err == nil && e.IsDir() {
				names = append(names, e.Name())
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// timeArgument reads what parseTime does, and now, now-1h or now+7d.
func timeArgument(s string, now time.Time) (kafka.Timestamp, error) {
	if rest, relative := strings.CutPrefix(s, "now"); relative {
		if rest == "" {
			return kafka.TimestampOf(now), nil
		}
		if d, err := parseDuration(rest[1:]); err == nil && rest[0] == '-' {
			return kafka.TimestampOf(now.Add(-d)), nil
		} else if err == nil && rest[0] == '+' {
			return kafka.TimestampOf(now.Add(d)), nil
		}
	} else if ms, err := parseTime(s); err == nil {
		return kafka.Timestamp(ms), nil
	}
	return 0, usageError("--timestamp %s: want milliseconds since 1970, a date such as 2026-01-31, a time such as 2026-01-31T08:00:00Z, or now-1h", s)
}

type explainRow struct {
	Step     string  `json:"step"`
	Text     string  `json:"text"`
	File     *string `json:"file"`
	Page     *bigInt `json:"page"`
	Entry    *bigInt `json:"entry"`
	Position *bigInt `json:"position"`
	Offset   *bigInt `json:"offset"`
	Bytes    *bigInt `json:"sizeBytes"`
}

func (a *app) explain(o explain.Options) error {
	r, err := explain.Explain(o)
	var outside *explain.RangeError
	var damaged *explain.DamageError
	switch {
	case errors.As(err, &damaged): // the steps lead to it
	case errors.As(err, &outside):
		return &failure{code: exitMissing, what: o.Partition.String(), why: outside.Error()}
	case errors.Is(err, explain.ErrNoPartition):
		return &failure{code: exitMissing, why: err.Error()}
	case err != nil:
		return &failure{code: exitFailed, what: "explain", why: err.Error()}
	}
	rows := []explainRow{}
	for _, s := range r.Steps {
		row := explainRow{string(s.Kind), s.Text, nil, known(s.Page), known(s.Entry), known(s.Position), known(int64(s.Offset)), known(s.Bytes)}
		if s.File != "" {
			row.File = &s.File
		}
		rows = append(rows, row)
	}
	doc := map[string]any{"partition": o.Partition.String(), "startOffset": bigInt(r.Start), "endOffset": bigInt(r.End), "offset": bigInt(r.Offset), "steps": rows}
	if err := a.print(doc, func() {
		fmt.Fprintf(a.Stdout, "%v: offsets %d to %d\n", o.Partition, r.Start, r.End)
		for _, s := range r.Steps {
			fmt.Fprintln(a.Stdout, "  "+s.Text)
		}
	}); err != nil || damaged == nil {
		return err
	}
	return &failure{code: exitProblems, what: o.Partition.String(), why: damaged.Error()}
}
