package wire

import "fmt"

// APIVersionsKey is the one API whose responses always have header v0, because
// it is asked before the client knows what the broker speaks (KIP-511).
const APIVersionsKey = 18

// RequestHeader is what stands in front of every request's body.
type RequestHeader struct {
	Key           int16
	Version       int16
	CorrelationID int32
	// ClientID aliases the frame; nil is null. It may be any bytes.
	ClientID []byte
}

// minHeader is the shortest header: key, version, correlation id and the
// length of the client id.
const minHeader = 2 + 2 + 4 + 2

// ParseRequestHeader splits a frame, without its size prefix, into header and
// body. flexible says from which version on an API's headers carry a tagged
// section; FlexibleRequest knows all of Kafka 4.4's. Both results alias frame.
func ParseRequestHeader(frame []byte, flexible func(key, version int16) bool) (RequestHeader, []byte, error) {
	if len(frame) < minHeader {
		return RequestHeader{}, nil, fmt.Errorf("request header of %d bytes: %w", len(frame), ErrMalformed)
	}
	r := Reader{buf: frame}
	h := RequestHeader{Key: r.Int16(), Version: r.Int16(), CorrelationID: r.Int32()}
	h.ClientID = r.NullableString() // never compact, even in header v2
	r.flex = flexible(h.Key, h.Version)
	r.SkipTags()
	if r.err != nil {
		return h, nil, fmt.Errorf("request header: %w", r.err)
	}
	return h, frame[r.pos:], nil
}

// FlexibleRequest reports whether a request of this API and version has header
// v2 and compact fields. An ApiVersions version nobody knows, negative ones
// included, has header v2 too; other unknown APIs are never flexible.
func FlexibleRequest(key, version int16) bool {
	if key < 0 || int(key) >= len(firstFlexible) {
		return false
	}
	if key == APIVersionsKey && version < 0 {
		return true
	}
	first := firstFlexible[key]
	return first >= 0 && version >= int16(first)
}

// FlexibleResponseHeader reports whether the response to it has header v1.
func FlexibleResponseHeader(key, version int16) bool {
	return key != APIVersionsKey && FlexibleRequest(key, version)
}

// firstFlexible is the first flexible version of each API of Kafka 4.4.0 by
// key; -1 where there is none or the key is retired.
var firstFlexible = [...]int8{
	9, 12, 6, 9, -1, -1, -1, -1, 8, 6, // Produce 0 … OffsetFetch 9
	3, 6, 4, 4, 4, 5, 3, -1, 3, 5, // FindCoordinator 10 … CreateTopics 19
	4, 2, 2, 4, 3, 3, 3, 1, 3, 2, // DeleteTopics 20 … DescribeAcls 29
	2, 2, 4, 2, 2, 2, 2, 2, 2, 2, // CreateAcls 30 … RenewDelegationToken 39
	2, 2, 2, 2, 1, 0, 0, -1, 1, 1, // ExpireDelegationToken 40 … AlterClientQuotas 49
	0, 0, 0, 1, 1, 0, 0, 0, 0, 0, // DescribeUserScramCredentials 50 … FetchSnapshot 59
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // DescribeCluster 60 … ConsumerGroupDescribe 69
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // ControllerRegistration 70 … ShareAcknowledge 79
	0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // AddRaftVoter 80 … StreamsGroupDescribe 89
	0, 0, 0, 0, 0, // DescribeShareGroupOffsets 90 … UnregisterController 94
}
