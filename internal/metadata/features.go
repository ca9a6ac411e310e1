package metadata

// The features of Kafka 4.4.0 whose levels are finalized by FeatureLevelRecords.
// kraft.version is a feature too, but lives in control records.
const (
	MetadataVersion       = "metadata.version"
	KRaftVersion          = "kraft.version"
	ELRVersion            = "eligible.leader.replicas.version"
	GroupVersion          = "group.version"
	ShareVersion          = "share.version"
	StreamsVersion        = "streams.version"
	TransactionVersion    = "transaction.version"
	MinMetadataVersion    = V3_3_IV3
	LatestMetadataVersion = V4_4_IV2
)

// Levels of metadata.version at which something here depends.
const (
	V3_3_IV3 int16 = 7
	V3_4_IV0 int16 = 8
	V3_7_IV0 int16 = 15
	V3_7_IV2 int16 = 17
	V3_9_IV0 int16 = 21
	V4_0_IV0 int16 = 22
	V4_0_IV1 int16 = 23
	V4_0_IV2 int16 = 24
	V4_1_IV0 int16 = 26
	V4_2_IV0 int16 = 28
	V4_2_IV1 int16 = 29
	V4_3_IV0 int16 = 30
	V4_4_IV0 int16 = 31
	V4_4_IV1 int16 = 32
	V4_4_IV2 int16 = 33
)

// SupportedFeatures lists what this release can run, sorted by name: the ranges
// of Kafka 4.4.0. A directory whose finalized levels lie outside is refused.
func SupportedFeatures() []FeatureRange {
	return []FeatureRange{
		{ELRVersion, 0, 1},
		{GroupVersion, 0, 1},
		{KRaftVersion, 0, 1},
		{MetadataVersion, MinMetadataVersion, LatestMetadataVersion},
		{ShareVersion, 0, 2},
		{StreamsVersion, 0, 1},
		{TransactionVersion, 0, 2},
	}
}

// DefaultFeatureLevels are the levels that kafka-storage format of 4.4.0
// finalizes in a new directory, in the order in which it writes them.
func DefaultFeatureLevels() []FeatureLevelRecord {
	return []FeatureLevelRecord{
		{MetadataVersion, LatestMetadataVersion},
		{ELRVersion, 1},
		{GroupVersion, 1},
		{ShareVersion, 2},
		{StreamsVersion, 1},
		{TransactionVersion, 2},
	}
}

// RecordVersion is the version in which r is written when metadata.version is
// at level: what every release that may read the log understands.
func RecordVersion(r Record, level int16) int16 {
	switch r := r.(type) {
	case *RegisterBrokerRecord:
		switch {
		case level >= V4_3_IV0:
			return 4
		case level >= V3_7_IV2:
			return 3
		case level >= V3_4_IV0:
			return 2
		}
		return 1
	case *PartitionRecord, *PartitionChangeRecord:
		switch {
		case level >= V4_0_IV1:
			return 2
		case level >= V3_7_IV2:
			return 1
		}
		return 0
	case *BrokerRegistrationChangeRecord:
		return r.lowestVersion()
	}
	return 0
}

// lowestVersion is the lowest one that has all changed fields: Kafka writes
// this record so whatever the metadata.version.
func (r *BrokerRegistrationChangeRecord) lowestVersion() int16 {
	switch {
	case r.CordonedLogDirs != nil:
		return 3
	case len(r.LogDirs) > 0:
		return 2
	case r.InControlledShutdown != SwitchKeep:
		return 1
	}
	return 0
}
