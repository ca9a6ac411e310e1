package quorum

import (
	"fmt"
	"path/filepath"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// check refuses what this node must not take over: a directory without
// metadata, of a cluster of several nodes, or with features that it does not know.
func check(o Options, l *loaded, state checkpoint.QuorumState) error {
	if !l.hasLog && l.first == nil {
		return ErrNotFormatted
	}
	if err := checkVoters(o, l, state); err != nil {
		return err
	}
	if err := checkFeatures(o, l); err != nil {
		return err
	}
	return checkReplicas(o, l.image)
}

const singleNodeHint = "only a single combined node can be taken over"

func checkVoters(o Options, l *loaded, state checkpoint.QuorumState) error {
	path := filepath.Join(o.Dir, DirName)
	if l.kraft.version > 1 {
		return &RefusedError{Path: path, Reason: fmt.Sprintf("kraft.version is %d, this release supports 0 and 1", l.kraft.version)}
	}
	for _, id := range state.CurrentVoters {
		if id != o.NodeID {
			return &RefusedError{Path: filepath.Join(path, checkpoint.QuorumStateFile),
				Reason: fmt.Sprintf("node %d is a voter of the metadata quorum", id), Hint: singleNodeHint}
		}
	}
	if state.LeaderID > kafka.NoBroker && state.LeaderID != o.NodeID && state.LeaderEpoch > 0 {
		return &RefusedError{Path: filepath.Join(path, checkpoint.QuorumStateFile),
			Reason: fmt.Sprintf("node %d led the metadata quorum", state.LeaderID), Hint: singleNodeHint}
	}
	for _, v := range l.kraft.voters {
		if v.ID != o.NodeID {
			return &RefusedError{Path: path, Reason: fmt.Sprintf("node %d is a voter of the metadata quorum", v.ID), Hint: singleNodeHint}
		}
		if v.Directory != o.DirectoryID {
			return &RefusedError{Path: path, Reason: fmt.Sprintf("the voter's directory id is %s, this directory's is %s", v.Directory, o.DirectoryID)}
		}
	}
	return nil
}

func checkFeatures(o Options, l *loaded) error {
	levels := map[string]int16{}
	for name, level := range l.image.Features.All() {
		levels[name] = level
	}
	for _, r := range l.first {
		if f, ok := r.(*metadata.FeatureLevelRecord); ok && !l.data {
			levels[f.Name] = f.Level
		}
	}
	supported := map[string]metadata.FeatureRange{}
	for _, f := range metadata.SupportedFeatures() {
		supported[f.Name] = f
	}
	for name, level := range levels {
		f, ok := supported[name]
		if level > 0 && (!ok || level < f.Min || level > f.Max) {
			return &RefusedError{Path: filepath.Join(o.Dir, DirName),
				Reason: fmt.Sprintf("%s is at level %d, this release supports %d to %d", name, level, f.Min, f.Max),
				Hint:   "a release that supports this level can open the directory"}
		}
	}
	if l.data && !l.openTxn && levels[metadata.MetadataVersion] == 0 {
		return &RefusedError{Path: filepath.Join(o.Dir, DirName), Reason: "the log holds records and no metadata.version"}
	}
	return nil
}

func checkReplicas(o Options, image *metadata.Image) error {
	for name, t := range image.Topics.All() {
		for n, p := range t.Partitions.All() {
			for _, id := range p.Replicas {
				if id != o.NodeID {
					return &RefusedError{Path: filepath.Join(o.Dir, DirName),
						Reason: fmt.Sprintf("partition %s has a replica on node %d", kafka.TopicPartition{Topic: name, Partition: n}, id), Hint: singleNodeHint}
				}
			}
		}
	}
	return nil
}
