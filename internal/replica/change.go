package replica

import (
	"errors"
	"slices"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/metadata"
)

// change is what the metadata says of one partition.
type change struct {
	topic     string
	id        kafka.TopicID
	partition int32
	state     *metadata.Partition
}

func (c *change) name() kafka.TopicPartition {
	return kafka.TopicPartition{Topic: c.topic, Partition: c.partition}
}

func (c *change) replica() replicaID { return replicaID{c.id, c.partition} }

func (m *Manager) changesOf(name string, topic *metadata.Topic) []change {
	var list []change
	for n, p := range topic.Partitions.All() {
		list = append(list, change{name, topic.ID, n, p})
	}
	return list
}

// deleteLocked ends topics: no more lookups, no more appends, then the files go.
func (m *Manager) deleteLocked(topics []*Topic) error {
	var names []kafka.TopicPartition
	for _, t := range topics {
		m.table.remove(t)
		for _, p := range t.Partitions() {
			if p != nil {
				p.markDeleted()
				names = append(names, p.tp)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	err := m.o.Dirs.Delete(names...)
	if err != nil {
		m.o.Logger.Error("partitions not deleted", "err", err)
	}
	return err
}

// changeLocked makes the partitions that are new, then gives each its role, then
// publishes the new ones: whoever finds a partition finds it ready.
func (m *Manager) changeLocked(image *metadata.Image, changes []change) error {
	mine := changes[:0]
	for _, c := range changes {
		if slices.Contains(c.state.Replicas, m.o.NodeID) {
			mine = append(mine, c)
		}
	}
	settings := map[string]config.Topic{}
	for _, c := range mine {
		if _, ok := settings[c.topic]; !ok {
			settings[c.topic] = m.settings(image, c.topic)
		}
	}
	partitions, errs := m.findOrCreate(mine, settings)
	roleErrs := make([]error, len(mine))
	forEach(len(mine), func(i int) {
		c := &mine[i]
		roleErrs[i] = partitions[i].apply(roleOf(c.state, settings[c.topic].MinInsyncReplicas))
		if roleErrs[i] != nil {
			m.o.Logger.Error("partition cannot be led", "topic", c.topic, "partition", c.partition, "err", roleErrs[i])
		}
	})
	m.publish(mine, partitions)
	return errors.Join(append(errs, roleErrs...)...)
}

func roleOf(p *metadata.Partition, minISR int) Role {
	return Role{
		Leader:         p.Leader,
		LeaderEpoch:    p.LeaderEpoch,
		PartitionEpoch: p.PartitionEpoch,
		Replicas:       p.Replicas,
		ISR:            p.ISR,
		MinISR:         min(minISR, len(p.Replicas)),
	}
}

// findOrCreate returns a partition for each change. One whose log cannot be
// opened or made is there too, and answers with the reason.
func (m *Manager) findOrCreate(list []change, settings map[string]config.Topic) ([]*Partition, []error) {
	found := make([]*Partition, len(list))
	var missing []int
	var wanted []logdir.NewPartition
	for i := range list {
		c := &list[i]
		if t := m.table.byID(c.id); t != nil {
			found[i] = t.Partition(c.partition)
		}
		if p := found[i]; p == nil || p.log == nil && m.failing[c.replica()] {
			missing = append(missing, i)
			wanted = append(wanted, logdir.NewPartition{
				Partition: c.name(), TopicID: c.id, Config: logdir.LogConfig(settings[c.topic]), Dir: c.state.Directory(m.o.NodeID),
			})
		}
	}
	if len(missing) == 0 {
		return found, nil
	}
	var errs []error
	for k, created := range m.o.Dirs.CreateAll(wanted) {
		c := &list[missing[k]]
		again := m.failing[c.replica()]
		if created.Err != nil && again && logdir.Transient(created.Err) {
			continue // known
		}
		p := &Partition{tp: c.name(), topicID: c.id, self: m.o.NodeID, log: created.Log, health: m.o.Dirs.Health(c.name())}
		if created.Err != nil {
			p.failure = &storageError{created.Err}
			errs = append(errs, created.Err)
			m.o.Logger.Error("partition cannot be served", "topic", c.topic, "partition", c.partition, "err", created.Err)
			m.noteFailing(c, logdir.Transient(created.Err))
		} else {
			if again {
				m.o.Logger.Info("partition is served", "topic", c.topic, "partition", c.partition)
				m.noteFailing(c, false)
			}
			p.log.SetConfig(wanted[k].Config)
			p.log.OnSynced(p.synced)
		}
		p.role.Store(&Role{Leader: kafka.NoBroker, LeaderEpoch: kafka.NoLeaderEpoch})
		found[missing[k]] = p
	}
	return found, errs
}

// noteFailing notes whether a partition is to be tried again.
func (m *Manager) noteFailing(c *change, failing bool) {
	if !failing {
		delete(m.failing, c.replica())
		return
	}
	m.failing[c.replica()] = true
	select {
	case m.failed <- struct{}{}:
	default:
	}
}

// withFailing adds what is to be tried again to changes, as the image has it,
// and forgets what is not in the image any more.
func (m *Manager) withFailing(image *metadata.Image, changes []change) []change {
	if len(m.failing) == 0 {
		return changes
	}
	listed := map[replicaID]bool{}
	for i := range changes {
		listed[changes[i].replica()] = true
	}
	for r := range m.failing {
		topic := image.TopicByID(r.topic)
		var state *metadata.Partition
		if topic != nil {
			state, _ = topic.Partitions.Get(r.partition)
		}
		switch {
		case state == nil || !slices.Contains(state.Replicas, m.o.NodeID):
			delete(m.failing, r)
		case !listed[r]:
			changes = append(changes, change{topic.Name, r.topic, r.partition, state})
		}
	}
	return changes
}

// publish puts new partitions into the table, also in place of failed ones.
func (m *Manager) publish(list []change, partitions []*Partition) {
	for i := range list {
		c := &list[i]
		t := m.table.byID(c.id)
		fresh := t == nil
		if fresh {
			t = &Topic{Name: c.topic, ID: c.id}
			t.partitions.Store(&[]*Partition{})
		}
		before := t.Partition(c.partition)
		if before != partitions[i] {
			slots := slices.Clone(t.Partitions())
			for int(c.partition) >= len(slots) {
				slots = append(slots, nil)
			}
			slots[c.partition] = partitions[i]
			t.partitions.Store(&slots)
		}
		if fresh {
			m.table.add(t)
		}
		if before != nil && before != partitions[i] {
			before.markDeleted() // who holds it looks for the partition again
		}
	}
}

// configChanged applies changed settings to the logs that they concern.
func (m *Manager) configChanged(image *metadata.Image, r metadata.ConfigResource) {
	if r.Type != metadata.ResourceTopic {
		return
	}
	if t := m.table.byName(r.Name); t != nil {
		m.configure(image, t)
	}
}

func (m *Manager) configure(image *metadata.Image, t *Topic) {
	settings := m.settings(image, t.Name)
	for _, p := range t.Partitions() {
		if p == nil {
			continue
		}
		p.SetMinISR(settings.MinInsyncReplicas)
		if p.log != nil {
			p.log.SetConfig(logdir.LogConfig(settings))
		}
	}
}

// settings is what a topic is kept by: its own settings over the broker's. A
// stored setting that this version does not accept is left aside, and only
// that one: without its retention, say, a topic could lose records.
func (m *Manager) settings(image *metadata.Image, topic string) config.Topic {
	own := image.Config(metadata.ConfigResource{Type: metadata.ResourceTopic, Name: topic})
	for key, value := range own {
		if err := config.ValidateTopicKey(key, value); err != nil {
			m.o.Logger.Error("stored topic setting not applied", "topic", topic, "key", key, "err", err)
			delete(own, key)
		}
	}
	t, err := config.ParseTopic(own, m.o.Broker())
	if err != nil { // a rule over several keys: the settings are applied as they are
		m.o.Logger.Error("stored topic settings do not fit together", "topic", topic, "err", err)
	}
	return t
}

// TopicSettings is what a topic is kept by, for the log loader.
func (m *Manager) TopicSettings(image *metadata.Image, topic string) config.Topic {
	return m.settings(image, topic)
}
