package dump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"

	"github.com/varvelog/varve/internal/record"
)

// parsed is what a parser makes of a record: nil is "prints nothing".
type parsed struct{ key, payload *string }

// parser turns the key and value of a record into text.
type parser interface {
	// parse's error ends the dump, as an exception ends Kafka's.
	parse(r *record.Record) (parsed, error)
}

// plainParser uses a decoder class for the key and one for the value.
type plainParser struct{ key, value func([]byte) (string, error) }

func (p plainParser) parse(r *record.Record) (out parsed, err error) {
	if r.Key != nil {
		if out.key, err = decodeField(p.key, r.Key); err != nil {
			return out, err
		}
	}
	if r.Value != nil {
		out.payload, err = decodeField(p.value, r.Value)
	}
	return out, err
}

func decodeField(decode func([]byte) (string, error), b []byte) (*string, error) {
	s, err := decode(b)
	return &s, err
}

// decoderClass finds one of the Decoder classes of kafka-tools-api by its
// class name, with or without the package.
func decoderClass(class string) (func([]byte) (string, error), bool) {
	name := class[strings.LastIndexByte(class, '.')+1:]
	if pkg := strings.TrimSuffix(class, name); pkg != "" && pkg != "org.apache.kafka.tools.api." && pkg != "kafka.serializer." {
		return nil, false
	}
	switch name {
	case "StringDecoder":
		return func(b []byte) (string, error) { return javaString(b), nil }, true
	case "IntegerDecoder":
		return func(b []byte) (string, error) {
			if len(b) < 4 {
				return "", &javaError{"java.nio.BufferUnderflowException", ""}
			}
			return fmt.Sprint(int32(binary.BigEndian.Uint32(b))), nil
		}, true
	case "LongDecoder":
		return func(b []byte) (string, error) {
			if len(b) < 8 {
				return "", &javaError{"java.nio.BufferUnderflowException", ""}
			}
			return fmt.Sprint(int64(binary.BigEndian.Uint64(b))), nil
		}, true
	case "DefaultDecoder":
		// Java prints the array's identity, "[B@" and a hash; the bytes say more.
		return func(b []byte) (string, error) { return fmt.Sprintf("%x", b), nil }, true
	}
	return nil, false
}

// coordinatorParser reads the records of an internal topic: the key begins
// with the record type, the value with its version.
type coordinatorParser struct {
	keys, values map[int16]*schema
	// adjust changes a decoded value before it is printed; may be nil.
	adjust func(recordType int16, o object)
}

func (p coordinatorParser) parse(r *record.Record) (parsed, error) {
	if r.Key == nil {
		return parsed{}, &javaError{"java.lang.RuntimeException", fmt.Sprintf(
			"Failed to decode message at offset %d using the specified decoder (message had a missing key)", r.Offset)}
	}
	recordType, key, value, err := p.deserialize(r.Key, r.Value)
	var text string
	var unknown unknownTypeError
	switch {
	case errors.As(err, &unknown):
		text = fmt.Sprintf("Unknown record type %d at offset %d, skipping.", int16(unknown), r.Offset)
		return parsed{key: &text}, nil
	case err != nil:
		text = fmt.Sprintf("Error at offset %d, skipping. %v", r.Offset, err)
		return parsed{key: &text}, nil
	}
	text = string(envelope("type", recordType, key))
	payload := "<DELETE>"
	if r.Value != nil {
		payload = string(envelope("version", int16(binary.BigEndian.Uint16(r.Value)), value))
	}
	return parsed{&text, &payload}, nil
}

// unknownTypeError is a record type that no schema has.
type unknownTypeError int16

func (e unknownTypeError) Error() string { return fmt.Sprintf("unknown record type %d", int16(e)) }

func (p coordinatorParser) deserialize(k, v []byte) (recordType int16, key, value object, err error) {
	if recordType, k, err = versionPrefix(k, "key"); err != nil {
		return
	}
	schema := p.keys[recordType]
	if schema == nil {
		return recordType, nil, nil, unknownTypeError(recordType)
	}
	if key, _, err = schema.decode(k, 0); err != nil {
		return recordType, nil, nil, fmt.Errorf("Could not read record with version 0 from key's buffer due to: %w.", err)
	}
	if v == nil {
		return recordType, key, nil, nil
	}
	schema = p.values[recordType]
	version, v, err := versionPrefix(v, "value")
	if err != nil {
		return recordType, nil, nil, err
	}
	if value, _, err = schema.decode(v, version); err != nil {
		return recordType, nil, nil, fmt.Errorf("Could not read record with version %d from value's buffer due to: %w.", version, err)
	}
	if p.adjust != nil {
		p.adjust(recordType, value)
	}
	return recordType, key, value, nil
}

