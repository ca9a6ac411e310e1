package node

import (
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/varvelog/varve/internal/admin"
	"github.com/varvelog/varve/internal/events"
)

// view is the state that the HTTP listener shows. The start fills it in step by
// step while requests already look at it, so it is replaced, not changed.
type view struct {
	now           atomic.Pointer[admin.View]
	loaded, found atomic.Int64 // partitions
}

// show publishes what the node consists of now.
func (n *Node) show(state admin.State) {
	n.view.now.Store(&admin.View{
		State: state, NodeID: n.self(), Dirs: n.dirs, Quorum: n.quorum, Replicas: n.replicas, Groups: n.groups,
		Listeners: n.listeners, Admission: n.admission,
	})
}

// look is the view of this moment.
func (n *Node) look() *admin.View {
	v := *n.view.now.Load()
	v.Loaded, v.ToLoad = int(n.view.loaded.Load()), int(n.view.found.Load())
	v.Failed = n.Err()
	v.Stuck, v.Syncs = n.disk.Stuck(stuckAfter), n.disk.Syncs()
	return &v
}

// progress notes how many partitions are open.
func (n *Node) progress(done, of int) {
	n.view.loaded.Store(int64(done))
	n.view.found.Store(int64(of))
	if n.opts.Progress != nil {
		n.opts.Progress(done, of)
	}
}

// countEvents puts the broker's own handler in front of the log: it counts
// events for the metrics and holds back what repeats.
func (n *Node) countEvents(l *slog.Logger) *slog.Logger {
	h := events.New(l.Handler())
	n.events = h.Log()
	return slog.New(h)
}

// closeSimilar has the log say, once a minute at most, what it left out.
func (n *Node) closeSimilar() {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-n.stopping:
			return
		case now := <-tick.C:
			n.events.Close(now)
		}
	}
}

// listenHTTP opens the HTTP listener before anything that can take long, so
// that a start can be watched. An address that nobody asked for and that is in
// use is no reason not to start.
func (n *Node) listenHTTP() error {
	address := n.static.HTTPListen
	chosen := n.static.IsSet("varve.http.listen")
	if address == "" || n.admin != nil || !chosen && !n.opts.HTTP {
		return nil
	}
	var err error
	n.admin, err = admin.Listen(admin.Options{
		Address: address, Look: n.look, Logger: n.log, Events: n.events.Counts, Errors: n.events.Errors, Build: n.opts.Build, PartitionLimit: n.static.MetricsPartitionLimit,
	})
	if err != nil && !chosen && (errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EADDRNOTAVAIL)) {
		n.log.Warn("no HTTP listener: its default address is taken", "event", "http-off", "address", address, "err", err,
			"hint", "set varve.http.listen to another address, or to nothing")
		return nil
	}
	if err != nil {
		return &HTTPListenError{Address: address, Err: err}
	}
	return nil
}

// HTTPListenError: the address of varve.http.listen cannot be bound.
type HTTPListenError struct {
	Address string
	Err     error
}

// Error implements error.
func (e *HTTPListenError) Error() string {
	return "varve.http.listen=" + e.Address + ": " + e.Err.Error()
}

func (e *HTTPListenError) Unwrap() error { return e.Err }

// HTTPAddr is the address that the HTTP listener is bound to; nil without one.
func (n *Node) HTTPAddr() net.Addr {
	if n.admin == nil {
		return nil
	}
	return n.admin.Addr()
}

func (n *Node) closeHTTP() {
	if n.admin != nil {
		n.admin.Close()
	}
}
