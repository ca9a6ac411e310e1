package broker

// ListOffsets (key 2), versions 1 to 11: isolation level and throttle time from
// 2; leader epochs from 4; the offset of the largest timestamp (-3) from 7
// (KIP-734), the earliest local one (-4) from 8 (KIP-405), the latest tiered one
// (-5) from 9 (KIP-1005), the earliest not yet tiered (-6) from 11 (KIP-1023); a
// timeout from 10.
//
// A consumer is answered up to what it may fetch: the high watermark, or the
// last stable offset when it reads committed transactions. Any other replica id
// is answered up to the log end. Nothing found is no error: timestamp and offset
// are -1. A partition named twice is answered once, with error 42.

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/replica"
)

// Timestamps that ask for a place instead of a time.
const (
	latestOffset          = -1
	earliestOffset        = -2
	maxTimestampOffset    = -3
	earliestLocal         = -4
	latestTiered          = -5
	earliestPendingUpload = -6
)

// askedSince is the first version that knows a special timestamp, 0 when none does.
func askedSince(timestamp int64) int16 {
	switch timestamp {
	case latestOffset, earliestOffset:
		return 1
	case maxTimestampOffset:
		return 7
	case earliestLocal:
		return 8
	case latestTiered:
		return 9
	case earliestPendingUpload:
		return 11
	}
	return 0
}

func (b *Broker) listOffsets(c *Context, q *kmsg.ListOffsetsRequest) *kmsg.ListOffsetsResponse {
	answer := kmsg.NewPtrListOffsetsResponse()
	count := map[kafka.TopicPartition]int{}
	for i := range q.Topics {
		for j := range q.Topics[i].Partitions {
			count[kafka.TopicPartition{Topic: q.Topics[i].Topic, Partition: q.Topics[i].Partitions[j].Partition}]++
		}
	}
	for i := range q.Topics {
		t := kmsg.NewListOffsetsResponseTopic()
		t.Topic = q.Topics[i].Topic
		for j := range q.Topics[i].Partitions {
			asked := &q.Topics[i].Partitions[j]
			tp := kafka.TopicPartition{Topic: t.Topic, Partition: asked.Partition}
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition, p.Timestamp, p.Offset = asked.Partition, -1, -1
			switch n := count[tp]; {
			case n < 0:
				continue // answered already
			case n > 1:
				count[tp] = -1
				p.ErrorCode = int16(kafka.ErrInvalidRequest)
			default:
				found, code := b.listOffset(c, q, tp, asked)
				p.ErrorCode = int16(code)
				if code == kafka.None {
					p.Timestamp, p.Offset, p.LeaderEpoch = int64(found.Timestamp), int64(found.Offset), int32(found.Epoch)
				}
			}
			t.Partitions = append(t.Partitions, p)
		}
		answer.Topics = append(answer.Topics, t)
	}
	return answer
}

var nothingFound = commitlog.TimestampOffset{Timestamp: kafka.NoTimestamp, Offset: kafka.NoOffset, Epoch: kafka.NoLeaderEpoch}

func (b *Broker) listOffset(c *Context, q *kmsg.ListOffsetsRequest, tp kafka.TopicPartition, asked *kmsg.ListOffsetsRequestTopicPartition) (commitlog.TimestampOffset, kafka.ErrorCode) {
	if q.IsolationLevel != 0 && q.IsolationLevel != 1 {
		return nothingFound, kafka.ErrUnknownServerError
	}
	p, code := b.partition([]byte(tp.Topic), kafka.ZeroUUID, tp.Partition)
	if code != kafka.None && code != kafka.ErrNotLeaderOrFollower {
		return nothingFound, code
	}
	if since := askedSince(asked.Timestamp); asked.Timestamp < 0 && (since == 0 || c.Version < since) {
		return nothingFound, kafka.ErrUnsupportedVersion
	}
	if code != kafka.None {
		return nothingFound, code
	}
	l, err := p.Lead(max(kafka.LeaderEpoch(asked.CurrentLeaderEpoch), kafka.NoLeaderEpoch))
	if err != nil {
		return nothingFound, ErrorCode(err)
	}
	consumer := q.ReplicaID == int32(kafka.NoBroker)
	bound := l.EndOffset()
	switch {
	case consumer && q.IsolationLevel == 1:
		bound = l.LastStable()
	case consumer:
		bound = l.HighWatermark()
	}
	found, err := findOffset(p, l, asked.Timestamp, bound)
	if err != nil {
		return nothingFound, ErrorCode(err)
	}
	// After an election the high watermark may be behind the epoch's start: what
	// lies between is not yet known to be committed (KIP-207).
	behind := consumer && l.HighWatermark() < p.Role().EpochStart
	if behind && (asked.Timestamp == latestOffset || found.Offset == kafka.NoOffset && (asked.Timestamp >= 0 || asked.Timestamp == maxTimestampOffset)) {
		if c.Version < 5 {
			return nothingFound, kafka.ErrLeaderNotAvailable
		}
		return nothingFound, kafka.ErrOffsetNotAvailable
	}
	return found, kafka.None
}

func findOffset(p *replica.Partition, l *commitlog.Log, timestamp int64, bound kafka.Offset) (commitlog.TimestampOffset, error) {
	switch timestamp {
	case latestOffset:
		return commitlog.TimestampOffset{Timestamp: kafka.NoTimestamp, Offset: bound, Epoch: p.LeaderEpoch()}, nil
	case earliestOffset, earliestLocal:
		found := commitlog.TimestampOffset{Timestamp: kafka.NoTimestamp, Offset: l.StartOffset(), Epoch: kafka.NoLeaderEpoch}
		if epoch, start, ok := l.EarliestEpoch(); ok && start <= found.Offset {
			found.Epoch = epoch
		}
		return found, nil
	case maxTimestampOffset:
		return l.MaxTimestampOffset(bound)
	case latestTiered, earliestPendingUpload:
		return nothingFound, nil
	}
	return l.OffsetForTimestamp(kafka.Timestamp(timestamp), bound)
}
