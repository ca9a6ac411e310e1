package broker

// SyncGroup (key 14), versions 0 to 5: static members from 3 (KIP-345);
// flexible from 4; protocol type and name from 5, where they must be there
// (KIP-559).
//
// The leader brings the assignment, the others wait for it.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

func (b *Broker) syncGroup(c *Context, q *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse {
	if c.Version >= 5 && (q.ProtocolType == nil || q.Protocol == nil) {
		a := kmsg.NewPtrSyncGroupResponse()
		a.ErrorCode = int16(kafka.ErrInconsistentGroupProtocol)
		return a
	}
	a, err := b.opts.Groups.SyncGroup(c, groupClient(c), q)
	if err != nil {
		return nil
	}
	return a
}
