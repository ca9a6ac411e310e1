package coordinator

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// The tests of this file are public bugs of Kafka and its relatives, one each,
// by the name under which the story can be looked up; docs/regressions.md has
// the whole list.

func TestKAFKA8069ExpiryCountsFromTheCommitAlsoAfterARestart(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		g.mustCommit(t, "simple", 0, 7)
		time.Sleep(6 * 24 * time.Hour)
		g.Load(0, l)
		synctest.Wait()
		time.Sleep(12 * time.Hour)
		if got, code := g.mustFetch(t, "simple"); got[0] != 7 || code != kafka.None {
			t.Errorf("half a day before its time: %v, %v; want 7", got, code)
		}
		time.Sleep(24 * time.Hour)
		if got, _ := g.mustFetch(t, "simple"); got[0] != -1 {
			t.Errorf("half a day after its time: %v, want none", got)
		}
	})
}

func TestKAFKA9065LoadingEndsAtAGap(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		g.mustCommit(t, "g", 0, 7)
		l.mu.Lock()
		l.end += 100 // compacted away
		l.high = l.end
		l.mu.Unlock()
		g.Load(0, l)
		synctest.Wait()
		if got, code := g.mustFetch(t, "g"); got[0] != 7 || code != kafka.None {
			t.Errorf("OffsetFetch = %v, %v; want 7", got, code)
		}
		if code := g.mustCommit(t, "g", 0, 8); code != kafka.None {
			t.Errorf("OffsetCommit = %v", code)
		}
	})
}

// text is a string as the keys of __consumer_offsets hold it.
func text(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

func TestKAFKA17306TombstonesOfTheUnknownAreSkipped(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		g.mustCommit(t, "g", 0, 7)
		var b record.Builder
		o := record.NewBuildOptions()
		b.Reset(o)
		for kind := range uint16(16) {
			key := text(binary.BigEndian.AppendUint16(nil, kind), "nobody")
			switch kind {
			case 0, 1: // an offset
				key = binary.BigEndian.AppendUint32(text(key, "t"), 0)
			case 5, 7, 8: // a member and its assignments
				key = text(key, "m")
			}
			b.Append(kafka.TimestampOf(time.Now()), key, nil, nil)
		}
		buf, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(buf); err != nil {
			t.Fatal(err)
		}
		g.mustCommit(t, "g", 1, 9)
		g.Load(0, l)
		synctest.Wait()
		if got, code := g.mustFetch(t, "g"); got != [2]int64{7, 9} || code != kafka.None {
			t.Errorf("OffsetFetch = %v, %v; want 7 and 9", got, code)
		}
	})
}

func TestKAFKA9752AMemberThatDiesInItsFirstJoinDoesNotHoldTheOthers(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, _ *memLog) {
		first := g.mustJoin(t, "c0", "")
		g.mustSync(t, first)
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			r := kmsg.NewPtrJoinGroupRequest()
			r.Version, r.Group, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = 3, "g", 10000, 30000, "consumer"
			r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 1, 0, 1, 't'}}}
			_, err := g.JoinGroup(ctx, Client{"c1", "/127.0.0.1"}, r)
			gone <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		j := first
		for range 200 { // ten minutes of a client that does as it is told
			switch g.mustBeat(t, j) {
			case kafka.None:
			case kafka.ErrRebalanceInProgress:
				j = g.mustJoin(t, "c0", j.MemberID)
				g.mustSync(t, j)
			default:
				t.Fatal("the living member was thrown out")
			}
			time.Sleep(3 * time.Second)
		}
		rows := g.DescribeGroups([]string{"g"}, 5)
		if len(rows[0].Members) != 1 || rows[0].State != "Stable" {
			t.Errorf("group is %s with %d members, want Stable with 1", rows[0].State, len(rows[0].Members))
		}
	})
}

