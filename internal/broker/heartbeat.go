package broker

// Heartbeat (key 12), versions 0 to 4: static members from 3 (KIP-345);
// flexible from 4.
//
// Error 27 asks the member to rejoin. While groups are loaded after a start, any
// member is answered that all is well.

import "github.com/twmb/franz-go/pkg/kmsg"

func (b *Broker) heartbeat(c *Context, q *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	a, err := b.opts.Groups.Heartbeat(c, groupClient(c), q)
	if err != nil {
		return nil
	}
	return a
}
