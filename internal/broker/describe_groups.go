package broker

// DescribeGroups (key 15), versions 0 to 6: authorized operations from 3; static
// members from 4; flexible from 5; from 6 a group that does not exist is error
// 69 with a message.
//
// Up to version 5 an unknown group is "Dead" and no error. Only groups of the
// classic protocol are described.

import "github.com/twmb/franz-go/pkg/kmsg"

// allGroupOperations is all that a group has: READ, DELETE, DESCRIBE,
// DESCRIBE_CONFIGS and ALTER_CONFIGS.
const allGroupOperations = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

func (b *Broker) describeGroups(c *Context, q *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse {
	a := kmsg.NewPtrDescribeGroupsResponse()
	a.Groups = b.opts.Groups.DescribeGroups(q.Groups, c.Version)
	for i := range a.Groups {
		if q.IncludeAuthorizedOperations && a.Groups[i].ErrorCode == 0 {
			a.Groups[i].AuthorizedOperations = allGroupOperations
		}
	}
	return a
}