func TestKAFKA10284AReturnedStaticMemberIsKnownAfterTheCoordinatorMoved(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		instance := "one"
		join := func() *kmsg.JoinGroupResponse {
			r := kmsg.NewPtrJoinGroupRequest()
			r.Version, r.Group, r.InstanceID, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = 7, "g", &instance, 10000, 30000, "consumer"
			r.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte{0, 0, 0, 0, 0, 1, 0, 1, 't'}}}
			a, err := g.JoinGroup(t.Context(), Client{"c", "/127.0.0.1"}, r)
			if err != nil || a.ErrorCode != 0 {
				t.Fatalf("JoinGroup = %+v, %v", a, err)
			}
			return a
		}
		old := join()
		g.mustSync(t, old)
		back := join()
		if back.MemberID == old.MemberID {
			t.Fatal("the returned member has its old id")
		}
		g.Load(0, l)
		synctest.Wait()
		beat := func(id string) kafka.ErrorCode {
			r := kmsg.NewPtrHeartbeatRequest()
			r.Version, r.Group, r.MemberID, r.InstanceID, r.Generation = 4, "g", id, &instance, back.Generation
			a, err := g.Heartbeat(t.Context(), Client{}, r)
			if err != nil {
				t.Fatal(err)
			}
			return kafka.ErrorCode(a.ErrorCode)
		}
		if code := beat(back.MemberID); code != kafka.None {
			t.Errorf("Heartbeat of the new member id = %v, want NONE", code)
		}
		if code := beat(old.MemberID); code != kafka.ErrFencedInstanceID {
			t.Errorf("Heartbeat of the old member id = %v, want FENCED_INSTANCE_ID", code)
		}
	})
}

func TestKAFKA15755AnOldLeaveGroupWithAnErrorIsAnsweredWell(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, _ *memLog) {
		g.mustSync(t, g.mustJoin(t, "c0", ""))
		for version := range int16(3) {
			r := kmsg.NewPtrLeaveGroupRequest()
			r.Version, r.Group, r.MemberID = version, "g", "nobody"
			a, err := g.LeaveGroup(t.Context(), Client{}, r)
			if err != nil || kafka.ErrorCode(a.ErrorCode) != kafka.ErrUnknownMemberID {
				t.Errorf("version %d: %+v, %v; want UNKNOWN_MEMBER_ID at the top", version, a, err)
				continue
			}
			a.Version = version
			back := kmsg.NewPtrLeaveGroupResponse()
			back.Version = version
			if err := back.ReadFrom(a.AppendTo(nil)); err != nil || back.ErrorCode != a.ErrorCode {
				t.Errorf("version %d: read back %+v, %v", version, back, err)
			}
		}
	})
}

func TestKAFKA16030LoadingStopsWhenThePartitionGoes(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, l *memLog) {
		g.mustCommit(t, "g", 0, 7)
		reading := make(chan struct{})
		l.mu.Lock()
		l.reading = reading
		l.mu.Unlock()
		g.Load(0, l)
		synctest.Wait()
		if code := g.mustCommit(t, "g", 0, 8); code != kafka.ErrCoordinatorLoadInProgress {
			t.Errorf("while it loads: %v, want COORDINATOR_LOAD_IN_PROGRESS", code)
		}
		g.Unload(0)
		close(reading)
		synctest.Wait()
		if code := g.mustCommit(t, "g", 0, 8); code != kafka.ErrNotCoordinator {
			t.Errorf("after it went: %v, want NOT_COORDINATOR", code)
		}
	})
}

func TestNisshiAFewMissedHeartbeatsInARebalanceAreForgiven(t *testing.T) {
	start(t, options(), func(t *testing.T, g *Groups, _ *memLog) {
		first := g.mustJoin(t, "c0", "")
		g.mustSync(t, first)
		joined := make(chan *kmsg.JoinGroupResponse, 1)
		go func() { joined <- g.mustJoin(t, "c1", "") }()
		time.Sleep(9 * time.Second) // of a session of ten
		if code := g.mustBeat(t, first); code != kafka.ErrRebalanceInProgress {
			t.Fatalf("Heartbeat = %v, want REBALANCE_IN_PROGRESS: it is still a member", code)
		}
		time.Sleep(9 * time.Second)
		again := g.mustJoin(t, "c0", first.MemberID)
		second := <-joined
		if again.MemberID != first.MemberID || again.Generation != second.Generation || again.Generation != 2 {
			t.Errorf("generation %d as %s, the other in %d; want both in 2, the first as %s", again.Generation, again.MemberID, second.Generation, first.MemberID)
		}
	})
}
