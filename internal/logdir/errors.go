package logdir

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/varvelog/varve/internal/kafka"
)

// ErrOffline is wrapped by what is answered for a partition whose directory is
// offline, and by Create when no directory is left.
var ErrOffline = errors.New("data directory is offline")

// ErrNotLoaded is returned for changes before Load has ended or after Close.
var ErrNotLoaded = errors.New("data directories are not loaded")

// errMoved is why a directory goes offline whose path leads elsewhere now.
var errMoved = errors.New("the path leads to another directory than at the start: it was moved or unmounted")

// InUseError says that another process holds the lock of a directory.
type InUseError struct {
	Dir string
	Err error
}

// Error is what the user sees.
func (e *InUseError) Error() string {
	return fmt.Sprintf("data directory is in use: %s: %v", e.Dir, e.Err)
}

// Unwrap returns the cause.
func (e *InUseError) Unwrap() error { return e.Err }

// UnusableError says that a directory cannot be made, or its lock file not
// opened: the path is wrong, or this process may not write there.
type UnusableError struct {
	Dir string
	Err error
}

// Error is what the user sees.
func (e *UnusableError) Error() string {
	return fmt.Sprintf("data directory %s: %v", e.Dir, e.Err)
}

// Unwrap returns the cause.
func (e *UnusableError) Unwrap() error { return e.Err }

// RefusedError says why a directory is not taken: it belongs to somebody else,
// or what it holds cannot be told. Nothing in it was changed.
type RefusedError struct {
	Dir  string
	Why  string
	Hint string // what to do; may be empty
}

// Error is what the user sees.
func (e *RefusedError) Error() string {
	s := e.Dir + ": " + e.Why
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// SameDirectoryError says that two entries of log.dirs are one directory.
type SameDirectoryError struct{ First, Second string }

// Error is what the user sees.
func (e *SameDirectoryError) Error() string {
	return fmt.Sprintf("log.dirs: %s and %s are the same directory", e.First, e.Second)
}

// IdentityError says that a partition directory holds the id of another known
// topic. It is left as it is, and the partition of its name is not created anew.
type IdentityError struct {
	Dir       string
	Partition kafka.TopicPartition // by the directory's name
	TopicID   kafka.TopicID        // in partition.metadata
	Owner     string               // topic of that id
}

// Error names both topics.
func (e *IdentityError) Error() string {
	return fmt.Sprintf("%s: partition.metadata holds %s, the id of topic %s", e.Dir, e.TopicID, e.Owner)
}

// NotDirectoryError says that something that is no directory has the name of a
// partition. It is left as it is.
type NotDirectoryError struct {
	Path string
	Kind fs.FileMode // its type bits; 0 for a file
}

// Error names the path.
func (e *NotDirectoryError) Error() string {
	return fmt.Sprintf("%s is no directory (%s): left alone", e.Path, e.Kind.Type())
}
