package broker

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/invariant"
	"github.com/varvelog/varve/internal/server"
	"github.com/varvelog/varve/internal/wire"
)

// maxKey is the highest API key of Kafka 4.4.0.
const maxKey = 94

// api is one row of the table: versions [min, max] are served. What is in the
// table is what ApiVersions tells, so a row goes in when its API works.
type api struct {
	key      int16
	name     string
	min, max int16
	serve    handler
}

// handler answers one request into c.Request.Out.
type handler func(b *Broker, c *Context) (server.Verdict, error)

// table lists the APIs of this broker by key. The ranges are Kafka 4.4.0's.
func table() []api {
	rows := slices.Concat(dataAPIs(), adminAPIs(), groupAPIs())
	slices.SortFunc(rows, func(x, y api) int { return int(x.key) - int(y.key) })
	return rows
}

// dataAPIs are records and discovery.
func dataAPIs() []api {
	return []api{
		{wire.ProduceKey, "Produce", wire.ProduceMinVersion, wire.ProduceMaxVersion, (*Broker).produce},
		{wire.FetchKey, "Fetch", wire.FetchMinVersion, wire.FetchMaxVersion, (*Broker).fetch},
		{2, "ListOffsets", 1, 11, control((*Broker).listOffsets)},
		{3, "Metadata", 0, 13, (*Broker).metadata},
		{10, "FindCoordinator", 0, 6, control((*Broker).findCoordinator)},
		{wire.APIVersionsKey, "ApiVersions", 0, 5, (*Broker).apiVersions},
		{21, "DeleteRecords", 0, 2, control((*Broker).deleteRecords)},
		{23, "OffsetForLeaderEpoch", 2, 4, control((*Broker).offsetForLeaderEpoch)},
		{35, "DescribeLogDirs", 1, 5, control((*Broker).describeLogDirs)},
		{60, "DescribeCluster", 0, 2, control((*Broker).describeCluster)},
		{61, "DescribeProducers", 0, 0, control((*Broker).describeProducers)},
		{75, "DescribeTopicPartitions", 0, 0, control((*Broker).describeTopicPartitions)},
	}
}

// Context is one request being answered. As a context.Context it ends when the
// listener that the request came in by stops. It is valid until the answer.
type Context struct {
	Request *server.Request
	Version int16
}

// Key is the request's API key.
func (c *Context) Key() int16 { return c.Request.Header.Key }

// ClientID is the request's client id.
func (c *Context) ClientID() string { return c.Request.ClientID() }

// ClientHost is the peer as Kafka records it, with a leading slash.
func (c *Context) ClientHost() string {
	return "/" + c.Request.Conn.RemoteAddr().Addr().Unmap().String()
}

// Listener is the name of the listener that the request came in by.
func (c *Context) Listener() string { return c.Request.Conn.Listener() }

// Deadline says that there is none.
func (c *Context) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the broker stops.
func (c *Context) Done() <-chan struct{} { return c.Request.Conn.Done() }

// Err is context.Canceled when the broker stops.
func (c *Context) Err() error {
	select {
	case <-c.Done():
		return context.Canceled
	default:
		return nil
	}
}

// Value is always nil.
func (c *Context) Value(any) any { return nil }

// Serve answers one request. An unknown API or version closes the connection:
// only ApiVersions has an answer for a version it does not know.
func (b *Broker) Serve(r *server.Request) (server.Verdict, error) {
	key, version := r.Header.Key, r.Header.Version
	if key < 0 || key > maxKey || b.table[key] == nil {
		return server.Close, fmt.Errorf("API key %d is not served: %w", key, wire.ErrMalformed)
	}
	a := b.table[key]
	if (version < a.min || version > a.max) && key != wire.APIVersionsKey {
		return server.Close, fmt.Errorf("%s v%d is not served, only v%d to v%d: %w", a.name, version, a.min, a.max, wire.ErrMalformed)
	}
	c := contextOf(r)
	c.Request, c.Version = r, version
	return a.serve(b, c)
}

// contextOf is the context that lives with the request's connection, so that a
// request does not allocate one.
func contextOf(r *server.Request) *Context { return &stateOf(r.Conn).context }

// connState is what the broker keeps for a connection.
type connState struct {
	context Context
}

func stateOf(c *server.Conn) *connState {
	if s, ok := c.State().(*connState); ok {
		return s
	}
	s := &connState{}
	c.SetState(s)
	return s
}

// control adapts an API whose messages are kmsg's: f gets the decoded request
// and returns the answer. A nil answer closes the connection; f returns it when
// the broker stops while it waits. The answer's version is set here.
func control[Q, R any, PQ interface {
	*Q
	kmsg.Request
}, PR interface {
	*R
	kmsg.Response
}](f func(b *Broker, c *Context, q PQ) PR) handler {
	return func(b *Broker, c *Context) (server.Verdict, error) {
		q := PQ(new(Q))
		if d, ok := any(q).(interface{ Default() }); ok {
			d.Default()
		}
		q.SetVersion(c.Version)
		if err := b.decode(c, q); err != nil {
			return server.Close, fmt.Errorf("%s request v%d: %w", kmsg.NameForKey(c.Key()), c.Version, err)
		}
		answer := f(b, c, q)
		if answer == nil {
			return server.Close, &server.CloseError{Reason: server.ReasonStop, Err: c.Err()}
		}
		answer.SetVersion(c.Version)
		c.Request.Out.Message(answer)
		return server.Reply, nil
	}
}

// decode decodes a request that has the shape of its API. What is decoded is
// the handler's to keep: kmsg's byte slices point into a copy of the body, and
// the connection needs no buffer while the handler waits.
func (b *Broker) decode(c *Context, q kmsg.Request) error {
	shape, ok := b.shapes[c.Key()]
	if !ok {
		invariant.Violated("API %d has no request shape", c.Key())
	}
	body := c.Request.Body
	if err := shape.Check(body, c.Version); err != nil {
		return err
	}
	body = bytes.Clone(body)
	c.Request.Release()
	if err := c.Request.Flush(); err != nil { // the handler may wait
		return err
	}
	if err := q.ReadFrom(body); err != nil {
		return fmt.Errorf("%w: %w", err, wire.ErrMalformed)
	}
	return nil
}
