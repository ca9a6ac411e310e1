package commitlog

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
)

// Errors that callers branch on; broker/codes.go maps each to a protocol code.
// Refused appends come as *AppendError, which carries Kafka's message.
var (
	// ErrCorrupt: framing or checksum of a batch is wrong (CORRUPT_MESSAGE).
	ErrCorrupt = errors.New("corrupt record batch")
	// ErrInvalidRecord: a batch breaks a rule of its topic or of the format (INVALID_RECORD).
	ErrInvalidRecord = errors.New("invalid record")
	// ErrInvalidTimestamp: a record timestamp is out of the topic's range (INVALID_TIMESTAMP).
	ErrInvalidTimestamp = errors.New("timestamp out of range")
	// ErrMessageTooLarge: a batch is larger than max.message.bytes (MESSAGE_TOO_LARGE).
	ErrMessageTooLarge = errors.New("record batch too large")
	// ErrRecordBatchTooLarge: an append is larger than segment.bytes (RECORD_LIST_TOO_LARGE).
	ErrRecordBatchTooLarge = errors.New("append larger than a segment")
	// ErrOffsetsOutOfOrder: offsets of a follower's append do not rise.
	ErrOffsetsOutOfOrder = errors.New("offsets out of order")
	// ErrUnexpectedAppendOffset: a follower's append starts below the log end.
	ErrUnexpectedAppendOffset = errors.New("append below the log end offset")
	// ErrUnprocessable: the records cannot be decompressed or rebuilt (UNKNOWN_SERVER_ERROR, as Kafka answers).
	ErrUnprocessable = errors.New("records cannot be processed")

	// ErrOutOfOrderSequence, ErrInvalidProducerEpoch, ErrInvalidTxnState and
	// ErrCoordinatorFenced are refusals of the producer state.
	ErrOutOfOrderSequence   = producer.ErrOutOfOrderSequence
	ErrInvalidProducerEpoch = producer.ErrInvalidEpoch
	ErrInvalidTxnState      = producer.ErrInvalidTxnState
	ErrCoordinatorFenced    = producer.ErrCoordinatorFenced

	// ErrOffsetOutOfRange comes as *OffsetOutOfRangeError (OFFSET_OUT_OF_RANGE).
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrPolicyViolation: records of a compacted topic may not be deleted (POLICY_VIOLATION).
	ErrPolicyViolation = errors.New("cleanup policy forbids deletion")
	// ErrFull: the disk has no room; the append was cut back and may be tried again (KAFKA_STORAGE_ERROR).
	ErrFull = errors.New("disk full")
	// ErrStorage: an input or output error took the log offline (KAFKA_STORAGE_ERROR).
	ErrStorage = errors.New("log is offline")
	// ErrSegmentsChanged: the segments that were rewritten are not those of the log any more.
	ErrSegmentsChanged = errors.New("segments have changed")
	// ErrCut: the records were cut off the log again before they were durable.
	ErrCut = errors.New("records were cut off before they were durable")
	// ErrClosed: the log was closed or deleted.
	ErrClosed = errors.New("log is closed")
)

// RecordError says which record of a batch was refused, and why, in Kafka's words.
type RecordError struct {
	Index   int32 // of the record in the batch
	Message string
}

// AppendError is a refused append. Nothing was written.
type AppendError struct {
	Err          error         // one of the sentinels
	Message      string        // Kafka's text
	RecordErrors []RecordError // refused records; nil when the batch as a whole was
}

func (e *AppendError) Error() string { return e.Message }
func (e *AppendError) Unwrap() error { return e.Err }

// OffsetOutOfRangeError says what could have been read.
type OffsetOutOfRangeError struct {
	Offset     kafka.Offset
	Start, End kafka.Offset // [Start, End] was allowed
	Partition  kafka.TopicPartition
}

func (e *OffsetOutOfRangeError) Error() string {
	return fmt.Sprintf("Received request for offset %d for partition %s, but we only have log segments in the range %d to %d.",
		e.Offset, e.Partition, e.Start, e.End)
}

// Is makes errors.Is(err, ErrOffsetOutOfRange) true.
func (e *OffsetOutOfRangeError) Is(target error) bool { return target == ErrOffsetOutOfRange }
