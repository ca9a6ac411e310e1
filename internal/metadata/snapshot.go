package metadata

import "iter"

// SnapshotRecords gives the records that make the image from nothing, in the
// order in which 4.4.0 writes a snapshot: features (metadata.version first,
// since it selects the meaning of the rest), brokers, controllers, topics with
// their partitions, configs, quotas, producer ids, ACLs, SCRAM, tokens.
func (i *Image) SnapshotRecords() iter.Seq[Record] {
	return func(yield func(Record) bool) {
		_ = i.yieldFeatures(yield) && i.yieldNodes(yield) && i.yieldTopics(yield) &&
			i.yieldConfigs(yield) && i.yieldQuotas(yield) && i.yieldProducerIDs(yield) && i.yieldUsers(yield)
	}
}

func (i *Image) yieldFeatures(yield func(Record) bool) bool {
	if level, ok := i.Features.Get(MetadataVersion); ok {
		if !yield(&FeatureLevelRecord{Name: MetadataVersion, Level: level}) {
			return false
		}
	}
	for name, level := range i.Features.All() {
		if name != MetadataVersion && !yield(&FeatureLevelRecord{Name: name, Level: level}) {
			return false
		}
	}
	return true
}

func (i *Image) yieldNodes(yield func(Record) bool) bool {
	for _, b := range i.Brokers.All() {
		if !yield(b.Record()) {
			return false
		}
	}
	for _, c := range i.Controllers.All() {
		r := &RegisterControllerRecord{
			ControllerID:     c.ID,
			IncarnationID:    c.IncarnationID,
			ZkMigrationReady: c.ZkMigrationReady,
			Endpoints:        c.Endpoints,
			Features:         c.Features,
		}
		if !yield(r) {
			return false
		}
	}
	return true
}

// Record is the registration that gives the broker's present state.
func (b *Broker) Record() *RegisterBrokerRecord {
	return &RegisterBrokerRecord{
		BrokerID:             b.ID,
		IsMigratingZkBroker:  b.migratingZk,
		IncarnationID:        b.IncarnationID,
		BrokerEpoch:          b.Epoch,
		Endpoints:            b.Endpoints,
		Features:             b.Features,
		Rack:                 b.Rack,
		Fenced:               b.Fenced,
		InControlledShutdown: b.InControlledShutdown,
		LogDirs:              b.LogDirs,
		CordonedLogDirs:      b.CordonedLogDirs,
	}
}

func (i *Image) yieldTopics(yield func(Record) bool) bool {
	for id, t := range i.topicsByID.All() {
		if !yield(&TopicRecord{Name: t.Name, TopicID: id}) {
			return false
		}
		for n, p := range t.Partitions.All() {
			if !yield(p.Record(t.ID, n)) {
				return false
			}
		}
	}
	return true
}

// Record is the PartitionRecord that gives the partition's present state.
func (p *Partition) Record(topic [16]byte, partition int32) *PartitionRecord {
	r := &PartitionRecord{
		PartitionID:         partition,
		TopicID:             topic,
		Replicas:            p.Replicas,
		ISR:                 p.ISR,
		RemovingReplicas:    p.RemovingReplicas,
		AddingReplicas:      p.AddingReplicas,
		Leader:              p.Leader,
		LeaderRecoveryState: p.LeaderRecoveryState,
		LeaderEpoch:         p.LeaderEpoch,
		PartitionEpoch:      p.PartitionEpoch,
		Directories:         p.Directories,
	}
	if len(p.ELR) > 0 {
		r.EligibleLeaderReplicas = p.ELR
	}
	if len(p.LastKnownELR) > 0 {
		r.LastKnownELR = p.LastKnownELR
	}
	return r
}

func (i *Image) yieldConfigs(yield func(Record) bool) bool {
	for res, values := range i.Configs.All() {
		for key, value := range values.All() {
			if !yield(&ConfigRecord{ResourceType: res.Type, ResourceName: res.Name, Name: key, Value: &value}) {
				return false
			}
		}
	}
	return true
}

func (i *Image) yieldQuotas(yield func(Record) bool) bool {
	for _, q := range i.Quotas.All() {
		for key, value := range q.Values.All() {
			if !yield(&ClientQuotaRecord{Entity: q.Entity, Key: key, Value: value}) {
				return false
			}
		}
	}
	return true
}

func (i *Image) yieldProducerIDs(yield func(Record) bool) bool {
	if i.NextProducerID < 0 {
		return true
	}
	return yield(&ProducerIDsRecord{BrokerID: -1, BrokerEpoch: -1, NextProducerID: i.NextProducerID})
}

func (i *Image) yieldUsers(yield func(Record) bool) bool {
	for _, r := range i.ACLs.All() {
		if !yield(r) {
			return false
		}
	}
	for _, r := range i.Scram.All() {
		if !yield(r) {
			return false
		}
	}
	for _, r := range i.Tokens.All() {
		if !yield(r) {
			return false
		}
	}
	return true
}
