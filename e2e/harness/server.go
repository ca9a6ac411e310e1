package harness

import (
	"os"
	"testing"
)

// Server is what a client scenario runs against.
type Server interface {
	Bootstrap() string
	Stop(t testing.TB)
	Restart(t testing.TB)
}

// Bootstrap is the address that clients are given.
func (b *Broker) Bootstrap() string { return b.Addr }

// Bootstrap is the address that clients are given.
func (k *Kafka) Bootstrap() string { return k.Addr }

// Stop ends the node cleanly.
func (k *Kafka) Stop(t testing.TB) { t.Helper(); k.Down(t) }

// Restart starts the node again after Stop.
func (k *Kafka) Restart(t testing.TB) { t.Helper(); k.Up(t) }

// StartServer starts varve, or Apache Kafka with E2E_TARGET=kafka: a scenario
// that does not hold there is wrong.
func StartServer(t testing.TB) Server {
	t.Helper()
	if os.Getenv("E2E_TARGET") == "kafka" {
		k := FormatKafka(t, "4.4.0")
		k.Up(t)
		return k
	}
	return Start(t)
}
