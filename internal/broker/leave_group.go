package broker

// LeaveGroup (key 13), versions 0 to 5: several members, also by instance id,
// from 3 (KIP-345); flexible from 4; a reason from 5 (KIP-800).
//
// From version 3 on an unknown member, or group, is an error of the member's
// row, and the answer itself has none.

import "github.com/twmb/franz-go/pkg/kmsg"

func (b *Broker) leaveGroup(c *Context, q *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse {
	a, err := b.opts.Groups.LeaveGroup(c, groupClient(c), q)
	if err != nil {
		return nil
	}
	return a
}
