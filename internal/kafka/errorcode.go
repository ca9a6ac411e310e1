package kafka

// ErrorCode is an error of the protocol (org.apache.kafka.common.protocol.Errors
// of 4.4.0). Which code answers which failure is chosen in internal/broker alone.
type ErrorCode int16

// All codes of Apache Kafka 4.4.0.
const (
	ErrUnknownServerError                     ErrorCode = -1
	None                                      ErrorCode = 0
	ErrOffsetOutOfRange                       ErrorCode = 1
	ErrCorruptMessage                         ErrorCode = 2
	ErrUnknownTopicOrPartition                ErrorCode = 3
	ErrInvalidFetchSize                       ErrorCode = 4
	ErrLeaderNotAvailable                     ErrorCode = 5
	ErrNotLeaderOrFollower                    ErrorCode = 6
	ErrRequestTimedOut                        ErrorCode = 7
	ErrBrokerNotAvailable                     ErrorCode = 8
	ErrReplicaNotAvailable                    ErrorCode = 9
	ErrMessageTooLarge                        ErrorCode = 10
	ErrStaleControllerEpoch                   ErrorCode = 11
	ErrOffsetMetadataTooLarge                 ErrorCode = 12
	ErrNetworkException                       ErrorCode = 13
	ErrCoordinatorLoadInProgress              ErrorCode = 14
	ErrCoordinatorNotAvailable                ErrorCode = 15
	ErrNotCoordinator                         ErrorCode = 16
	ErrInvalidTopicException                  ErrorCode = 17
	ErrRecordListTooLarge                     ErrorCode = 18
	ErrNotEnoughReplicas                      ErrorCode = 19
	ErrNotEnoughReplicasAfterAppend           ErrorCode = 20
	ErrInvalidRequiredAcks                    ErrorCode = 21
	ErrIllegalGeneration                      ErrorCode = 22
	ErrInconsistentGroupProtocol              ErrorCode = 23
	ErrInvalidGroupID                         ErrorCode = 24
	ErrUnknownMemberID                        ErrorCode = 25
	ErrInvalidSessionTimeout                  ErrorCode = 26
	ErrRebalanceInProgress                    ErrorCode = 27
	ErrInvalidCommitOffsetSize                ErrorCode = 28
	ErrTopicAuthorizationFailed               ErrorCode = 29
	ErrGroupAuthorizationFailed               ErrorCode = 30
	ErrClusterAuthorizationFailed             ErrorCode = 31
	ErrInvalidTimestamp                       ErrorCode = 32
	ErrUnsupportedSASLMechanism               ErrorCode = 33
	ErrIllegalSASLState                       ErrorCode = 34
	ErrUnsupportedVersion                     ErrorCode = 35
	ErrTopicAlreadyExists                     ErrorCode = 36
	ErrInvalidPartitions                      ErrorCode = 37
	ErrInvalidReplicationFactor               ErrorCode = 38
	ErrInvalidReplicaAssignment               ErrorCode = 39
	ErrInvalidConfig                          ErrorCode = 40
	ErrNotController                          ErrorCode = 41
	ErrInvalidRequest                         ErrorCode = 42
	ErrUnsupportedForMessageFormat            ErrorCode = 43
	ErrPolicyViolation                        ErrorCode = 44
	ErrOutOfOrderSequenceNumber               ErrorCode = 45
	ErrDuplicateSequenceNumber                ErrorCode = 46
	ErrInvalidProducerEpoch                   ErrorCode = 47
	ErrInvalidTxnState                        ErrorCode = 48
	ErrInvalidProducerIDMapping               ErrorCode = 49
	ErrInvalidTransactionTimeout              ErrorCode = 50
	ErrConcurrentTransactions                 ErrorCode = 51
	ErrTransactionCoordinatorFenced           ErrorCode = 52
	ErrTransactionalIDAuthorizationFailed     ErrorCode = 53
	ErrSecurityDisabled                       ErrorCode = 54
	ErrOperationNotAttempted                  ErrorCode = 55
	ErrKafkaStorageError                      ErrorCode = 56
	ErrLogDirNotFound                         ErrorCode = 57
	ErrSASLAuthenticationFailed               ErrorCode = 58
	ErrUnknownProducerID                      ErrorCode = 59
	ErrReassignmentInProgress                 ErrorCode = 60
	ErrDelegationTokenAuthDisabled            ErrorCode = 61
	ErrDelegationTokenNotFound                ErrorCode = 62
	ErrDelegationTokenOwnerMismatch           ErrorCode = 63
	ErrDelegationTokenRequestNotAllowed       ErrorCode = 64
	ErrDelegationTokenAuthorizationFailed     ErrorCode = 65
	ErrDelegationTokenExpired                 ErrorCode = 66
	ErrInvalidPrincipalType                   ErrorCode = 67
	ErrNonEmptyGroup                          ErrorCode = 68
	ErrGroupIDNotFound                        ErrorCode = 69
	ErrFetchSessionIDNotFound                 ErrorCode = 70
	ErrInvalidFetchSessionEpoch               ErrorCode = 71
	ErrListenerNotFound                       ErrorCode = 72
	ErrTopicDeletionDisabled                  ErrorCode = 73
	ErrFencedLeaderEpoch                      ErrorCode = 74
	ErrUnknownLeaderEpoch                     ErrorCode = 75
	ErrUnsupportedCompressionType             ErrorCode = 76
	ErrStaleBrokerEpoch                       ErrorCode = 77
	ErrOffsetNotAvailable                     ErrorCode = 78
	ErrMemberIDRequired                       ErrorCode = 79
	ErrPreferredLeaderNotAvailable            ErrorCode = 80
	ErrGroupMaxSizeReached                    ErrorCode = 81
	ErrFencedInstanceID                       ErrorCode = 82
	ErrEligibleLeadersNotAvailable            ErrorCode = 83
	ErrElectionNotNeeded                      ErrorCode = 84
	ErrNoReassignmentInProgress               ErrorCode = 85
	ErrGroupSubscribedToTopic                 ErrorCode = 86
	ErrInvalidRecord                          ErrorCode = 87
	ErrUnstableOffsetCommit                   ErrorCode = 88
	ErrThrottlingQuotaExceeded                ErrorCode = 89
	ErrProducerFenced                         ErrorCode = 90
	ErrResourceNotFound                       ErrorCode = 91
	ErrDuplicateResource                      ErrorCode = 92
	ErrUnacceptableCredential                 ErrorCode = 93
	ErrInconsistentVoterSet                   ErrorCode = 94
	ErrInvalidUpdateVersion                   ErrorCode = 95
	ErrFeatureUpdateFailed                    ErrorCode = 96
	ErrPrincipalDeserializationFailure        ErrorCode = 97
	ErrSnapshotNotFound                       ErrorCode = 98
	ErrPositionOutOfRange                     ErrorCode = 99
	ErrUnknownTopicID                         ErrorCode = 100
	ErrDuplicateBrokerRegistration            ErrorCode = 101
	ErrBrokerIDNotRegistered                  ErrorCode = 102
	ErrInconsistentTopicID                    ErrorCode = 103
	ErrInconsistentClusterID                  ErrorCode = 104
	ErrTransactionalIDNotFound                ErrorCode = 105
	ErrFetchSessionTopicIDError               ErrorCode = 106
	ErrIneligibleReplica                      ErrorCode = 107
	ErrNewLeaderElected                       ErrorCode = 108
	ErrOffsetMovedToTieredStorage             ErrorCode = 109
	ErrFencedMemberEpoch                      ErrorCode = 110
	ErrUnreleasedInstanceID                   ErrorCode = 111
	ErrUnsupportedAssignor                    ErrorCode = 112
	ErrStaleMemberEpoch                       ErrorCode = 113
	ErrMismatchedEndpointType                 ErrorCode = 114
	ErrUnsupportedEndpointType                ErrorCode = 115
	ErrUnknownControllerID                    ErrorCode = 116
	ErrUnknownSubscriptionID                  ErrorCode = 117
	ErrTelemetryTooLarge                      ErrorCode = 118
	ErrInvalidRegistration                    ErrorCode = 119
	ErrTransactionAbortable                   ErrorCode = 120
	ErrInvalidRecordState                     ErrorCode = 121
	ErrShareSessionNotFound                   ErrorCode = 122
	ErrInvalidShareSessionEpoch               ErrorCode = 123
	ErrFencedStateEpoch                       ErrorCode = 124
	ErrInvalidVoterKey                        ErrorCode = 125
	ErrDuplicateVoter                         ErrorCode = 126
	ErrVoterNotFound                          ErrorCode = 127
	ErrInvalidRegularExpression               ErrorCode = 128
	ErrRebootstrapRequired                    ErrorCode = 129
	ErrStreamsInvalidTopology                 ErrorCode = 130
	ErrStreamsInvalidTopologyEpoch            ErrorCode = 131
	ErrStreamsTopologyFenced                  ErrorCode = 132
	ErrShareSessionLimitReached               ErrorCode = 133
	ErrGroupDeletionFailed                    ErrorCode = 134
	ErrStreamsTopologyDescriptionUpdateFailed ErrorCode = 135
	ErrControllerIDNotRegistered              ErrorCode = 136
)

