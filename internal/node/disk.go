package node

import (
	"path/filepath"
	"time"

	"github.com/varvelog/varve/internal/vfs/slowfs"
)

// A write or sync is slow after the first time, which is logged, and stuck after
// the second, when /healthz fails.
const (
	slowAfter  = time.Second
	stuckAfter = 30 * time.Second
)

// watchDisk has all writes and syncs of the broker timed.
func (n *Node) watchDisk() {
	n.disk = slowfs.Wrap(n.opts.FS, slowfs.Options{Slow: slowAfter, OnSlow: func(op, file string, took time.Duration) {
		n.log.Warn("write or sync took long", "event", "slow-disk", "dir", n.dataDirOf(file), "op", op, "file", file, "durationMs", took.Milliseconds())
	}})
	n.opts.FS = n.disk
}

// dataDirOf is the data directory that a file lies in; its own directory when
// it is in none.
func (n *Node) dataDirOf(file string) string {
	for _, dir := range append([]string{n.static.MetadataLogDir}, n.static.LogDirs...) {
		if rel, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(rel) {
			return dir
		}
	}
	return filepath.Dir(file)
}
