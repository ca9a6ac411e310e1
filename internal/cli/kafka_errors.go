package cli

import (
	"errors"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// javaText renders a protocol error as Kafka's tools print its exception: the
// class, then the broker's message or the class's own.
func javaText(err error, message string) string {
	var k *kerr.Error
	if !errors.As(err, &k) {
		return err.Error()
	}
	return javaClass(k) + ": " + messageOf(message, k)
}

// javaClass is the exception class of a protocol error: its name in camel case,
// with the irregular ones of org.apache.kafka.common.protocol.Errors.
func javaClass(k *kerr.Error) string {
	const pkg = "org.apache.kafka.common.errors."
	switch k.Message {
	case "UNKNOWN_SERVER_ERROR":
		return pkg + "UnknownServerException"
	case "CORRUPT_MESSAGE":
		return pkg + "CorruptRecordException"
	case "REQUEST_TIMED_OUT":
		return pkg + "TimeoutException"
	case "MESSAGE_TOO_LARGE":
		return pkg + "RecordTooLargeException"
	case "STALE_CONTROLLER_EPOCH":
		return pkg + "ControllerMovedException"
	case "OFFSET_METADATA_TOO_LARGE":
		return pkg + "OffsetMetadataTooLarge"
	case "RECORD_LIST_TOO_LARGE":
		return pkg + "RecordBatchTooLargeException"
	case "TOPIC_ALREADY_EXISTS":
		return pkg + "TopicExistsException"
	case "INVALID_CONFIG":
		return pkg + "InvalidConfigurationException"
	case "OUT_OF_ORDER_SEQUENCE_NUMBER":
		return pkg + "OutOfOrderSequenceException"
	case "DUPLICATE_SEQUENCE_NUMBER":
		return pkg + "DuplicateSequenceException"
	case "INVALID_PRODUCER_ID_MAPPING":
		return pkg + "InvalidPidMappingException"
	case "INVALID_TRANSACTION_TIMEOUT":
		return pkg + "InvalidTxnTimeoutException"
	case "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED", "CLUSTER_AUTHORIZATION_FAILED", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
		"DELEGATION_TOKEN_AUTHORIZATION_FAILED", "SASL_AUTHENTICATION_FAILED":
		return pkg + strings.TrimSuffix(camelCase(k.Message), "Failed") + "Exception"
	case "KAFKA_STORAGE_ERROR":
		return pkg + "KafkaStorageException"
	case "DELEGATION_TOKEN_AUTH_DISABLED":
		return pkg + "DelegationTokenDisabledException"
	case "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED":
		return pkg + "UnsupportedByAuthenticationException"
	case "NON_EMPTY_GROUP":
		return pkg + "GroupNotEmptyException"
	case "PRINCIPAL_DESERIALIZATION_FAILURE":
		return pkg + "PrincipalDeserializationException"
	case "FETCH_SESSION_TOPIC_ID_ERROR":
		return pkg + "FetchSessionTopicIdException"
	case "INVALID_REGULAR_EXPRESSION":
		return pkg + "InvalidRegularExpression"
	case "INVALID_RECORD":
		return "org.apache.kafka.common.InvalidRecordException"
	}
	return pkg + strings.TrimSuffix(camelCase(k.Message), "Exception") + "Exception"
}

func camelCase(name string) string {
	var b strings.Builder
	for _, word := range strings.Split(name, "_") {
		if word != "" {
			b.WriteString(word[:1] + strings.ToLower(word[1:]))
		}
	}
	return b.String()
}
