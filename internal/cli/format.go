package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/quorum"
	"github.com/varvelog/varve/internal/vfs"
)

func (a *app) formatCommand() *cobra.Command {
	var s serveFlags
	var clusterID string
	var ignoreFormatted bool
	cmd := &cobra.Command{
		Use: "format [DIR...|FILE]", Short: "prepare data directories for a broker", GroupID: groupRun,
		Long: "Prepares data directories as kafka-storage format does: cluster id, node id, and the\nfirst metadata. It is not needed before varve serve, which formats empty directories\nitself. A directory that holds data is never touched. Without DIR, --data-dir and --config\nit is " + a.dataDir() + ".",
		Example: `  varve format ./data
  varve format ./data --cluster-id 5L6g3nShT-eMCtK--X86sw --node-id 3
  varve format --config /etc/kafka/server.properties`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			for _, arg := range args { // a file is one of settings, as for serve
				if info, err := os.Stat(arg); err == nil && info.Mode().IsRegular() {
					s.files = append(s.files, arg)
				} else {
					s.dataDirs = append(s.dataDirs, arg)
				}
			}
			cfg, warnings, err := s.load(a)
			if err != nil {
				return a.refuseConfig(err, warnings)
			}
			if clusterID == "" {
				clusterID = cfg.ClusterID
			}
			if clusterID == "" {
				clusterID = metadata.RandomUUID().String()
			}
			o := quorum.FormatOptions{FS: vfs.OS(), MetadataDir: cfg.MetadataLogDir, NodeID: cfg.NodeID, ClusterID: clusterID, Now: time.Now()}
			return a.format(o, cfg.LogDirs, ignoreFormatted)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&clusterID, "cluster-id", "t", "", "`ID` of the cluster; without it, a random one")
	f.BoolVarP(&ignoreFormatted, "ignore-formatted", "g", false, "no error when a directory is formatted already")
	f.StringArrayVarP(&s.files, "config", "c", nil, "`FILE` of settings (server.properties)")
	f.StringSliceVar(&s.dataDirs, "data-dir", nil, "`DIR` of the data; several with commas, the same as DIR (log.dirs)")
	f.StringVar(&s.nodeID, "node-id", "", "`N`, the number of the node (node.id)")
	a.outputFlag(cmd)
	return cmd
}

type formatted struct {
	Dir       string `json:"dir"`
	ClusterID string `json:"clusterId"`
	NodeID    int32  `json:"nodeId"`
	Done      bool   `json:"done"` // false: it was formatted before
}

func (a *app) format(o quorum.FormatOptions, dirs []string, ignoreFormatted bool) error {
	var rows []formatted
	for _, dir := range dirs {
		state, err := stateOf(dir)
		switch {
		case err != nil:
			return &failure{code: exitFailed, what: "format " + dir, why: err.Error()}
		case state == dirEmpty:
			o.Dirs = append(o.Dirs, dir)
		case state == dirHasData:
			return refused("name an empty directory", "%s: holds data and no meta.properties; it is not formatted", dir)
		case !ignoreFormatted:
			return refused("--ignore-formatted makes this no error", "%s: is formatted already", dir)
		default:
			meta, err := checkpoint.ReadMeta(o.FS, filepath.Join(dir, checkpoint.MetaFile))
			if err != nil {
				return &failure{code: exitFailed, what: dir, why: err.Error()}
			}
			o.ClusterID = meta.ClusterID // all directories of a node are of one cluster
			rows = append(rows, formatted{dir, meta.ClusterID, int32(meta.NodeID), false})
		}
	}
	if len(o.Dirs) > 0 {
		if err := quorum.Format(o); err != nil {
			return &failure{code: exitFailed, what: "format", why: err.Error()}
		}
	}
	for _, dir := range o.Dirs {
		rows = append(rows, formatted{dir, o.ClusterID, int32(o.NodeID), true})
	}
	return a.print(map[string]any{"directories": rows}, func() {
		for _, r := range rows {
			if r.Done {
				fmt.Fprintf(a.Stdout, "formatted %s for node %d of cluster %s\n", r.Dir, r.NodeID, r.ClusterID)
			} else {
				fmt.Fprintf(a.Stdout, "%s is formatted already, for node %d of cluster %s\n", r.Dir, r.NodeID, r.ClusterID)
			}
		}
	})
}

type dirState int

const (
	dirEmpty dirState = iota
	dirFormatted
	dirHasData
)

// stateOf looks what is in a directory. Nothing there yet is empty.
func stateOf(dir string) (dirState, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dirEmpty, nil
	}
	if err != nil {
		return dirEmpty, err
	}
	state := dirEmpty
	for _, e := range entries {
		switch e.Name() {
		case checkpoint.MetaFile:
			return dirFormatted, nil
		case ".lock", "lost+found":
		default:
			state = dirHasData
		}
	}
	return state, nil
}
