package logdir

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
)

// Suffixes of partition directories that are no live partition.
const (
	deleteSuffix = "-delete" // waits to be removed
	futureSuffix = "-future" // is being built by a move between directories
	straySuffix  = "-stray"  // not assigned to this broker

	metadataDirName = kafka.ClusterMetadataTopic + "-0"
	remoteCacheName = "remote-log-index-cache"
	maxNameLength   = 255
)

// kind is what a directory entry is by its name.
type kind int

const (
	unknownDir kind = iota
	livePartition
	deletedPartition
	keptPartition // -future and -stray: left as they are
	otherOwner    // metadata log, tiered storage
)

// classify reads a directory's name.
func classify(name string) (kind, kafka.TopicPartition) {
	if name == metadataDirName || name == remoteCacheName {
		return otherOwner, kafka.TopicPartition{}
	}
	for _, s := range []struct {
		suffix string
		kind   kind
	}{{deleteSuffix, deletedPartition}, {futureSuffix, keptPartition}, {straySuffix, keptPartition}} {
		if base, ok := strings.CutSuffix(name, s.suffix); ok {
			if tp, ok := parseUnique(base); ok {
				return s.kind, tp
			}
		}
	}
	if tp, err := kafka.ParseTopicPartition(name); err == nil && isTopicName(tp.Topic) {
		return livePartition, tp
	}
	return unknownDir, kafka.TopicPartition{}
}

// isTopicName tells what a topic can be called (Topic.validate): what cannot be
// one is nobody's partition and is left alone.
func isTopicName(name string) bool {
	const longest = 249
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return name != "" && name != "." && name != ".." && len(name) <= longest
}

// parseUnique reads topic-partition.unique, the name without its suffix.
func parseUnique(base string) (kafka.TopicPartition, bool) {
	dot := strings.LastIndexByte(base, '.')
	if dot < 0 || dot == len(base)-1 || strings.ContainsAny(base, " \t\n\v\f\r") {
		return kafka.TopicPartition{}, false
	}
	tp, err := kafka.ParseTopicPartition(base[:dot])
	return tp, err == nil
}

// uniqueName is the name under which a partition's directory is set aside. A
// long topic name is cut, so that the name fits (UnifiedLog.logDeleteDirName).
func uniqueName(tp kafka.TopicPartition, id kafka.UUID, suffix string) string {
	end := "-" + strconv.Itoa(int(tp.Partition)) + "." + hex.EncodeToString(id[:]) + suffix
	return tp.Topic[:min(len(tp.Topic), maxNameLength-len(end))] + end
}

// isTemporary tells a small file of a data directory's root that was being
// written when a crash came, and whose name was never given to it.
func isTemporary(name string) bool {
	final, ok := strings.CutSuffix(name, ".tmp")
	switch final {
	case checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile, checkpoint.CleanerFile,
		checkpoint.MetaFile, checkpoint.CleanShutdownFile:
		return ok
	}
	return false
}
