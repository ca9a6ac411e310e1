package cleaner

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
)

func TestOffsetMapAgainstAMap(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		memory := int64(entrySize * (2 + rng.IntN(3000)))
		m := newOffsetMap(memory, 0.5+rng.Float64()/2, int64(rng.IntN(4000)))
		model := map[string]kafka.Offset{}
		full := false
		for offset := range kafka.Offset(3000) {
			key := fmt.Sprint(rng.IntN(1 + rng.IntN(2500)))
			ok := m.put([]byte(key), offset)
			_, known := model[key]
			if known && !ok {
				t.Fatalf("seed %d: put(%q) of a known key refused", seed, key)
			}
			if ok {
				if full && !known {
					t.Fatalf("seed %d: put(%q) taken after the map was full", seed, key)
				}
				model[key] = offset
			}
			full = full || !ok
			if used := int64(len(m.slots)) * entrySize; used > memory {
				t.Fatalf("seed %d: %d bytes used of %d", seed, used, memory)
			}
		}
		if len(model) != m.used || m.used > m.usable {
			t.Errorf("seed %d: %d keys of %d usable, want %d", seed, m.used, m.usable, len(model))
		}
		if full && 3*m.used < int(memory/entrySize)/4 {
			t.Errorf("seed %d: full with %d keys in memory for %d", seed, m.used, memory/entrySize)
		}
		for key, want := range model {
			if got := m.get([]byte(key)); got != want {
				t.Fatalf("seed %d: get(%q) = %d, want %d", seed, key, got, want)
			}
		}
		if got := m.get([]byte("not there")); got != kafka.NoOffset {
			t.Errorf("seed %d: get of a key that is not there = %d", seed, got)
		}
	}
}

func TestOffsetMapKeepsTheNewestOffset(t *testing.T) {
	m := newOffsetMap(1<<10, 0.9, 10)
	for _, o := range []kafka.Offset{5, 9, 7} {
		m.put([]byte("k"), o)
	}
	if got := m.get([]byte("k")); got != 9 {
		t.Errorf("get = %d, want 9", got)
	}
}

func TestOffsetMapOfExpectedSizeUsesAllItsMemory(t *testing.T) {
	m := newOffsetMap(entrySize*10_000, 0.9, 1<<40)
	if m.usable != 9000 {
		t.Errorf("usable = %d, want 9000", m.usable)
	}
}

func BenchmarkOffsetMapPut(b *testing.B) {
	b.ReportAllocs()
	m := newOffsetMap(128<<20, 0.9, 1<<40)
	key := []byte("key-00000000")
	var n uint32
	for b.Loop() {
		n++
		for i, v := len(key)-1, n%4_000_000; v > 0; i, v = i-1, v/10 {
			key[i] = '0' + byte(v%10)
		}
		m.put(key, kafka.Offset(n))
	}
}
