package node

import (
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs"
)

// filesBudget is how the descriptors of the process are shared out.
type filesBudget struct {
	segments    int // sealed segments that may be open
	connections int // 0: no limit
}

// What a broker has open besides partitions and connections, and what an active
// segment has.
const (
	filesOfBroker    = 32
	filesOfPartition = 3
)

// filesLimit is the limit of open files; 0 when it is not known. The Go runtime
// has raised the soft limit to the hard one.
func filesLimit() int64 {
	limit, ok := vfs.OpenFilesLimit()
	if !ok {
		return 0
	}
	return limit
}

// budgetOf shares out limit descriptors. A sealed segment takes up to four; a
// small limit leaves room for partitions and connections first.
func budgetOf(limit int64) filesBudget {
	switch {
	case limit <= 0 || limit >= 1<<30:
		return filesBudget{}
	case limit < 1024:
		return filesBudget{segments: int(max(2, limit/32)), connections: int(max(8, limit/4))}
	}
	b := filesBudget{segments: int(min(2048, (limit-256)/8))}
	b.connections = int(max(256, limit-256-4*int64(b.segments)))
	return b
}

// maxConnections is the smaller of what is configured and what the descriptors
// allow; 0 is no limit.
func maxConnections(configured int) int {
	allowed := budgetOf(filesLimit()).connections
	if configured <= 0 || allowed > 0 && allowed < configured {
		return allowed
	}
	return configured
}

// enoughFiles refuses to start where not even the active segments could be open.
func (n *Node) enoughFiles(image *metadata.Image) error {
	partitions := 0
	for _, t := range image.Topics.All() {
		for _, p := range t.Partitions.All() {
			for _, r := range p.Replicas {
				if r == n.self() {
					partitions++
				}
			}
		}
	}
	return checkFiles(filesLimit(), partitions)
}

func checkFiles(limit int64, partitions int) error {
	need := int64(filesOfBroker + filesOfPartition*partitions)
	if limit <= 0 || need <= limit {
		return nil
	}
	return fmt.Errorf("the limit of open files is %d, and %d partitions need %d at least: raise it (ulimit -n, LimitNOFILE=)", limit, partitions, need)
}

// Above the first share of a limit a WARN is logged, below the second it is over.
const (
	nearlyUsedUp = 0.9
	plentyLeft   = 0.8
)

// lowWatch logs that something is nearly used up, once until it is not.
type lowWatch struct{ low bool }

// look reports whether to log now.
func (w *lowWatch) look(used, limit int64) (changed bool) {
	switch share := float64(used) / float64(max(1, limit)); {
	case !w.low && share >= nearlyUsedUp:
		w.low = true
		return true
	case w.low && share < plentyLeft:
		w.low = false
		return true
	}
	return false
}

// watchLimits looks at descriptors and memory maps from time to time.
func (n *Node) watchLimits() {
	var files, maps lowWatch
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for i := 1; ; i++ {
		select {
		case <-n.stopping:
			return
		case <-tick.C:
		}
		if open, ok := vfs.OpenFiles(); ok && files.look(int64(open), filesLimit()) {
			n.sayLow(files.low, "file descriptors", "fd-low", "open", int64(open), filesLimit())
		}
		if i%6 == 0 { // counting maps takes a while where there are many
			if used, limit, ok := vfs.Maps(); ok && maps.look(int64(used), int64(limit)) {
				n.sayLow(maps.low, "memory maps", "maps-low", "maps", int64(used), int64(limit))
			}
		}
	}
}

func (n *Node) sayLow(low bool, what, event, key string, used, limit int64) {
	if low {
		n.log.Warn(what+" nearly used up", "event", event, key, used, "limit", limit)
	} else {
		n.log.Info(what+" left again", "event", event+"-over", key, used, "limit", limit)
	}
}
