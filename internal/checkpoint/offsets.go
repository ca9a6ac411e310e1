package checkpoint

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// ReadOffsets reads an offset checkpoint: one offset for each partition. An
// empty file is an empty map.
func ReadOffsets(fsys vfs.FS, path string) (map[kafka.TopicPartition]kafka.Offset, error) {
	data, err := readFile(fsys, path)
	if err != nil {
		return nil, err
	}
	return decodeOffsets(path, data)
}

func decodeOffsets(path string, data []byte) (map[kafka.TopicPartition]kafka.Offset, error) {
	offsets := map[kafka.TopicPartition]kafka.Offset{}
	t := &textFile{path: path, rest: data}
	err := t.each(3, func(word []string) bool {
		partition, err := strconv.ParseInt(word[1], 10, 32)
		offset, ok := parseOffset(word[2])
		if word[0] == "" || err != nil || !ok {
			return false
		}
		offsets[kafka.TopicPartition{Topic: word[0], Partition: int32(partition)}] = offset
		return true
	})
	if err != nil {
		return nil, err
	}
	return offsets, nil
}

// WriteOffsets replaces an offset checkpoint. The entries are sorted; Kafka
// writes them in hash order and reads any.
func WriteOffsets(fsys vfs.FS, path string, offsets map[kafka.TopicPartition]kafka.Offset) error {
	return WriteFile(fsys, path, encodeOffsets(offsets))
}

func encodeOffsets(offsets map[kafka.TopicPartition]kafka.Offset) []byte {
	sorted := slices.SortedFunc(maps.Keys(offsets), func(a, b kafka.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	out := appendHeader(make([]byte, 0, 16+32*len(sorted)), len(sorted))
	for _, tp := range sorted {
		out = append(out, tp.Topic...)
		out = append(out, ' ')
		out = strconv.AppendInt(out, int64(tp.Partition), 10)
		out = append(out, ' ')
		out = strconv.AppendInt(out, int64(offsets[tp]), 10)
		out = append(out, '\n')
	}
	return out
}

func appendHeader(out []byte, entries int) []byte {
	out = strconv.AppendInt(out, formatVersion, 10)
	out = append(out, '\n')
	out = strconv.AppendInt(out, int64(entries), 10)
	return append(out, '\n')
}
