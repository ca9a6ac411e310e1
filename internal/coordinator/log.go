package coordinator

import "github.com/varvelog/varve/internal/kafka"

// Log is what a shard needs of its partition, which this broker leads. Errors
// are those of the log; Options.ErrorCode tells which code each one is.
type Log interface {
	// Append appends one batch as the coordinator, in the epoch in which the
	// shard was loaded, and returns the batch's base offset. The batch is the
	// caller's again when it returns.
	Append(batch []byte) (kafka.Offset, error)
	// Read returns whole batches, the first of which holds from: as many as fit
	// into maxBytes, but at least one. At the end of the log it returns none.
	// The bytes may be put into buf.
	Read(from kafka.Offset, maxBytes int, buf []byte) ([]byte, error)
	StartOffset() kafka.Offset
	EndOffset() kafka.Offset
	HighWatermark() kafka.Offset
	// Failure says why the high watermark will not move any more: the log is
	// offline. Nil while all is well.
	Failure() error
	// Watch has f called after the high watermark has moved, or the log has
	// failed, from any goroutine and possibly from within Append. f does not block and takes no lock of the
	// log. stop ends it.
	Watch(f func()) (stop func())
}
