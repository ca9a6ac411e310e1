package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
)

func (a *app) verifyCommand() *cobra.Command {
	o := verify.Options{FS: vfs.OS(), Node: true, InUse: inUse}
	var quiet bool
	cmd := &cobra.Command{
		Use: "verify PATH...", Short: "check data directories without changing them", GroupID: groupFiles,
		Long: `Checks data directories, partitions or single files without changing a byte: every
batch's checksum, offsets that rise, index entries that point at batches, sizes, counts,
snapshots and checkpoints. It says which file and which byte is wrong. Name all data
directories of a node together: one of them holds the metadata log.

A broker may be at work there: a note says so, and what it is writing at that moment is
not reported. Status 0 is no error, 3 is damage, 4 is a path that is not Kafka's.

A line is SEVERITY CODE FILE:BYTE MESSAGE. An error is damage, or what a broker does not
start on; a warning is what a start puts right; a note is worth knowing. The codes:
V00x the data directory, V01x the log, V02x the offset index, V03x the time index,
V04x the transaction index, V05x producer snapshots, V06x leader epochs, V07x topic ids,
V08x left-over and unknown files, V09x cluster metadata. docs/operations.md explains each.`,
		Example: `  varve verify /var/lib/varve
  varve verify --deep data/orders-0
  varve verify --fast /var/lib/varve -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError("name a data directory, a partition, or a file")
			}
			if o.Deep && o.Fast {
				return usageError("--deep and --fast exclude each other")
			}
			for _, path := range args {
				if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
					return &failure{code: exitMissing, what: path, why: "no such file or directory"}
				}
			}
			o.Paths = args
			p := a.newProgress("verify", "partitions", quiet)
			defer p.end()
			o.Progress = func(done, total int) {
				if p.at(int64(done), int64(total)); done == total {
					p.end() // what was found is printed next
				}
			}
			if a.output == "json" {
				return a.verifyJSON(cmd.Context(), o)
			}
			if code := verify.Run(cmd.Context(), o, a.Stdout, a.Stderr); code != 0 {
				return exitCode(code)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Deep, "deep", false, "decompress and parse every record too")
	f.BoolVar(&o.Fast, "fast", false, "read batch headers only: no checksums")
	f.BoolVar(&quiet, "quiet", false, "show no progress")
	f.IntVar(&o.Parallel, "parallel", 0, "read `N` partitions at once; 0 is one a processor")
	a.outputFlag(cmd)
	return cmd
}

type findingRow struct {
	Severity string  `json:"severity"`
	Code     string  `json:"code"`
	File     string  `json:"file"`
	Position *bigInt `json:"position"`
	Message  string  `json:"message"`
}

func (a *app) verifyJSON(ctx context.Context, o verify.Options) error {
	result, err := verify.Check(ctx, o)
	var foreign *verify.NotKafkaError
	if errors.As(err, &foreign) {
		return &failure{code: exitMissing, why: foreign.Error()}
	}
	if err != nil {
		return &failure{code: exitFailed, what: "verify", why: err.Error()}
	}
	rows := []findingRow{}
	for _, f := range result.Findings {
		rows = append(rows, findingRow{f.Severity.String(), string(f.Code), f.File, known(f.Position), f.Message})
	}
	errs := result.Count(verify.Error)
	doc := map[string]any{"findings": rows, "partitions": result.Partitions, "segments": result.Segments, "sizeBytes": bigInt(result.Bytes),
		"errors": errs, "warnings": result.Count(verify.Warning)}
	if err := a.print(doc, nil); err != nil {
		return err
	}
	if errs > 0 {
		return exitCode(exitProblems)
	}
	return nil
}
