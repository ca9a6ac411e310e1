package metadata

import (
	"errors"
	"fmt"
)

// Record is one metadata record (MetadataRecordType of 4.4.0). The pointer
// types of this package are its only implementations.
type Record interface {
	// Type is the record's api key.
	Type() RecordType
	// walk passes over the fields that version has, in schema order.
	walk(c codec, version int16)
}

// RecordType is the api key of a metadata record.
type RecordType int16

// All record types of 4.4.0. Ids 6, 13 and 16 are unused.
const (
	TypeRegisterBroker            RecordType = 0
	TypeUnregisterBroker          RecordType = 1
	TypeTopic                     RecordType = 2
	TypePartition                 RecordType = 3
	TypeConfig                    RecordType = 4
	TypePartitionChange           RecordType = 5
	TypeFenceBroker               RecordType = 7
	TypeUnfenceBroker             RecordType = 8
	TypeRemoveTopic               RecordType = 9
	TypeDelegationToken           RecordType = 10
	TypeUserScramCredential       RecordType = 11
	TypeFeatureLevel              RecordType = 12
	TypeClientQuota               RecordType = 14
	TypeProducerIDs               RecordType = 15
	TypeBrokerRegistrationChange  RecordType = 17
	TypeAccessControlEntry        RecordType = 18
	TypeRemoveAccessControlEntry  RecordType = 19
	TypeNoOp                      RecordType = 20
	TypeZkMigrationState          RecordType = 21
	TypeRemoveUserScramCredential RecordType = 22
	TypeBeginTransaction          RecordType = 23
	TypeEndTransaction            RecordType = 24
	TypeAbortTransaction          RecordType = 25
	TypeRemoveDelegationToken     RecordType = 26
	TypeRegisterController        RecordType = 27
	TypeClearElr                  RecordType = 28
	TypeUnregisterController      RecordType = 29
)

// recordKind is what is known of one record type.
type recordKind struct {
	name       string
	maxVersion int16
	make       func() Record // with the defaults of absent fields
}

// kind returns the description of t; ok is false for a type that 4.4.0 does
// not have.
func (t RecordType) kind() (k recordKind, ok bool) {
	switch t {
	case TypeRegisterBroker:
		return recordKind{"REGISTER_BROKER_RECORD", 4, func() Record { return &RegisterBrokerRecord{Fenced: true} }}, true
	case TypeUnregisterBroker:
		return recordKind{"UNREGISTER_BROKER_RECORD", 0, func() Record { return &UnregisterBrokerRecord{} }}, true
	case TypeTopic:
		return recordKind{"TOPIC_RECORD", 0, func() Record { return &TopicRecord{} }}, true
	case TypePartition:
		return recordKind{"PARTITION_RECORD", 2, func() Record { return &PartitionRecord{} }}, true
	case TypeConfig:
		return recordKind{"CONFIG_RECORD", 0, func() Record { return &ConfigRecord{} }}, true
	case TypePartitionChange:
		return recordKind{"PARTITION_CHANGE_RECORD", 2, func() Record { return NewPartitionChange() }}, true
	case TypeFenceBroker:
		return recordKind{"FENCE_BROKER_RECORD", 0, func() Record { return &FenceBrokerRecord{} }}, true
	case TypeUnfenceBroker:
		return recordKind{"UNFENCE_BROKER_RECORD", 0, func() Record { return &UnfenceBrokerRecord{} }}, true
	case TypeRemoveTopic:
		return recordKind{"REMOVE_TOPIC_RECORD", 0, func() Record { return &RemoveTopicRecord{} }}, true
	case TypeDelegationToken:
		return recordKind{"DELEGATION_TOKEN_RECORD", 0, func() Record { return &DelegationTokenRecord{} }}, true
	case TypeUserScramCredential:
		return recordKind{"USER_SCRAM_CREDENTIAL_RECORD", 0, func() Record { return &UserScramCredentialRecord{} }}, true
	case TypeFeatureLevel:
		return recordKind{"FEATURE_LEVEL_RECORD", 0, func() Record { return &FeatureLevelRecord{} }}, true
	case TypeClientQuota:
		return recordKind{"CLIENT_QUOTA_RECORD", 0, func() Record { return &ClientQuotaRecord{} }}, true
	case TypeProducerIDs:
		return recordKind{"PRODUCER_IDS_RECORD", 0, func() Record { return &ProducerIDsRecord{} }}, true
	case TypeBrokerRegistrationChange:
		return recordKind{"BROKER_REGISTRATION_CHANGE_RECORD", 3, func() Record { return &BrokerRegistrationChangeRecord{} }}, true
	case TypeAccessControlEntry:
		return recordKind{"ACCESS_CONTROL_ENTRY_RECORD", 0, func() Record { return &AccessControlEntryRecord{} }}, true
	case TypeRemoveAccessControlEntry:
		return recordKind{"REMOVE_ACCESS_CONTROL_ENTRY_RECORD", 0, func() Record { return &RemoveAccessControlEntryRecord{} }}, true
	}
	return t.laterKind()
}

