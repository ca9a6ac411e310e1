package broker

import (
	"errors"
	"io/fs"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/quorum"
	"github.com/varvelog/varve/internal/replica"
)

// ErrorCode is the protocol code of an error from below. It is the only place
// where codes are chosen for errors; a condition that is no Go error (an unknown
// topic, a request out of range) has its code in the API's own file.
func ErrorCode(err error) kafka.ErrorCode {
	if err == nil {
		return kafka.None
	}
	for _, row := range codes {
		if errors.Is(err, row.err) {
			return row.code
		}
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return kafka.ErrKafkaStorageError
	}
	return kafka.ErrUnknownServerError
}

// codes is searched in order.
var codes = [...]struct {
	err  error
	code kafka.ErrorCode
}{
	{replica.ErrUnknownPartition, kafka.ErrUnknownTopicOrPartition},
	{replica.ErrNotLeader, kafka.ErrNotLeaderOrFollower},
	{replica.ErrFencedEpoch, kafka.ErrFencedLeaderEpoch},
	{replica.ErrUnknownEpoch, kafka.ErrUnknownLeaderEpoch},
	{replica.ErrNotEnoughReplicas, kafka.ErrNotEnoughReplicas},
	{replica.ErrStorage, kafka.ErrKafkaStorageError},
	{commitlog.ErrOffsetOutOfRange, kafka.ErrOffsetOutOfRange},
	{commitlog.ErrOutOfOrderSequence, kafka.ErrOutOfOrderSequenceNumber},
	{commitlog.ErrInvalidProducerEpoch, kafka.ErrInvalidProducerEpoch},
	{commitlog.ErrInvalidTxnState, kafka.ErrInvalidTxnState},
	{commitlog.ErrCoordinatorFenced, kafka.ErrTransactionCoordinatorFenced},
	{commitlog.ErrInvalidTimestamp, kafka.ErrInvalidTimestamp},
	{commitlog.ErrMessageTooLarge, kafka.ErrMessageTooLarge},
	{commitlog.ErrRecordBatchTooLarge, kafka.ErrRecordListTooLarge},
	{commitlog.ErrInvalidRecord, kafka.ErrInvalidRecord},
	{commitlog.ErrCorrupt, kafka.ErrCorruptMessage},
	{commitlog.ErrPolicyViolation, kafka.ErrPolicyViolation},
	{commitlog.ErrUnprocessable, kafka.ErrUnknownServerError},
	{commitlog.ErrFull, kafka.ErrKafkaStorageError},
	{commitlog.ErrStorage, kafka.ErrKafkaStorageError},
	{commitlog.ErrClosed, kafka.ErrNotLeaderOrFollower},
	{commitlog.ErrCut, kafka.ErrNotLeaderOrFollower},
	{quorum.ErrClosed, kafka.ErrNotController},
	{quorum.ErrTooLarge, kafka.ErrPolicyViolation},
}
