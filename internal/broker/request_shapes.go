package broker

import "github.com/varvelog/varve/internal/wire"

// requestShapes are the request schemas of Kafka 4.4.0 for the APIs that kmsg
// decodes. What a request claims is checked against its shape first, because
// kmsg makes room for a claimed count before it has seen that many elements.
func requestShapes() map[int16]wire.Shape {
	shapes := map[int16]wire.Shape{}
	for _, s := range [...]struct {
		key, flexible int16
		schema        string
	}{
		{2, 6, "ReplicaId i32; IsolationLevel i8@2+; Topics []{Name str; Partitions []{PartitionIndex i32; CurrentLeaderEpoch i32@4+=-1; Timestamp i64}}; TimeoutMs i32@10+"},
		{8, 8, "GroupId str; GenerationIdOrMemberEpoch i32=-1; MemberId str; GroupInstanceId str?@7+; RetentionTimeMs i64@2-4=-1; Topics []{Name str@2-9; TopicId uuid@10+; Partitions []{PartitionIndex i32; CommittedOffset i64; CommittedLeaderEpoch i32@6+=-1; CommittedMetadata str?}}"},
		{9, 6, "GroupId str@1-7; Topics []{Name str; PartitionIndexes []i32}?2+@1-7; Groups []{GroupId str; MemberId str?@9+; MemberEpoch i32@9+=-1; Topics []{Name str@8-9; TopicId uuid@10+; PartitionIndexes []i32}?}@8+; RequireStable bool@7+"},
		{10, 3, "Key str@0-3; KeyType i8@1+; CoordinatorKeys []str@4+"},
		{11, 6, "GroupId str; SessionTimeoutMs i32; RebalanceTimeoutMs i32@1+=-1; MemberId str; GroupInstanceId str?@5+; ProtocolType str; Protocols []{Name str; Metadata bytes}; Reason str?@8+"},
		{12, 4, "GroupId str; GenerationId i32; MemberId str; GroupInstanceId str?@3+"},
		{13, 4, "GroupId str; MemberId str@0-2; Members []{MemberId str; GroupInstanceId str?; Reason str?@5+}@3+"},
		{14, 4, "GroupId str; GenerationId i32; MemberId str; GroupInstanceId str?@3+; ProtocolType str?@5+; ProtocolName str?@5+; Assignments []{MemberId str; Assignment bytes}"},
		{15, 5, "Groups []str; IncludeAuthorizedOperations bool@3+"},
		{16, 3, "StatesFilter []str@4+; TypesFilter []str@5+"},
		{19, 5, "Topics []{Name str; NumPartitions i32; ReplicationFactor i16; Assignments []{PartitionIndex i32; BrokerIds []i32}; Configs []{Name str; Value str?}}; timeoutMs i32=60000; validateOnly bool"},
		{20, 4, "Topics []{Name str?; TopicId uuid}@6+; TopicNames []str@1-5; TimeoutMs i32"},
		{21, 2, "Topics []{Name str; Partitions []{PartitionIndex i32; Offset i64}}; TimeoutMs i32"},
		{22, 2, "TransactionalId str?; TransactionTimeoutMs i32; ProducerId i64@3+=-1; ProducerEpoch i16@3+=-1; Enable2Pc bool@6+; KeepPreparedTxn bool@6+"},
		{23, 4, "ReplicaId i32@3+=-2; Topics []{Topic str; Partitions []{Partition i32; CurrentLeaderEpoch i32=-1; LeaderEpoch i32}}"},
		{32, 4, "Resources []{ResourceType i8; ResourceName str; ConfigurationKeys []str?}; IncludeSynonyms bool; IncludeDocumentation bool@3+"},
		{33, 2, "Resources []{ResourceType i8; ResourceName str; Configs []{Name str; Value str?}}; ValidateOnly bool"},
		{35, 2, "Topics []{Topic str; Partitions []i32}?"},
		{37, 2, "Topics []{Name str; Count i32; Assignments []{BrokerIds []i32}?}; TimeoutMs i32; ValidateOnly bool"},
		{42, 2, "GroupsNames []str"},
		{44, 1, "Resources []{ResourceType i8; ResourceName str; Configs []{Name str; ConfigOperation i8; Value str?}}; ValidateOnly bool"},
		{47, -1, "GroupId str; Topics []{Name str; Partitions []{PartitionIndex i32}}"},
		{60, 0, "IncludeClusterAuthorizedOperations bool; EndpointType i8@1+=1; IncludeFencedBrokers bool@2+"},
		{61, 0, "Topics []{Name str; PartitionIndexes []i32}"},
		{75, 0, "Topics []{Name str}; ResponsePartitionLimit i32=2000; Cursor {TopicName str; PartitionIndex i32}?"},
	} {
		shapes[s.key] = wire.ParseShape(s.flexible, s.schema)
	}
	return shapes
}
