package group

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

func show(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}

// formatRecord prints a record for scripts.
func formatRecord(r Record) string {
	k, err := DecodeKey(r.Key)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "type %d %s", k.Type, k.Group)
	if k.Topic != "" {
		fmt.Fprintf(&b, " %s-%d", k.Topic, k.Partition)
	}
	if r.Value == nil {
		return b.String() + " tombstone"
	}
	switch k.Type {
	case OffsetCommitKey:
		v, err := DecodeOffset(r.Value)
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, " v%d offset=%d epoch=%d metadata=%q at=%d", v.Version, v.Offset, v.LeaderEpoch, v.Metadata, v.CommitTimestamp)
		if v.Version == 1 {
			fmt.Fprintf(&b, " expires=%d", v.ExpireTimestamp)
		}
	case GroupMetadataKey:
		v, err := DecodeGroup(r.Value)
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, " v%d type=%q generation=%d protocol=%s leader=%s since=%d", v.Version, v.ProtocolType, v.Generation, show(v.Protocol), show(v.Leader), v.CurrentStateTimestamp)
		for _, m := range v.Members {
			fmt.Fprintf(&b, "\n  member %s instance=%s client=%s host=%s rebalance=%d session=%d subscription=%q assignment=%q",
				m.MemberID, show(m.InstanceID), m.ClientID, m.ClientHost, m.RebalanceTimeoutMillis, m.SessionTimeoutMillis, m.Subscription, m.Assignment)
		}
	}
	return b.String()
}

// formatResponse prints an answer for scripts.
func formatResponse(r kmsg.Response) string {
	var b strings.Builder
	code := func(c int16) string { return kafka.ErrorCode(c).String() }
	switch r := r.(type) {
	case *kmsg.JoinGroupResponse:
		if r.ErrorCode != 0 && r.Generation == -1 {
			return fmt.Sprintf("join %s member=%q", code(r.ErrorCode), r.MemberID)
		}
		fmt.Fprintf(&b, "join %s generation=%d type=%s protocol=%s leader=%q member=%q", code(r.ErrorCode), r.Generation, show(r.ProtocolType), show(r.Protocol), r.LeaderID, r.MemberID)
		if r.SkipAssignment {
			b.WriteString(" skip-assignment")
		}
		for _, m := range r.Members {
			fmt.Fprintf(&b, "\n  %s instance=%s metadata=%q", m.MemberID, show(m.InstanceID), m.ProtocolMetadata)
		}
	case *kmsg.SyncGroupResponse:
		fmt.Fprintf(&b, "sync %s type=%s protocol=%s assignment=%q", code(r.ErrorCode), show(r.ProtocolType), show(r.Protocol), r.MemberAssignment)
	case *kmsg.HeartbeatResponse:
		fmt.Fprintf(&b, "heartbeat %s", code(r.ErrorCode))
	case *kmsg.LeaveGroupResponse:
		fmt.Fprintf(&b, "leave %s", code(r.ErrorCode))
		for _, m := range r.Members {
			fmt.Fprintf(&b, "\n  %q instance=%s %s", m.MemberID, show(m.InstanceID), code(m.ErrorCode))
		}
	case *kmsg.OffsetCommitResponse:
		b.WriteString("commit")
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d=%s", t.Topic, p.Partition, code(p.ErrorCode))
			}
		}
	case *kmsg.OffsetFetchResponse:
		g := r.Groups[0]
		fmt.Fprintf(&b, "fetch %s", code(g.ErrorCode))
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, "\n  %s-%d %s offset=%d epoch=%d metadata=%q", t.Topic, p.Partition, code(p.ErrorCode), p.Offset, p.LeaderEpoch, deref(p.Metadata))
			}
		}
	case *kmsg.OffsetDeleteResponse:
		fmt.Fprintf(&b, "offset-delete %s", code(r.ErrorCode))
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d=%s", t.Topic, p.Partition, code(p.ErrorCode))
			}
		}
	case *kmsg.DeleteGroupsResponse:
		b.WriteString("delete")
		for _, g := range r.Groups {
			fmt.Fprintf(&b, " %s=%s", g.Group, code(g.ErrorCode))
		}
	default:
		fmt.Fprintf(&b, "%T", r)
	}
	return b.String()
}
