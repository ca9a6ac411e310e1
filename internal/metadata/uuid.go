package metadata

import (
	"crypto/rand"

	"github.com/varvelog/varve/internal/kafka"
)

// RandomUUID makes a topic, directory or incarnation id as
// org.apache.kafka.common.Uuid.randomUuid does: a version 4 UUID that is none
// of the reserved ids and whose text does not begin with a dash, so that it can
// be given on a command line.
func RandomUUID() kafka.UUID {
	for {
		var u kafka.UUID
		_, _ = rand.Read(u[:]) // never fails (crypto/rand since Go 1.24)
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if u.String()[0] != '-' {
			return u
		}
	}
}
