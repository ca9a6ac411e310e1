package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/admin"
	"github.com/varvelog/varve/internal/commitlog"
)

// Stop ends the node cleanly: requests first, then groups, then leadership,
// then the metadata log, then the data logs, and the clean markers last (faults
// O14). When ctx ends while requests are still being answered, their
// connections are cut; what is stored is still closed cleanly. The error says
// what was not clean. A second call returns the first one's error.
func (n *Node) Stop(ctx context.Context) error {
	n.stopOnce.Do(func() { n.stopErr = n.stop(ctx) })
	return n.stopErr
}

func (n *Node) stop(ctx context.Context) error {
	began := n.opts.Now()
	n.log.Info("stopping", "event", "stopping")
	n.show(admin.Stopping)
	close(n.stopping)
	var errs []error
	for _, l := range n.listeners {
		if err := l.Shutdown(ctx); err != nil {
			n.log.Warn("connections cut while requests were being answered", "event", "stop-forced", "listener", l.Name(), "err", err)
		}
	}
	n.background.Wait()
	n.offsets.unload(n.groups)
	n.groups.Close()
	if n.Err() == nil {
		// Leadership ends in the metadata before the logs are closed, so that no
		// epoch is ever led by a log that is already shut.
		errs = append(errs, n.tolerateFull("end leadership", n.controller.ControlledShutdown()), n.tolerateFull("fence", n.controller.Fence()))
	}
	errs = append(errs, wrap("close metadata log", n.quorum.Close()), wrap("close data directories", n.dirs.Close(n.brokerEpoch)))
	n.closeHTTP()
	defer n.events.Close(time.Time{})
	err := errors.Join(append(errs, n.Err())...)
	if err != nil {
		n.log.Error("stopped, not cleanly", "event", "stopped", "err", err)
		return err
	}
	n.log.Info("stopped", "event", "stopped", "durationMs", n.opts.Now().Sub(began).Milliseconds())
	return nil
}

// tolerateFull lets a stop go on without what finds no room: a node that is not
// fenced in the metadata is fenced by its next start.
func (n *Node) tolerateFull(what string, err error) error {
	if errors.Is(err, commitlog.ErrFull) {
		n.log.Warn("stopping without it: the disk is full", "what", what, "err", err)
		return nil
	}
	return wrap(what, err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
