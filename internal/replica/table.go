package replica

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/varvelog/varve/internal/kafka"
)

// tableShards bounds the copying of a change to a part of the table.
const tableShards = 256

// Topic is a topic with the partitions that have a replica on this broker. It
// ends with the topic: one that is made under the name later is another Topic.
type Topic struct {
	Name       string
	ID         kafka.TopicID
	partitions atomic.Pointer[[]*Partition] // by number; nil where there is none
}

// Partition returns partition n, nil when this broker has no replica of it.
func (t *Topic) Partition(n int32) *Partition {
	list := *t.partitions.Load()
	if n < 0 || int(n) >= len(list) {
		return nil
	}
	return list[n]
}

// Partitions lists the partitions by number; nil where there is none here. The
// slice must not be changed.
func (t *Topic) Partitions() []*Partition { return *t.partitions.Load() }

// table finds topics by name and by id without a lock or an allocation. The
// Manager, which changes it, holds its own mutex.
type table struct {
	seed  maphash.Seed
	names [tableShards]atomic.Pointer[map[string]*Topic]
	ids   [tableShards]atomic.Pointer[map[kafka.TopicID]*Topic]
}

func newTable() *table { return &table{seed: maphash.MakeSeed()} }

func (t *table) byName(name string) *Topic {
	if m := t.names[maphash.String(t.seed, name)%tableShards].Load(); m != nil {
		return (*m)[name]
	}
	return nil
}

// byNameBytes is byName for a name that is still in a request.
func (t *table) byNameBytes(name []byte) *Topic {
	if m := t.names[maphash.Bytes(t.seed, name)%tableShards].Load(); m != nil {
		return (*m)[string(name)]
	}
	return nil
}

func (t *table) byID(id kafka.TopicID) *Topic {
	if m := t.ids[id[len(id)-1]].Load(); m != nil {
		return (*m)[id]
	}
	return nil
}

func (t *table) add(topic *Topic) {
	replace(&t.names[maphash.String(t.seed, topic.Name)%tableShards], topic.Name, topic)
	replace(&t.ids[topic.ID[len(topic.ID)-1]], topic.ID, topic)
}

// remove takes the topic out, and leaves another one that has its name now.
func (t *table) remove(topic *Topic) {
	if t.byName(topic.Name) == topic {
		replace(&t.names[maphash.String(t.seed, topic.Name)%tableShards], topic.Name, nil)
	}
	if t.byID(topic.ID) == topic {
		replace(&t.ids[topic.ID[len(topic.ID)-1]], topic.ID, nil)
	}
}

// replace publishes a copy of one shard with key set to topic, or without it.
func replace[K comparable](shard *atomic.Pointer[map[K]*Topic], key K, topic *Topic) {
	next := map[K]*Topic{}
	if old := shard.Load(); old != nil {
		for k, v := range *old {
			next[k] = v
		}
	}
	if topic != nil {
		next[key] = topic
	} else {
		delete(next, key)
	}
	shard.Store(&next)
}

// all lists the topics, in no order.
func (t *table) all() []*Topic {
	var list []*Topic
	for i := range t.names {
		if m := t.names[i].Load(); m != nil {
			for _, topic := range *m {
				list = append(list, topic)
			}
		}
	}
	return list
}
