package cli

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/varvelog/varve/internal/dump"
	"github.com/varvelog/varve/internal/vfs"
)

// dumpLogCommand is kafka-dump-log with paths as arguments: a directory stands
// for all files of its partition. Under Kafka's name the options are Kafka's
// alone (runKafkaTool).
func (a *app) dumpLogCommand() *cobra.Command {
	var files []string
	cmd := &cobra.Command{
		Use: "dump-log PATH...", Short: "print segments, indexes and snapshots", GroupID: groupFiles,
		Long: `Prints the files of a partition as kafka-dump-log does: .log, .index, .timeindex,
.txnindex, .snapshot, .checkpoint. A directory is all files of that partition. Nothing
is written, and a broker may be running: the index of the segment that it writes ends in
zeros then, which Kafka's text calls mismatches, and which are none.`,
		Example: `  varve dump-log data/orders-0
  varve dump-log --print-data-log data/orders-0/00000000000000000000.log
  varve dump-log --index-sanity-check data/orders-0/*.index
  varve dump-log --offsets-decoder data/__consumer_offsets-12`,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, list := range files {
				args = append(args, strings.Split(list, ",")...)
			}
			paths, err := dumpPaths(args)
			if err != nil {
				return err
			}
			options := []string{"--files", strings.Join(paths, ",")}
			cmd.Flags().Visit(func(f *pflag.Flag) {
				switch {
				case f.Name == "files" || f.Value.String() == "false":
				case f.Value.Type() == "bool":
					options = append(options, "--"+f.Name)
				default:
					options = append(options, "--"+f.Name+"="+f.Value.String())
				}
			})
			return a.dump(options)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&files, "files", nil, "`PATH,...` of files, as Kafka's tool takes them")
	f.Bool("print-data-log", false, "print keys and values of records")
	f.Bool("deep-iteration", false, "print each record, not only each batch")
	f.Bool("index-sanity-check", false, "only the check that decides at start whether an index is rebuilt")
	f.Bool("verify-index-only", false, "check index entries against the log without printing them")
	f.Bool("skip-record-metadata", false, "print keys and values alone")
	f.Bool("offsets-decoder", false, "records are those of __consumer_offsets")
	f.Bool("transaction-log-decoder", false, "records are those of __transaction_state")
	f.Bool("share-group-state-decoder", false, "records are those of __share_group_state")
	f.Bool("cluster-metadata-decoder", false, "records are those of __cluster_metadata")
	f.Bool("remote-log-metadata-decoder", false, "records are those of __remote_log_metadata")
	f.String("key-decoder-class", "", "`CLASS` that decodes keys: String, Integer, Long or DefaultDecoder")
	f.String("value-decoder-class", "", "`CLASS` that decodes values")
	f.Int("max-message-size", 5<<20, "`BYTES` of the largest batch behind an index entry")
	f.Int("max-bytes", 1<<31-1, "`BYTES` of a log to read")
	return cmd
}

func (p *Process) dumpTool() *dump.Tool {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	return &dump.Tool{FS: vfs.Following(), Dir: dir, Version: Version, Stdout: p.Stdout, Stderr: p.Stderr}
}

// dump runs the native command, which prints no exceptions.
func (a *app) dump(args []string) error {
	err := a.dumpTool().Dump(args)
	var f *dump.Failure
	if errors.As(err, &f) {
		hint := ""
		if f.File != "" {
			hint = "varve verify says what is wrong in the whole partition"
		}
		return &failure{code: exitFailed, what: "dump-log", why: f.Error(), hint: hint}
	}
	return err
}

// dumpLog runs kafka-dump-log with its own options.
func (p *Process) dumpLog(args []string) error {
	if code := p.dumpTool().Run(args); code != 0 {
		return exitCode(code)
	}
	return nil
}

// dumpPaths puts the files of a directory in its place.
func dumpPaths(args []string) ([]string, error) {
	var paths []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &failure{code: exitMissing, what: arg, why: "no such file or directory"}
		}
		if err != nil {
			return nil, &failure{code: exitFailed, why: err.Error()}
		}
		if !info.IsDir() {
			paths = append(paths, arg)
			continue
		}
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, &failure{code: exitFailed, why: err.Error()}
		}
		found := false
		for _, e := range entries {
			switch filepath.Ext(e.Name()) {
			case ".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint":
				found = true
				paths = append(paths, filepath.Join(arg, e.Name()))
			}
		}
		if !found {
			return nil, &failure{code: exitMissing, what: arg, why: "no segments, indexes or snapshots in it", hint: "name the directory of one partition, such as orders-0"}
		}
	}
	if len(paths) == 0 {
		return nil, usageError("name a file or the directory of a partition")
	}
	return paths, nil
}
