package node

import (
	"strings"
	"testing"
)

func TestDescriptorsAreSharedOut(t *testing.T) {
	for _, limit := range []int64{0, 16, 64, 256, 1023, 1024, 4096, 20_000, 1 << 20, 1 << 40} {
		b := budgetOf(limit)
		if limit == 0 || limit >= 1<<30 {
			if b != (filesBudget{}) {
				t.Errorf("limit %d: %+v, want the defaults", limit, b)
			}
			continue
		}
		if b.segments < 2 || b.segments > 2048 || b.connections < 8 {
			t.Errorf("limit %d: %+v leaves nothing to work with", limit, b)
		}
		if used := int64(4*b.segments + b.connections); limit >= 64 && used > limit-min(limit/4, 256) {
			t.Errorf("limit %d: %+v uses %d and leaves nothing for partitions", limit, b, used)
		}
	}
}

func TestAStartNamesTheDescriptorsItNeeds(t *testing.T) {
	tests := []struct {
		limit      int64
		partitions int
		want       string
	}{
		{0, 1 << 20, ""}, {64, 10, ""}, {64, 11, "11 partitions need 65"}, {1024, 330, ""}, {1024, 331, "331 partitions need 1025"},
	}
	for _, tt := range tests {
		err := checkFiles(tt.limit, tt.partitions)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("checkFiles(%d, %d) = %v, want %q", tt.limit, tt.partitions, err, tt.want)
		}
	}
}

func TestLowIsToldOnceAndOnceWhenItIsOver(t *testing.T) {
	var w lowWatch
	var told []bool
	for _, used := range []int64{10, 89, 90, 99, 85, 95, 79, 10, 95} {
		if w.look(used, 100) {
			told = append(told, w.low)
		}
	}
	if len(told) != 3 || !told[0] || told[1] || !told[2] {
		t.Errorf("told %v, want low, over, low", told)
	}
}
