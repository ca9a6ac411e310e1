package producer

import "errors"

// Why a batch or marker is refused. They come as *RefusedError.
var (
	// ErrOutOfOrderSequence: the batch does not follow the producer's last one.
	ErrOutOfOrderSequence = errors.New("out of order sequence number")
	// ErrInvalidEpoch: the producer's epoch is older than the one last seen.
	ErrInvalidEpoch = errors.New("invalid producer epoch")
	// ErrInvalidTxnState: the batch does not fit the producer's transaction.
	ErrInvalidTxnState = errors.New("invalid transaction state")
	// ErrCoordinatorFenced: a marker of an older transaction coordinator.
	ErrCoordinatorFenced = errors.New("transaction coordinator fenced")
	// ErrCorruptSnapshot is returned for a snapshot file that cannot be believed.
	ErrCorruptSnapshot = errors.New("corrupt producer snapshot")
)

// RefusedError is a refused batch with Kafka's message.
type RefusedError struct {
	Err     error // one of the sentinels
	Message string
}

func (e *RefusedError) Error() string { return e.Message }
func (e *RefusedError) Unwrap() error { return e.Err }
