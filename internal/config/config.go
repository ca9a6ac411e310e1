package config

import (
	"sort"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/kafka"
)

// Setting is one key with a value and the place it was written at.
type Setting struct {
	Key, Value string
	Origin     Origin
}

// File is a properties file that its caller has read.
type File struct {
	Path string // as the user wrote it: the head of messages
	Data []byte
}

// Sources is everything a configuration is made of, lowest precedence first
// (CFG-1). The zero value gives the defaults of CFG-23.
type Sources struct {
	Files    []File   // later wins
	Env      []string // "NAME=VALUE", as os.Environ has them; VARVE_* is read
	KafkaEnv bool     // read KAFKA_* of Env too (CFG-8)
	Flags    []Setting
	DataDir  string // log.dirs when there is no file and nothing sets it (CFG-23)
	Strict   bool   // an unknown key is an error
	// Fill gives a file that says nothing of roles and controllers what varve
	// serves with when there is no file. Apache Kafka refuses such a file.
	Fill bool
}

// Broker is a checked configuration. It does not change: WithDynamic makes
// another one. The typed fields are what the broker reads; every key, also
// those without a field, is there by Value and Describe.
type Broker struct {
	NodeID    kafka.BrokerID
	Rack      string // empty = none
	ClusterID string // wanted for a directory that is formatted now; empty = random
	Listeners []Listener
	// Advertised has one endpoint a client listener, in the order of
	// advertised.listeners. An empty host stands for this machine's canonical
	// name, port 0 for the port that was bound.
	Advertised          []Listener
	InterBrokerListener string

	LogDirs        []string
	MetadataLogDir string // never empty: the first of LogDirs unless set
	AutoFormat     bool

	AutoCreateTopics         bool
	AutoPartitionsCap        int
	NumPartitions            int32
	DefaultReplicationFactor int16
	DeleteTopics             bool

	SocketRequestMaxBytes        int32
	SocketSendBufferBytes        int // -1 = the system's
	SocketReceiveBufferBytes     int // -1 = the system's
	SocketListenBacklog          int
	MaxConnections               int
	MaxConnectionsPerIP          int
	MaxConnectionsPerIPOverrides map[string]int
	MaxConnectionCreationRate    int
	ConnectionsMaxIdle           time.Duration // below zero = never closed
	QueuedMaxRequestBytes        int64         // -1 = no limit
	RequestTimeout               time.Duration

	FetchMaxBytes                int32
	FetchSessionSlots            int
	MaxRequestPartitionSizeLimit int
	FetchPath                    string // auto, sendfile, copy
	IndexAccess                  string // mmap, pread

	FlushSchedulerInterval             Millis
	FlushOffsetCheckpointInterval      time.Duration
	FlushStartOffsetCheckpointInterval time.Duration
	HighWatermarkCheckpointInterval    time.Duration
	RetentionCheckInterval             time.Duration
	InitialTaskDelay                   time.Duration
	RecoveryThreadsPerDir              int
	Sync                               string // SyncKafka, SyncGroup or SyncAlways

	CleanerEnable         bool
	CleanerThreads        int
	CleanerDedupeBytes    int64   // log.cleaner.dedupe.buffer.size, of all threads together
	CleanerLoadFactor     float64 // log.cleaner.io.buffer.load.factor
	CleanerBufferBytes    int     // log.cleaner.io.buffer.size, of all threads together
	CleanerBytesPerSecond float64
	CleanerBackoff        time.Duration

	ProducerIDExpiration              time.Duration
	ProducerIDExpirationCheckInterval time.Duration

	OffsetsTopicPartitions        int32
	OffsetsTopicReplicationFactor int16 // as set; capped by its user when IsSet is false
	OffsetsTopicSegmentBytes      int32
	OffsetsTopicCompressionCodec  int8
	OffsetsRetention              time.Duration
	OffsetsRetentionCheckInterval time.Duration
	OffsetsLoadBufferSize         int32
	OffsetCommitTimeout           time.Duration
	OffsetMetadataMaxBytes        int

	GroupMinSessionTimeout     time.Duration
	GroupMaxSessionTimeout     time.Duration
	GroupInitialRebalanceDelay time.Duration
	GroupMaxSize               int

	TransactionTopicPartitions        int32
	TransactionTopicReplicationFactor int16
	TransactionTopicMinISR            int
	TransactionTopicSegmentBytes      int32
	TransactionMaxTimeout             time.Duration

	MetadataSegmentBytes             int32
	MetadataSegmentTime              Millis
	MetadataMaxRetentionBytes        int64
	MetadataMaxRetentionTime         Millis
	MetadataSnapshotBytes            int64 // metadata.log.max.record.bytes.between.snapshots
	MetadataSnapshotInterval         Millis
	MetadataMaxIdleInterval          time.Duration
	BrokerHeartbeatInterval          time.Duration
	BrokerSessionTimeout             time.Duration
	InitialBrokerRegistrationTimeout time.Duration

	ClockJumpMax time.Duration // 0 = every jump is acted on at once

	HTTPListen            string // empty = off
	MetricsPartitionLimit int

	LogLevel      string // trace, debug, info, warn, error
	LogFormat     string // text, json
	ShutdownGrace time.Duration
	DiskReserve   Reserve       // varve.disk.reserve
	ScrubRate     int64         // bytes a second and directory, 0 = off
	CutRetention  time.Duration // 0 = for ever

	// Topic is what a topic without settings of its own has.
	Topic Topic

	builtin    map[string]Setting // varve's defaults where they differ from Kafka's
	static     map[string]Setting // what the sources say, in normal form
	dynDefault map[string]string  // cluster-wide dynamic values, in normal form
	dynOwn     map[string]string  // this broker's dynamic values, in normal form
}

