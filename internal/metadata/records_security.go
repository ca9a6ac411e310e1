package metadata

import "github.com/varvelog/varve/internal/kafka"

// DelegationTokenRecord is the whole state of a delegation token (KIP-48); its
// secret is never stored.
type DelegationTokenRecord struct {
	Owner               string // principals as "Type:name"
	Requester           string
	Renewers            []string
	IssueTimestamp      kafka.Timestamp
	MaxTimestamp        kafka.Timestamp
	ExpirationTimestamp kafka.Timestamp
	TokenID             string
}

// Type is TypeDelegationToken.
func (*DelegationTokenRecord) Type() RecordType { return TypeDelegationToken }

func (r *DelegationTokenRecord) walk(c codec, _ int16) {
	c.string("owner", &r.Owner)
	c.string("requester", &r.Requester)
	c.strings("renewers", &r.Renewers)
	c.int64("issueTimestamp", (*int64)(&r.IssueTimestamp))
	c.int64("maxTimestamp", (*int64)(&r.MaxTimestamp))
	c.int64("expirationTimestamp", (*int64)(&r.ExpirationTimestamp))
	c.string("tokenId", &r.TokenID)
}

// RemoveDelegationTokenRecord ends a delegation token.
type RemoveDelegationTokenRecord struct {
	TokenID string
}

// Type is TypeRemoveDelegationToken.
func (*RemoveDelegationTokenRecord) Type() RecordType { return TypeRemoveDelegationToken }

func (r *RemoveDelegationTokenRecord) walk(c codec, _ int16) { c.string("tokenId", &r.TokenID) }

// UserScramCredentialRecord is a user's SCRAM credential; the keys are those of
// RFC 5802.
type UserScramCredentialRecord struct {
	Name       string
	Mechanism  int8 // 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
	Salt       []byte
	StoredKey  []byte
	ServerKey  []byte
	Iterations int32
}

// Type is TypeUserScramCredential.
func (*UserScramCredentialRecord) Type() RecordType { return TypeUserScramCredential }

func (r *UserScramCredentialRecord) walk(c codec, _ int16) {
	c.string("name", &r.Name)
	c.int8("mechanism", &r.Mechanism)
	c.bytes("salt", &r.Salt)
	c.bytes("storedKey", &r.StoredKey)
	c.bytes("serverKey", &r.ServerKey)
	c.int32("iterations", &r.Iterations)
}

// RemoveUserScramCredentialRecord removes one credential of a user.
type RemoveUserScramCredentialRecord struct {
	Name      string
	Mechanism int8
}

// Type is TypeRemoveUserScramCredential.
func (*RemoveUserScramCredentialRecord) Type() RecordType { return TypeRemoveUserScramCredential }

func (r *RemoveUserScramCredentialRecord) walk(c codec, _ int16) {
	c.string("name", &r.Name)
	c.int8("mechanism", &r.Mechanism)
}

// AccessControlEntryRecord adds an ACL. The enums are those of the protocol.
type AccessControlEntryRecord struct {
	ID             kafka.UUID
	ResourceType   int8
	ResourceName   string
	PatternType    int8
	Principal      string
	Host           string
	Operation      int8
	PermissionType int8
}

// Type is TypeAccessControlEntry.
func (*AccessControlEntryRecord) Type() RecordType { return TypeAccessControlEntry }

func (r *AccessControlEntryRecord) walk(c codec, _ int16) {
	c.uuid("id", &r.ID)
	c.int8("resourceType", &r.ResourceType)
	c.string("resourceName", &r.ResourceName)
	c.int8("patternType", &r.PatternType)
	c.string("principal", &r.Principal)
	c.string("host", &r.Host)
	c.int8("operation", &r.Operation)
	c.int8("permissionType", &r.PermissionType)
}

// RemoveAccessControlEntryRecord removes an ACL.
type RemoveAccessControlEntryRecord struct {
	ID kafka.UUID
}

// Type is TypeRemoveAccessControlEntry.
func (*RemoveAccessControlEntryRecord) Type() RecordType { return TypeRemoveAccessControlEntry }

func (r *RemoveAccessControlEntryRecord) walk(c codec, _ int16) { c.uuid("id", &r.ID) }

// QuotaEntity is one part of the name of whom a quota binds.
type QuotaEntity struct {
	Type string  // "user", "client-id" or "ip"
	Name *string // nil: the default of that type
}

func walkQuotaEntity(c codec, e *QuotaEntity) {
	c.string("entityType", &e.Type)
	c.nullString("entityName", &e.Name)
}

// ClientQuotaRecord sets or removes one quota (KIP-546).
type ClientQuotaRecord struct {
	Entity []QuotaEntity // sorted by type
	Key    string
	Value  float64
	Remove bool
}

// Type is TypeClientQuota.
func (*ClientQuotaRecord) Type() RecordType { return TypeClientQuota }

func (r *ClientQuotaRecord) walk(c codec, _ int16) {
	walkSlice(c, "entity", &r.Entity, walkQuotaEntity)
	c.string("key", &r.Key)
	c.float64("value", &r.Value)
	c.bool("remove", &r.Remove)
}
