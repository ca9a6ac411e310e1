package broker

// Metadata (key 3), versions 0 to 13: racks, internal topics and the controller
// from 1; cluster id from 2; throttle time from 3; AllowAutoTopicCreation from 4
// (true before); offline replicas from 5; leader epochs from 7; authorized
// operations from 8 (of the cluster only to 10); flexible from 9; topic ids from
// 10, by which topics are asked for from 12; a top-level error from 13.
//
// A topic that does not exist and may be created is answered with error 3 and
// exists afterwards. The controller told to clients is a broker: this one.

import (
	"bytes"
	"fmt"

	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/server"
	"github.com/varvelog/varve/internal/wire"
)

// Authorized operations as bit fields: all that a topic and a cluster have,
// since nothing is forbidden, and "not asked for".
const (
	allTopicOperations   = 3576
	allClusterOperations = 8096
	operationsNotAsked   = -2147483648
)

// metadataRequest is a decoded request; names alias the frame.
type metadataRequest struct {
	all        bool // every topic
	topics     []topicRef
	autoCreate bool
	clusterOps bool
	topicOps   bool
}

// topicRef names a topic by id, when that is set, or by name. A nil name is null.
type topicRef struct {
	id   kafka.TopicID
	name []byte
}

func (q *metadataRequest) decode(body []byte, version int16) error {
	r := wire.NewReader(body, version >= 9)
	n := r.NullableArray(1)
	if n < 0 && version == 0 {
		return fmt.Errorf("metadata request v0: null topics: %w", wire.ErrMalformed)
	}
	q.all = n < 0 || n == 0 && version == 0
	if n > 0 {
		q.topics = make([]topicRef, 0, n)
	}
	for i := 0; i < n && r.Err() == nil; i++ {
		var t topicRef
		if version >= 10 {
			t.id = r.UUID()
			t.name = r.NullableString()
		} else {
			t.name = r.String()
		}
		r.SkipTags()
		q.topics = append(q.topics, t)
	}
	q.autoCreate = version < 4 || r.Bool()
	if version >= 8 && version <= 10 {
		q.clusterOps = r.Bool()
	}
	if version >= 8 {
		q.topicOps = r.Bool()
	}
	r.SkipTags()
	if err := r.Err(); err != nil {
		return fmt.Errorf("metadata request v%d: %w", version, err)
	}
	return nil
}

func (b *Broker) metadata(c *Context) (server.Verdict, error) {
	var q metadataRequest
	if err := q.decode(c.Request.Body, c.Version); err != nil {
		return server.Close, err
	}
	if code := q.refuse(c.Version); code != kafka.None {
		q.encodeRefusal(c, code)
		return server.Reply, nil
	}
	m := metadataAnswer{
		out: c.Request.Out, version: c.Version, image: b.opts.Image(), listener: c.Listener(),
		operations: operationsNotAsked,
	}
	if q.topicOps {
		m.operations = allTopicOperations
	}
	missing := b.createMissing(&q, m.image)
	b.encodeMetadata(&q, &m, missing)
	return server.Reply, nil
}

// refuse finds what makes the whole request fail.
func (q *metadataRequest) refuse(version int16) kafka.ErrorCode {
	if version < 10 {
		return kafka.None
	}
	for _, t := range q.topics {
		switch {
		case version < 12 && (!t.id.IsZero() || t.name == nil):
			return kafka.ErrInvalidRequest
		case t.id.IsZero() && t.name == nil:
			return kafka.ErrUnknownServerError
		}
	}
	return kafka.None
}

// encodeRefusal answers every topic with code and nothing else.
func (q *metadataRequest) encodeRefusal(c *Context, code kafka.ErrorCode) {
	m := metadataAnswer{out: c.Request.Out, version: c.Version, operations: operationsNotAsked}
	m.out.Int32(0) // throttle time
	m.out.Array(0)
	m.out.NullableString(nil)
	m.out.Int32(int32(kafka.NoBroker))
	m.out.Array(len(q.topics))
	for _, t := range q.topics {
		name := t.name
		if name == nil {
			name = []byte{}
		}
		m.failed(name, t.id, code, operationsNotAsked)
	}
	m.end(operationsNotAsked)
}

