package record

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
)

// Errors that callers branch on.
var (
	// ErrCorrupt is what framing and checksum errors are (Kafka's
	// CorruptRecordException). They come as *CorruptError.
	ErrCorrupt = errors.New("corrupt batch")
	// ErrInvalid is a batch whose framing and checksum are right and whose
	// content is not (Kafka's InvalidRecordException). It comes as *InvalidError.
	ErrInvalid = errors.New("invalid record")
	// ErrTooLarge is returned when decompression would pass the Decompressor's
	// limit, or a record in a compressed batch is declared larger than allowed.
	ErrTooLarge = errors.New("decompressed size above the limit")
	// ErrUnknownCodec is returned for the codec bits 5 to 7, and for zstd in
	// message formats 0 and 1.
	ErrUnknownCodec = errors.New("unknown compression codec")
)

// CorruptError says what in a batch contradicts its framing or checksum.
type CorruptError struct {
	Base        kafka.Offset // base offset as stored; 0 when the header is not there
	Position    int64        // byte of the file or buffer where the batch starts
	Reason      string       // the noun that is wrong
	Found, Want int64        // what is there and what should be; both 0 when Reason says it all
}

func (e *CorruptError) Error() string {
	at := fmt.Sprintf("batch at byte %d with base offset %d: %s", e.Position, e.Base, e.Reason)
	if e.Found == 0 && e.Want == 0 {
		return at
	}
	return fmt.Sprintf("%s %d, want %d", at, e.Found, e.Want)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// InvalidError says which record of a batch breaks the record format.
type InvalidError struct {
	Index  int // of the record in the batch; -1 when the batch as a whole is meant
	Reason string
}

func (e *InvalidError) Error() string {
	if e.Index < 0 {
		return e.Reason
	}
	return fmt.Sprintf("record %d: %s", e.Index, e.Reason)
}

// Is makes errors.Is(err, ErrInvalid) true.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
