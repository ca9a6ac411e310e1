package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/repair"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
)

func (a *app) repairCommand() *cobra.Command {
	o := repair.Options{FS: vfs.OS(), Node: true}
	var apply, dryRun, yes, quiet bool
	cmd := &cobra.Command{
		Use: "repair PATH...", Short: "mend data directories: first the plan, then --apply", GroupID: groupFiles,
		Long: `Mends what varve verify finds in data directories or partition directories of a
stopped broker. Without --apply it only prints the plan, one step a line:

  rebuild index FILE         from the .log, as recovery after a crash does
  rebuild snapshot FILE      the producers, from the snapshot before and the .log
  rewrite checkpoint FILE    offsets or leader epochs that the logs contradict
  truncate FILE from A to B  cuts what is no good batch off the end of a .log
  move aside FILE            a .log with damage inside is replaced by its good batches;
                             a file that belongs to nothing is renamed

What loses records although good ones follow is done with --allow-data-loss only.
Every byte that is dropped or replaced is kept in a file beside it whose name ends in
.cut; Kafka ignores those, and you remove them when you are sure. --apply ends with a
check. A run that was stopped is continued by the next. Status 0: nothing to do, or
all done; 3: there is work, or damage is left; 5: in use, or needs --allow-data-loss.`,
		Example: `  varve repair /var/lib/varve
  varve repair --apply --yes /var/lib/varve
  varve repair --apply --allow-data-loss data/orders-0`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("name a data directory or a partition")
			}
			if apply && dryRun {
				return usageError("--apply and --dry-run exclude each other")
			}
			for _, path := range args {
				info, err := os.Stat(path)
				if errors.Is(err, fs.ErrNotExist) {
					return &failure{code: exitMissing, what: path, why: "no such directory"}
				}
				if err == nil && !info.IsDir() {
					return usageError("%s is a file: name its partition directory", path)
				}
			}
			o.Paths = args
			p := a.newProgress("check", "partitions", quiet)
			defer p.end()
			o.Progress = func(done, total int) { p.at(int64(done), int64(total)) }
			if !apply {
				return a.repairPlan(cmd.Context(), o, p)
			}
			return a.repairApply(cmd.Context(), o, p, yes)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&apply, "apply", false, "do it, under the directory's lock")
	f.BoolVar(&dryRun, "dry-run", false, "print the plan only; this is the default")
	f.BoolVar(&o.AllowDataLoss, "allow-data-loss", false, "also drop damaged batches that good ones follow")
	f.BoolVar(&yes, "yes", false, "do not ask")
	f.BoolVar(&quiet, "quiet", false, "show no progress")
	f.IntVar(&o.Parallel, "parallel", 0, "check `N` partitions at once; 0 is one a processor")
	a.outputFlag(cmd)
	return cmd
}

type stepRow struct {
	Action      string  `json:"action"`
	File        string  `json:"file"`
	FromBytes   *bigInt `json:"fromBytes"`
	ToBytes     *bigInt `json:"toBytes"`
	FirstOffset *bigInt `json:"firstOffset"`
	LastOffset  *bigInt `json:"lastOffset"`
	Reason      *string `json:"reason"`
	LosesData   bool    `json:"losesData"`
}

func stepRows(steps []repair.Step) []stepRow {
	rows := []stepRow{}
	for _, s := range steps {
		row := stepRow{string(s.Kind), s.File, known(s.From), known(s.To), known(int64(s.First)), known(int64(s.Last)), nil, s.Loses}
		if s.Why != "" {
			row.Reason = &s.Why
		}
		rows = append(rows, row)
	}
	return rows
}

func findingRows(findings []verify.Finding) []findingRow {
	rows := []findingRow{}
	for _, f := range findings {
		rows = append(rows, findingRow{f.Severity.String(), string(f.Code), f.File, known(f.Position), f.Message})
	}
	return rows
}

