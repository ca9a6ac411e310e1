package node

import (
	"errors"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
)

// The wait before partitions that could not be opened are tried again doubles
// from the first to the second.
const (
	retryFirst  = 500 * time.Millisecond
	retryAtMost = 5 * time.Second
)

// retryPartitions serves what could not be opened or made for want of room,
// descriptors or memory, once there is some.
func (n *Node) retryPartitions() {
	for {
		select {
		case <-n.stopping:
			return
		case <-n.replicas.Failed():
		}
		for wait := retryFirst; ; wait = min(2*wait, retryAtMost) {
			timer := time.NewTimer(wait)
			select {
			case <-n.stopping:
				timer.Stop()
				return
			case <-timer.C:
			}
			if n.retryOnce() == 0 {
				break
			}
		}
	}
}

// retryOnce has the group coordinator load what came up, tells the metadata where
// it lies, and returns how many partitions still fail.
func (n *Node) retryOnce() (left int) {
	changed, left := n.retryLocked()
	if changed {
		// Not under the lock: the change comes back to apply.
		if err := n.controller.PlaceReplicas(n.placements()); err != nil {
			n.log.Warn("directories of new partitions not recorded", "err", err)
		}
	}
	return left
}

func (n *Node) retryLocked() (changed bool, left int) {
	n.following.Lock()
	defer n.following.Unlock()
	if changed, left = n.replicas.Retry(n.applied); changed {
		n.offsets.follow(n.groups, n.replicas, n.applied, n.self())
	}
	return changed, left
}

// roomInterval is how often a start that found no room tries again.
const roomInterval = 250 * time.Millisecond

// awaitRoom writes what the start had to say and found no room for. Producers
// are refused until then: their records would have a leader epoch that is not on
// the disk.
func (n *Node) awaitRoom() {
	for {
		timer := time.NewTimer(roomInterval)
		select {
		case <-n.stopping:
			timer.Stop()
			return
		case <-timer.C:
		}
		switch err := n.quorum.Settle(); {
		case err == nil:
			n.dirs.Hold(false)
			n.log.Info("disk has room again, writes resume", "event", "disk-room", "dir", n.static.MetadataLogDir)
			return
		case !errors.Is(err, commitlog.ErrFull):
			return // the metadata log has failed, and with it the node
		}
	}
}

// fileFailed is told by a connection that could not send a file (faults E4).
func (n *Node) fileFailed(file string, err error) { n.dirs.ReadFailed(file, "send", err) }
