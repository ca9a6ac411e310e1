package verify

import (
	"maps"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// TopicIDs are the topics of the cluster metadata in one of the data
// directories, by name; nil when none of them has a metadata log that can be read.
func TopicIDs(fsys vfs.FS, dirs []string) map[string]kafka.TopicID {
	for _, dir := range dirs {
		if t := loadTopics(fsys, dir); t != nil {
			return maps.Clone(t.byName)
		}
	}
	return nil
}
