package metadata

import (
	"slices"

	"github.com/varvelog/varve/internal/kafka"
)

// topic returns the pending state of a topic, ready to be changed, or nil when
// it does not exist (any more).
func (d *Delta) topic(id kafka.TopicID) *TopicDelta {
	t := d.topics[id]
	if t == nil {
		old, ok := d.base.topicsByID.Get(id)
		if !ok {
			return nil
		}
		copied := *old
		t = &TopicDelta{ID: id, Old: old, New: &copied, partitions: map[int32]bool{}}
		d.topics[id] = t
	}
	if t.New == nil {
		return nil
	}
	return t
}

// idOf returns the id of the topic that has the name now.
func (d *Delta) idOf(name string) (kafka.TopicID, bool) {
	if id, ok := d.names[name]; ok {
		return id, !id.IsZero()
	}
	if t, ok := d.base.Topics.Get(name); ok {
		return t.ID, true
	}
	return kafka.ZeroUUID, false
}

func (d *Delta) applyTopic(r *TopicRecord) (reason string) {
	if _, exists := d.idOf(r.Name); exists {
		return "a topic of that name exists"
	}
	if d.topics[r.TopicID] != nil {
		return "the topic id was used in the same step"
	}
	if _, exists := d.base.topicsByID.Get(r.TopicID); exists {
		return "a topic of that id exists"
	}
	d.topics[r.TopicID] = &TopicDelta{
		ID:         r.TopicID,
		New:        &Topic{Name: r.Name, ID: r.TopicID, Partitions: newPartitions()},
		partitions: map[int32]bool{},
	}
	d.names[r.Name] = r.TopicID
	return ""
}

func (d *Delta) applyRemoveTopic(r *RemoveTopicRecord) (reason string) {
	t := d.topic(r.TopicID)
	if t == nil {
		return "no topic of that id"
	}
	res := ConfigResource{ResourceTopic, t.New.Name}
	if _, ok := d.next.Configs.Get(res); ok {
		d.next.Configs = d.next.Configs.Delete(res)
		d.configs[res] = true
	}
	d.names[t.New.Name] = kafka.ZeroUUID
	t.New = nil
	return ""
}

func (d *Delta) setPartition(t *TopicDelta, n int32, p *Partition) {
	t.New.Partitions = t.New.Partitions.Set(n, p)
	t.partitions[n] = true
}

func (d *Delta) applyPartition(r *PartitionRecord) (reason string) {
	t := d.topic(r.TopicID)
	if t == nil {
		return "no topic of that id"
	}
	if r.PartitionID < 0 {
		return "negative partition"
	}
	d.setPartition(t, r.PartitionID, &Partition{
		Replicas:            r.Replicas,
		ISR:                 r.ISR,
		RemovingReplicas:    r.RemovingReplicas,
		AddingReplicas:      r.AddingReplicas,
		Leader:              r.Leader,
		LeaderRecoveryState: r.LeaderRecoveryState,
		LeaderEpoch:         r.LeaderEpoch,
		PartitionEpoch:      r.PartitionEpoch,
		Directories:         r.Directories,
		ELR:                 r.EligibleLeaderReplicas,
		LastKnownELR:        r.LastKnownELR,
	})
	return ""
}

// applyPartitionChange is PartitionRegistration.merge of Kafka.
func (d *Delta) applyPartitionChange(r *PartitionChangeRecord) (reason string) {
	t := d.topic(r.TopicID)
	if t == nil {
		return "no topic of that id"
	}
	old, ok := t.New.Partitions.Get(r.PartitionID)
	if !ok {
		return "no such partition"
	}
	p := *old
	if r.Replicas != nil {
		p.Replicas = r.Replicas
		p.Directories = movedDirectories(old, r.Replicas)
	}
	if r.Directories != nil {
		p.Directories = r.Directories
	}
	if r.ISR != nil {
		p.ISR = r.ISR
	}
	if r.RemovingReplicas != nil {
		p.RemovingReplicas = r.RemovingReplicas
	}
	if r.AddingReplicas != nil {
		p.AddingReplicas = r.AddingReplicas
	}
	if r.Leader != LeaderUnchanged {
		p.Leader = r.Leader
		p.LeaderEpoch++
	}
	if r.LeaderRecoveryState != RecoveryUnchanged {
		p.LeaderRecoveryState = r.LeaderRecoveryState
	}
	if r.EligibleLeaderReplicas != nil {
		p.ELR = r.EligibleLeaderReplicas
	}
	if r.LastKnownELR != nil {
		p.LastKnownELR = r.LastKnownELR
	}
	p.PartitionEpoch++
	d.setPartition(t, r.PartitionID, &p)
	return ""
}

// movedDirectories keeps the directory of every replica that stays and leaves
// that of a new one unassigned (DirectoryId.createDirectoriesFrom).
func movedDirectories(old *Partition, replicas []kafka.BrokerID) []kafka.UUID {
	dirs := make([]kafka.UUID, len(replicas))
	for i, id := range replicas {
		dirs[i] = kafka.DirUnassigned
		if slices.Contains(old.Replicas, id) {
			dirs[i] = old.Directory(id)
		}
	}
	return dirs
}

// applyClearElr empties the eligible leaders; unlike a PartitionChange it
// leaves the epochs alone (TopicsDelta.replay).
func (d *Delta) applyClearElr(r *ClearElrRecord) (reason string) {
	if r.TopicName != "" {
		id, ok := d.idOf(r.TopicName)
		if !ok {
			return "no topic of that name"
		}
		d.clearElr(d.topic(id))
		return ""
	}
	for id, base := range d.base.topicsByID.All() {
		if d.topics[id] == nil && hasElr(base) {
			d.clearElr(d.topic(id))
		}
	}
	for _, t := range d.topics {
		if t.New != nil {
			d.clearElr(t)
		}
	}
	return ""
}

func hasElr(t *Topic) bool {
	for _, p := range t.Partitions.All() {
		if len(p.ELR) > 0 || len(p.LastKnownELR) > 0 {
			return true
		}
	}
	return false
}

func (d *Delta) clearElr(t *TopicDelta) {
	for n, old := range t.New.Partitions.All() {
		if len(old.ELR) > 0 || len(old.LastKnownELR) > 0 {
			p := *old
			p.ELR, p.LastKnownELR = nil, nil
			d.setPartition(t, n, &p)
		}
	}
}
