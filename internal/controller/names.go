package controller

import (
	"fmt"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

const maxTopicName = 249

// ValidateTopicName reports why a topic cannot have the name, in Kafka's words
// (org.apache.kafka.common.internals.Topic.validate); "" when it can.
func ValidateTopicName(name string) string {
	switch {
	case name == "":
		return "Topic name is invalid: the empty string is not allowed"
	case name == ".":
		return "Topic name is invalid: '.' is not allowed"
	case name == "..":
		return "Topic name is invalid: '..' is not allowed"
	case len(name) > maxTopicName:
		return fmt.Sprintf("Topic name is invalid: the length of '%s' is longer than the max allowed length %d", name, maxTopicName)
	}
	for i := range len(name) {
		switch b := name[i]; {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '.', b == '_', b == '-':
		default:
			return fmt.Sprintf("Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return ""
}

// unified is the name with what metrics cannot tell apart made equal.
func unified(name string) string { return strings.ReplaceAll(name, ".", "_") }

// collision finds an existing topic whose name differs from name only in dots
// and underscores; "" when there is none. A name that exists is no collision.
func collision(image *metadata.Image, name string) string {
	if !strings.ContainsAny(name, "._") {
		return ""
	}
	want := unified(name)
	// Colliding names agree up to the first dot or underscore.
	prefix := name[:strings.IndexAny(name, "._")]
	for other := range image.Topics.From(prefix) {
		if !strings.HasPrefix(other, prefix) {
			break
		}
		if other != name && len(other) == len(name) && unified(other) == want {
			return other
		}
	}
	return ""
}

// internalName refuses the one name that no client may create.
func internalName(name string) *Error {
	if name == kafka.ClusterMetadataTopic {
		return refuse(kafka.ErrInvalidRequest, "Creation of internal topic %s is prohibited.", name)
	}
	return nil
}