// printPlan writes a plan in the form that --dry-run and --apply share.
func (a *app) printPlan(p repair.Plan, applied bool) error {
	doc := map[string]any{"applied": applied, "steps": stepRows(p.Steps), "held": stepRows(p.Held), "left": findingRows(p.Left)}
	return a.print(doc, func() {
		if !applied {
			for i := range p.Steps {
				fmt.Fprintln(a.Stdout, p.Steps[i].String())
			}
		}
		for i := range p.Held {
			fmt.Fprintln(a.Stdout, "needs --allow-data-loss: "+p.Held[i].String())
		}
		for _, f := range p.Left {
			fmt.Fprintf(a.Stdout, "left: %v\n", f)
		}
		verb := "to do"
		if applied {
			verb = "done"
		}
		fmt.Fprintf(a.Stdout, "%s %s, %d held, %d left\n", count(int64(len(p.Steps)), "step"), verb, len(p.Held), len(p.Left))
		if len(p.Held) > 0 {
			fmt.Fprintln(a.Stdout, "held: would take records out of the log although good ones follow, or accept that some are gone; done with --allow-data-loss only")
		}
		if len(p.Left) > 0 {
			fmt.Fprintln(a.Stdout, "left: the files hold no evidence to mend it from")
		}
	})
}

func (a *app) repairPlan(ctx context.Context, o repair.Options, p *progress) error {
	plan, err := repair.Make(ctx, o)
	p.end()
	var foreign *verify.NotKafkaError
	if errors.As(err, &foreign) {
		return &failure{code: exitMissing, why: foreign.Error()}
	}
	if err != nil {
		return &failure{code: exitFailed, what: "repair", why: err.Error()}
	}
	for _, path := range o.Paths {
		if inUse(path) || inUse(filepath.Dir(filepath.Clean(path))) {
			fmt.Fprintf(a.Stderr, "note: %s: a broker is at work here: what it is writing at this moment may look damaged, and --apply is refused while it runs\n", path)
		}
	}
	if err := a.printPlan(plan, false); err != nil {
		return err
	}
	if len(plan.Steps)+len(plan.Held)+len(plan.Left) > 0 {
		return exitCode(exitProblems)
	}
	return nil
}

func (a *app) repairApply(ctx context.Context, o repair.Options, p *progress, yes bool) error {
	if !yes {
		// Nothing is asked where nothing would be done.
		plan, err := repair.Make(ctx, o)
		p.end()
		if err == nil && len(plan.Steps)+len(plan.Held)+len(plan.Left) == 0 {
			return a.printPlan(plan, true)
		}
	}
	if err := a.confirm(yes, "repair the files in "+o.Paths[0]); err != nil {
		return err
	}
	p.begin()
	if a.output != "json" {
		o.Done = func(s *repair.Step) {
			p.end()
			fmt.Fprintln(a.Stdout, s.String())
		}
	}
	plan, result, err := repair.Apply(ctx, o)
	p.end()
	var foreign *verify.NotKafkaError
	switch {
	case errors.As(err, &foreign):
		return &failure{code: exitMissing, why: foreign.Error()}
	case errors.Is(err, repair.ErrInUse):
		return refused("stop the broker first", "repair: %v", err)
	case err != nil:
		return &failure{code: exitFailed, what: "repair", why: err.Error(), hint: "run it again: it goes on where it stopped"}
	}
	if err := a.printPlan(plan, true); err != nil {
		return err
	}
	switch {
	case len(plan.Held) > 0:
		fmt.Fprintln(a.Stderr, "hint: the steps that need --allow-data-loss were not done")
		return exitCode(exitRefused)
	case result.Count(verify.Error) > 0:
		return exitCode(exitProblems)
	}
	return nil
}

// partitionArgument reads TOPIC-PARTITION.
func partitionArgument(s string) (kafka.TopicPartition, error) {
	tp, err := kafka.ParseTopicPartition(s)
	if err != nil {
		return tp, usageError("%q is not in the form of TOPIC-PARTITION, such as orders-0", s)
	}
	return tp, nil
}
