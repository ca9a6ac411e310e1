package index

import (
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/kafka"
)

// Errors that callers branch on.
var (
	// ErrFull is returned when an entry has no room in the file; the segment is rolled then.
	ErrFull = errors.New("index is full")
	// ErrClosed is returned by every use after Close or Delete.
	ErrClosed = errors.New("index is closed")
	// ErrCorrupt is returned by SanityCheck, as *CorruptError.
	ErrCorrupt = errors.New("corrupt index")
	// ErrOverflow is returned, as *OverflowError, for an offset that cannot be
	// written relative to the base of the segment.
	ErrOverflow = errors.New("offset cannot be represented relative to the base offset")
	// ErrOrder is returned, as *OrderError, for an entry that does not come after the last one.
	ErrOrder = errors.New("index entry out of order")
)

// CorruptError says what is wrong with an index file.
type CorruptError struct {
	Path   string
	Reason string
}

func (e *CorruptError) Error() string { return fmt.Sprintf("index %s: %s", e.Path, e.Reason) }

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// OverflowError names an offset that is not within base and base + 2^31-1.
type OverflowError struct {
	Base, Offset kafka.Offset
}

func (e *OverflowError) Error() string {
	return fmt.Sprintf("offset %d: not within 2^31-1 of the base offset %d", e.Offset, e.Base)
}

// Is makes errors.Is(err, ErrOverflow) true.
func (e *OverflowError) Is(target error) bool { return target == ErrOverflow }

// OrderError names an entry that should have come earlier. Field is "offset" or "timestamp".
type OrderError struct {
	Field     string
	Got, Last int64
}

func (e *OrderError) Error() string {
	return fmt.Sprintf("%s %d comes after %d in the index", e.Field, e.Got, e.Last)
}

// Is makes errors.Is(err, ErrOrder) true.
func (e *OrderError) Is(target error) bool { return target == ErrOrder }

// Relative returns offset relative to base, or an *OverflowError when that is
// not within 0 and 2^31-1.
func Relative(base, offset kafka.Offset) (int32, error) {
	// The subtraction of two offsets of different sign can wrap; what wraps is
	// far out of range either way.
	d := offset - base
	if d < 0 || d > math.MaxInt32 || offset < base {
		return 0, &OverflowError{Base: base, Offset: offset}
	}
	return int32(d), nil
}
