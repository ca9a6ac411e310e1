package node

import (
	"runtime"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/server"
)

// budget is the admission of all listeners, whose memory for requests bounds
// more than the listeners.
func (n *Node) budget() *server.Admission {
	if n.admission == nil {
		n.admission = n.newAdmission()
	}
	return n.admission
}

// littleMemory is the budget for requests below which batches are decompressed
// one at a time.
const littleMemory = 64 << 20

// scratch is what appends decompress in: a batch that expands beyond the memory
// for requests is refused.
func (n *Node) scratch() *commitlog.Scratch {
	limit := n.budget().RequestBytesLimit()
	if limit < littleMemory {
		return commitlog.NewBoundedScratch(1, int(limit))
	}
	return commitlog.NewBoundedScratch(runtime.GOMAXPROCS(0), int(min(limit, 1<<30)))
}
