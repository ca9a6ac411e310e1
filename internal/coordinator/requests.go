package coordinator

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
)

// JoinGroup waits until the join phase of the rebalance is over.
func (g *Groups) JoinGroup(ctx context.Context, c Client, r *kmsg.JoinGroupRequest) (*kmsg.JoinGroupResponse, error) {
	a, code, err := g.call(ctx, c, r.Group, func(m *group.Machine, c group.Context) group.Effects { return m.JoinGroup(c, r) })
	if code != kafka.None {
		a := kmsg.NewPtrJoinGroupResponse()
		a.ErrorCode, a.Generation = int16(code), -1
		return a, nil
	}
	return answer[*kmsg.JoinGroupResponse](a, err)
}

// SyncGroup waits until the leader has brought the assignment.
func (g *Groups) SyncGroup(ctx context.Context, c Client, r *kmsg.SyncGroupRequest) (*kmsg.SyncGroupResponse, error) {
	a, code, err := g.call(ctx, c, r.Group, func(m *group.Machine, c group.Context) group.Effects { return m.SyncGroup(c, r) })
	if code != kafka.None {
		a := kmsg.NewPtrSyncGroupResponse()
		a.ErrorCode = int16(code)
		return a, nil
	}
	return answer[*kmsg.SyncGroupResponse](a, err)
}

// Heartbeat keeps a member's session. While groups are loaded any member is
// taken to be fine.
func (g *Groups) Heartbeat(ctx context.Context, c Client, r *kmsg.HeartbeatRequest) (*kmsg.HeartbeatResponse, error) {
	a, code, err := g.call(ctx, c, r.Group, func(m *group.Machine, c group.Context) group.Effects { return m.Heartbeat(c, r) })
	if code != kafka.None {
		if code == kafka.ErrCoordinatorLoadInProgress {
			code = kafka.None
		}
		a := kmsg.NewPtrHeartbeatResponse()
		a.ErrorCode = int16(code)
		return a, nil
	}
	return answer[*kmsg.HeartbeatResponse](a, err)
}

// LeaveGroup removes members.
func (g *Groups) LeaveGroup(ctx context.Context, c Client, r *kmsg.LeaveGroupRequest) (*kmsg.LeaveGroupResponse, error) {
	a, code, err := g.call(ctx, c, r.Group, func(m *group.Machine, c group.Context) group.Effects { return m.LeaveGroup(c, r) })
	if code != kafka.None {
		a := kmsg.NewPtrLeaveGroupResponse()
		a.ErrorCode = int16(code)
		return a, nil
	}
	return answer[*kmsg.LeaveGroupResponse](a, err)
}

// OffsetCommit records offsets. Every topic of the request carries its name
// and its id, and exists; the answer's topics do too.
func (g *Groups) OffsetCommit(ctx context.Context, c Client, r *kmsg.OffsetCommitRequest) (*kmsg.OffsetCommitResponse, error) {
	a, code, err := g.call(ctx, c, r.Group, func(m *group.Machine, c group.Context) group.Effects { return m.OffsetCommit(c, r) })
	if code != kafka.None {
		return group.CommitError(r, code), nil
	}
	return answer[*kmsg.OffsetCommitResponse](a, err)
}

// OffsetFetch returns the committed offsets of one group. Topics carry names,
// and ids too when the request asks by id; nil topics ask for everything.
func (g *Groups) OffsetFetch(ctx context.Context, c Client, r *kmsg.OffsetFetchRequestGroup, requireStable bool) (kmsg.OffsetFetchResponseGroup, error) {
	a, code, err := g.call(ctx, c, r.Group, func(m *group.Machine, c group.Context) group.Effects {
		return m.OffsetFetch(c, r, requireStable)
	})
	if code != kafka.None {
		a := kmsg.NewOffsetFetchResponseGroup()
		a.Group, a.ErrorCode = r.Group, int16(group.FetchError(code))
		return a, nil
	}
	if err != nil {
		return kmsg.OffsetFetchResponseGroup{}, err
	}
	return a.(*kmsg.OffsetFetchResponse).Groups[0], nil
}

