package commitlog

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
)

// es makes epochs of pairs: epoch, start.
func es(pairs ...int) []checkpoint.Epoch {
	var out []checkpoint.Epoch
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, checkpoint.Epoch{Epoch: kafka.LeaderEpoch(pairs[i]), Start: kafka.Offset(pairs[i+1])})
	}
	return out
}

func epochsOf(e ...checkpoint.Epoch) *epochCache {
	c := new(epochCache)
	c.store(e)
	return c
}

func TestEpochCacheAssign(t *testing.T) {
	tests := []struct {
		name        string
		have        []checkpoint.Epoch
		epoch       kafka.LeaderEpoch
		start       kafka.Offset
		wantChanged bool
		want        []checkpoint.Epoch
	}{
		{"first epoch", nil, 0, 0, true, es(0, 0)},
		{"next epoch", es(0, 0), 2, 10, true, es(0, 0, 2, 10)},
		{"same epoch later on changes nothing", es(0, 0, 2, 10), 2, 15, false, es(0, 0, 2, 10)},
		{"same epoch earlier replaces it", es(0, 0, 2, 10), 2, 5, true, es(0, 0, 2, 5)},
		{"an idle leader change at one offset keeps the newer epoch", es(0, 0, 2, 10), 3, 10, true, es(0, 0, 3, 10)},
		{"an older epoch drops what is newer", es(0, 0, 2, 10, 4, 20), 1, 30, true, es(0, 0, 1, 30)},
		{"an earlier start drops later starts", es(0, 0, 2, 10, 4, 20), 5, 10, true, es(0, 0, 5, 10)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := epochsOf(tt.have...)
			if got := c.assign(tt.epoch, tt.start); got != tt.wantChanged {
				t.Errorf("assign(%d, %d) = %v, want %v", tt.epoch, tt.start, got, tt.wantChanged)
			}
			if diff := cmp.Diff(tt.want, c.load()); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEpochCacheTruncate(t *testing.T) {
	have := es(0, 0, 2, 10, 4, 20)
	tests := []struct {
		name    string
		op      func(*epochCache) bool
		changed bool
		want    []checkpoint.Epoch
	}{
		{"end behind the last start keeps all", func(c *epochCache) bool { return c.truncateFromEnd(21) }, false, have},
		{"end at a start drops that entry", func(c *epochCache) bool { return c.truncateFromEnd(20) }, true, have[:2]},
		{"end inside an epoch keeps it", func(c *epochCache) bool { return c.truncateFromEnd(11) }, true, have[:2]},
		{"end 0 drops all", func(c *epochCache) bool { return c.truncateFromEnd(0) }, true, []checkpoint.Epoch{}},
		{"a negative end is ignored", func(c *epochCache) bool { return c.truncateFromEnd(-1) }, false, have},
		{"start at the first entry keeps all", func(c *epochCache) bool { return c.truncateFromStart(0) }, false, have},
		{"start inside an epoch moves it", func(c *epochCache) bool { return c.truncateFromStart(15) }, true, es(2, 15, 4, 20)},
		{"start at a later entry drops what is before", func(c *epochCache) bool { return c.truncateFromStart(20) }, true, es(4, 20)},
		{"start behind all moves the last", func(c *epochCache) bool { return c.truncateFromStart(99) }, true, es(4, 99)},
		{"clear", (*epochCache).clear, true, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := epochsOf(have...)
			if got := tt.op(c); got != tt.changed {
				t.Errorf("changed = %v, want %v", got, tt.changed)
			}
			if diff := cmp.Diff(tt.want, c.load()); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEpochCacheEndOffset(t *testing.T) {
	c := epochsOf(checkpoint.Epoch{Epoch: 2, Start: 10}, checkpoint.Epoch{Epoch: 4, Start: 20}, checkpoint.Epoch{Epoch: 7, Start: 30})
	tests := []struct {
		name      string
		requested kafka.LeaderEpoch
		epoch     kafka.LeaderEpoch
		end       kafka.Offset
	}{
		{"no epoch asked for", -1, -1, -1},
		{"the latest ends at the log end", 7, 7, 40},
		{"above all known is unknown", 8, -1, -1},
		{"below all known ends where the first begins", 1, 1, 10},
		{"a known epoch ends where the next begins", 2, 2, 20},
		{"an epoch between two is answered by the lower one", 5, 4, 30},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if e, end := c.endOffset(tt.requested, 40); e != tt.epoch || end != tt.end {
				t.Errorf("endOffset(%d) = (%d, %d), want (%d, %d)", tt.requested, e, end, tt.epoch, tt.end)
			}
		})
	}
	for offset, want := range map[kafka.Offset]kafka.LeaderEpoch{9: -1, 10: 2, 19: 2, 20: 4, 99: 7} {
		if got, _ := c.forOffset(offset); got != want {
			t.Errorf("forOffset(%d) = %d, want %d", offset, got, want)
		}
	}
}
