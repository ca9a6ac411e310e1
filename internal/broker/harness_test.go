package broker_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/node"
	"github.com/varvelog/varve/internal/wire"
)

// start runs a whole node on dir, so that requests go the way they always go.
func start(t testing.TB, dir string, settings ...string) *node.Node {
	t.Helper()
	var flags []config.Setting
	for _, s := range append([]string{"listeners=PLAINTEXT://127.0.0.1:0"}, settings...) {
		key, value, _ := strings.Cut(s, "=")
		flags = append(flags, config.Setting{Key: key, Value: value})
	}
	cfg, _, err := config.Load(config.Sources{Flags: flags, DataDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(context.Background(), cfg, node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := n.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

// conn is a client's end of a connection.
type conn struct {
	net.Conn
	t    testing.TB
	node *node.Node
	last int32 // correlation id
}

func dial(t testing.TB, n *node.Node) *conn {
	t.Helper()
	c, err := net.Dial("tcp", n.Addr("").String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(30 * time.Second))
	return &conn{Conn: c, t: t, node: n}
}

// frame is a whole request.
func frame(q kmsg.Request, correlationID int32, clientID string) []byte {
	b := make([]byte, 4)
	b = binary.BigEndian.AppendUint16(b, uint16(q.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(q.GetVersion()))
	b = binary.BigEndian.AppendUint32(b, uint32(correlationID))
	b = binary.BigEndian.AppendUint16(b, uint16(len(clientID)))
	b = append(b, clientID...)
	if q.IsFlexible() {
		b = append(b, 0)
	}
	b = q.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (c *conn) send(q kmsg.Request) { c.sendAs(q, "test") }

func (c *conn) sendAs(q kmsg.Request, clientID string) {
	c.t.Helper()
	c.last++
	c.write(frame(q, c.last, clientID))
}

func (c *conn) write(b []byte) {
	c.t.Helper()
	if _, err := c.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// read reads one answer without its size.
func (c *conn) read() []byte {
	c.t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		c.t.Fatalf("answer: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		c.t.Fatalf("answer: %v", err)
	}
	return b
}

// receive reads the answer to a request of that kind.
func (c *conn) receive(q kmsg.Request) kmsg.Response {
	c.t.Helper()
	b := c.read()
	if id := int32(binary.BigEndian.Uint32(b)); id != c.last {
		c.t.Fatalf("answer to %d, want the one to %d", id, c.last)
	}
	return decode(c.t, q.Key(), q.GetVersion(), b)
}

// decode decodes an answer, header included, and sees that it is what the
// oracle would have written.
func decode(t testing.TB, key, version int16, b []byte) kmsg.Response {
	t.Helper()
	a := kmsg.ResponseForKey(key)
	a.SetVersion(version)
	body := b[4:]
	if wire.FlexibleResponseHeader(key, version) {
		body = body[1:]
	}
	if err := a.ReadFrom(body); err != nil {
		t.Fatalf("%s v%d: answer %x: %v", kmsg.NameForKey(key), version, b, err)
	}
	return a
}

// do sends a request in its version and returns the answer.
func do[R kmsg.Response](c *conn, q kmsg.Request) R {
	c.t.Helper()
	c.send(q)
	return c.receive(q).(R)
}

// wantClosed waits until the broker closes the connection without an answer.
func (c *conn) wantClosed() {
	c.t.Helper()
	n, err := io.Copy(io.Discard, c)
	if n != 0 {
		c.t.Fatalf("%d bytes before the close, want none", n)
	}
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		c.t.Fatal("the connection is still open")
	}
}

// createTopic creates a topic and waits until it is led.
func createTopic(c *conn, name string, partitions int32, configs ...string) [16]byte {
	c.t.Helper()
	q := kmsg.NewPtrCreateTopicsRequest()
	q.Version = 7
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, partitions, 1
	for _, s := range configs {
		key, value, _ := strings.Cut(s, "=")
		k := kmsg.NewCreateTopicsRequestTopicConfig()
		k.Name, k.Value = key, &value
		topic.Configs = append(topic.Configs, k)
	}
	q.Topics = append(q.Topics, topic)
	a := do[*kmsg.CreateTopicsResponse](c, q)
	if code := a.Topics[0].ErrorCode; code != 0 {
		c.t.Fatalf("create %s: error %d", name, code)
	}
	return a.Topics[0].TopicID
}
