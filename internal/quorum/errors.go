package quorum

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
)

// Errors that callers branch on.
var (
	// ErrClosed is returned by Update after Close.
	ErrClosed = errors.New("metadata log is closed")
	// ErrNotFormatted is returned by Open when the directory has no metadata log,
	// snapshot or bootstrap file.
	ErrNotFormatted = errors.New("no metadata: the directory is not formatted")
	// ErrTooLarge is returned by Update for an operation above MaxBatchBytes.
	ErrTooLarge = errors.New("operation larger than a metadata batch")
	// ErrRefused is wrapped by every *RefusedError.
	ErrRefused = errors.New("metadata refused")
	// ErrDamaged is wrapped by every *DamagedError.
	ErrDamaged = errors.New("metadata damaged")
)

// RefusedError is why a directory is not taken over. Nothing in it was changed.
type RefusedError struct {
	Path   string // file or directory
	Reason string
	Hint   string // what the operator can do
	Err    error  // what was found; may be nil
}

func (e *RefusedError) Error() string {
	s := e.Path + ": " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Is makes errors.Is(err, ErrRefused) true.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap gives what was found.
func (e *RefusedError) Unwrap() error { return e.Err }

// DamagedError says where the log or a snapshot is damaged in a way that
// cutting the tail does not mend. Nothing was changed.
type DamagedError struct {
	Path   string
	Offset kafka.Offset // first metadata offset that cannot be read; -1 for a snapshot
	Byte   int64        // where in the file
	Reason string
}

func (e *DamagedError) Error() string {
	s := fmt.Sprintf("%s: byte %d", e.Path, e.Byte)
	if e.Offset >= 0 {
		s += fmt.Sprintf(", offset %d", e.Offset)
	}
	return s + ": " + e.Reason
}

// Is makes errors.Is(err, ErrDamaged) true.
func (e *DamagedError) Is(target error) bool { return target == ErrDamaged }
