package checkpoint

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/varvelog/varve/internal/vfs"
)

// NoBrokerEpoch is the epoch of a clean-shutdown marker that has none that can
// be read.
const NoBrokerEpoch = -1

// ReadCleanShutdown looks for the clean-shutdown marker of a data directory.
// That it is there is all that the log loader asks. The broker epoch in it is
// for the controller; NoBrokerEpoch when there is no marker or its content
// cannot be read, which is not an error (Kafka's CleanShutdownFileHandler).
func ReadCleanShutdown(fsys vfs.FS, dir string) (brokerEpoch int64, found bool, err error) {
	data, err := readFile(fsys, filepath.Join(dir, CleanShutdownFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return NoBrokerEpoch, false, nil
	case errors.Is(err, ErrCorrupt):
		return NoBrokerEpoch, true, nil
	case err != nil:
		return NoBrokerEpoch, false, err
	}
	return decodeCleanShutdown(data), true, nil
}

func decodeCleanShutdown(data []byte) (brokerEpoch int64) {
	var marker struct {
		Version     *int   `json:"version"`
		BrokerEpoch *int64 `json:"brokerEpoch"`
	}
	if json.Unmarshal(data, &marker) != nil || marker.Version == nil || marker.BrokerEpoch == nil {
		return NoBrokerEpoch
	}
	return *marker.BrokerEpoch
}

// WriteCleanShutdown writes the marker, synced. It is the last thing written to
// a data directory, and only when every log of it was closed cleanly.
func WriteCleanShutdown(fsys vfs.FS, dir string, brokerEpoch int64) error {
	return WriteFile(fsys, filepath.Join(dir, CleanShutdownFile), encodeCleanShutdown(brokerEpoch))
}

func encodeCleanShutdown(brokerEpoch int64) []byte {
	return []byte(`{"version":0,"brokerEpoch":` + strconv.FormatInt(brokerEpoch, 10) + `}`)
}

// RemoveCleanShutdown unlinks the marker and syncs the directory, which has to
// happen before the first log is opened (faults O2). A missing marker is fine.
func RemoveCleanShutdown(fsys vfs.FS, dir string) error {
	err := fsys.Remove(filepath.Join(dir, CleanShutdownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
