package group

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// ListGroups lists the groups of this partition. Filters compare without regard
// to case; an empty filter lets everything through, and words that mean nothing
// match nothing.
func (m *Machine) ListGroups(states, types []string) []kmsg.ListGroupsResponseGroup {
	var list []kmsg.ListGroupsResponseGroup
	for _, id := range m.groupIDs() {
		row := kmsg.NewListGroupsResponseGroup()
		row.Group = id
		if g := m.classic[id]; g != nil {
			row.ProtocolType, row.GroupState, row.GroupType = g.protocolType, g.state.String(), Classic.String()
		} else {
			g := m.modern[id]
			row.ProtocolType, row.GroupState, row.GroupType = g.protocolType(), g.state(), g.kind.String()
		}
		if matches(states, row.GroupState) && matches(types, row.GroupType) {
			list = append(list, row)
		}
	}
	return list
}

func matches(filter []string, word string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool {
		return strings.EqualFold(strings.TrimSpace(f), word)
	})
}

// DescribeGroup describes a classic group. A group that is not there is "Dead",
// and from version 6 on an error too.
func (m *Machine) DescribeGroup(id string, version int16) kmsg.DescribeGroupsResponseGroup {
	a := kmsg.NewDescribeGroupsResponseGroup()
	a.Group = id
	g := m.classic[id]
	if g == nil {
		a.State = Dead.String()
		if version >= 6 {
			text := "Group " + id + " not found."
			if m.modern[id] != nil {
				text = "Group " + id + " is not a classic group."
			}
			a.ErrorCode, a.ErrorMessage = int16(kafka.ErrGroupIDNotFound), &text
		}
		return a
	}
	a.State, a.ProtocolType = g.state.String(), g.protocolType
	stable := g.state == Stable
	if stable {
		a.Protocol = deref(g.protocol)
	}
	for _, mb := range g.members {
		row := kmsg.NewDescribeGroupsResponseGroupMember()
		row.MemberID, row.InstanceID = mb.id, mb.instance
		row.ClientID, row.ClientHost = mb.clientID, mb.clientHost
		row.MemberAssignment = mb.assignment
		if stable {
			row.ProtocolMetadata = mb.metadata(deref(g.protocol))
		}
		a.Members = append(a.Members, row)
	}
	return a
}
