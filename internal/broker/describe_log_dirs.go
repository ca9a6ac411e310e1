package broker

// DescribeLogDirs (key 35), versions 1 to 5: flexible from 2; a top-level error
// from 3; sizes of the file system from 4 (KIP-827); IsCordoned from 5. Null
// topics are all of them; an empty list is the directories alone. Partitions that
// are not there are left out.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
)

func (b *Broker) describeLogDirs(_ *Context, q *kmsg.DescribeLogDirsRequest) *kmsg.DescribeLogDirsResponse {
	answer := kmsg.NewPtrDescribeLogDirsResponse()
	var wanted map[kafka.TopicPartition]bool
	if q.Topics != nil {
		wanted = map[kafka.TopicPartition]bool{}
		for _, t := range q.Topics {
			for _, p := range t.Partitions {
				wanted[kafka.TopicPartition{Topic: t.Topic, Partition: p}] = true
			}
		}
	}
	for _, d := range b.opts.Dirs.Describe() {
		answer.Dirs = append(answer.Dirs, describedDir(&d, wanted))
	}
	return answer
}

func describedDir(d *logdir.DirInfo, wanted map[kafka.TopicPartition]bool) kmsg.DescribeLogDirsResponseDir {
	k := kmsg.NewDescribeLogDirsResponseDir()
	k.Dir = d.Path
	if d.Err != nil {
		k.ErrorCode = int16(kafka.ErrKafkaStorageError)
		return k
	}
	k.TotalBytes, k.UsableBytes = d.Total, d.Free
	for _, p := range d.Partitions {
		if wanted != nil && !wanted[p.Partition] {
			continue
		}
		if n := len(k.Topics); n == 0 || k.Topics[n-1].Topic != p.Partition.Topic {
			t := kmsg.NewDescribeLogDirsResponseDirTopic()
			t.Topic = p.Partition.Topic
			k.Topics = append(k.Topics, t)
		}
		x := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
		x.Partition, x.Size = p.Partition.Partition, p.Size
		t := &k.Topics[len(k.Topics)-1]
		t.Partitions = append(t.Partitions, x)
	}
	return k
}