// Load reads the sources, checks them and returns the configuration with what
// its author should know. The error is an Errors with everything that is wrong:
// syntax first, then types and ranges, then rules over several keys.
func Load(src Sources) (*Broker, []Warning, error) {
	l := loader{src: src, static: map[string]Setting{}}
	l.collect()
	l.checkKeys()
	b := &Broker{static: l.static, builtin: l.builtin()}
	b.ClusterID = clusterID(src.Env)
	l.checkRequired(b)
	b.fill()
	l.checkRules(b)
	if len(l.errs) > 0 {
		return nil, l.warnings, l.errs
	}
	l.adviseOn(b)
	return b, l.warnings, nil
}

// clusterID is CLUSTER_ID of the environment, the variable of Kafka's image.
func clusterID(env []string) string {
	id := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "CLUSTER_ID="); ok && id == "" {
			id = v
		}
		if v, ok := strings.CutPrefix(kv, "VARVE_CLUSTER_ID="); ok {
			id = v
		}
	}
	return id
}

// lookup returns the value in force, in normal form. It is not set when the
// default is null and nothing else gives one.
func (b *Broker) lookup(name string) (value string, set bool) {
	if v, ok := b.dynOwn[name]; ok {
		return v, true
	}
	if v, ok := b.dynDefault[name]; ok {
		return v, true
	}
	if s, ok := b.static[name]; ok {
		return s.Value, true
	}
	return b.defaultOf(name)
}

func (b *Broker) defaultOf(name string) (value string, set bool) {
	if s, ok := b.builtin[name]; ok {
		return s.Value, true
	}
	k, ok := Lookup(ScopeBroker, name)
	if !ok {
		k, ok = Lookup(ScopeOwn, name)
	}
	return k.Default, ok && !k.Null && !k.Required
}

// Value returns the value in force of any key, in normal form, and where it
// comes from. An unset key is "" with SourceDefault.
func (b *Broker) Value(name string) (string, Source) {
	v, _ := b.lookup(name)
	if _, ok := b.dynOwn[name]; ok {
		return v, SourceDynamicBroker
	}
	if _, ok := b.dynDefault[name]; ok {
		return v, SourceDynamicDefault
	}
	if _, ok := b.static[name]; ok {
		return v, SourceStatic
	}
	return v, SourceDefault
}

// IsSet reports whether somebody gave the key a value: not a default.
func (b *Broker) IsSet(name string) bool {
	_, source := b.Value(name)
	return source != SourceDefault
}

// Origin returns where the static value of a key was written.
func (b *Broker) Origin(name string) Origin { return b.static[name].Origin }

// WithDynamic returns the configuration with dynamic values over the static
// ones: clusterWide for all brokers, own for this one, which wins. Keys that
// cannot change at run time and values that do not pass their check are left
// out, as Kafka leaves them out; their names are returned.
func (b *Broker) WithDynamic(clusterWide, own map[string]string) (*Broker, []string) {
	next := *b
	var ignoredA, ignoredB []string
	next.dynDefault, ignoredA = dynamicValues(clusterWide, false)
	next.dynOwn, ignoredB = dynamicValues(own, true)
	next.fill()
	return &next, append(ignoredA, ignoredB...)
}

func dynamicValues(values map[string]string, perBroker bool) (normal map[string]string, ignored []string) {
	normal = map[string]string{}
	for _, name := range sortedNames(values) {
		k, known := Lookup(ScopeBroker, name)
		if !known {
			k, known = Lookup(ScopeBrokerDynamic, name)
		}
		if !known { // stored and shown, without effect
			normal[name] = values[name]
			continue
		}
		v, err := k.Check(values[name])
		if err != nil || k.Mode == ReadOnly || k.Mode == PerBroker && !perBroker {
			ignored = append(ignored, name)
			continue
		}
		normal[name] = v
	}
	return normal, ignored
}

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
