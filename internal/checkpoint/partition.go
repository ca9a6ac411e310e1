package checkpoint

import (
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// ReadPartitionMetadata reads the topic id of a partition directory's
// partition.metadata (KIP-516, PartitionMetadataFile).
func ReadPartitionMetadata(fsys vfs.FS, path string) (kafka.TopicID, error) {
	data, err := readFile(fsys, path)
	if err != nil {
		return kafka.TopicID{}, err
	}
	return decodePartitionMetadata(path, data)
}

func decodePartitionMetadata(path string, data []byte) (kafka.TopicID, error) {
	t := &textFile{path: path, rest: data}
	version, err := t.field("version")
	if err != nil {
		return kafka.TopicID{}, err
	}
	// A newer version is read as this one, as Kafka does.
	if n, err := strconv.ParseInt(version, 10, 32); err != nil || n < 0 {
		return kafka.TopicID{}, t.corrupt("version is %q", clip(version))
	}
	text, err := t.field("topic_id")
	if err != nil {
		return kafka.TopicID{}, err
	}
	id, err := kafka.ParseUUID(text)
	if err != nil {
		return kafka.TopicID{}, t.corrupt("topic id: %v", err)
	}
	if id.IsZero() {
		return kafka.TopicID{}, t.corrupt("topic id is zero")
	}
	return id, nil
}

// field returns the value of the next line, which must be "name: value". The
// name itself is not compared by Kafka; here it is, so that another file is not
// taken for this one.
func (t *textFile) field(name string) (string, error) {
	line, ok := t.next()
	if !ok {
		t.line++
		return "", t.corrupt("missing, want %q", name+": …")
	}
	found, value, ok := strings.Cut(line, ":")
	text := strings.TrimLeftFunc(value, isJavaSpace)
	if !ok || found != name || text == value || text == "" {
		return "", t.corrupt("%q, want %q", clip(line), name+": …")
	}
	return text, nil
}

// WritePartitionMetadata replaces partition.metadata: 43 bytes, no line feed at
// the end.
func WritePartitionMetadata(fsys vfs.FS, path string, id kafka.TopicID) error {
	return WriteFile(fsys, path, encodePartitionMetadata(id))
}

// ReplacePartitionMetadata is WritePartitionMetadata for a caller that syncs the directory itself,
// after other changes in it.
func ReplacePartitionMetadata(fsys vfs.FS, path string, id kafka.TopicID) error {
	return replaceFile(fsys, path, encodePartitionMetadata(id))
}

func encodePartitionMetadata(id kafka.TopicID) []byte {
	return []byte("version: " + strconv.Itoa(partitionIDVersion) + "\ntopic_id: " + id.String())
}
