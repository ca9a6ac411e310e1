package varve

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/node"
)

// Options say how a broker runs. Dir is needed.
type Options struct {
	// Dir is the data directory (log.dirs). It is made and formatted when it is
	// empty; a directory of Apache Kafka is taken over.
	Dir string
	// Listen is the host:port to serve on. Empty: a free port of 127.0.0.1.
	Listen string
	// Settings are server.properties keys and values, such as
	// "auto.create.topics.enable": "false".
	Settings map[string]string
	// Logger gets what the broker has to say. Nil: nothing is logged.
	Logger *slog.Logger
}

// Broker is a running broker.
type Broker struct{ node *node.Node }

// Start brings a broker up and returns when it serves. The error lists every
// setting that is wrong, or says why the directory was not taken.
func Start(ctx context.Context, o Options) (*Broker, error) {
	if o.Dir == "" {
		return nil, errors.New("varve: Options.Dir is empty: name the data directory")
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	flags := []config.Setting{
		{Key: "log.dirs", Value: o.Dir},
		{Key: "listeners", Value: "PLAINTEXT://" + o.Listen},
		// Kafka waits 3 s for more members of a new group; a test does not.
		{Key: "group.initial.rebalance.delay.ms", Value: "0"},
	}
	for _, key := range slices.Sorted(maps.Keys(o.Settings)) {
		flags = append(flags, config.Setting{Key: key, Value: o.Settings[key]})
	}
	cfg, _, err := config.Load(config.Sources{Flags: flags})
	if err != nil {
		return nil, err
	}
	n, err := node.Start(ctx, cfg, node.Options{Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	return &Broker{n}, nil
}

// Addr is the host:port that clients are given.
func (b *Broker) Addr() string { return b.node.Addr("").String() }

// Failed is closed when the broker cannot go on, because its disk has failed;
// Stop then says why.
func (b *Broker) Failed() <-chan struct{} { return b.node.Failed() }

// Stop ends the broker cleanly. When ctx ends first, requests that are being
// answered are cut off; what is stored is still closed cleanly.
func (b *Broker) Stop(ctx context.Context) error { return b.node.Stop(ctx) }
