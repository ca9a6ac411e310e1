package broker

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/wire"
)

func TestSessionEpochsCountFromOneAgain(t *testing.T) {
	for _, tt := range []struct{ epoch, want int32 }{{1, 2}, {math.MaxInt32 - 1, math.MaxInt32}, {math.MaxInt32, 1}} {
		if got := nextEpoch(tt.epoch); got != tt.want {
			t.Errorf("nextEpoch(%d) = %d, want %d", tt.epoch, got, tt.want)
		}
	}
}

// sized is a session with n partitions.
func sized(n int, privileged bool, now time.Time) *session {
	s := newSession(false, privileged, now)
	for i := range n {
		s.set([]byte("t"), [16]byte{}, &wire.FetchPartition{Index: int32(i)})
	}
	return s
}

func TestAFullCacheMakesRoomByKafkasRules(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	tests := []struct {
		name     string
		there    *session
		age      time.Duration // since it was created
		unused   time.Duration
		newcomer *session
		admitted bool
	}{
		{"a session in use stays", sized(1, false, now), time.Minute, 0, sized(9, false, now), false},
		{"a session unused for two minutes stays", sized(9, false, now), 2 * time.Minute, 2 * time.Minute, sized(1, false, now), false},
		{"a session unused for longer goes", sized(9, false, now), 3 * time.Minute, 2*time.Minute + 1, sized(1, false, now), true},
		{"a follower's takes a client's place", sized(9, false, now), 0, 0, sized(1, true, now), true},
		{"a client's does not take a follower's", sized(1, true, now), time.Hour, 0, sized(9, false, now), false},
		{"a larger one takes the place of an old one", sized(1, false, now), 2*time.Minute + 1, 0, sized(2, false, now), true},
		{"one of the same size does not", sized(2, false, now), time.Hour, 0, sized(2, false, now), false},
		{"a larger one does not take the place of a young one", sized(1, false, now), time.Minute, 0, sized(2, false, now), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newSessionCache(func() int { return 1 })
			if !c.add(tt.there, now) {
				t.Fatal("an empty cache has no room")
			}
			tt.there.created, tt.there.used = now.Add(-tt.age), now.Add(-tt.unused)
			if got := c.add(tt.newcomer, now); got != tt.admitted {
				t.Fatalf("admitted %v, want %v", got, tt.admitted)
			}
			if found := c.find(tt.there.id) != nil; found == tt.admitted {
				t.Errorf("the session that was there is found: %v", found)
			}
			if tt.there.ended.Load() != tt.admitted {
				t.Errorf("ended %v, want %v", tt.there.ended.Load(), tt.admitted)
			}
		})
	}
}

func TestSessionIDsArePositiveAndDiffer(t *testing.T) {
	c := newSessionCache(func() int { return 100 })
	seen := map[int32]bool{}
	for range 100 {
		s := sized(1, false, time.Unix(0, 0))
		if !c.add(s, time.Unix(0, 0)) || s.id <= 0 || seen[s.id] {
			t.Fatalf("session id %d, seen before: %v", s.id, seen[s.id])
		}
		seen[s.id] = true
	}
}

func TestSessionsOfOneAddressAreBounded(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	c := newSessionCache(func() int { return 100 })
	here, there := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")
	begin := func(from netip.Addr, n int) (*session, bool) {
		s := sized(n, false, now)
		s.from = from
		return s, c.add(s, now)
	}
	const half = maxSessionPartitions / 2
	first, _ := begin(here, half)
	second, ok := begin(here, maxSessionPartitions-half)
	if !ok {
		t.Fatal("no room for what the bound allows")
	}
	if _, ok := begin(here, 1); ok {
		t.Error("more than the bound was admitted")
	}
	if c.hasRoom(here, 1) || !c.hasRoom(there, maxSessionPartitions) {
		t.Error("room is not counted by address")
	}
	if !c.touch(first, half, now) || c.touch(first, half+1, now) {
		t.Error("a session within its size was refused, or one that grew was not")
	}
	c.drop(first)
	if !c.touch(first, half+9, now) || !c.hasRoom(here, half) {
		t.Error("a session that has ended is still counted")
	}
	c.remove(second.id)
	if len(c.partitions) != 0 {
		t.Errorf("partitions of no session are counted: %v", c.partitions)
	}
}