func versionPrefix(b []byte, what string) (int16, []byte, error) {
	if len(b) < 2 {
		return 0, nil, fmt.Errorf("Could not read version from %s's buffer.", what)
	}
	return int16(binary.BigEndian.Uint16(b)), b[2:], nil
}

// envelope is the JSON around a decoded key or value; the number is text.
func envelope(name string, n int16, o object) []byte {
	return object{
		{name, fmt.Sprint(n), true},
		{"data", o, true},
	}.appendJSON(nil)
}

// groupMetadata is the record type of a classic group in __consumer_offsets.
const groupMetadata = 2

// expandMembers replaces the subscription and assignment bytes of a consumer
// group's members by what is in them, where that can be read.
func expandMembers(all schemas) func(int16, object) {
	return func(recordType int16, o object) {
		if recordType != groupMetadata || o.get("protocolType") != "consumer" {
			return
		}
		members, _ := o.get("members").([]any)
		for _, m := range members {
			m := m.(object)
			expand(m, "subscription", all["consumer"][0])
			expand(m, "assignment", all["consumer"][1])
		}
	}
}

func expand(o object, name string, s *schema) {
	for i := range o {
		b, ok := o[i].value.([]byte)
		if o[i].name != name || !ok || len(b) < 2 {
			continue
		}
		if v, _, err := s.decode(b[2:], int16(binary.BigEndian.Uint16(b))); err == nil {
			o[i].value = v
		}
	}
}

// nameTransactionState replaces the state's number by its name.
func nameTransactionState(_ int16, o object) {
	names := []string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}
	for i := range o {
		n, ok := o[i].value.(int64)
		if o[i].name != "transactionStatus" || !ok {
			continue
		}
		o[i].value = fmt.Sprint(n)
		if n >= 0 && int(n) < len(names) {
			o[i].value = names[n]
		}
	}
}

// metadataParser reads the records of __cluster_metadata.
type metadataParser struct{ records map[int16]*schema }

func (p metadataParser) parse(r *record.Record) (parsed, error) {
	var text string
	id, version, o, err := readFrame(p.records, r.Value, "Unknown metadata id")
	if err != nil {
		text = fmt.Sprintf("Error at %d, skipping. %v", r.Offset, err)
	} else {
		text = string(object{
			{"type", upperSnake(p.records[id].name), true},
			{"version", int64(version), true},
			{"data", o, true},
		}.appendJSON(nil))
	}
	return parsed{payload: &text}, nil
}

// readFrame reads a record with the frame that metadata records have: frame
// version, type and version as varints, then the message.
func readFrame(records map[int16]*schema, b []byte, unknown string) (id, version int16, o object, err error) {
	frame, b, err := frameNumber(b, "frame version")
	switch {
	case err != nil:
	case frame == 0:
		err = errors.New("Could not deserialize metadata record with frame version 0. " +
			"Note that upgrades from the preview release of KRaft in 2.8 to newer versions are not supported.")
	case frame != 1:
		err = fmt.Errorf("Could not deserialize metadata record due to unknown frame version %d(only frame version 1 is supported)", frame)
	}
	if err != nil {
		return 0, 0, nil, err
	}
	if id, b, err = frameNumber(b, "type"); err != nil {
		return
	}
	if version, b, err = frameNumber(b, "version"); err != nil {
		return
	}
	s := records[id]
	if s == nil {
		return id, version, nil, fmt.Errorf("org.apache.kafka.common.errors.UnsupportedVersionException: %s %d", unknown, id)
	}
	o, rest, err := s.decode(b, version)
	switch {
	case err != nil:
		err = fmt.Errorf("Failed to deserialize record with type %d", id)
	case len(rest) > 0:
		err = fmt.Errorf("Found %d byte(s) of garbage after %d", len(rest), id)
	}
	return id, version, o, err
}

func frameNumber(b []byte, what string) (int16, []byte, error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || size > 5 {
		return 0, nil, fmt.Errorf("Error while reading %s", what)
	}
	if n > math.MaxInt16 {
		return 0, nil, fmt.Errorf("Value for %s was too large.", what)
	}
	return int16(n), b[size:], nil
}

// upperSnake turns FeatureLevelRecord into FEATURE_LEVEL_RECORD.
func upperSnake(name string) string {
	var s strings.Builder
	for i, c := range name {
		if i > 0 && unicode.IsUpper(c) {
			s.WriteByte('_')
		}
		s.WriteRune(unicode.ToUpper(c))
	}
	return s.String()
}
