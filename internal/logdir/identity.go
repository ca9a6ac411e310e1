package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"path/filepath"
	"slices"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// identity decides whose a partition directory is (metadata rule: by topic id,
// not by name). ok is false when it is not to be opened; err is nil when it was
// set aside as stray, an *IdentityError when it is refused, else the disk's.
//
//	partition.metadata      the topic in the metadata             outcome
//	id of the name's topic  has this partition on this broker     opened
//	missing or unreadable   same, by name                         file restored, opened
//	id of no topic, and a   same, by name                         file restored, opened
//	character from that
//	id of another topic     known under another name              refused, nothing is changed
//	anything else                                                 renamed to -stray
func (m *Manager) identity(d *dir, name string, tp kafka.TopicPartition, image *metadata.Image) (id kafka.TopicID, ok bool, err error) {
	path := filepath.Join(d.path, name, checkpoint.PartitionFile)
	id, err = checkpoint.ReadPartitionMetadata(m.o.FS, path)
	unreadable := errors.Is(err, fs.ErrNotExist) || errors.Is(err, checkpoint.ErrCorrupt)
	if err != nil && !unreadable {
		return id, false, err
	}
	if image == nil {
		return id, true, nil
	}
	if topic := image.Topic(tp.Topic); !unreadable && topic != nil && image.TopicByID(id) == nil && nearID(id, topic.ID) {
		unreadable, err = true, fmt.Errorf("topic id %s, which is not that of the topic by one character", id)
	}
	if unreadable {
		topic := image.Topic(tp.Topic)
		if !m.assigned(topic, tp.Partition) {
			return id, false, m.setAside(d, name, tp, fmt.Sprintf("no topic id: %v", err))
		}
		if err := checkpoint.WritePartitionMetadata(m.o.FS, path, topic.ID); err != nil {
			return id, false, err
		}
		m.o.Logger.Warn("partition.metadata restored", "event", "metadata-restored", "topic", tp.Topic, "partition", tp.Partition,
			"topicId", topic.ID, "reason", err)
		return topic.ID, true, nil
	}
	owner := image.TopicByID(id)
	switch {
	case owner == nil:
		if m.assigned(image.Topic(tp.Topic), tp.Partition) {
			if err := m.disown(d, tp); err != nil {
				return id, false, err
			}
		}
		return id, false, m.setAside(d, name, tp, fmt.Sprintf("no topic has the id %s", id))
	case owner.Name != tp.Topic:
		return id, false, &IdentityError{Dir: filepath.Join(d.path, name), Partition: tp, TopicID: id, Owner: owner.Name}
	case !m.assigned(owner, tp.Partition):
		return id, false, m.setAside(d, name, tp, "not a replica of this broker")
	}
	return id, true, nil
}

// nearID tells a damaged id from that of another topic: ids are random, and one
// character of their text is 6 bits.
func nearID(a, b kafka.TopicID) bool {
	n := 0
	for i := range a {
		n += bits.OnesCount8(a[i] ^ b[i])
	}
	return n <= 6
}

// assigned reports whether this broker has a replica of the partition.
func (m *Manager) assigned(topic *metadata.Topic, partition int32) bool {
	if topic == nil {
		return false
	}
	p, ok := topic.Partitions.Get(partition)
	return ok && slices.Contains(p.Replicas, m.o.NodeID)
}

// setAside renames a directory to -stray. Its data stays.
func (m *Manager) setAside(d *dir, name string, tp kafka.TopicPartition, reason string) error {
	stray := uniqueName(tp, m.o.NewID(), straySuffix)
	if err := m.o.FS.Rename(filepath.Join(d.path, name), filepath.Join(d.path, stray)); err != nil {
		return err
	}
	if err := m.o.FS.SyncDir(d.path); err != nil {
		return err
	}
	m.o.Logger.Warn("partition marked stray and renamed", "dir", d.path, "from", name, "to", stray, "reason", reason)
	return nil
}
