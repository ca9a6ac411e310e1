// Package broker is the API table: one file an API, with its behaviour and the
// notes on its versions at the top, and the one place where errors become
// protocol codes (codes.go).
//
// Before it on the path: server, which calls Serve with each request on its
// connection's goroutine. After it: replica for records, coordinator for groups,
// controller for decisions, and the metadata image for everything that is only
// looked up.
package broker

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/coordinator"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/server"
	"github.com/varvelog/varve/internal/wire"
)

// Options are what a broker is made of. All fields are needed unless they say
// otherwise.
type Options struct {
	NodeID    kafka.BrokerID
	ClusterID string
	// Config is the configuration in force; it may be another one at each call.
	Config func() *config.Broker
	// Image is the committed metadata.
	Image func() *metadata.Image
	// Replicas are the partitions that have a replica here.
	Replicas *replica.Manager
	// Dirs are the data directories, for those who ask about them.
	Dirs *logdir.Manager
	// Controller creates topics, and decides what else is metadata.
	Controller *controller.Controller
	// Groups is the group coordinator.
	Groups *coordinator.Groups
	// Now is the wall clock. Nil: time.Now.
	Now func() time.Time
	// Logger may be nil.
	Logger *slog.Logger
	// LogLevel is what the broker's own log lines are filtered by; clients may
	// change it. Nil: they cannot.
	LogLevel *slog.LevelVar
}

// Broker answers requests. It implements server.Handler.
type Broker struct {
	opts  Options
	log   *slog.Logger
	table [maxKey + 1]*api
	// versions are the ApiVersions keys in the order of the table.
	versions []api
	shapes   map[int16]wire.Shape // of requests that kmsg decodes

	produces sync.Pool // of *produceCall
	fetches  sync.Pool // of *fetchCall
	sessions *sessionCache

	versionsSeen atomic.Pointer[versionsCache]
	producerIDs  producerIDs
}

// New returns a broker that is ready to serve.
func New(o Options) *Broker {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Broker{opts: o, log: o.Logger, versions: table(), shapes: requestShapes()}
	b.produces.New, b.fetches.New = newProduceCall, newFetchCall
	b.sessions = newSessionCache(func() int { return o.Config().FetchSessionSlots })
	for i := range b.versions {
		a := &b.versions[i]
		b.table[a.key] = a
	}
	return b
}

var _ server.Handler = (*Broker)(nil)
