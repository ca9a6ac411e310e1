package record

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/varvelog/varve/internal/kafka"
)

// Endpoint is where a voter of the metadata quorum listens.
type Endpoint struct {
	Name string
	Host string
	Port uint16
}

// VoterInfo is a voter with everything that a VotersRecord tells.
type VoterInfo struct {
	ID         kafka.BrokerID
	Directory  kafka.UUID
	Endpoints  []Endpoint
	MinVersion int16 // of kraft.version that the voter supports
	MaxVersion int16
}

// Voters is the voter set of the metadata quorum (VotersRecord, KIP-853).
type Voters struct {
	Version int16
	Voters  []VoterInfo
}

// Append appends the value of the control record.
func (m *Voters) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(m.Version))
	dst = binary.AppendUvarint(dst, uint64(len(m.Voters))+1)
	for i := range m.Voters {
		v := &m.Voters[i]
		dst = binary.BigEndian.AppendUint32(dst, uint32(v.ID))
		dst = append(dst, v.Directory[:]...)
		dst = binary.AppendUvarint(dst, uint64(len(v.Endpoints))+1)
		for _, e := range v.Endpoints {
			dst = appendCompactString(dst, e.Name)
			dst = appendCompactString(dst, e.Host)
			dst = binary.BigEndian.AppendUint16(dst, e.Port)
			dst = append(dst, 0)
		}
		dst = binary.BigEndian.AppendUint16(dst, uint16(v.MinVersion))
		dst = binary.BigEndian.AppendUint16(dst, uint16(v.MaxVersion))
		dst = append(dst, 0, 0) // tags of the feature, tags of the voter
	}
	return append(dst, 0)
}

func appendCompactString(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))+1), s...)
}

// ParseVoters reads the value of a KRAFT_VOTERS record.
func ParseVoters(value []byte) (Voters, error) {
	d := fields{b: value}
	m := Voters{Version: d.int16()}
	for range d.arrayLen(26) {
		v := VoterInfo{ID: kafka.BrokerID(d.int32()), Directory: d.uuid()}
		for range d.arrayLen(5) {
			e := Endpoint{Name: d.compactString(), Host: d.compactString(), Port: uint16(d.int16())}
			d.tags()
			v.Endpoints = append(v.Endpoints, e)
		}
		v.MinVersion, v.MaxVersion = d.int16(), d.int16()
		d.tags() // of the feature
		d.tags() // of the voter
		m.Voters = append(m.Voters, v)
	}
	d.tags()
	return m, d.err("voters record")
}

// fields reads the flexible encoding of control record values. After the first
// thing that does not fit, bad is set and every read gives zero.
type fields struct {
	b   []byte
	bad bool
}

func (d *fields) take(n int) []byte {
	if d.bad || n > len(d.b) {
		d.bad = true
		return make([]byte, n) // of a fixed-size field: 16 bytes at most
	}
	out := d.b[:n]
	d.b = d.b[n:]
	return out
}

func (d *fields) int16() int16 { return int16(binary.BigEndian.Uint16(d.take(2))) }
func (d *fields) int32() int32 { return int32(binary.BigEndian.Uint32(d.take(4))) }
func (d *fields) int64() int64 { return int64(binary.BigEndian.Uint64(d.take(8))) }

func (d *fields) uuid() (u kafka.UUID) {
	copy(u[:], d.take(16))
	return u
}

func (d *fields) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.bad || n <= 0 || v > 1<<31 {
		d.bad = true
		return 0
	}
	d.b = d.b[n:]
	return v
}

// arrayLen reads the length of an array whose elements take minSize bytes at
// least, so that a length cannot ask for more than there is.
func (d *fields) arrayLen(minSize int) int {
	n := int(d.uvarint()) - 1
	if n < 0 || n > len(d.b)/minSize {
		d.bad = true
		return 0
	}
	return n
}

func (d *fields) compactString() string {
	n := int(d.uvarint()) - 1
	if n < 0 || n > len(d.b) {
		d.bad = true
		return ""
	}
	s := string(d.b[:n])
	d.b = d.b[n:]
	if !utf8.ValidString(s) {
		d.bad = true
	}
	return s
}

// tags skips tagged fields: none is defined for control records.
func (d *fields) tags() {
	for range d.uvarint() {
		d.uvarint()
		n := int(d.uvarint())
		if d.bad || n > len(d.b) {
			d.bad = true
			return
		}
		d.b = d.b[n:]
	}
}

func (d *fields) voters() []Voter {
	n := d.arrayLen(5)
	if n == 0 {
		return nil
	}
	voters := make([]Voter, 0, n)
	for range n {
		voters = append(voters, Voter{ID: kafka.BrokerID(d.int32())})
		d.tags()
	}
	return voters
}

// err is nil when everything fitted. Bytes behind the message are ignored, as
// Kafka ignores them.
func (d *fields) err(what string) error {
	if d.bad {
		return &InvalidError{Index: -1, Reason: fmt.Sprintf("%s does not fit its %d bytes", what, len(d.b))}
	}
	return nil
}