// createMissing creates topics that do not exist where that is allowed, and
// returns how many of the names do not exist in the image.
func (b *Broker) createMissing(q *metadataRequest, image *metadata.Image) (missing int) {
	if q.all {
		return 0
	}
	byID := q.byID()
	var create []string
	for _, t := range q.topics {
		if byID || image.Topic(string(t.name)) != nil {
			continue
		}
		missing++
		if q.autoCreate && b.opts.Config().AutoCreateTopics && string(t.name) != kafka.ClusterMetadataTopic &&
			controller.ValidateTopicName(string(t.name)) == "" {
			create = append(create, string(t.name))
		}
	}
	if len(create) > 0 {
		created, err := b.opts.Controller.EnsureTopics(create)
		if err != nil {
			b.log.Error("create topics on first use", "topics", create, "err", err)
		}
		for _, t := range created {
			if t.Err != nil && t.Err.Code != kafka.ErrTopicAlreadyExists {
				b.log.Warn("topic not created on first use", "topic", t.Name, "err", t.Err.Message)
			}
		}
	}
	return missing
}

// byID reports whether any topic is asked for by id; names are then ignored.
func (q *metadataRequest) byID() bool {
	for _, t := range q.topics {
		if !t.id.IsZero() {
			return true
		}
	}
	return false
}

func (b *Broker) encodeMetadata(q *metadataRequest, m *metadataAnswer, missing int) {
	if m.version >= 3 {
		m.out.Int32(0) // throttle time
	}
	m.brokers()
	if m.version >= 2 {
		m.out.NullableText(&b.opts.ClusterID)
	}
	if m.version >= 1 {
		m.out.Int32(int32(b.opts.NodeID))
	}
	switch {
	case q.all:
		m.out.Array(m.image.Topics.Len())
		for _, t := range m.image.Topics.All() {
			m.topic(t)
		}
	case q.byID():
		m.byID(distinct(q.topics, true))
	default:
		m.byName(distinct(q.topics, false), missing)
	}
	operations := int32(operationsNotAsked)
	if q.clusterOps {
		operations = allClusterOperations
	}
	m.end(operations)
}

// distinct leaves the first of topics that are the same by id, or else by name.
func distinct(topics []topicRef, byID bool) []topicRef {
	kept := topics[:0]
	var seen map[string]bool
	if len(topics) > 32 {
		seen = make(map[string]bool, len(topics))
	}
	for _, t := range topics {
		if byID && t.id.IsZero() {
			continue
		}
		if seen != nil {
			key := string(t.name)
			if byID {
				key = string(t.id[:])
			}
			if seen[key] {
				continue
			}
			seen[key] = true
		} else if contains(kept, t, byID) {
			continue
		}
		kept = append(kept, t)
	}
	return kept
}

func contains(topics []topicRef, t topicRef, byID bool) bool {
	for _, k := range topics {
		if byID && k.id == t.id || !byID && bytes.Equal(k.name, t.name) {
			return true
		}
	}
	return false
}

// metadataAnswer writes an answer straight from the image.
type metadataAnswer struct {
	out        *wire.Chunks
	version    int16
	image      *metadata.Image
	listener   string
	operations int32 // of each topic
}

// brokers writes those that are alive and reachable by the listener.
func (m *metadataAnswer) brokers() {
	n := 0
	for id := range m.image.Brokers.All() {
		if endpoint(m.image, id, m.listener) != nil {
			n++
		}
	}
	m.out.Array(n)
	for id, r := range m.image.Brokers.All() {
		e := endpoint(m.image, id, m.listener)
		if e == nil {
			continue
		}
		m.out.Int32(int32(id))
		m.out.Text(e.Host)
		m.out.Int32(int32(e.Port))
		if m.version >= 1 {
			m.out.NullableText(r.Rack)
		}
		m.out.NoTags()
	}
}

// endpoint is where a broker is reached by a listener; nil when it is not alive
// or does not have it.
func endpoint(image *metadata.Image, id kafka.BrokerID, listener string) *metadata.Endpoint {
	r := image.Broker(id)
	if r == nil || r.Fenced {
		return nil
	}
	return listenerOf(r, listener)
}

