package controller

import (
	"slices"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// elrEnabled reports whether eligible leader replicas are written: the feature
// is on and records can carry them.
func elrEnabled(image *metadata.Image) bool {
	return image.ELREnabled() && image.Feature(metadata.MetadataVersion) >= metadata.V4_0_IV1
}

// eachPartition gives every partition with a replica on this node, topics in
// the order of their ids, and collects the changes that change returns (nil: none).
func (c *Controller) eachPartition(image *metadata.Image, change func(*metadata.Partition) *metadata.PartitionChangeRecord) []metadata.Record {
	var records []metadata.Record
	for id, t := range image.TopicsByID().All() {
		for n, p := range t.Partitions.All() {
			if !slices.Contains(p.Replicas, c.id) {
				continue
			}
			if r := change(p); r != nil {
				r.TopicID, r.PartitionID = id, n
				records = append(records, r)
			}
		}
	}
	return records
}

// resignAll takes this node out of leadership and, with eligible leader
// replicas, out of the in-sync replicas into the eligible ones: nothing that
// was committed is missing from it.
func (c *Controller) resignAll(image *metadata.Image) []metadata.Record {
	elr := elrEnabled(image)
	return c.eachPartition(image, func(p *metadata.Partition) *metadata.PartitionChangeRecord {
		r := metadata.NewPartitionChange()
		if p.Leader != kafka.NoBroker {
			r.Leader = kafka.NoBroker
		}
		if elr && slices.Contains(p.ISR, c.id) {
			r.ISR = []kafka.BrokerID{}
			r.EligibleLeaderReplicas = []kafka.BrokerID{c.id}
			if !slices.Equal(p.LastKnownELR, r.EligibleLeaderReplicas) {
				r.LastKnownELR = []kafka.BrokerID{c.id}
			}
		}
		if r.Leader == metadata.LeaderUnchanged && r.ISR == nil {
			return nil
		}
		return r
	})
}

// electAll makes this node the leader of every partition without one. A node
// that is neither in sync nor eligible can have lost records: it leads all the
// same, since there is no other, and the partition says so ("recovering").
func (c *Controller) electAll(image *metadata.Image) []metadata.Record {
	self := []kafka.BrokerID{c.id}
	return c.eachPartition(image, func(p *metadata.Partition) *metadata.PartitionChangeRecord {
		if p.Leader == c.id {
			return nil
		}
		r := metadata.NewPartitionChange()
		r.Leader = c.id
		inSync := slices.Contains(p.ISR, c.id)
		if !inSync {
			r.ISR = self
			if !slices.Contains(p.ELR, c.id) && p.LeaderRecoveryState != metadata.Recovering {
				r.LeaderRecoveryState = metadata.Recovering
			}
		}
		if len(p.ELR) > 0 {
			r.EligibleLeaderReplicas = []kafka.BrokerID{}
		}
		if len(p.LastKnownELR) > 0 {
			r.LastKnownELR = []kafka.BrokerID{}
		}
		return r
	})
}

// clearEligible takes this node out of every set of eligible leaders.
func (c *Controller) clearEligible(image *metadata.Image) []metadata.Record {
	return c.eachPartition(image, func(p *metadata.Partition) *metadata.PartitionChangeRecord {
		if !slices.Contains(p.ELR, c.id) {
			return nil
		}
		r := metadata.NewPartitionChange()
		r.EligibleLeaderReplicas = slices.DeleteFunc(slices.Clone(p.ELR), func(id kafka.BrokerID) bool { return id == c.id })
		if r.EligibleLeaderReplicas == nil {
			r.EligibleLeaderReplicas = []kafka.BrokerID{}
		}
		return r
	})
}

// Placement is where a partition's replica lies.
type Placement struct {
	TopicID   kafka.TopicID
	Partition int32
	Directory kafka.UUID
}

// PlaceReplicas records in which directory partitions lie (AssignReplicasToDirs),
// where that is not what the metadata says already. Unknown partitions are left out.
func (c *Controller) PlaceReplicas(placements []Placement) error {
	return c.inBatches(func(image *metadata.Image) []metadata.Record {
		if image.Feature(metadata.MetadataVersion) < metadata.V3_7_IV2 {
			return nil
		}
		var records []metadata.Record
		for _, at := range placements {
			if r := c.place(image, at); r != nil {
				records = append(records, r)
			}
		}
		return records
	})
}

// placeNew records where the broker has put partitions that were just created.
// They exist whatever becomes of it, so an error is only logged: the next start
// tells again.
func (c *Controller) placeNew(topics ...string) {
	image := c.Image()
	if b := image.Broker(c.id); c.cfg.DirectoryOf == nil || b == nil || len(b.LogDirs) < 2 {
		return
	}
	var placements []Placement
	for _, name := range topics {
		t := image.Topic(name)
		if t == nil {
			continue
		}
		for n, p := range t.Partitions.All() {
			if p.Directory(c.id) != kafka.DirUnassigned {
				continue
			}
			if id, ok := c.cfg.DirectoryOf(kafka.TopicPartition{Topic: name, Partition: n}); ok {
				placements = append(placements, Placement{t.ID, n, id})
			}
		}
	}
	if err := c.PlaceReplicas(placements); err != nil {
		c.cfg.Logger.Warn("directories of new partitions not recorded", "topics", topics, "err", err)
	}
}

func (c *Controller) place(image *metadata.Image, at Placement) metadata.Record {
	t := image.TopicByID(at.TopicID)
	if t == nil {
		return nil
	}
	p, ok := t.Partitions.Get(at.Partition)
	i := -1
	if ok {
		i = slices.Index(p.Replicas, c.id)
	}
	if i < 0 || p.Directory(c.id) == at.Directory {
		return nil
	}
	r := metadata.NewPartitionChange()
	r.TopicID, r.PartitionID = at.TopicID, at.Partition
	r.Directories = make([]kafka.UUID, len(p.Replicas))
	for n, id := range p.Replicas {
		r.Directories[n] = p.Directory(id)
	}
	r.Directories[i] = at.Directory
	return r
}
