package broker

// JoinGroup (key 11), versions 0 to 9: a rebalance timeout from 1; members get
// their id in a first answer, error 79, from 4 (KIP-394); static members from 5
// (KIP-345); flexible from 6; the protocol type is answered from 7 and the
// protocol may be null; a reason from 8; SkipAssignment from 9 (KIP-814).
//
// The answer comes when the join phase of the rebalance is over, which may take
// as long as the longest rebalance timeout of the group; the connection waits.

import "github.com/twmb/franz-go/pkg/kmsg"

func (b *Broker) joinGroup(c *Context, q *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	a, err := b.opts.Groups.JoinGroup(c, groupClient(c), q)
	if err != nil {
		return nil
	}
	return a
}
