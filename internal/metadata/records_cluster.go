package metadata

import "github.com/varvelog/varve/internal/kafka"

// FeatureLevelRecord finalizes the level of a feature (KIP-584); level 0
// removes it.
type FeatureLevelRecord struct {
	Name  string
	Level int16
}

// Type is TypeFeatureLevel.
func (*FeatureLevelRecord) Type() RecordType { return TypeFeatureLevel }

func (r *FeatureLevelRecord) walk(c codec, _ int16) {
	c.string("name", &r.Name)
	c.int16("featureLevel", &r.Level)
}

// ProducerIDsRecord gives a block of producer ids to a broker.
type ProducerIDsRecord struct {
	BrokerID       kafka.BrokerID
	BrokerEpoch    int64
	NextProducerID kafka.ProducerID // first id of the block after this one
}

// Type is TypeProducerIDs.
func (*ProducerIDsRecord) Type() RecordType { return TypeProducerIDs }

func (r *ProducerIDsRecord) walk(c codec, _ int16) {
	brokerID(c, "brokerId", &r.BrokerID)
	c.int64("brokerEpoch", &r.BrokerEpoch)
	c.int64("nextProducerId", (*int64)(&r.NextProducerID))
}

// NoOpRecord only moves the end offset on.
type NoOpRecord struct{}

// Type is TypeNoOp.
func (*NoOpRecord) Type() RecordType { return TypeNoOp }

func (r *NoOpRecord) walk(codec, int16) {}

// ZkMigrationStateRecord is left from releases that could still migrate.
type ZkMigrationStateRecord struct {
	State int8
}

// Type is TypeZkMigrationState.
func (*ZkMigrationStateRecord) Type() RecordType { return TypeZkMigrationState }

func (r *ZkMigrationStateRecord) walk(c codec, _ int16) { c.int8("zkMigrationState", &r.State) }

// BeginTransactionRecord opens a metadata transaction (KIP-868): what follows
// counts only when an EndTransactionRecord comes.
type BeginTransactionRecord struct {
	Name *string // nil: none
}

// Type is TypeBeginTransaction.
func (*BeginTransactionRecord) Type() RecordType { return TypeBeginTransaction }

func (r *BeginTransactionRecord) walk(c codec, _ int16) {
	c.tagged(0, r.Name != nil, func() { c.nullString("name", &r.Name) })
}

// EndTransactionRecord makes the records of the open transaction count.
type EndTransactionRecord struct{}

// Type is TypeEndTransaction.
func (*EndTransactionRecord) Type() RecordType { return TypeEndTransaction }

func (r *EndTransactionRecord) walk(codec, int16) {}

// AbortTransactionRecord discards the records of the open transaction.
type AbortTransactionRecord struct {
	Reason *string // nil: none
}

// Type is TypeAbortTransaction.
func (*AbortTransactionRecord) Type() RecordType { return TypeAbortTransaction }

func (r *AbortTransactionRecord) walk(c codec, _ int16) {
	c.tagged(0, r.Reason != nil, func() { c.nullString("reason", &r.Reason) })
}
