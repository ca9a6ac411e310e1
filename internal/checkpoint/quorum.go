package checkpoint

import (
	"encoding/json"
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// QuorumState is what a member of the metadata quorum remembers of elections
// (QuorumStateData, one line of JSON without a line feed).
type QuorumState struct {
	// Version 0 goes with kraft.version 0, version 1 with kraft.version 1.
	Version     int
	ClusterID   string // version 0 only; Kafka leaves it empty
	LeaderID    kafka.BrokerID
	LeaderEpoch int32
	VotedID     kafka.BrokerID
	// VotedDirectoryID is in version 1 only.
	VotedDirectoryID kafka.UUID
	AppliedOffset    kafka.Offset     // version 0 only
	CurrentVoters    []kafka.BrokerID // version 0 only
}

// The JSON of the two versions, fields in Kafka's order.
type (
	quorumStateV0 struct {
		ClusterID     string        `json:"clusterId"`
		LeaderID      int32         `json:"leaderId"`
		LeaderEpoch   int32         `json:"leaderEpoch"`
		VotedID       int32         `json:"votedId"`
		AppliedOffset int64         `json:"appliedOffset"`
		CurrentVoters []quorumVoter `json:"currentVoters"`
		DataVersion   int           `json:"data_version"`
	}
	quorumStateV1 struct {
		LeaderID         int32  `json:"leaderId"`
		LeaderEpoch      int32  `json:"leaderEpoch"`
		VotedID          int32  `json:"votedId"`
		VotedDirectoryID string `json:"votedDirectoryId"`
		DataVersion      int    `json:"data_version"`
	}
	quorumVoter struct {
		VoterID int32 `json:"voterId"`
	}
)

// ReadQuorumState reads a quorum-state file.
func ReadQuorumState(fsys vfs.FS, path string) (QuorumState, error) {
	data, err := readFile(fsys, path)
	if err != nil {
		return QuorumState{}, err
	}
	return decodeQuorumState(path, data)
}

func decodeQuorumState(path string, data []byte) (QuorumState, error) {
	corrupt := func(format string, args ...any) (QuorumState, error) {
		return QuorumState{}, &CorruptError{Path: path, Reason: fmt.Sprintf(format, args...)}
	}
	var head struct {
		DataVersion *int   `json:"data_version"`
		LeaderID    *int32 `json:"leaderId"`
		LeaderEpoch *int32 `json:"leaderEpoch"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return corrupt("%v", err)
	}
	if head.DataVersion == nil || head.LeaderID == nil || head.LeaderEpoch == nil {
		return corrupt("data_version, leaderId or leaderEpoch is missing")
	}
	switch *head.DataVersion {
	case 0:
		var v quorumStateV0
		if err := json.Unmarshal(data, &v); err != nil {
			return corrupt("%v", err)
		}
		state := QuorumState{
			ClusterID: v.ClusterID, LeaderID: kafka.BrokerID(v.LeaderID), LeaderEpoch: v.LeaderEpoch,
			VotedID: kafka.BrokerID(v.VotedID), AppliedOffset: kafka.Offset(v.AppliedOffset),
		}
		for _, voter := range v.CurrentVoters {
			state.CurrentVoters = append(state.CurrentVoters, kafka.BrokerID(voter.VoterID))
		}
		return state, nil
	case 1:
		var v quorumStateV1
		if err := json.Unmarshal(data, &v); err != nil {
			return corrupt("%v", err)
		}
		voted, err := kafka.ParseUUID(v.VotedDirectoryID)
		if err != nil {
			return corrupt("votedDirectoryId: %v", err)
		}
		return QuorumState{
			Version: 1, LeaderID: kafka.BrokerID(v.LeaderID), LeaderEpoch: v.LeaderEpoch,
			VotedID: kafka.BrokerID(v.VotedID), VotedDirectoryID: voted,
		}, nil
	}
	return corrupt("data_version is %d, want 0 or 1", *head.DataVersion)
}

// WriteQuorumState replaces a quorum-state file.
func WriteQuorumState(fsys vfs.FS, path string, s QuorumState) error {
	data, err := encodeQuorumState(s)
	if err != nil {
		return err
	}
	return WriteFile(fsys, path, data)
}

func encodeQuorumState(s QuorumState) ([]byte, error) {
	switch s.Version {
	case 0:
		voters := make([]quorumVoter, 0, len(s.CurrentVoters))
		for _, id := range s.CurrentVoters {
			voters = append(voters, quorumVoter{int32(id)})
		}
		return json.Marshal(quorumStateV0{
			ClusterID: s.ClusterID, LeaderID: int32(s.LeaderID), LeaderEpoch: s.LeaderEpoch,
			VotedID: int32(s.VotedID), AppliedOffset: int64(s.AppliedOffset), CurrentVoters: voters,
		})
	case 1:
		return json.Marshal(quorumStateV1{
			LeaderID: int32(s.LeaderID), LeaderEpoch: s.LeaderEpoch, VotedID: int32(s.VotedID),
			VotedDirectoryID: s.VotedDirectoryID.String(), DataVersion: 1,
		})
	}
	return nil, fmt.Errorf("quorum-state version %d does not exist", s.Version)
}
