// Package checkpoint reads and writes the small files that are replaced as a
// whole: offset checkpoints, leader epochs, meta.properties,
// partition.metadata, quorum-state and the clean-shutdown marker. Their formats
// are Apache Kafka's (docs/format).
//
// Before it on the path: logdir, commitlog and quorum, which know what the
// numbers mean. After it: vfs.
package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/varvelog/varve/internal/vfs"
)

// Names of the files in the root of a data directory and in a partition's.
const (
	MetaFile           = "meta.properties"
	LockFile           = ".lock"
	CleanShutdownFile  = ".kafka_cleanshutdown"
	RecoveryPointFile  = "recovery-point-offset-checkpoint"
	LogStartFile       = "log-start-offset-checkpoint"
	HighWatermarkFile  = "replication-offset-checkpoint"
	CleanerFile        = "cleaner-offset-checkpoint"
	EpochFile          = "leader-epoch-checkpoint"
	PartitionFile      = "partition.metadata"
	QuorumStateFile    = "quorum-state"
	temporarySuffix    = ".tmp"
	maxFileSize        = 64 << 20 // bounds what is read into memory
	filePermission     = 0o644
	formatVersion      = 0
	partitionIDVersion = 0
)

// ErrCorrupt is wrapped by every CorruptError.
var ErrCorrupt = errors.New("corrupt checkpoint")

// CorruptError says where a small file does not have the form it should.
type CorruptError struct {
	Path   string
	Line   int // from 1; 0 when the whole file is meant
	Reason string
}

// Error names the file, the line and what was found.
func (e *CorruptError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Path, e.Reason)
	}
	return fmt.Sprintf("%s: line %d: %s", e.Path, e.Line, e.Reason)
}

// Unwrap returns ErrCorrupt.
func (e *CorruptError) Unwrap() error { return ErrCorrupt }

// WriteFile replaces path by data so that a crash leaves the old file or the
// new one, whole: write path.tmp, sync it, rename it, sync the directory
// (faults O8). After an error the old file is still there, unless only the last
// step failed.
func WriteFile(fsys vfs.FS, path string, data []byte) error {
	if err := replaceFile(fsys, path, data); err != nil {
		return err
	}
	return fsys.SyncDir(filepath.Dir(path))
}

// replaceFile is WriteFile without its last step, for callers that change more
// names in the directory before they sync it. Until then a crash leaves either file.
func replaceFile(fsys vfs.FS, path string, data []byte) error {
	tmp := path + temporarySuffix
	if err := writeSynced(fsys, tmp, data); err != nil {
		return err
	}
	return fsys.Rename(tmp, path)
}

func writeSynced(fsys vfs.FS, path string, data []byte) error {
	f, err := fsys.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, filePermission)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// readFile returns the content of a small file. A missing one is fs.ErrNotExist,
// and what is no regular file vfs.ErrNotRegular.
func readFile(fsys vfs.FS, path string) ([]byte, error) {
	f, err := fsys.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxFileSize {
		return nil, &CorruptError{Path: path, Reason: fmt.Sprintf("%d bytes, want at most %d", size, maxFileSize)}
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); n < len(data) {
		// Replaced as a whole, it cannot have become shorter: that is the disk.
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.Join(io.ErrUnexpectedEOF, err)}
	}
	return data, nil
}
