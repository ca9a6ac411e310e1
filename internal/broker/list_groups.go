package broker

// ListGroups (key 16), versions 0 to 5: flexible from 3; states, and a filter by
// them, from 4 (KIP-518); types, and a filter by them, from 5 (KIP-848).
//
// Only groups whose coordinator is this broker are listed; clients ask every
// broker. While groups are loaded the answer is error 14.

import "github.com/twmb/franz-go/pkg/kmsg"

func (b *Broker) listGroups(_ *Context, q *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	a := kmsg.NewPtrListGroupsResponse()
	rows, code := b.opts.Groups.ListGroups(q.StatesFilter, q.TypesFilter)
	a.Groups, a.ErrorCode = rows, int16(code)
	return a
}
