// Package commitlog is one partition's log: an ordered list of segments and the
// offsets that bound what may be read of it (Kafka's UnifiedLog, LocalLog and
// LogLoader in one).
//
// Before it on the path: replica, which knows whether this broker leads the
// partition. After it: segment for the bytes, producer for sequences and
// transactions. Appends are serialised by the log's mutex; readers take what
// was published and no lock.
package commitlog

import (
	"errors"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
)

var errNotBuilt = errors.New("not built yet")

// Log is one partition's log.
type Log struct{}

// Open loads the log in o.Dir, recovers what a crash left, and makes a first
// segment if there is none.
func Open(o Options) (*Log, error) { return nil, errNotBuilt }

// AppendAsLeader appends the records field of one partition of a Produce
// request, or a coordinator's batch. Offsets, leader epoch and, where the topic
// asks for it, timestamps are patched into buf; buf may be reused when it returns.
func (l *Log) AppendAsLeader(buf []byte, epoch kafka.LeaderEpoch, o AppendOptions) (AppendInfo, error) {
	return AppendInfo{}, errNotBuilt
}

// AppendAsFollower appends batches that have their offsets.
func (l *Log) AppendAsFollower(buf []byte, epoch kafka.LeaderEpoch) (AppendInfo, error) {
	return AppendInfo{}, errNotBuilt
}

// Read finds the bytes to answer a fetch from start.
func (l *Log) Read(start kafka.Offset, o ReadOptions) (ReadInfo, error) {
	return ReadInfo{}, errNotBuilt
}

// StartOffset is the first offset that may be read.
func (l *Log) StartOffset() kafka.Offset { return 0 }

// HighWatermark is the offset below which records are committed.
func (l *Log) HighWatermark() kafka.Offset { return 0 }

// LastStable is the offset below which transactions are decided and committed.
func (l *Log) LastStable() kafka.Offset { return 0 }

// EndOffset is the offset of the next append.
func (l *Log) EndOffset() kafka.Offset { return 0 }

// UpdateHighWatermark sets the high watermark within [StartOffset, EndOffset]
// and returns what it is now.
func (l *Log) UpdateHighWatermark(hw kafka.Offset) kafka.Offset { return 0 }

// MaybeIncrementHighWatermark raises the high watermark; raised is false when hw is not above it.
func (l *Log) MaybeIncrementHighWatermark(hw kafka.Offset) (raised bool) { return false }

// MaybeIncrementStartOffset raises the log start offset; an offset above the
// high watermark is ErrOffsetOutOfRange.
func (l *Log) MaybeIncrementStartOffset(offset kafka.Offset) (raised bool, err error) {
	return false, errNotBuilt
}

// OffsetForTimestamp finds the first record below bound with a timestamp at or after ts.
func (l *Log) OffsetForTimestamp(ts kafka.Timestamp, bound kafka.Offset) (TimestampOffset, error) {
	return TimestampOffset{}, errNotBuilt
}

// MaxTimestampOffset finds the first record with the largest timestamp.
func (l *Log) MaxTimestampOffset(bound kafka.Offset) (TimestampOffset, error) {
	return TimestampOffset{}, errNotBuilt
}

// EndOffsetForEpoch is where an epoch ends on this log (OffsetForLeaderEpoch); (-1, -1) when unknown.
func (l *Log) EndOffsetForEpoch(e kafka.LeaderEpoch) (kafka.LeaderEpoch, kafka.Offset) { return -1, -1 }

// LatestEpoch is the newest leader epoch of the log.
func (l *Log) LatestEpoch() (kafka.LeaderEpoch, bool) { return 0, false }

// EarliestEpoch is the oldest entry of the epoch cache.
func (l *Log) EarliestEpoch() (e kafka.LeaderEpoch, start kafka.Offset, ok bool) { return 0, 0, false }

// AssignEpoch records that epoch e starts at offset start; it is durable when it returns.
func (l *Log) AssignEpoch(e kafka.LeaderEpoch, start kafka.Offset) error { return errNotBuilt }

// DeleteRecordsTo raises the log start offset for DeleteRecords; -1 means the
// high watermark. It returns the new log start offset.
func (l *Log) DeleteRecordsTo(offset kafka.Offset) (kafka.Offset, error) { return 0, errNotBuilt }

// DeleteOldSegments applies retention and returns how many segments went.
func (l *Log) DeleteOldSegments() (int, error) { return 0, errNotBuilt }

// TruncateTo cuts the log so that it ends at offset.
func (l *Log) TruncateTo(offset kafka.Offset) error { return errNotBuilt }

// TruncateFullyAndStartAt empties the log; it goes on at offset.
func (l *Log) TruncateFullyAndStartAt(offset kafka.Offset) error { return errNotBuilt }

// Roll starts a new segment.
func (l *Log) Roll() error { return errNotBuilt }

// Flush makes everything below to durable.
func (l *Log) Flush(to kafka.Offset) error { return errNotBuilt }

// RecoveryPoint is the offset below which everything is durable.
func (l *Log) RecoveryPoint() kafka.Offset { return 0 }

// Size is the bytes of all segments' .log files.
func (l *Log) Size() int64 { return 0 }

// Partition is whose log it is.
func (l *Log) Partition() kafka.TopicPartition { return kafka.TopicPartition{} }

// Dir is the directory of the log's files.
func (l *Log) Dir() string { return "" }

// Config is the topic's settings now.
func (l *Log) Config() *Config { return nil }

// SetConfig replaces the topic's settings.
func (l *Log) SetConfig(c Config) {}

// ActiveProducers lists what DescribeProducers answers.
func (l *Log) ActiveProducers() []producer.Entry { return nil }

// ExpireProducers forgets producers that were silent too long.
func (l *Log) ExpireProducers() {}

// Close flushes and closes the log as a clean stop does.
func (l *Log) Close() error { return errNotBuilt }

// Delete closes the log and removes its directory.
func (l *Log) Delete() error { return errNotBuilt }

// Rename moves the log to another directory name, as deletion does first.
func (l *Log) Rename(dir string) error { return errNotBuilt }
