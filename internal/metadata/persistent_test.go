package metadata

import (
	"cmp"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestMapAgreesWithBuiltinMapAndOldVersionsStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMap[int, int](cmp.Compare[int])
		model := map[int]int{}
		type version struct {
			m     Map[int, int]
			model map[int]int
		}
		var old []version
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			key := rapid.IntRange(0, 30).Draw(t, "key")
			if rapid.Bool().Draw(t, "delete") {
				m = m.Delete(key)
				delete(model, key)
			} else {
				value := rapid.Int().Draw(t, "value")
				m = m.Set(key, value)
				model[key] = value
			}
			old = append(old, version{m, maps.Clone(model)})
		}
		for _, v := range old {
			checkMap(t, v.m, v.model)
		}
	})
}

func checkMap(t *rapid.T, m Map[int, int], model map[int]int) {
	if m.Len() != len(model) {
		t.Fatalf("Len() = %d, want %d", m.Len(), len(model))
	}
	var keys []int
	for k, v := range m.All() {
		keys = append(keys, k)
		if got, ok := m.Get(k); !ok || got != v || model[k] != v {
			t.Fatalf("Get(%d) = %d, %v, walked %d, want %d", k, got, ok, v, model[k])
		}
	}
	if want := slices.Sorted(maps.Keys(model)); !slices.Equal(keys, want) {
		t.Fatalf("keys %v, want %v", keys, want)
	}
	var from []int
	for k := range m.From(15) {
		from = append(from, k)
	}
	if i, _ := slices.BinarySearch(keys, 15); !slices.Equal(from, keys[i:]) {
		t.Fatalf("From(15) = %v, want %v", from, keys[i:])
	}
	checkHeights(t, m.root)
}

func checkHeights(t *rapid.T, n *mapNode[int, int]) int8 {
	if n == nil {
		return 0
	}
	l, r := checkHeights(t, n.left), checkHeights(t, n.right)
	if d := l - r; d < -1 || d > 1 || n.height != 1+max(l, r) {
		t.Fatalf("node %d: heights %d and %d, says %d", n.key, l, r, n.height)
	}
	return n.height
}
