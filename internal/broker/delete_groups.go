package broker

// DeleteGroups (key 42), versions 0 to 3: flexible from 2; a message, which is
// null, from 3.
//
// A group that has members is error 68, an unknown one 69. Deleting a group
// deletes its offsets. The rows are not in the order of the request.

import "github.com/twmb/franz-go/pkg/kmsg"

func (b *Broker) deleteGroups(c *Context, q *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse {
	rows, err := b.opts.Groups.DeleteGroups(c, groupClient(c), q.Groups)
	if err != nil {
		return nil
	}
	a := kmsg.NewPtrDeleteGroupsResponse()
	a.Groups = rows
	return a
}
