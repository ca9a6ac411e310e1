// Package node wires one broker together and starts and stops it in one
// readable order: start.go is what happens between the configuration and the
// first answer, stop.go what happens between SIGTERM and the clean marker.
//
// Before it: cli, and package varve for programs that embed a broker. After it:
// every layer below, each of which it is the only one to construct.
package node

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/admin"
	"github.com/varvelog/varve/internal/broker"
	"github.com/varvelog/varve/internal/clock"
	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/coordinator"
	"github.com/varvelog/varve/internal/events"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/quorum"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/server"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/slowfs"
)

// Options are what Start may be given besides the configuration. Zero values
// are documented with each field.
type Options struct {
	FS       vfs.FS             // nil: the operating system's
	Logger   *slog.Logger       // nil: nothing is logged
	LogLevel *slog.LevelVar     // lets clients change the level; nil: they cannot
	Now      func() time.Time   // nil: time.Now
	Progress func(done, of int) // partitions opened so far; nil: not told
	// Recovering is told how far a recovery is; nil: not told.
	Recovering func(p logdir.Progress)
	Build      admin.Build // what /version and the metrics say
	// HTTP opens the HTTP listener at its default address. An address that the
	// configuration sets is always listened on.
	HTTP bool
}

// Node is a running broker and controller.
type Node struct {
	opts   Options
	log    *slog.Logger
	static *config.Broker // as loaded, without dynamic values
	cfg    atomic.Pointer[config.Broker]

	dirs       *logdir.Manager
	quorum     *quorum.Quorum
	controller *controller.Controller
	replicas   *replica.Manager
	// leads is replicas for who is told of a failure while the start goes on.
	leads     atomic.Pointer[replica.Manager]
	groups    *coordinator.Groups
	following sync.Mutex      // held while the node follows the metadata
	applied   *metadata.Image // what it has followed; guarded by following
	offsets   offsetsTopic    // guarded by following
	broker    *broker.Broker
	gate      *gate
	listeners []*server.Listener
	admission *server.Admission // of all listeners
	admin     *admin.Server     // nil without HTTP
	events    *events.Log
	disk      *slowfs.FS // what opts.FS is
	guard     *clock.Guard
	expiry    func() time.Time // what ages are counted by; see watchClock
	view      view

	brokerEpoch int64
	loaded      bool // the data logs are open

	background sync.WaitGroup
	stopping   chan struct{} // closed when Stop begins

	failOnce sync.Once
	failed   chan struct{} // closed when the node cannot go on
	cause    error         // why; set before failed is closed

	stopOnce sync.Once
	stopErr  error
}

// Failed is closed when the node cannot serve any more: its last data directory
// or its metadata log has failed. Err says why; Stop still releases what is left.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Err is why the node failed; nil while it has not.
func (n *Node) Err() error {
	select {
	case <-n.failed:
		return n.cause
	default:
		return nil
	}
}

func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.cause = err
		close(n.failed)
	})
}

// Addr is the address that a listener is bound to, with the port that the
// system chose for port 0. An empty name is the first listener; nil when there
// is none of that name.
func (n *Node) Addr(listener string) net.Addr {
	for _, l := range n.listeners {
		if listener == "" || l.Name() == listener {
			return l.Addr()
		}
	}
	return nil
}

// ClusterID is the cluster's id, from meta.properties.
func (n *Node) ClusterID() string { return n.dirs.ClusterID() }

// Config is the configuration in force, with the dynamic values.
func (n *Node) Config() *config.Broker { return n.cfg.Load() }

// Controller decides what is metadata; for programs that embed a broker.
func (n *Node) Controller() *controller.Controller { return n.controller }

// gate holds requests back until the broker is ready: a client that connects
// while logs are still being opened waits for its answer instead of getting an
// error it cannot place.
type gate struct {
	open   chan struct{}
	broker server.Handler // set before open is closed
}

// Serve implements server.Handler.
func (g *gate) Serve(r *server.Request) (server.Verdict, error) {
	select {
	case <-g.open:
		return g.broker.Serve(r)
	default:
	}
	select {
	case <-g.open:
		return g.broker.Serve(r)
	case <-r.Conn.Done():
		return server.Close, context.Canceled
	}
}

// self is this node's id as a broker.
func (n *Node) self() kafka.BrokerID { return n.static.NodeID }
