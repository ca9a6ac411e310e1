package server

import (
	"log/slog"
	"time"

	"github.com/varvelog/varve/internal/wire"
)

// Config says how one listener behaves. Zero values stand for the defaults
// named with each field.
type Config struct {
	// Name is the listener's name in the configuration, such as PLAINTEXT.
	Name string
	// Address is the host:port to bind; an empty host is all interfaces.
	Address string
	// Backlog is socket.listen.backlog.size. 0: the system's maximum.
	Backlog int
	// SendBuffer and ReceiveBuffer are socket.send.buffer.bytes and
	// socket.receive.buffer.bytes where the user set them. 0 leaves them to the
	// kernel, which does better: a fixed 100 KiB send buffer doubled the cost of
	// a 1 MiB response.
	SendBuffer, ReceiveBuffer int

	// MaxRequestBytes is socket.request.max.bytes. 0: 104857600.
	MaxRequestBytes int32
	// IdleTimeout is connections.max.idle.ms. 0: 10 minutes; below 0: no limit.
	IdleTimeout time.Duration
	// FirstRequestTimeout closes a connection that has not sent a complete
	// request (varve.auth.timeout). 0: 10 seconds.
	FirstRequestTimeout time.Duration
	// ReadTimeout bounds the time from the first to the last byte of a request,
	// plus a second for each 100 KB that have come: a request may stall for so
	// long in all (varve.request.read.timeout). The first one of a connection has
	// FirstRequestTimeout instead. 0: 30 seconds.
	ReadTimeout time.Duration
	// SendTimeout closes a connection whose peer takes no byte of a response for
	// so long (varve.send.timeout). 0: 30 seconds.
	SendTimeout time.Duration

	// Admission is shared by all listeners of a broker. Nil: one of its own
	// with the default limits.
	Admission *Admission
	// Buffers are shared by all listeners of a broker. Nil: its own.
	Buffers *Buffers
	// Flexible says which requests have header v2. Nil: wire.FlexibleRequest.
	Flexible func(key, version int16) bool
	// OnFileError is told when a response could not be sent because of its file:
	// a disk that fails, or a file that became shorter. May be nil.
	OnFileError func(file string, err error)
	// Logger gets one record for each connection that is closed or refused; who
	// reaches the port can have many written, so package events belongs in front.
	// Nil: none.
	Logger *slog.Logger
}

// withDefaults fills in what was left zero.
func (c Config) withDefaults() Config {
	if c.MaxRequestBytes == 0 {
		c.MaxRequestBytes = 100 << 20
	}
	orDuration(&c.IdleTimeout, 10*time.Minute)
	orDuration(&c.FirstRequestTimeout, 10*time.Second)
	orDuration(&c.ReadTimeout, 30*time.Second)
	orDuration(&c.SendTimeout, 30*time.Second)
	if c.Admission == nil {
		c.Admission = NewAdmission(Limits{})
	}
	if c.Buffers == nil {
		c.Buffers = NewBuffers()
	}
	if c.Flexible == nil {
		c.Flexible = wire.FlexibleRequest
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func orDuration(d *time.Duration, byDefault time.Duration) {
	if *d == 0 {
		*d = byDefault
	}
}
