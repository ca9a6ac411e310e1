package group

import "encoding/binary"

// subscriptionTopics reads the topics of a consumer protocol subscription. All
// versions of it begin alike: i16 version, then an array of topic names.
func subscriptionTopics(b []byte) (topics []string, ok bool) {
	if len(b) < 6 || int16(binary.BigEndian.Uint16(b)) < 0 {
		return nil, false
	}
	n := int(int32(binary.BigEndian.Uint32(b[2:])))
	b = b[6:]
	if n < 0 || n > len(b)/2 {
		return nil, false
	}
	topics = make([]string, 0, n)
	for range n {
		if len(b) < 2 {
			return nil, false
		}
		size := int(int16(binary.BigEndian.Uint16(b)))
		if b = b[2:]; size < 0 || size > len(b) {
			return nil, false
		}
		topics = append(topics, string(b[:size]))
		b = b[size:]
	}
	return topics, true
}
