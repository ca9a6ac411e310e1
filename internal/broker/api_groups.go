package broker

import "github.com/varvelog/varve/internal/coordinator"

// groupAPIs are consumer groups and their offsets.
func groupAPIs() []api {
	return []api{
		{8, "OffsetCommit", 2, 10, control((*Broker).offsetCommit)},
		{9, "OffsetFetch", 1, 10, control((*Broker).offsetFetch)},
		{11, "JoinGroup", 0, 9, control((*Broker).joinGroup)},
		{12, "Heartbeat", 0, 4, control((*Broker).heartbeat)},
		{13, "LeaveGroup", 0, 5, control((*Broker).leaveGroup)},
		{14, "SyncGroup", 0, 5, control((*Broker).syncGroup)},
		{15, "DescribeGroups", 0, 6, control((*Broker).describeGroups)},
		{16, "ListGroups", 0, 5, control((*Broker).listGroups)},
		{42, "DeleteGroups", 0, 3, control((*Broker).deleteGroups)},
		{47, "OffsetDelete", 0, 0, control((*Broker).offsetDelete)},
	}
}

// groupClient is the client of a request as group records keep it.
func groupClient(c *Context) coordinator.Client {
	return coordinator.Client{ID: c.ClientID(), Host: c.ClientHost()}
}