func (m *metadataAnswer) byID(topics []topicRef) {
	m.out.Array(len(topics))
	for _, t := range topics {
		if known := m.image.TopicByID(t.id); known != nil {
			m.topic(known)
		} else {
			m.failed(nil, t.id, kafka.ErrUnknownTopicID, operationsNotAsked)
		}
	}
}

// byName writes the topics that exist, then those that do not.
func (m *metadataAnswer) byName(topics []topicRef, missing int) {
	m.out.Array(len(topics))
	for _, t := range topics {
		if known := m.image.Topic(string(t.name)); known != nil {
			m.topic(known)
		}
	}
	if missing == 0 {
		return
	}
	for _, t := range topics {
		switch {
		case m.image.Topic(string(t.name)) != nil:
		case controller.ValidateTopicName(string(t.name)) != "":
			m.failed(t.name, kafka.ZeroUUID, kafka.ErrInvalidTopicException, m.operations)
		default:
			m.failed(t.name, kafka.ZeroUUID, kafka.ErrUnknownTopicOrPartition, m.operations)
		}
	}
}

// failed writes a topic with an error and without partitions. A nil name is null.
func (m *metadataAnswer) failed(name []byte, id kafka.TopicID, code kafka.ErrorCode, operations int32) {
	m.out.Int16(int16(code))
	m.out.NullableString(name)
	if m.version >= 10 {
		m.out.UUID(id)
	}
	if m.version >= 1 {
		m.out.Bool(kafka.IsInternalTopic(string(name)))
	}
	m.out.Array(0)
	if m.version >= 8 {
		m.out.Int32(operations)
	}
	m.out.NoTags()
}

func (m *metadataAnswer) topic(t *metadata.Topic) {
	m.out.Int16(int16(kafka.None))
	m.out.Text(t.Name)
	if m.version >= 10 {
		m.out.UUID(t.ID)
	}
	if m.version >= 1 {
		m.out.Bool(kafka.IsInternalTopic(t.Name))
	}
	m.out.Array(t.Partitions.Len())
	for index, p := range t.Partitions.All() {
		m.partition(index, p)
	}
	if m.version >= 8 {
		m.out.Int32(m.operations)
	}
	m.out.NoTags()
}

// leader is the leader to tell, and the error when it cannot be reached.
func (m *metadataAnswer) leader(p *metadata.Partition) (kafka.BrokerID, kafka.ErrorCode) {
	switch {
	case p.Leader != kafka.NoBroker && endpoint(m.image, p.Leader, m.listener) != nil:
		return p.Leader, kafka.None
	case p.Leader != kafka.NoBroker && m.version >= 6 && m.alive(p.Leader):
		return kafka.NoBroker, kafka.ErrListenerNotFound
	}
	return kafka.NoBroker, kafka.ErrLeaderNotAvailable
}

func (m *metadataAnswer) partition(index int32, p *metadata.Partition) {
	leader, code := m.leader(p)
	m.out.Int16(int16(code))
	m.out.Int32(index)
	m.out.Int32(int32(leader))
	if m.version >= 7 {
		m.out.Int32(int32(p.LeaderEpoch))
	}
	m.ids(p.Replicas)
	m.ids(p.ISR)
	if m.version >= 5 {
		m.offline(p.Replicas)
	}
	m.out.NoTags()
}

func (m *metadataAnswer) ids(ids []kafka.BrokerID) {
	m.out.Array(len(ids))
	for _, id := range ids {
		m.out.Int32(int32(id))
	}
}

// offline writes the replicas on brokers that are not alive.
func (m *metadataAnswer) offline(replicas []kafka.BrokerID) {
	n := 0
	for _, id := range replicas {
		if !m.alive(id) {
			n++
		}
	}
	m.out.Array(n)
	for _, id := range replicas {
		if !m.alive(id) {
			m.out.Int32(int32(id))
		}
	}
}

func (m *metadataAnswer) alive(id kafka.BrokerID) bool {
	r := m.image.Broker(id)
	return r != nil && !r.Fenced
}

// end writes what follows the topics.
func (m *metadataAnswer) end(clusterOperations int32) {
	if m.version >= 8 && m.version <= 10 {
		m.out.Int32(clusterOperations)
	}
	if m.version >= 13 {
		m.out.Int16(int16(kafka.None))
	}
	m.out.NoTags()
}
