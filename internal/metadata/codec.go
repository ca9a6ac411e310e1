package metadata

import "github.com/varvelog/varve/internal/kafka"

// codec is one pass over the fields of a message in schema order. Each record
// type states its fields once, in its walk method; the encoder writes them, the
// decoder fills them and the jsonWriter prints them as kafka-dump-log does.
//
// The name of a field is Kafka's name in the JSON form of the schema.
type codec interface {
	// decoding reports whether fields are being filled rather than read.
	decoding() bool
	bool(name string, v *bool)
	int8(name string, v *int8)
	int16(name string, v *int16)
	uint16(name string, v *uint16)
	int32(name string, v *int32)
	int64(name string, v *int64)
	float64(name string, v *float64)
	string(name string, v *string)
	// nullString is a string that may be absent (nil).
	nullString(name string, v **string)
	bytes(name string, v *[]byte)
	uuid(name string, v *kafka.UUID)
	// uuids, brokers and strings are arrays. With null set, nil is written as
	// null and read back as nil; otherwise nil is an empty array.
	uuids(name string, v *[]kafka.UUID, null bool)
	brokers(name string, v *[]kafka.BrokerID, null bool)
	strings(name string, v *[]string)
	// arrayStart opens an array of n structs and returns how many there are;
	// each is enclosed in structStart and structEnd.
	arrayStart(name string, n int) int
	arrayEnd()
	structStart()
	// structEnd writes or reads the tagged fields of the struct.
	structEnd()
	// tagged is a field that lies in the tagged section at the end of its
	// struct. It is written when present is set; body walks the field itself.
	tagged(tag uint32, present bool, body func())
}

// walkSlice passes over an array of structs.
func walkSlice[T any](c codec, name string, s *[]T, elem func(codec, *T)) {
	n := c.arrayStart(name, len(*s))
	if c.decoding() {
		*s = make([]T, n)
	}
	for i := range *s {
		c.structStart()
		elem(c, &(*s)[i])
		c.structEnd()
	}
	c.arrayEnd()
}

// brokerID, partition and epoch walk the int32 types of package kafka.
func brokerID(c codec, name string, v *kafka.BrokerID) { c.int32(name, (*int32)(v)) }

func leaderEpoch(c codec, name string, v *kafka.LeaderEpoch) { c.int32(name, (*int32)(v)) }
