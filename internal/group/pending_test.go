package group

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
)

func TestIDsThatWereGivenOutAreBounded(t *testing.T) {
	h := newHarness()
	join := func() *kmsg.JoinGroupResponse {
		r := kmsg.NewPtrJoinGroupRequest()
		r.Version, r.Group, r.ProtocolType, r.SessionTimeoutMillis = 5, "g", "consumer", 10_000
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name = "range"
		r.Protocols = append(r.Protocols, p)
		h.replies = nil
		h.apply(h.m.JoinGroup(Context{Waiter: 1, ClientID: strings.Repeat("é", 10_000), Now: h.now}, r))
		if len(h.replies) != 1 {
			t.Fatalf("%d answers to a join", len(h.replies))
		}
		return h.replies[0].Response.(*kmsg.JoinGroupResponse)
	}
	for i := range maxPending {
		a := join()
		if a.ErrorCode != int16(kafka.ErrMemberIDRequired) || len(a.MemberID) > maxIDPrefix+40 || !strings.HasPrefix(a.MemberID, "éé") {
			t.Fatalf("join %d: error %d, member id of %d bytes", i, a.ErrorCode, len(a.MemberID))
		}
	}
	if a := join(); a.ErrorCode != int16(kafka.ErrGroupMaxSizeReached) {
		t.Errorf("one more than the bound: error %d, want %d", a.ErrorCode, kafka.ErrGroupMaxSizeReached)
	}
	h.advance(11_000_000_000)
	if a := join(); a.ErrorCode != int16(kafka.ErrMemberIDRequired) {
		t.Errorf("after the session timeout: error %d", a.ErrorCode)
	}
}
