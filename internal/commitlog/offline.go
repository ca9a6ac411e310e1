package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"

	"github.com/varvelog/varve/internal/vfs"
)

// storageError is the error that took a log offline, or that a request met
// because the process had no descriptor or memory left.
type storageError struct{ err error }

func (e *storageError) Error() string        { return "storage: " + e.err.Error() }
func (e *storageError) Unwrap() error        { return e.err }
func (e *storageError) Is(target error) bool { return target == ErrStorage }

// fullError is a full disk.
type fullError struct{ err error }

func (e *fullError) Error() string        { return e.err.Error() }
func (e *fullError) Unwrap() error        { return e.err }
func (e *fullError) Is(target error) bool { return target == ErrFull }

// Failure is the error that took the log offline, or another log of its
// directory; nil while all is well.
func (l *Log) Failure() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	if l.opts.Offline != nil {
		if p := l.opts.Offline.Load(); p != nil && errors.Is(*p, ErrStorage) {
			return *p
		} else if p != nil {
			return &storageError{*p}
		}
	}
	return nil
}

// usable refuses work on a log that is closed or offline, itself or with its directory.
func (l *Log) usable() error {
	if l.closed.Load() {
		return ErrClosed
	}
	return l.Failure()
}

func (l *Log) writableLocked() error { return l.usable() }

// Fail takes the log offline, for its owner when another log of the directory failed.
func (l *Log) Fail(err error) {
	failed := error(&storageError{err})
	l.failure.CompareAndSwap(nil, &failed)
	l.synced.wake()
}

// fail takes the log offline and returns the error to answer with; tell has the
// owner be told, and is false when it cannot be called now.
func (l *Log) fail(what string, err error) error {
	failed := error(&storageError{fmt.Errorf("%s: %s: %w", l.partition, what, err)})
	// A file or directory that somebody has taken away says nothing of the others;
	// the owner finds out whether all are gone.
	if l.opts.Offline != nil && (vfs.IsSync(err) || !errors.Is(err, fs.ErrNotExist)) {
		l.opts.Offline.CompareAndSwap(nil, &failed) // at once: from here on no log of the directory writes
	}
	if l.failure.CompareAndSwap(nil, &failed) {
		l.say(slog.LevelError, "log is offline", "dir", l.Dir(), "err", failed)
		if l.opts.OnFailure != nil {
			go l.opts.OnFailure(failed)
		}
	}
	return failed
}

// writeErrorLocked classifies an error of a change to the disk: a full disk is
// refused and tried again by the client, a lack of descriptors or memory fails
// one request, anything else takes the log offline.
func (l *Log) writeErrorLocked(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStorage), errors.Is(err, ErrFull):
		return err
	case vfs.IsSync(err):
		return l.fail(what, err)
	case vfs.IsFull(err):
		if l.opts.OnFull != nil {
			l.opts.OnFull(what, err)
		}
		return &fullError{fmt.Errorf("%s: %s: %w", l.partition, what, err)}
	case outOfResources(err), vfs.IsReadError(err):
		// Nothing was changed by what failed; whoever asked counts failed reads.
		return &storageError{fmt.Errorf("%s: %s: %w", l.partition, what, err)}
	}
	return l.fail(what, err)
}

// WriteError is for whoever writes files of the log without its lock, the
// cleaner: it classifies the error as one of an append (ErrFull for a full disk)
// and takes the log offline when the disk cannot be trusted any more.
func (l *Log) WriteError(what string, err error) error { return l.writeErrorLocked(what, err) }

// noteSync is for work behind the client's back: what fails takes the log
// offline unless the disk is merely full.
func (l *Log) noteSync(what string, err error) {
	if err != nil && !l.closed.Load() {
		_ = l.writeErrorLocked(what, err) // kept as the log's failure, or tried again at the next change
	}
}

// outOfResources reports a lack of descriptors or memory, which says nothing
// about the disk.
func outOfResources(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
