package record

import (
	"encoding/binary"
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
)

// ControlType is what a control record says (ControlRecordType).
type ControlType int16

// The control record types of 4.4.0.
const (
	UnknownControl ControlType = -1
	AbortMarker    ControlType = 0
	CommitMarker   ControlType = 1
	LeaderChanged  ControlType = 2
	SnapshotStart  ControlType = 3
	SnapshotEnd    ControlType = 4
	KRaftVersion   ControlType = 5
	KRaftVoters    ControlType = 6
)

// String is the name of the enum constant, as dump-log prints it.
func (t ControlType) String() string {
	switch t {
	case AbortMarker:
		return "ABORT"
	case CommitMarker:
		return "COMMIT"
	case LeaderChanged:
		return "LEADER_CHANGE"
	case SnapshotStart:
		return "SNAPSHOT_HEADER"
	case SnapshotEnd:
		return "SNAPSHOT_FOOTER"
	case KRaftVersion:
		return "KRAFT_VERSION"
	case KRaftVoters:
		return "KRAFT_VOTERS"
	}
	return "UNKNOWN"
}

// ParseControl reads the key of a control record: version and type. A type
// that is not known is UnknownControl, which readers skip; a short key and a
// negative version are an *InvalidError. Later versions are read as version 0.
func ParseControl(key []byte) (ControlType, error) {
	if len(key) < 4 {
		return UnknownControl, &InvalidError{Index: -1,
			Reason: fmt.Sprintf("Invalid value size found for end control record key. Must have at least 4 bytes, but found only %d", len(key))}
	}
	if version := int16(binary.BigEndian.Uint16(key)); version < 0 {
		return UnknownControl, &InvalidError{Index: -1,
			Reason: fmt.Sprintf("Invalid version found for control record: %d. May indicate data corruption", version)}
	}
	t := ControlType(binary.BigEndian.Uint16(key[2:]))
	if t < AbortMarker || t > KRaftVoters {
		return UnknownControl, nil
	}
	return t, nil
}

// ControlKey is the key of a control record of type t.
func ControlKey(t ControlType) []byte {
	return binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(t))
}

// EndTxnMarkerSize is the size of the batch that AppendEndTxnMarker writes.
const EndTxnMarkerSize = 78

// EndTxnMarker ends a transaction in a partition. With transaction version 2
// the producer epoch is the one after the bump (KIP-890).
type EndTxnMarker struct {
	Offset           kafka.Offset
	LeaderEpoch      kafka.LeaderEpoch
	Timestamp        kafka.Timestamp
	ProducerID       kafka.ProducerID
	ProducerEpoch    kafka.ProducerEpoch
	CoordinatorEpoch int32
	Commit           bool
}

// Type is CommitMarker or AbortMarker.
func (m *EndTxnMarker) Type() ControlType {
	if m.Commit {
		return CommitMarker
	}
	return AbortMarker
}

// AppendEndTxnMarker appends the marker's batch: one control record in a
// transactional batch without a sequence, 78 bytes.
func AppendEndTxnMarker(dst []byte, m *EndTxnMarker) []byte {
	var value [6]byte // version 0, coordinator epoch
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	o := NewBuildOptions()
	o.BaseOffset, o.LeaderEpoch = m.Offset, m.LeaderEpoch
	o.ProducerID, o.ProducerEpoch = m.ProducerID, m.ProducerEpoch
	o.Transactional = true
	return AppendControl(dst, o, m.Type(), m.Timestamp, value[:])
}

// ParseEndTxnMarker reads the value of a COMMIT or ABORT record.
func ParseEndTxnMarker(value []byte) (coordinatorEpoch int32, err error) {
	if len(value) < 6 {
		return 0, &InvalidError{Index: -1,
			Reason: fmt.Sprintf("end transaction marker of %d bytes, want at least 6", len(value))}
	}
	if version := int16(binary.BigEndian.Uint16(value)); version < 0 {
		return 0, &InvalidError{Index: -1, Reason: fmt.Sprintf("end transaction marker version %d", version)}
	}
	return int32(binary.BigEndian.Uint32(value[2:])), nil
}

