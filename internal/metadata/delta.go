package metadata

import (
	"fmt"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
)

// Delta collects the changes of one or more batches of records on top of an
// image, and says afterwards what they touched. It has one user at a time.
type Delta struct {
	base *Image
	next Image // what is built; topics are brought in by Finish

	topics   map[kafka.TopicID]*TopicDelta
	names    map[string]kafka.TopicID // names given or (zero id) taken away in this delta
	configs  map[ConfigResource]bool
	brokers  map[kafka.BrokerID]bool
	features bool
}

// TopicDelta is what happened to one topic. Old is nil for a new topic and New
// for a deleted one.
type TopicDelta struct {
	ID         kafka.TopicID
	Old, New   *Topic
	partitions map[int32]bool
}

// PartitionDelta is what happened to one partition. Old is nil for a new one
// and New for one that went away with its topic.
type PartitionDelta struct {
	Partition int32
	Old, New  *Partition
}

// NewDelta starts from base, which stays as it is.
func NewDelta(base *Image) *Delta {
	return &Delta{
		base:    base,
		next:    *base,
		topics:  map[kafka.TopicID]*TopicDelta{},
		names:   map[string]kafka.TopicID{},
		configs: map[ConfigResource]bool{},
		brokers: map[kafka.BrokerID]bool{},
	}
}

// ReplayError says that a record does not fit the state it is applied to: the
// log is not one that a controller wrote.
type ReplayError struct {
	Record Record
	Reason string
}

func (e *ReplayError) Error() string {
	return fmt.Sprintf("metadata record %s: %s", AppendJSON(nil, e.Record, maxVersion(e.Record)), e.Reason)
}

func maxVersion(r Record) int16 {
	k, _ := r.Type().kind()
	return k.maxVersion
}

// Apply brings in one record. The error is a *ReplayError. The delta keeps
// slices of r.
func (d *Delta) Apply(r Record) error {
	reason := ""
	switch r := r.(type) {
	case *TopicRecord:
		reason = d.applyTopic(r)
	case *PartitionRecord:
		reason = d.applyPartition(r)
	case *PartitionChangeRecord:
		reason = d.applyPartitionChange(r)
	case *RemoveTopicRecord:
		reason = d.applyRemoveTopic(r)
	case *ClearElrRecord:
		reason = d.applyClearElr(r)
	case *ConfigRecord:
		d.applyConfig(r)
	case *FeatureLevelRecord:
		d.applyFeature(r)
	case *ProducerIDsRecord:
		d.next.NextProducerID = r.NextProducerID
	default:
		reason = d.applyNode(r)
	}
	if reason != "" {
		return &ReplayError{r, reason}
	}
	return nil
}

// Finish returns the image after the records. end, epoch and timestamp describe
// the last of them, end being the offset after it.
func (d *Delta) Finish(end kafka.Offset, epoch kafka.LeaderEpoch, timestamp kafka.Timestamp) *Image {
	for id, t := range d.topics {
		if t.Old != nil && (t.New == nil || t.New.Name != t.Old.Name) {
			d.next.Topics = d.next.Topics.Delete(t.Old.Name)
		}
		if t.New == nil {
			d.next.topicsByID = d.next.topicsByID.Delete(id)
		}
	}
	for id, t := range d.topics {
		if t.New != nil {
			d.next.Topics = d.next.Topics.Set(t.New.Name, t.New)
			d.next.topicsByID = d.next.topicsByID.Set(id, t.New)
		}
	}
	d.next.End, d.next.Epoch, d.next.Timestamp = end, epoch, timestamp
	image := d.next
	return &image
}

// Topics lists the touched topics, deleted ones first, then by name, so that a
// topic deleted and created again under its name is handled in that order.
func (d *Delta) Topics() []*TopicDelta {
	list := make([]*TopicDelta, 0, len(d.topics))
	for _, t := range d.topics {
		if t.Old != nil || t.New != nil {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *TopicDelta) int {
		if (a.New == nil) != (b.New == nil) {
			if a.New == nil {
				return -1
			}
			return 1
		}
		return strings.Compare(a.name(), b.name())
	})
	return list
}

func (t *TopicDelta) name() string {
	if t.New != nil {
		return t.New.Name
	}
	return t.Old.Name
}

// Partitions lists the touched partitions by number; all of a deleted topic.
func (t *TopicDelta) Partitions() []PartitionDelta {
	var list []PartitionDelta
	if t.New == nil {
		for n, p := range t.Old.Partitions.All() {
			list = append(list, PartitionDelta{Partition: n, Old: p})
		}
		return list
	}
	for n := range t.partitions {
		change := PartitionDelta{Partition: n}
		if t.Old != nil {
			change.Old, _ = t.Old.Partitions.Get(n)
		}
		change.New, _ = t.New.Partitions.Get(n)
		list = append(list, change)
	}
	slices.SortFunc(list, func(a, b PartitionDelta) int { return int(a.Partition) - int(b.Partition) })
	return list
}

// Configs lists the resources whose dynamic configs were touched.
func (d *Delta) Configs() []ConfigResource {
	list := make([]ConfigResource, 0, len(d.configs))
	for r := range d.configs {
		list = append(list, r)
	}
	slices.SortFunc(list, compareResources)
	return list
}

// Brokers lists the brokers whose registration was touched.
func (d *Delta) Brokers() []kafka.BrokerID {
	list := make([]kafka.BrokerID, 0, len(d.brokers))
	for id := range d.brokers {
		list = append(list, id)
	}
	slices.Sort(list)
	return list
}

// FeaturesChanged reports whether a feature level was written.
func (d *Delta) FeaturesChanged() bool { return d.features }

func (d *Delta) applyConfig(r *ConfigRecord) {
	res := ConfigResource{r.ResourceType, r.ResourceName}
	d.configs[res] = true
	values, ok := d.next.Configs.Get(res)
	if !ok {
		values = newMap[string, string](strings.Compare)
	}
	if r.Value == nil {
		values = values.Delete(r.Name)
	} else {
		values = values.Set(r.Name, *r.Value)
	}
	if values.Len() == 0 {
		d.next.Configs = d.next.Configs.Delete(res)
	} else {
		d.next.Configs = d.next.Configs.Set(res, values)
	}
}

func (d *Delta) applyFeature(r *FeatureLevelRecord) {
	d.features = true
	if r.Level == 0 {
		d.next.Features = d.next.Features.Delete(r.Name)
	} else {
		d.next.Features = d.next.Features.Set(r.Name, r.Level)
	}
}
