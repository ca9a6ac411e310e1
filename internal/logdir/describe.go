package logdir

import (
	"cmp"
	"slices"

	"github.com/varvelog/varve/internal/kafka"
)

// DirInfo is what DescribeLogDirs answers for a directory.
type DirInfo struct {
	Path        string
	ID          kafka.UUID
	Err         error // not nil: offline
	Total, Free int64 // bytes of the file system; -1 when not known
	Partitions  []PartitionInfo
}

// PartitionInfo is one partition of a DirInfo.
type PartitionInfo struct {
	Partition kafka.TopicPartition
	Size      int64 // bytes of the .log files
	EndOffset kafka.Offset
}

// Describe lists the directories with their partitions, sorted.
func (m *Manager) Describe() []DirInfo {
	list := make([]DirInfo, 0, len(m.dirs))
	for _, d := range m.dirs {
		info := DirInfo{Path: d.path, ID: d.id, Err: d.err(), Total: -1, Free: -1}
		if info.Err == nil {
			if total, free, err := m.o.FS.Usage(d.path); err == nil {
				info.Total, info.Free = total, free
			}
			for _, p := range m.partitions(d) {
				info.Partitions = append(info.Partitions, PartitionInfo{p.tp, p.log.Size(), p.log.EndOffset()})
			}
		}
		slices.SortFunc(info.Partitions, func(a, b PartitionInfo) int {
			return cmp.Or(cmp.Compare(a.Partition.Topic, b.Partition.Topic), cmp.Compare(a.Partition.Partition, b.Partition.Partition))
		})
		list = append(list, info)
	}
	return list
}
