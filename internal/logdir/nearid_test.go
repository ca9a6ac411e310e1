package logdir

import (
	"testing"

	"github.com/varvelog/varve/internal/kafka"
)

// An id of which one character is wrong is a damaged one; any other is that of
// another topic.
func TestADamagedTopicIDIsToldFromAnotherTopics(t *testing.T) {
	id := kafka.TopicID{0x4d, 0x93, 7, 0xaa, 0x10, 0x55, 0xc3, 9, 0x80, 1, 2, 3, 4, 5, 6, 7}
	for bit := range 8 * len(id) {
		hurt := id
		hurt[bit/8] ^= 1 << (bit % 8)
		if !nearID(id, hurt) {
			t.Errorf("bit %d makes it another topic's", bit)
		}
	}
	for _, other := range []kafka.TopicID{{}, {0x4d, 0x93}, {0x12, 0x77, 0xe1, 0x0f, 0xbb, 0x2c, 0x19, 0x66, 0x44, 0xf2, 0x21, 0x9d, 0x08, 0x70, 0x5e, 0xd1}} {
		if nearID(id, other) {
			t.Errorf("%s is taken for %s", other, id)
		}
	}
}
