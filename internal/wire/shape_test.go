package wire

import (
	"encoding/binary"
	"errors"
	"testing"
)

func TestShapeRefusesWhatKafkaRefuses(t *testing.T) {
	metadata := ParseShape(9, "Topics []{TopicId uuid@10+; Name str?10+}?1+; AllowAutoTopicCreation bool@4+=true; IncludeClusterAuthorizedOperations bool@8-10; IncludeTopicAuthorizedOperations bool@8+")
	describe := ParseShape(0, "Topics []{Name str}; ResponsePartitionLimit i32=2000; Cursor {TopicName str; PartitionIndex i32}?")
	tagged := ParseShape(0, "A i32; B []i32#3; C i8@2+#4=-1")
	counted := func(n uint32, elements int) []byte {
		return append(binary.BigEndian.AppendUint32(nil, n), make([]byte, elements)...)
	}
	tests := []struct {
		name    string
		s       Shape
		version int16
		body    []byte
		sound   bool
	}{
		{"no topics", metadata, 0, counted(0, 0), true},
		{"null topics in version 0", metadata, 0, counted(0xffffffff, 0), false},
		{"null topics in version 1", metadata, 1, counted(0xffffffff, 0), true},
		{"a count of -5 is null", metadata, 1, counted(0xfffffffb, 0), true},
		{"a million topics", metadata, 1, counted(1_000_000, 2_000_000), true},
		{"a million and one", metadata, 1, counted(1_000_001, 2_000_002), false},
		{"two topics in three bytes", metadata, 1, counted(2, 3), false},
		{"2³¹−1 topics", metadata, 1, counted(0x7fffffff, 10), false},
		{"a null name in version 1", metadata, 1, append(counted(1, 0), 0xff, 0xff), false},
		{"a null name in version 10", metadata, 10, append(append([]byte{2}, make([]byte, 16)...), 0, 0, 1, 1, 1, 0), true},
		{"a field that the version does not have is not read", metadata, 3, counted(0, 0), true},
		{"a field is missing", metadata, 4, counted(0, 0), false},
		{"trailing bytes", metadata, 1, counted(0, 5), true},
		{"a null struct", describe, 0, []byte{1, 0, 0, 0, 9, 0xff, 0}, true},
		{"a struct", describe, 0, []byte{1, 0, 0, 0, 9, 1, 2, 'x', 0, 0, 0, 1, 0, 0}, true},
		{"a struct that is cut", describe, 0, []byte{1, 0, 0, 0, 9, 1, 2, 'x', 0, 0}, false},
		{"a tagged array", tagged, 0, []byte{0, 0, 0, 1, 1, 3, 5, 2, 0, 0, 0, 1}, true},
		{"a tagged array that lies", tagged, 0, []byte{0, 0, 0, 1, 1, 3, 1, 9}, false},
		{"an unknown tag", tagged, 0, []byte{0, 0, 0, 1, 1, 9, 1, 9}, true},
		{"a tag that the version does not have", tagged, 1, []byte{0, 0, 0, 1, 1, 4, 0}, true},
		{"a tag without its bytes", tagged, 2, []byte{0, 0, 0, 1, 1, 4, 0}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.s.Check(tt.body, tt.version)
			if (err == nil) != tt.sound {
				t.Errorf("error %v, want sound: %v", err, tt.sound)
			}
			if err != nil && !errors.Is(err, ErrMalformed) {
				t.Errorf("error %v is not ErrMalformed", err)
			}
		})
	}
}
