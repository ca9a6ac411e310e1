package cleaner

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"

	"github.com/varvelog/varve/internal/kafka"
)

// entrySize is the bytes of one slot of an offset map, as in Kafka: 16 of the
// key's hash and 8 of the offset.
const entrySize = 24

// offsetMap says which is the newest offset of a key, for as many keys as fit
// into the memory it may use (Kafka's SkimpyOffsetMap).
//
// A key is known by 16 bytes of its hash: two keys of one hash would lose the
// older one's records. The hash is SHA-256 over a random salt and the key, so
// that such a pair is found neither by chance (one in 2^64 for four billion keys)
// nor, as one of MD5 can be, by somebody who looks for it.
//
// It is an open table with linear probing. It begins small and grows as long as
// both tables of a growth fit into the memory.
type offsetMap struct {
	slots    []slot
	used     int
	usable   int // entries that slots may hold
	maxSlots int
	load     float64
	latest   kafka.Offset // offsets up to here are in the map, as far as they have a key
	salt     [16]byte
	key      []byte // salt and key, for hashing
}

// slot is empty while next is 0.
type slot struct {
	hash [2]uint64
	next kafka.Offset // newest offset + 1
}

// newOffsetMap makes a map of at most memory bytes, of which the share load is
// used, with room for about the keys that are expected.
func newOffsetMap(memory int64, load float64, expected int64) *offsetMap {
	m := &offsetMap{maxSlots: max(2, int(memory/entrySize)), load: load}
	_, _ = rand.Read(m.salt[:]) // it ends the program rather than fail
	m.key = append(m.key, m.salt[:]...)
	const few = 1024
	want := int(min(float64(expected)/load, float64(m.maxSlots)))
	m.resize(min(max(want, few), m.maxSlots))
	return m
}

func (m *offsetMap) resize(n int) {
	old := m.slots
	m.slots = make([]slot, n)
	// One slot stays empty, so that a search ends, and one is used, so that a round gets on.
	m.usable = min(max(1, int(float64(n)*m.load)), n-1)
	for _, s := range old {
		if s.next != 0 {
			m.slots[m.find(s.hash)] = s
		}
	}
}

func (m *offsetMap) hash(key []byte) [2]uint64 {
	m.key = append(m.key[:len(m.salt)], key...)
	sum := sha256.Sum256(m.key)
	return [2]uint64{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

// find returns the slot that holds the hash, or the one it would go to.
func (m *offsetMap) find(hash [2]uint64) int {
	i := int(hash[0] % uint64(len(m.slots)))
	for m.slots[i].next != 0 && m.slots[i].hash != hash {
		if i++; i == len(m.slots) {
			i = 0
		}
	}
	return i
}

// put notes that key has a record at offset. It returns false, and does
// nothing, when the key is a new one and there is no room for it.
func (m *offsetMap) put(key []byte, offset kafka.Offset) bool {
	hash := m.hash(key)
	i := m.find(hash)
	if m.slots[i].next == 0 {
		if m.used == m.usable {
			if n := min(2*len(m.slots), m.maxSlots-len(m.slots)); n > len(m.slots) {
				m.resize(n)
				i = m.find(hash)
			}
		}
		if m.used == m.usable {
			return false
		}
		m.used++
	}
	m.slots[i] = slot{hash, max(m.slots[i].next, offset+1)}
	return true
}

// get returns the newest offset of key, NoOffset when it is not in the map.
func (m *offsetMap) get(key []byte) kafka.Offset { return m.slots[m.find(m.hash(key))].next - 1 }

// reached says that all keys up to offset are in the map.
func (m *offsetMap) reached(offset kafka.Offset) { m.latest = max(m.latest, offset) }
