package replica

import "errors"

// Errors of this layer; broker/codes.go maps each to a protocol code. Errors of
// the log and of logdir pass through.
var (
	// ErrUnknownPartition: not a partition of this broker, or deleted meanwhile
	// (UNKNOWN_TOPIC_OR_PARTITION).
	ErrUnknownPartition = errors.New("unknown partition")
	// ErrNotLeader: this broker does not lead the partition now
	// (NOT_LEADER_OR_FOLLOWER).
	ErrNotLeader = errors.New("not the leader of the partition")
	// ErrFencedEpoch: the request's leader epoch is older than the partition's
	// (FENCED_LEADER_EPOCH).
	ErrFencedEpoch = errors.New("leader epoch is older than the current one")
	// ErrUnknownEpoch: the request's leader epoch is newer (UNKNOWN_LEADER_EPOCH).
	ErrUnknownEpoch = errors.New("leader epoch is newer than the current one")
	// ErrNotEnoughReplicas: acks=all with fewer in-sync replicas than the topic
	// wants (NOT_ENOUGH_REPLICAS).
	ErrNotEnoughReplicas = errors.New("not enough in-sync replicas")
	// ErrStorage: the partition is on disk but could not be opened, or its
	// directory is offline (KAFKA_STORAGE_ERROR).
	ErrStorage = errors.New("partition is offline")
)

// storageError is ErrStorage with its cause.
type storageError struct{ cause error }

// Error is the text of the cause.
func (e *storageError) Error() string { return ErrStorage.Error() + ": " + e.cause.Error() }

// Unwrap returns ErrStorage and the cause.
func (e *storageError) Unwrap() []error { return []error{ErrStorage, e.cause} }
