package record

import "strconv"

// Codec is a compression codec as the low three bits of the attributes name it.
type Codec int8

// The five codecs.
const (
	None Codec = iota
	Gzip
	Snappy
	LZ4
	Zstd
)

// String is the name that Kafka's tools and configuration use.
func (c Codec) String() string {
	switch c {
	case None:
		return "none"
	case Gzip:
		return "gzip"
	case Snappy:
		return "snappy"
	case LZ4:
		return "lz4"
	case Zstd:
		return "zstd"
	}
	return "codec " + strconv.Itoa(int(c))
}

// Valid reports whether c is one of the five codecs.
func (c Codec) Valid() bool { return c >= None && c <= Zstd }

// ParseCodec reads a name as producers write it; "uncompressed", the broker's
// word in compression.type, means None too. "producer" is not a codec.
func ParseCodec(name string) (c Codec, ok bool) {
	if name == "uncompressed" {
		return None, true
	}
	for c := None; c <= Zstd; c++ {
		if c.String() == name {
			return c, true
		}
	}
	return None, false
}

// DefaultLevel is the level that a codec compresses with when none is
// configured (CompressionType.defaultLevel); 0 for codecs without levels.
func (c Codec) DefaultLevel() int {
	switch c {
	case Gzip:
		return -1
	case LZ4:
		return 9
	case Zstd:
		return 3
	}
	return 0
}
