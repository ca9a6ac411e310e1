package checkpoint

import (
	"strconv"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// Epoch says that the records from Start on were written under leader epoch
// Epoch, until the next entry's Start.
type Epoch struct {
	Epoch kafka.LeaderEpoch
	Start kafka.Offset
}

// ReadEpochs reads a leader-epoch-checkpoint. The entries are as they stand in
// the file; whether they rise is for the log to judge.
func ReadEpochs(fsys vfs.FS, path string) ([]Epoch, error) {
	data, err := readFile(fsys, path)
	if err != nil {
		return nil, err
	}
	return decodeEpochs(path, data)
}

func decodeEpochs(path string, data []byte) ([]Epoch, error) {
	var epochs []Epoch
	t := &textFile{path: path, rest: data}
	err := t.each(2, func(word []string) bool {
		epoch, err := strconv.ParseInt(word[0], 10, 32)
		start, ok := parseOffset(word[1])
		if err != nil || !ok {
			return false
		}
		epochs = append(epochs, Epoch{Epoch: kafka.LeaderEpoch(epoch), Start: start})
		return true
	})
	if err != nil {
		return nil, err
	}
	return epochs, nil
}

// WriteEpochs replaces a leader-epoch-checkpoint.
func WriteEpochs(fsys vfs.FS, path string, epochs []Epoch) error {
	return WriteFile(fsys, path, encodeEpochs(epochs))
}

// ReplaceEpochs is WriteEpochs for a caller that syncs the directory itself,
// after other changes in it.
func ReplaceEpochs(fsys vfs.FS, path string, epochs []Epoch) error {
	return replaceFile(fsys, path, encodeEpochs(epochs))
}

func encodeEpochs(epochs []Epoch) []byte {
	out := appendHeader(make([]byte, 0, 16+16*len(epochs)), len(epochs))
	for _, e := range epochs {
		out = strconv.AppendInt(out, int64(e.Epoch), 10)
		out = append(out, ' ')
		out = strconv.AppendInt(out, int64(e.Start), 10)
		out = append(out, '\n')
	}
	return out
}
