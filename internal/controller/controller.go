// Package controller decides: it turns what clients and the node itself ask for
// into metadata records, by the checks and in the order of Kafka's
// QuorumController, for the quorum of one node.
//
// Before it on the path: broker, with requests of clients, and node, which
// registers and stops. After it: quorum, which makes the records durable.
package controller

import (
	"fmt"
	"log/slog"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/quorum"
)

// Config is what the controller knows of its own node.
type Config struct {
	// Broker is the configuration in force, dynamic values included.
	Broker func() *config.Broker
	// BrokerEndpoints are the advertised listeners; ControllerEndpoints where the
	// controller listens.
	BrokerEndpoints, ControllerEndpoints []metadata.Endpoint
	// LogDirs are the ids of the online data directories.
	LogDirs []kafka.UUID
	// DirectoryOf says in which directory a partition of this broker lies. It is
	// asked about new partitions once they are committed, when there are several
	// directories. Nil: their directories stay unassigned until the next start.
	DirectoryOf func(kafka.TopicPartition) (id kafka.UUID, ok bool)

	Logger *slog.Logger      // nil: nothing is logged
	NewID  func() kafka.UUID // nil: metadata.RandomUUID
}

// Controller is the active controller of a quorum of one. Its methods may be
// called by several goroutines at once.
type Controller struct {
	cfg Config
	q   *quorum.Quorum
	id  kafka.BrokerID // of the node: broker and controller
}

// New makes the controller of an open quorum. Nothing is written yet: see
// Bootstrap, Register and Unfence.
func New(q *quorum.Quorum, cfg Config) *Controller {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.NewID == nil {
		cfg.NewID = metadata.RandomUUID
	}
	return &Controller{cfg: cfg, q: q, id: q.NodeID()}
}

// Quorum is the log that the controller writes.
func (c *Controller) Quorum() *quorum.Quorum { return c.q }

// Image is the committed state.
func (c *Controller) Image() *metadata.Image { return c.q.Image() }

// Error is a refusal for one topic or resource: the code and the text that a
// client is shown.
type Error struct {
	Code    kafka.ErrorCode
	Message string
}

func (e *Error) Error() string {
	if e.Message == "" {
		return e.Code.String()
	}
	return e.Message
}

func refuse(code kafka.ErrorCode, format string, args ...any) *Error {
	return &Error{code, fmt.Sprintf(format, args...)}
}