// String is the name in Kafka's Errors enum, such as TOPIC_ALREADY_EXISTS.
func (c ErrorCode) String() string {
	if name, ok := errorName(c); ok {
		return name
	}
	return "UNKNOWN_ERROR_CODE"
}

// Retriable reports whether clients try again after this error, as the Java
// client classifies it (RetriableException).
func (c ErrorCode) Retriable() bool {
	switch c {
	case ErrCorruptMessage,
		ErrUnknownTopicOrPartition,
		ErrLeaderNotAvailable,
		ErrNotLeaderOrFollower,
		ErrRequestTimedOut,
		ErrReplicaNotAvailable,
		ErrNetworkException,
		ErrCoordinatorLoadInProgress,
		ErrCoordinatorNotAvailable,
		ErrNotCoordinator,
		ErrNotEnoughReplicas,
		ErrNotEnoughReplicasAfterAppend,
		ErrNotController,
		ErrConcurrentTransactions,
		ErrKafkaStorageError,
		ErrFetchSessionIDNotFound,
		ErrInvalidFetchSessionEpoch,
		ErrListenerNotFound,
		ErrFencedLeaderEpoch,
		ErrUnknownLeaderEpoch,
		ErrOffsetNotAvailable,
		ErrPreferredLeaderNotAvailable,
		ErrEligibleLeadersNotAvailable,
		ErrElectionNotNeeded,
		ErrUnstableOffsetCommit,
		ErrThrottlingQuotaExceeded,
		ErrUnknownTopicID,
		ErrInconsistentTopicID,
		ErrFetchSessionTopicIDError,
		ErrShareSessionNotFound,
		ErrInvalidShareSessionEpoch,
		ErrShareSessionLimitReached:
		return true
	}
	return false
}

