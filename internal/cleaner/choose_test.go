package cleaner

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
)

// segs are segments of 100 bytes at the given bases, the last one active; the
// newest record of each is as old as its offset says.
func segs(bases ...kafka.Offset) []segmentView {
	var list []segmentView
	for _, b := range bases {
		list = append(list, segmentView{base: b, size: 100, first: kafka.Timestamp(b + 1), largest: kafka.Timestamp(b + 9)})
	}
	return list
}

func TestExtent(t *testing.T) {
	const never = math.MaxInt64
	const none = kafka.NoOffset
	tests := []struct {
		name       string
		view       view
		checkpoint kafka.Offset
		now        kafka.Timestamp
		want       extent
	}{
		{"without a checkpoint everything below the active segment is dirty", view{0, 35, 35, segs(0, 10, 20, 30), 0, never}, none, 40,
			extent{firstDirty: 0, uncleanable: 30, dirtyBytes: 300}},
		{"what is below the checkpoint is clean", view{0, 35, 35, segs(0, 10, 20, 30), 0, never}, 20, 40,
			extent{firstDirty: 20, uncleanable: 30, cleanBytes: 200, dirtyBytes: 100}},
		{"a segment that is clean in part counts on both sides", view{0, 35, 35, segs(0, 10, 20, 30), 0, never}, 15, 40,
			extent{firstDirty: 15, uncleanable: 30, cleanBytes: 200, dirtyBytes: 200}},
		{"the active segment is never cleaned", view{0, 35, 35, segs(0, 10, 20, 30), 0, never}, 30, 40,
			extent{firstDirty: 30, uncleanable: 30, cleanBytes: 300}},
		{"a log of one segment has nothing to clean", view{0, 5, 5, segs(0), 0, never}, none, 40,
			extent{firstDirty: 0, uncleanable: 0}},
		{"a segment that the last stable offset lies in is not cleaned", view{0, 35, 14, segs(0, 10, 20, 30), 0, never}, none, 40,
			extent{firstDirty: 0, uncleanable: 10, dirtyBytes: 100}},
		{"one that ends at the last stable offset is", view{0, 35, 20, segs(0, 10, 20, 30), 0, never}, none, 40,
			extent{firstDirty: 0, uncleanable: 20, dirtyBytes: 200}},
		{"a segment with a record younger than the minimum lag is not cleaned", view{0, 35, 35, segs(0, 10, 20, 30), 15, never}, none, 40,
			extent{firstDirty: 0, uncleanable: 20, dirtyBytes: 200}},
		{"none behind it is either", view{0, 35, 35, []segmentView{{0, 100, 1, 1}, {10, 100, 30, 38}, {20, 100, 2, 2}, {30, 100, 3, 3}}, 15, never}, none, 40,
			extent{firstDirty: 0, uncleanable: 10, dirtyBytes: 100}},
		{"the lag of clean segments does not count", view{0, 35, 35, []segmentView{{0, 100, 30, 39}, {10, 100, 2, 2}, {20, 100, 2, 2}, {30, 100, 3, 3}}, 15, never}, 10, 40,
			extent{firstDirty: 10, uncleanable: 30, cleanBytes: 100, dirtyBytes: 200}},
		{"past the maximum lag a log is overdue", view{0, 35, 35, segs(0, 10, 20, 30), 0, 20}, 10, 40,
			extent{firstDirty: 10, uncleanable: 30, cleanBytes: 100, dirtyBytes: 200, overdue: true}},
		{"at it it is not", view{0, 35, 35, segs(0, 10, 20, 30), 0, 20}, 20, 41,
			extent{firstDirty: 20, uncleanable: 30, cleanBytes: 200, dirtyBytes: 100}},
		{"records without a time are never overdue", view{0, 35, 35, []segmentView{{0, 100, -1, -1}, {10, 100, 0, -1}, {30, 100, 3, 3}}, 0, 20}, none, 400,
			extent{firstDirty: 0, uncleanable: 30, dirtyBytes: 200}},
		{"a checkpoint below the log start is put right", view{12, 35, 35, segs(10, 20, 30), 0, never}, 5, 40,
			extent{firstDirty: 12, uncleanable: 30, cleanBytes: 100, dirtyBytes: 200, reset: true}},
		{"a checkpoint above the log end makes all of it dirty", view{0, 35, 35, segs(0, 10, 20, 30), 0, never}, 36, 40,
			extent{firstDirty: 0, uncleanable: 30, dirtyBytes: 300, reset: true}},
		{"a log start in the active segment leaves nothing to clean", view{33, 35, 35, segs(10, 20, 30), 0, never}, none, 40,
			extent{firstDirty: 33, uncleanable: 30, cleanBytes: 200}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.view.extentOf(tt.checkpoint, tt.now)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(extent{})); diff != "" {
				t.Errorf("extentOf(%d) (-want +got):\n%s", tt.checkpoint, diff)
			}
		})
	}
}

func TestWanted(t *testing.T) {
	tests := []struct {
		name  string
		e     extent
		ratio float64
		want  bool
	}{
		{"more dirty than the ratio", extent{cleanBytes: 49, dirtyBytes: 51}, 0.5, true},
		{"just as dirty is not enough", extent{cleanBytes: 50, dirtyBytes: 50}, 0.5, false},
		{"ratio 0 wants any dirty byte", extent{cleanBytes: 1 << 40, dirtyBytes: 1}, 0, true},
		{"nothing dirty", extent{cleanBytes: 50}, 0, false},
		{"an empty log", extent{}, 0, false},
		{"overdue whatever the ratio", extent{cleanBytes: 99, dirtyBytes: 1, overdue: true}, 0.5, true},
		{"overdue with nothing that may be cleaned", extent{cleanBytes: 99, overdue: true}, 0.5, false},
		{"ratio 1 is never reached", extent{dirtyBytes: 50}, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.e.wanted(tt.ratio); got != tt.want {
				t.Errorf("wanted(%g) = %v, want %v", tt.ratio, got, tt.want)
			}
		})
	}
}

func TestGroup(t *testing.T) {
	s := func(base kafka.Offset, log, index int64, limit kafka.Offset) sized {
		return sized{base: base, log: log, offsets: index, times: index, limit: limit}
	}
	tests := []struct {
		name string
		segs []sized
		want []int // segments in each group
	}{
		{"nothing", nil, nil},
		{"one however large", []sized{s(0, 5000, 500, 10)}, []int{1}},
		{"up to the size of a segment", []sized{s(0, 400, 0, 10), s(10, 600, 0, 20), s(20, 1, 0, 30)}, []int{2, 1}},
		{"up to the size of the offset index", []sized{s(0, 1, 60, 10), s(10, 1, 40, 20), s(20, 1, 1, 30)}, []int{2, 1}},
		{"up to the size of the time index", []sized{{base: 0, times: 60, log: 1, limit: 10}, {base: 10, times: 41, log: 1, limit: 20}}, []int{1, 1}},
		{"offsets as far as one base reaches", []sized{s(0, 1, 0, 10), s(10, 1, 0, 1<<31), s(1<<31, 1, 0, 1<<31+1)}, []int{2, 1}},
		{"the reach counts from the first of the group", []sized{s(0, 1, 0, 1<<30), s(1<<30, 1, 0, 1<<31), s(1<<31, 1, 0, 1<<31+9)}, []int{2, 1}},
		{"an empty one joins whatever its offsets are", []sized{s(0, 1, 0, 1<<40), s(1<<40, 0, 0, 1<<50)}, []int{2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []int
			for _, g := range group(tt.segs, 1000, 100) {
				got = append(got, len(g))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
		})
	}
}
