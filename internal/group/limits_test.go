package group

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

// TestWhatAMemberBringsIsBounded: its metadata and an assignment are kept in
// memory and written into one record.
func TestWhatAMemberBringsIsBounded(t *testing.T) {
	join := func(group string, metadata int) kafka.ErrorCode {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Group, r.ProtocolType, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = group, "consumer", 10_000, 10_000
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = "range", make([]byte, metadata)
		r.Protocols = append(r.Protocols, p)
		return New(DefaultConfig()).checkJoin(r)
	}
	if got := join("g", maxMemberMetadata-len("range")); got != kafka.None {
		t.Errorf("1 MiB of metadata: %v", got)
	}
	if got := join("g", maxMemberMetadata); got != kafka.ErrInvalidRequest {
		t.Errorf("more than 1 MiB of metadata: %v, want INVALID_REQUEST", got)
	}
	if got := join(strings.Repeat("g", maxID+1), 10); got != kafka.ErrInvalidRequest {
		t.Errorf("a group id of 1025 bytes: %v, want INVALID_REQUEST", got)
	}
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group = "g"
	for range 5 {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberAssignment = make([]byte, 1<<20)
		r.GroupAssignment = append(r.GroupAssignment, a)
	}
	fx := New(DefaultConfig()).SyncGroup(Context{Waiter: 1}, r)
	if len(fx.Replies) != 1 || fx.Replies[0].Response.(*kmsg.SyncGroupResponse).ErrorCode != int16(kafka.ErrInvalidRequest) {
		t.Errorf("5 MiB of assignments: %+v, want INVALID_REQUEST", fx.Replies)
	}
}