// laterKind goes on with the types from NoOp up.
func (t RecordType) laterKind() (k recordKind, ok bool) {
	switch t {
	case TypeNoOp:
		return recordKind{"NO_OP_RECORD", 0, func() Record { return &NoOpRecord{} }}, true
	case TypeZkMigrationState:
		return recordKind{"ZK_MIGRATION_STATE_RECORD", 0, func() Record { return &ZkMigrationStateRecord{} }}, true
	case TypeRemoveUserScramCredential:
		return recordKind{"REMOVE_USER_SCRAM_CREDENTIAL_RECORD", 0, func() Record { return &RemoveUserScramCredentialRecord{} }}, true
	case TypeBeginTransaction:
		return recordKind{"BEGIN_TRANSACTION_RECORD", 0, func() Record { return &BeginTransactionRecord{} }}, true
	case TypeEndTransaction:
		return recordKind{"END_TRANSACTION_RECORD", 0, func() Record { return &EndTransactionRecord{} }}, true
	case TypeAbortTransaction:
		return recordKind{"ABORT_TRANSACTION_RECORD", 0, func() Record { return &AbortTransactionRecord{} }}, true
	case TypeRemoveDelegationToken:
		return recordKind{"REMOVE_DELEGATION_TOKEN_RECORD", 0, func() Record { return &RemoveDelegationTokenRecord{} }}, true
	case TypeRegisterController:
		return recordKind{"REGISTER_CONTROLLER_RECORD", 0, func() Record { return &RegisterControllerRecord{} }}, true
	case TypeClearElr:
		return recordKind{"CLEAR_ELR_RECORD", 0, func() Record { return &ClearElrRecord{} }}, true
	case TypeUnregisterController:
		return recordKind{"UNREGISTER_CONTROLLER_RECORD", 0, func() Record { return &UnregisterControllerRecord{} }}, true
	}
	return recordKind{}, false
}

// String is the name that kafka-dump-log prints.
func (t RecordType) String() string {
	if k, ok := t.kind(); ok {
		return k.name
	}
	return fmt.Sprintf("UNKNOWN_RECORD_%d", int16(t))
}

// frameVersion is the first byte of every metadata record.
const frameVersion = 1

// ErrUnknownRecord is wrapped by a *DecodeError when the bytes may be sound but
// were written by a newer release: an unknown frame version, record type or
// record version. A node must then refuse to start and change nothing.
var ErrUnknownRecord = errors.New("written by a newer release")

// DecodeError says which record could not be read.
type DecodeError struct {
	Type    RecordType // -1 when not even that was readable
	Version int32
	Err     error
}

func (e *DecodeError) Error() string {
	if e.Type < 0 {
		return fmt.Sprintf("metadata record: %v", e.Err)
	}
	return fmt.Sprintf("metadata record of type %d (%s), version %d: %v", int16(e.Type), e.Type, e.Version, e.Err)
}

// Unwrap gives the reason.
func (e *DecodeError) Unwrap() error { return e.Err }

// AppendRecord appends r in the given version with its frame: the value of a
// record in the metadata log.
func AppendRecord(dst []byte, r Record, version int16) []byte {
	e := encoder{buf: dst}
	e.uvarint(frameVersion)
	e.uvarint(uint64(r.Type()))
	e.uvarint(uint64(version))
	e.structStart()
	r.walk(&e, version)
	e.structEnd()
	return e.buf
}

// DecodeRecord reads the value of a record of the metadata log. The error is a
// *DecodeError. Nothing of b is kept. Bytes after the message are an error, as
// they are for Kafka.
func DecodeRecord(b []byte) (r Record, version int16, err error) {
	d := decoder{buf: b}
	frame, typ, ver := d.uvarint(), d.uvarint(), d.uvarint()
	switch {
	case d.err != nil:
		return nil, 0, &DecodeError{Type: -1, Err: d.err}
	case frame != frameVersion:
		return nil, 0, &DecodeError{Type: -1, Err: fmt.Errorf("frame version %d: %w", frame, ErrUnknownRecord)}
	case typ > 0x7fff || ver > 0x7fff:
		return nil, 0, &DecodeError{Type: -1, Err: fmt.Errorf("type %d version %d: %w", typ, ver, ErrUnknownRecord)}
	}
	kind, ok := RecordType(typ).kind()
	if !ok || int16(ver) > kind.maxVersion {
		return nil, 0, &DecodeError{Type: RecordType(typ), Version: int32(ver), Err: ErrUnknownRecord}
	}
	r = kind.make()
	d.structStart()
	r.walk(&d, int16(ver))
	d.structEnd()
	if d.err == nil && len(d.buf) > 0 {
		d.err = fmt.Errorf("%d bytes after the message", len(d.buf))
	}
	if d.err != nil {
		return nil, 0, &DecodeError{Type: RecordType(typ), Version: int32(ver), Err: d.err}
	}
	return r, int16(ver), nil
}