func errorName(c ErrorCode) (string, bool) {
	i := int(c) + 1
	if i < 0 || i >= len(errorNames) {
		return "", false
	}
	return errorNames[i], true
}

// errorNames is indexed by code + 1; the codes have no holes.
var errorNames = [...]string{
	"UNKNOWN_SERVER_ERROR",
	"NONE",
	"OFFSET_OUT_OF_RANGE",
	"CORRUPT_MESSAGE",
	"UNKNOWN_TOPIC_OR_PARTITION",
	"INVALID_FETCH_SIZE",
	"LEADER_NOT_AVAILABLE",
	"NOT_LEADER_OR_FOLLOWER",
	"REQUEST_TIMED_OUT",
	"BROKER_NOT_AVAILABLE",
	"REPLICA_NOT_AVAILABLE",
	"MESSAGE_TOO_LARGE",
	"STALE_CONTROLLER_EPOCH",
	"OFFSET_METADATA_TOO_LARGE",
	"NETWORK_EXCEPTION",
	"COORDINATOR_LOAD_IN_PROGRESS",
	"COORDINATOR_NOT_AVAILABLE",
	"NOT_COORDINATOR",
	"INVALID_TOPIC_EXCEPTION",
	"RECORD_LIST_TOO_LARGE",
	"NOT_ENOUGH_REPLICAS",
	"NOT_ENOUGH_REPLICAS_AFTER_APPEND",
	"INVALID_REQUIRED_ACKS",
	"ILLEGAL_GENERATION",
	"INCONSISTENT_GROUP_PROTOCOL",
	"INVALID_GROUP_ID",
	"UNKNOWN_MEMBER_ID",
	"INVALID_SESSION_TIMEOUT",
	"REBALANCE_IN_PROGRESS",
	"INVALID_COMMIT_OFFSET_SIZE",
	"TOPIC_AUTHORIZATION_FAILED",
	"GROUP_AUTHORIZATION_FAILED",
	"CLUSTER_AUTHORIZATION_FAILED",
	"INVALID_TIMESTAMP",
	"UNSUPPORTED_SASL_MECHANISM",
	"ILLEGAL_SASL_STATE",
	"UNSUPPORTED_VERSION",
	"TOPIC_ALREADY_EXISTS",
	"INVALID_PARTITIONS",
	"INVALID_REPLICATION_FACTOR",
	"INVALID_REPLICA_ASSIGNMENT",
	"INVALID_CONFIG",
	"NOT_CONTROLLER",
	"INVALID_REQUEST",
	"UNSUPPORTED_FOR_MESSAGE_FORMAT",
	"POLICY_VIOLATION",
	"OUT_OF_ORDER_SEQUENCE_NUMBER",
	"DUPLICATE_SEQUENCE_NUMBER",
	"INVALID_PRODUCER_EPOCH",
	"INVALID_TXN_STATE",
	"INVALID_PRODUCER_ID_MAPPING",
	"INVALID_TRANSACTION_TIMEOUT",
	"CONCURRENT_TRANSACTIONS",
	"TRANSACTION_COORDINATOR_FENCED",
	"TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
	"SECURITY_DISABLED",
	"OPERATION_NOT_ATTEMPTED",
	"KAFKA_STORAGE_ERROR",
	"LOG_DIR_NOT_FOUND",
	"SASL_AUTHENTICATION_FAILED",
	"UNKNOWN_PRODUCER_ID",
	"REASSIGNMENT_IN_PROGRESS",
	"DELEGATION_TOKEN_AUTH_DISABLED",
	"DELEGATION_TOKEN_NOT_FOUND",
	"DELEGATION_TOKEN_OWNER_MISMATCH",
	"DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
	"DELEGATION_TOKEN_AUTHORIZATION_FAILED",
	"DELEGATION_TOKEN_EXPIRED",
	"INVALID_PRINCIPAL_TYPE",
	"NON_EMPTY_GROUP",
	"GROUP_ID_NOT_FOUND",
	"FETCH_SESSION_ID_NOT_FOUND",
	"INVALID_FETCH_SESSION_EPOCH",
	"LISTENER_NOT_FOUND",
	"TOPIC_DELETION_DISABLED",
	"FENCED_LEADER_EPOCH",
	"UNKNOWN_LEADER_EPOCH",
	"UNSUPPORTED_COMPRESSION_TYPE",
	"STALE_BROKER_EPOCH",
	"OFFSET_NOT_AVAILABLE",
	"MEMBER_ID_REQUIRED",
	"PREFERRED_LEADER_NOT_AVAILABLE",
	"GROUP_MAX_SIZE_REACHED",
	"FENCED_INSTANCE_ID",
	"ELIGIBLE_LEADERS_NOT_AVAILABLE",
	"ELECTION_NOT_NEEDED",
	"NO_REASSIGNMENT_IN_PROGRESS",
	"GROUP_SUBSCRIBED_TO_TOPIC",
	"INVALID_RECORD",
	"UNSTABLE_OFFSET_COMMIT",
	"THROTTLING_QUOTA_EXCEEDED",
	"PRODUCER_FENCED",
	"RESOURCE_NOT_FOUND",
	"DUPLICATE_RESOURCE",
	"UNACCEPTABLE_CREDENTIAL",
	"INCONSISTENT_VOTER_SET",
	"INVALID_UPDATE_VERSION",
	"FEATURE_UPDATE_FAILED",
	"PRINCIPAL_DESERIALIZATION_FAILURE",
	"SNAPSHOT_NOT_FOUND",
	"POSITION_OUT_OF_RANGE",
	"UNKNOWN_TOPIC_ID",
	"DUPLICATE_BROKER_REGISTRATION",
	"BROKER_ID_NOT_REGISTERED",
	"INCONSISTENT_TOPIC_ID",
	"INCONSISTENT_CLUSTER_ID",
	"TRANSACTIONAL_ID_NOT_FOUND",
	"FETCH_SESSION_TOPIC_ID_ERROR",
	"INELIGIBLE_REPLICA",
	"NEW_LEADER_ELECTED",
	"OFFSET_MOVED_TO_TIERED_STORAGE",
	"FENCED_MEMBER_EPOCH",
	"UNRELEASED_INSTANCE_ID",
	"UNSUPPORTED_ASSIGNOR",
	"STALE_MEMBER_EPOCH",
	"MISMATCHED_ENDPOINT_TYPE",
	"UNSUPPORTED_ENDPOINT_TYPE",
	"UNKNOWN_CONTROLLER_ID",
	"UNKNOWN_SUBSCRIPTION_ID",
	"TELEMETRY_TOO_LARGE",
	"INVALID_REGISTRATION",
	"TRANSACTION_ABORTABLE",
	"INVALID_RECORD_STATE",
	"SHARE_SESSION_NOT_FOUND",
	"INVALID_SHARE_SESSION_EPOCH",
	"FENCED_STATE_EPOCH",
	"INVALID_VOTER_KEY",
	"DUPLICATE_VOTER",
	"VOTER_NOT_FOUND",
	"INVALID_REGULAR_EXPRESSION",
	"REBOOTSTRAP_REQUIRED",
	"STREAMS_INVALID_TOPOLOGY",
	"STREAMS_INVALID_TOPOLOGY_EPOCH",
	"STREAMS_TOPOLOGY_FENCED",
	"SHARE_SESSION_LIMIT_REACHED",
	"GROUP_DELETION_FAILED",
	"STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED",
	"CONTROLLER_ID_NOT_REGISTERED",
}
