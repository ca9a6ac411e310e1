package record

import (
	"bytes"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
)

func TestWholeBatchBehind(t *testing.T) {
	o := NewBuildOptions()
	o.BaseOffset = 100
	good := build(t, o, 3)
	hurt := bytes.Clone(good)
	hurt[len(hurt)-1] ^= 1
	zeros := func(n int) []byte { return make([]byte, n) }
	tests := []struct {
		name string
		tail []byte
		next int64
		want bool
	}{
		{"nothing at all", nil, 100, false},
		{"zeros of a lost power", zeros(3 * searchChunk), 100, false},
		{"a batch at once", good, 100, true},
		{"a batch cut short", good[:len(good)-1], 100, false},
		{"a batch with a wrong checksum", hurt, 100, false},
		{"a batch below the end of the log, of an older life of the file", good, 101, false},
		{"a batch whose offset can only be chance", good, 100 - searchSpan - 1, false},
		{"a batch at an odd byte behind garbage", append(bytes.Repeat([]byte{2}, 777), good...), 100, true},
		{"a header across two pieces", append(zeros(searchChunk-HeaderSize/2), good...), 100, true},
		{"a batch that begins with the last header of a piece", append(zeros(searchChunk-HeaderSize), good...), 100, true},
		{"a batch across two pieces, and the file ends with it", append(zeros(searchChunk-HeaderSize-10), good...), 100, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := append([]byte("what the log keeps"), tt.tail...)
			from := int64(len(file) - len(tt.tail))
			got, err := WholeBatchBehind(bytes.NewReader(file), from, int64(len(file)), kafka.Offset(tt.next))
			if got != tt.want || err != nil {
				t.Errorf("WholeBatchBehind = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}
