package group

import (
	"maps"
	"slices"

	"github.com/varvelog/varve/internal/kafka"
)

// Offset is a committed offset and what was committed with it.
type Offset struct {
	Offset      kafka.Offset
	LeaderEpoch kafka.LeaderEpoch // of the last consumed record, -1 when not known
	Metadata    string
	Committed   kafka.Timestamp
	Expires     kafka.Timestamp // -1: by the broker's retention
	TopicID     kafka.TopicID   // zero when not known
	Record      kafka.Offset    // where in __consumer_offsets it was read or written
}

// isFor reports whether the offset belongs to the topic with that id. An id
// that is not known matches any.
func (o *Offset) isFor(id kafka.TopicID) bool {
	return o.TopicID.IsZero() || id.IsZero() || o.TopicID == id
}

// topicOffsets maps topics and partitions to what is committed.
type topicOffsets map[string]map[int32]*Offset

func (t topicOffsets) get(topic string, partition int32) *Offset { return t[topic][partition] }

func (t topicOffsets) put(topic string, partition int32, o *Offset) (was *Offset) {
	p := t[topic]
	if p == nil {
		p = map[int32]*Offset{}
		t[topic] = p
	}
	was = p[partition]
	p[partition] = o
	return was
}

func (t topicOffsets) remove(topic string, partition int32) (was *Offset) {
	p := t[topic]
	if was = p[partition]; was == nil {
		return nil
	}
	if delete(p, partition); len(p) == 0 {
		delete(t, topic)
	}
	return was
}

// each visits the offsets sorted by topic and partition.
func (t topicOffsets) each(f func(topic string, partition int32, o *Offset)) {
	for _, topic := range slices.Sorted(maps.Keys(t)) {
		for _, partition := range slices.Sorted(maps.Keys(t[topic])) {
			f(topic, partition, t[topic][partition])
		}
	}
}

// offsets is the store of all groups' offsets: those that count, and those of
// transactions that are still open, by producer.
type offsets struct {
	groups  map[string]topicOffsets
	pending map[kafka.ProducerID]map[string]topicOffsets
	written map[string]kafka.Offset // group → end of its latest offset record
	count   int
}

func newOffsets() offsets {
	return offsets{
		groups:  map[string]topicOffsets{},
		pending: map[kafka.ProducerID]map[string]topicOffsets{},
		written: map[string]kafka.Offset{},
	}
}

func (s *offsets) put(group, topic string, partition int32, o *Offset) {
	t := s.groups[group]
	if t == nil {
		t = topicOffsets{}
		s.groups[group] = t
	}
	if t.put(topic, partition, o) == nil {
		s.count++
	}
}

func (s *offsets) putPending(pid kafka.ProducerID, group, topic string, partition int32, o *Offset) {
	groups := s.pending[pid]
	if groups == nil {
		groups = map[string]topicOffsets{}
		s.pending[pid] = groups
	}
	if groups[group] == nil {
		groups[group] = topicOffsets{}
	}
	groups[group].put(topic, partition, o)
}

// remove deletes an offset, and what open transactions want it to become.
func (s *offsets) remove(group, topic string, partition int32) {
	if t := s.groups[group]; t.remove(topic, partition) != nil {
		s.count--
		if len(t) == 0 {
			delete(s.groups, group)
		}
	}
	for pid, groups := range s.pending {
		t := groups[group]
		if t.remove(topic, partition) == nil {
			continue
		}
		if len(t) == 0 {
			delete(groups, group)
		}
		if len(groups) == 0 {
			delete(s.pending, pid)
		}
	}
}

// isPending reports whether an open transaction is about to change the offset.
func (s *offsets) isPending(group, topic string, partition int32) bool {
	for _, groups := range s.pending {
		if groups[group].get(topic, partition) != nil {
			return true
		}
	}
	return false
}

// hasPending reports whether an open transaction holds offsets of the group.
func (s *offsets) hasPending(group string) bool {
	for _, groups := range s.pending {
		if len(groups[group]) > 0 {
			return true
		}
	}
	return false
}

// endTransaction makes the offsets of a producer's transaction count, or drops
// them. An offset committed later than that of the transaction stays.
func (s *offsets) endTransaction(pid kafka.ProducerID, commit bool) {
	groups := s.pending[pid]
	delete(s.pending, pid)
	if !commit {
		return
	}
	for group, topics := range groups {
		for topic, partitions := range topics {
			for partition, o := range partitions {
				if is := s.groups[group].get(topic, partition); is == nil || o.Record > is.Record {
					s.put(group, topic, partition, o)
				}
			}
		}
	}
}