// OffsetDelete deletes offsets of a group.
func (g *Groups) OffsetDelete(ctx context.Context, c Client, r *kmsg.OffsetDeleteRequest) (*kmsg.OffsetDeleteResponse, error) {
	a, code, err := g.call(ctx, c, r.Group, func(m *group.Machine, c group.Context) group.Effects { return m.OffsetDelete(c, r) })
	if code != kafka.None {
		a := kmsg.NewPtrOffsetDeleteResponse()
		a.ErrorCode = int16(code)
		return a, nil
	}
	return answer[*kmsg.OffsetDeleteResponse](a, err)
}

// DeleteGroups deletes groups. Rows come partition by partition, not in the
// order of the request.
func (g *Groups) DeleteGroups(ctx context.Context, c Client, ids []string) ([]kmsg.DeleteGroupsResponseGroup, error) {
	var rows []kmsg.DeleteGroupsResponseGroup
	for _, part := range g.byPartition(ids) {
		a, code, err := g.call(ctx, c, part[0], func(m *group.Machine, c group.Context) group.Effects { return m.DeleteGroups(c, part) })
		if err != nil {
			return nil, err
		}
		if code == kafka.None {
			rows = append(rows, a.(*kmsg.DeleteGroupsResponse).Groups...)
			continue
		}
		for _, id := range part {
			row := kmsg.NewDeleteGroupsResponseGroup()
			row.Group, row.ErrorCode = id, int16(code)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// DescribeGroups describes classic groups in the words of a version of the API.
func (g *Groups) DescribeGroups(ids []string, version int16) []kmsg.DescribeGroupsResponseGroup {
	var rows []kmsg.DescribeGroupsResponseGroup
	for _, part := range g.byPartition(ids) {
		code := kafka.ErrNotCoordinator
		if s := g.shard(g.PartitionFor(part[0])); s != nil {
			code = s.read(func(m *group.Machine) {
				for _, id := range part {
					rows = append(rows, m.DescribeGroup(id, version))
				}
			})
		}
		if code == kafka.None {
			continue
		}
		for _, id := range part {
			row := kmsg.NewDescribeGroupsResponseGroup()
			row.Group, row.ErrorCode = id, int16(code)
			rows = append(rows, row)
		}
	}
	return rows
}

// ListGroups lists the groups of this coordinator. A partition that is being
// loaded fails the request, since its groups would be missing.
func (g *Groups) ListGroups(states, types []string) ([]kmsg.ListGroupsResponseGroup, kafka.ErrorCode) {
	rows := []kmsg.ListGroupsResponseGroup{}
	for _, s := range g.all() {
		code := s.read(func(m *group.Machine) { rows = append(rows, m.ListGroups(states, types)...) })
		if code != kafka.None && code != kafka.ErrNotCoordinator {
			return nil, code
		}
	}
	return rows, kafka.None
}

// TopicsDeleted deletes the offsets of topics that are gone, in all groups.
func (g *Groups) TopicsDeleted(topics []group.DeletedTopic) {
	for _, s := range g.all() {
		s.mu.Lock()
		if s.state == active {
			s.applyLocked(s.machine.TopicsDeleted(topics))
			s.rearmLocked()
		}
		s.mu.Unlock()
	}
}

// byPartition splits ids by the partition of their groups, in the order in
// which the partitions first come up.
func (g *Groups) byPartition(ids []string) [][]string {
	var parts [][]string
	index := map[int32]int{}
	for _, id := range ids {
		p := g.PartitionFor(id)
		i, ok := index[p]
		if !ok {
			i = len(parts)
			index[p] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], id)
	}
	return parts
}

// answer gives a response its type.
func answer[R kmsg.Response](a kmsg.Response, err error) (R, error) {
	if err != nil {
		var none R
		return none, err
	}
	return a.(R), nil
}
