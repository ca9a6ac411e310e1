package node

import (
	"strconv"

	"github.com/varvelog/varve/internal/coordinator"
	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/replica"
)

// apply makes the node follow a committed change of the metadata, before the
// call that made the change returns: a topic that was created can be written.
func (n *Node) apply(_, next *metadata.Image, delta *metadata.Delta) {
	n.following.Lock()
	defer n.following.Unlock()
	n.applied = next
	dynamic := false
	for _, r := range delta.Configs() {
		dynamic = dynamic || r.Type == metadata.ResourceBroker
	}
	if dynamic {
		n.applyDynamic(next)
	}
	_ = n.replicas.Apply(next, delta) // what fails is logged there, once for each partition
	if dynamic {
		n.replicas.RefreshConfigs(next)
	}
	var deleted []group.DeletedTopic
	for _, t := range delta.Topics() {
		if t.New == nil && t.Old != nil {
			deleted = append(deleted, group.DeletedTopic{Name: t.Old.Name, ID: t.ID})
		}
	}
	n.offsets.follow(n.groups, n.replicas, next, n.self())
	if len(deleted) > 0 {
		n.groups.TopicsDeleted(deleted)
	}
}

// applyDynamic puts the dynamic broker settings of the metadata over the
// static ones.
func (n *Node) applyDynamic(image *metadata.Image) {
	all := image.Config(metadata.ConfigResource{Type: metadata.ResourceBroker})
	own := image.Config(metadata.ConfigResource{Type: metadata.ResourceBroker, Name: strconv.Itoa(int(n.self()))})
	cfg, ignored := n.static.WithDynamic(all, own)
	if len(ignored) > 0 {
		n.log.Warn("stored broker settings without effect", "keys", ignored)
	}
	n.cfg.Store(cfg)
	n.dirs.ConfigureCleaner(cleanerConfig(cfg))
}

// offsetsTopic has the group coordinator load the partitions of
// __consumer_offsets that this broker leads, and drop those that it does not.
type offsetsTopic struct {
	id     kafka.TopicID
	loaded map[int32]kafka.LeaderEpoch // partitions that were handed over, with their epochs
}

func (t *offsetsTopic) follow(groups *coordinator.Groups, replicas *replica.Manager, image *metadata.Image, self kafka.BrokerID) {
	topic := image.Topic(kafka.ConsumerOffsetsTopic)
	if topic == nil || topic.ID != t.id {
		t.unload(groups)
	}
	if topic == nil {
		return
	}
	if t.loaded == nil {
		t.loaded = map[int32]kafka.LeaderEpoch{}
	}
	t.id = topic.ID
	groups.SetPartitions(int32(topic.Partitions.Len()))
	for p, state := range topic.Partitions.All() {
		epoch, loaded := t.loaded[p]
		if state.Leader != self {
			if loaded {
				groups.Unload(p)
				delete(t.loaded, p)
			}
			continue
		}
		if loaded && epoch == state.LeaderEpoch {
			continue
		}
		partition := replicas.GetByID(topic.ID, p)
		if partition == nil {
			continue
		}
		log, err := partition.CoordinatorLog()
		if err != nil {
			continue // its log has failed; clients are told that nobody coordinates
		}
		groups.Load(p, log)
		t.loaded[p] = state.LeaderEpoch
	}
}

func (t *offsetsTopic) unload(groups *coordinator.Groups) {
	for p := range t.loaded {
		groups.Unload(p)
	}
	t.loaded = nil
}
