package metadata

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
)

// Image is the state that a metadata log gives up to one offset. It never
// changes: a Delta makes the next one, sharing what stays the same, so an image
// may be kept and read by any goroutine without a lock. What its pointers lead
// to must not be changed either.
type Image struct {
	// End is the offset after the last record in the image, Epoch the quorum
	// epoch of that record and Timestamp the time of its append. They are 0, 0
	// and -1 in an empty image.
	End       kafka.Offset
	Epoch     kafka.LeaderEpoch
	Timestamp kafka.Timestamp

	Features    Map[string, int16] // finalized levels above 0
	Brokers     Map[kafka.BrokerID, *Broker]
	Controllers Map[kafka.BrokerID, *Controller]
	Topics      Map[string, *Topic]
	Configs     Map[ConfigResource, Map[string, string]] // no empty inner maps
	Quotas      Map[string, *Quota]                      // by QuotaKey
	ACLs        Map[kafka.UUID, *AccessControlEntryRecord]
	Scram       Map[ScramUser, *UserScramCredentialRecord]
	Tokens      Map[string, *DelegationTokenRecord] // by token id

	// NextProducerID is the first producer id of the next block; -1 before the
	// first block.
	NextProducerID kafka.ProducerID

	topicsByID Map[kafka.TopicID, *Topic]
}

// Broker is a broker's registration as it is now.
type Broker struct {
	ID                   kafka.BrokerID
	IncarnationID        kafka.UUID
	Epoch                int64
	Endpoints            []Endpoint
	Features             []FeatureRange
	Rack                 *string // nil: none
	Fenced               bool
	InControlledShutdown bool
	LogDirs              []kafka.UUID
	CordonedLogDirs      []kafka.UUID // nil: not known
	migratingZk          bool
}

// Active reports whether the broker may lead and be told to clients.
func (b *Broker) Active() bool { return !b.Fenced && !b.InControlledShutdown }

// Controller is a controller's registration.
type Controller struct {
	ID               kafka.BrokerID
	IncarnationID    kafka.UUID
	ZkMigrationReady bool
	Endpoints        []Endpoint
	Features         []FeatureRange
}

// Topic is a topic with its partitions by number.
type Topic struct {
	Name       string
	ID         kafka.TopicID
	Partitions Map[int32, *Partition]
}

// Partition is the state of one partition.
type Partition struct {
	Replicas            []kafka.BrokerID
	ISR                 []kafka.BrokerID
	RemovingReplicas    []kafka.BrokerID
	AddingReplicas      []kafka.BrokerID
	Leader              kafka.BrokerID // kafka.NoBroker: none
	LeaderRecoveryState LeaderRecoveryState
	LeaderEpoch         kafka.LeaderEpoch
	PartitionEpoch      int32
	Directories         []kafka.UUID // one per replica; empty before 3.7-IV2
	ELR                 []kafka.BrokerID
	LastKnownELR        []kafka.BrokerID
}

// Directory is where broker has its replica; kafka.ZeroUUID when it has none
// or it was never said.
func (p *Partition) Directory(broker kafka.BrokerID) kafka.UUID {
	for i, id := range p.Replicas {
		if id == broker && i < len(p.Directories) {
			return p.Directories[i]
		}
	}
	return kafka.ZeroUUID
}

// ConfigResource is what a dynamic config belongs to.
type ConfigResource struct {
	Type ResourceType
	Name string
}

func compareResources(a, b ConfigResource) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), strings.Compare(a.Name, b.Name))
}

// ScramUser names one credential.
type ScramUser struct {
	Name      string
	Mechanism int8
}

// Quota holds the quotas of one entity by key, such as producer_byte_rate.
type Quota struct {
	Entity []QuotaEntity
	Values Map[string, float64]
}

// QuotaKey names an entity in Image.Quotas.
func QuotaKey(entity []QuotaEntity) string {
	var key []byte
	for _, e := range entity {
		key = append(key, e.Type...)
		if e.Name == nil {
			key = append(key, 1)
		} else {
			key = append(key, 2)
			key = append(key, *e.Name...)
		}
		key = append(key, 0)
	}
	return string(key)
}

func compareUUIDs(a, b kafka.UUID) int { return bytes.Compare(a[:], b[:]) }

func newPartitions() Map[int32, *Partition] { return newMap[int32, *Partition](cmp.Compare[int32]) }

// NewImage returns the image of an empty log.
func NewImage() *Image {
	return &Image{
		Timestamp:   kafka.NoTimestamp,
		Features:    newMap[string, int16](strings.Compare),
		Brokers:     newMap[kafka.BrokerID, *Broker](cmp.Compare[kafka.BrokerID]),
		Controllers: newMap[kafka.BrokerID, *Controller](cmp.Compare[kafka.BrokerID]),
		Topics:      newMap[string, *Topic](strings.Compare),
		Configs:     newMap[ConfigResource, Map[string, string]](compareResources),
		Quotas:      newMap[string, *Quota](strings.Compare),
		ACLs:        newMap[kafka.UUID, *AccessControlEntryRecord](compareUUIDs),
		Scram: newMap[ScramUser, *UserScramCredentialRecord](func(a, b ScramUser) int {
			return cmp.Or(cmp.Compare(a.Mechanism, b.Mechanism), strings.Compare(a.Name, b.Name))
		}),
		Tokens:         newMap[string, *DelegationTokenRecord](strings.Compare),
		NextProducerID: -1,
		topicsByID:     newMap[kafka.TopicID, *Topic](compareUUIDs),
	}
}

// Topic finds a topic by name; nil when there is none.
func (i *Image) Topic(name string) *Topic {
	t, _ := i.Topics.Get(name)
	return t
}

// TopicByID finds a topic by id; nil when there is none.
func (i *Image) TopicByID(id kafka.TopicID) *Topic {
	t, _ := i.topicsByID.Get(id)
	return t
}

// Partition finds a partition; nil when there is none.
func (i *Image) Partition(tp kafka.TopicPartition) *Partition {
	t := i.Topic(tp.Topic)
	if t == nil {
		return nil
	}
	p, _ := t.Partitions.Get(tp.Partition)
	return p
}

// TopicsByID walks over the topics in the order of their ids.
func (i *Image) TopicsByID() Map[kafka.TopicID, *Topic] { return i.topicsByID }

// Broker finds a registration; nil when there is none.
func (i *Image) Broker(id kafka.BrokerID) *Broker {
	b, _ := i.Brokers.Get(id)
	return b
}

// Config returns the dynamic configs of a resource as a fresh map, empty when
// there are none.
func (i *Image) Config(r ConfigResource) map[string]string {
	values := map[string]string{}
	if m, ok := i.Configs.Get(r); ok {
		for k, v := range m.All() {
			values[k] = v
		}
	}
	return values
}

// ConfigValue returns one dynamic config of a resource.
func (i *Image) ConfigValue(r ConfigResource, key string) (value string, ok bool) {
	m, ok := i.Configs.Get(r)
	if !ok {
		return "", false
	}
	return m.Get(key)
}

// Feature is the finalized level of a feature, 0 when it has none.
func (i *Image) Feature(name string) int16 {
	level, _ := i.Features.Get(name)
	return level
}

// ELREnabled reports whether eligible leader replicas are kept (KIP-966).
func (i *Image) ELREnabled() bool { return i.Feature(ELRVersion) >= 1 }
