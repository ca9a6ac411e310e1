package admin

import (
	"github.com/varvelog/varve/internal/coordinator"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/quorum"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/server"
	"github.com/varvelog/varve/internal/vfs/slowfs"
)

// State is how far a broker is, in the numbers of Kafka's BrokerState.
type State int

// The states.
const (
	Starting State = 1
	Recovery State = 2
	Running  State = 3
	Stopping State = 7
)

// View is a broker as it is now. What is not there yet is nil. A View does not
// change; what its pointers lead to may be read at any time.
type View struct {
	State State
	// Loaded and ToLoad count the partitions that the start opens.
	Loaded, ToLoad int
	// Failed is why the broker cannot go on; nil while it can.
	Failed error
	// Stuck names what has made no progress for too long; empty while all does.
	Stuck []string

	// Syncs is how long the syncs of the disk took; nil Bounds: not known.
	Syncs slowfs.Histogram

	NodeID    kafka.BrokerID
	Dirs      *logdir.Manager
	Quorum    *quorum.Quorum
	Replicas  *replica.Manager
	Groups    *coordinator.Groups
	Listeners []*server.Listener
	Admission *server.Admission
}