// AppendControl appends a control batch of one record. Producer fields and the
// transactional bit come from o; Control is set here.
func AppendControl(dst []byte, o BuildOptions, t ControlType, ts kafka.Timestamp, value []byte) []byte {
	start := len(dst)
	o.Codec, o.Control = None, true
	dst = append(dst, make([]byte, HeaderSize)...)
	dst = appendRecord(dst, 0, 0, ControlKey(t), value, nil)
	maxTimestamp := ts
	if o.TimestampType == kafka.LogAppendTime {
		maxTimestamp = o.LogAppendTime
	}
	putHeader(dst[start:], &o, 0, 1, ts, maxTimestamp)
	return dst
}

// Voter is a member of the metadata quorum in a LeaderChange record.
type Voter struct{ ID kafka.BrokerID }

// LeaderChange is the first record of every epoch of the metadata log
// (LeaderChangeMessage). Kafka 4.4.0 writes Version 0 at every kraft.version
// (LeaderState) and reads the layout of version 0 whatever Version says
// (ControlRecordUtils): the directory ids of version 1 (KIP-853) are not in it.
type LeaderChange struct {
	Version  int16
	LeaderID kafka.BrokerID
	Voters   []Voter
	Granting []Voter
}

// Append appends the value of the control record.
func (m *LeaderChange) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(m.Version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.LeaderID))
	dst = appendVoters(dst, m.Voters)
	dst = appendVoters(dst, m.Granting)
	return append(dst, 0)
}

func appendVoters(dst []byte, voters []Voter) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(voters))+1)
	for _, v := range voters {
		dst = binary.BigEndian.AppendUint32(dst, uint32(v.ID))
		dst = append(dst, 0)
	}
	return dst
}

// ParseLeaderChange reads the value of a LEADER_CHANGE record.
func ParseLeaderChange(value []byte) (LeaderChange, error) {
	d := fields{b: value}
	m := LeaderChange{Version: d.int16(), LeaderID: kafka.BrokerID(d.int32())}
	m.Voters = d.voters()
	m.Granting = d.voters()
	d.tags()
	return m, d.err("leader change message")
}

// SnapshotHeader begins a metadata snapshot.
type SnapshotHeader struct {
	Version                   int16
	LastContainedLogTimestamp kafka.Timestamp
}

// Append appends the value of the control record.
func (m *SnapshotHeader) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(m.Version))
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.LastContainedLogTimestamp))
	return append(dst, 0)
}

// ParseSnapshotHeader reads the value of a SNAPSHOT_HEADER record.
func ParseSnapshotHeader(value []byte) (SnapshotHeader, error) {
	d := fields{b: value}
	m := SnapshotHeader{Version: d.int16(), LastContainedLogTimestamp: kafka.Timestamp(d.int64())}
	d.tags()
	return m, d.err("snapshot header")
}

// SnapshotFooter ends a metadata snapshot.
type SnapshotFooter struct{ Version int16 }

// Append appends the value of the control record.
func (m *SnapshotFooter) Append(dst []byte) []byte {
	return append(binary.BigEndian.AppendUint16(dst, uint16(m.Version)), 0)
}

// ParseSnapshotFooter reads the value of a SNAPSHOT_FOOTER record.
func ParseSnapshotFooter(value []byte) (SnapshotFooter, error) {
	d := fields{b: value}
	m := SnapshotFooter{Version: d.int16()}
	d.tags()
	return m, d.err("snapshot footer")
}

// KRaftVersionRecord sets kraft.version (KIP-853).
type KRaftVersionRecord struct {
	Version      int16
	KRaftVersion int16
}

// Append appends the value of the control record.
func (m *KRaftVersionRecord) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(m.Version))
	dst = binary.BigEndian.AppendUint16(dst, uint16(m.KRaftVersion))
	return append(dst, 0)
}

// ParseKRaftVersion reads the value of a KRAFT_VERSION record.
func ParseKRaftVersion(value []byte) (KRaftVersionRecord, error) {
	d := fields{b: value}
	m := KRaftVersionRecord{Version: d.int16(), KRaftVersion: d.int16()}
	d.tags()
	return m, d.err("kraft version record")
}
