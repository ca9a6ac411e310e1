package config

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/varvelog/varve/internal/invariant"
)

// Millis is a number of milliseconds as Kafka's settings count them. -1 and
// 2^63-1 keep the meaning their setting gives them ("for ever").
type Millis int64

// Duration converts m; what does not fit becomes the longest duration.
func (m Millis) Duration() time.Duration {
	if int64(m) > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(m) * time.Millisecond
}

// TimestampType says whose clock stamps records.
type TimestampType string

// The values of message.timestamp.type.
const (
	CreateTime    TimestampType = "CreateTime"
	LogAppendTime TimestampType = "LogAppendTime"
)

// The values of varve.sync.
const (
	SyncKafka  = "kafka"  // flush.messages and flush.ms decide
	SyncGroup  = "group"  // before each answer, shared by all who wait
	SyncAlways = "always" // before each answer, one for each request
)

// Topic is the effective configuration of one topic: its own settings over the
// broker's. It is a value; keep copies as you like.
type Topic struct {
	Compact bool // cleanup.policy has compact
	Delete  bool // cleanup.policy has delete; neither keeps records for ever

	CompressionType string // uncompressed, gzip, snappy, lz4, zstd, or producer
	GzipLevel       int
	LZ4Level        int
	ZstdLevel       int

	DeleteRetention Millis // delete.retention.ms
	FileDeleteDelay Millis // file.delete.delay.ms

	FlushMessages int64  // flush.messages; 2^63-1 = left to the system
	FlushInterval Millis // flush.ms; 2^63-1 = left to the system
	Sync          string // varve.sync of the broker; "" is SyncKafka

	IndexIntervalBytes int32 // index.interval.bytes
	SegmentIndexBytes  int32 // segment.index.bytes: size of a fresh index file

	MaxMessageBytes             int32 // max.message.bytes: of a whole batch, its 12-byte prefix included
	MaxDecompressedMessageBytes int32

	TimestampType   TimestampType
	TimestampBefore Millis // message.timestamp.before.max.ms
	TimestampAfter  Millis // message.timestamp.after.max.ms

	MinCleanableDirtyRatio float64
	MinCompactionLag       Millis
	MaxCompactionLag       Millis

	MinInsyncReplicas int
	Preallocate       bool

	RetentionBytes int64  // -1 = unlimited; of a partition
	RetentionTime  Millis // -1 = unlimited

	SegmentBytes  int32  // segment.bytes, or internal.segment.bytes when that is set
	SegmentTime   Millis // segment.ms
	SegmentJitter Millis // segment.jitter.ms

	UncleanLeaderElection bool
}

// TopicError is a topic setting that is refused. Its text is Kafka's.
type TopicError struct {
	Key     string // empty for a rule over several keys
	Message string
}

// Error implements error.
func (e *TopicError) Error() string { return e.Message }

// ValidateTopicKey checks the name and the value of one topic setting. The
// error is a *TopicError.
func ValidateTopicKey(name, value string) error {
	_, err := checkTopicKey(name, value)
	return err
}

func checkTopicKey(name, value string) (string, error) {
	k, ok := Lookup(ScopeTopic, name)
	if !ok {
		return "", &TopicError{name, "Unknown topic config name: " + name}
	}
	normal, err := k.Check(value)
	if err != nil {
		return "", &TopicError{name, err.Error()}
	}
	return normal, nil
}

// ParseTopic checks a topic's own settings and lays them over the broker's. b
// may be nil: then Kafka's defaults are below. The error is a *TopicError, for
// the first bad key in name order.
func ParseTopic(overrides map[string]string, b *Broker) (Topic, error) {
	normal := make(map[string]string, len(overrides))
	for _, name := range sortedNames(overrides) {
		v, err := checkTopicKey(name, overrides[name])
		if err != nil {
			return Topic{}, err
		}
		normal[name] = v
	}
	t := topicOver(normal, b)
	return t, checkTopicRules(t, normal, b)
}

// checkTopicRules are the rules over several keys (LogConfig.validate).
func checkTopicRules(t Topic, own map[string]string, b *Broker) error {
	if t.MinCompactionLag > t.MaxCompactionLag {
		return &TopicError{"", fmt.Sprintf("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)",
			t.MinCompactionLag, t.MaxCompactionLag)}
	}
	if own["remote.storage.enable"] == "true" {
		return &TopicError{"remote.storage.enable", "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."}
	}
	return nil
}

// topicOver builds the typed configuration. Every value is in normal form by
// now, so none can fail to parse.
func topicOver(own map[string]string, b *Broker) Topic {
	text := func(name string) string {
		if v, ok := own[name]; ok {
			return v
		}
		return b.topicDefault(name)
	}
	number := func(name string) int64 { return mustInt(name, text(name)) }
	millis := func(name string) Millis { return Millis(number(name)) }
	policies := SplitList(text("cleanup.policy"))
	t := Topic{
		Compact: contains(policies, "compact"),
		Delete:  contains(policies, "delete"),

		CompressionType: text("compression.type"),
		GzipLevel:       int(number("compression.gzip.level")),
		LZ4Level:        int(number("compression.lz4.level")),
		ZstdLevel:       int(number("compression.zstd.level")),

		DeleteRetention: millis("delete.retention.ms"),
		FileDeleteDelay: millis("file.delete.delay.ms"),

		FlushMessages: number("flush.messages"),
		FlushInterval: millis("flush.ms"),

		IndexIntervalBytes: int32(number("index.interval.bytes")),
		SegmentIndexBytes:  int32(number("segment.index.bytes")),

		MaxMessageBytes:             int32(number("max.message.bytes")),
		MaxDecompressedMessageBytes: int32(number("max.decompressed.message.bytes")),

		TimestampType:   TimestampType(text("message.timestamp.type")),
		TimestampBefore: millis("message.timestamp.before.max.ms"),
		TimestampAfter:  millis("message.timestamp.after.max.ms"),

		MinCleanableDirtyRatio: mustFloat("min.cleanable.dirty.ratio", text("min.cleanable.dirty.ratio")),
		MinCompactionLag:       millis("min.compaction.lag.ms"),
		MaxCompactionLag:       millis("max.compaction.lag.ms"),

		MinInsyncReplicas: int(number("min.insync.replicas")),
		Preallocate:       text("preallocate") == "true",

		RetentionBytes: number("retention.bytes"),
		RetentionTime:  millis("retention.ms"),

		SegmentBytes:  int32(number("segment.bytes")),
		SegmentTime:   millis("segment.ms"),
		SegmentJitter: millis("segment.jitter.ms"),

		UncleanLeaderElection: text("unclean.leader.election.enable") == "true",
	}
	if b != nil {
		t.Sync = b.Sync
	}
	if v, ok := own["internal.segment.bytes"]; ok {
		t.SegmentBytes = int32(mustInt("internal.segment.bytes", v))
	}
	return t
}

// topicDefault is the value a topic key takes when the topic does not set it,
// in normal form: the broker's through the synonym, else the table's default
// (LogConfig.extractLogConfigMap).
func (b *Broker) topicDefault(name string) string {
	k, _ := Lookup(ScopeTopic, name)
	if b == nil || k.Synonym == "" {
		return k.Default
	}
	switch name {
	case "retention.ms":
		return strconv.FormatInt(int64(b.logRetention()), 10)
	case "segment.ms":
		return strconv.FormatInt(int64(b.hoursOr("log.roll.ms", "log.roll.hours")), 10)
	case "segment.jitter.ms":
		return strconv.FormatInt(int64(b.hoursOr("log.roll.jitter.ms", "log.roll.jitter.hours")), 10)
	case "flush.ms":
		if v, set := b.lookup("log.flush.interval.ms"); set {
			return v
		}
		v, _ := b.lookup("log.flush.scheduler.interval.ms")
		return v
	}
	v, _ := b.lookup(k.Synonym)
	return v
}

// logRetention is log.retention.ms, else .minutes, else .hours; what is below
// zero is unlimited (KafkaConfig.getLogRetentionTimeMillis).
func (b *Broker) logRetention() Millis {
	const minute, hour = 60 * 1000, 60 * 60 * 1000
	var m Millis
	if v, set := b.lookup("log.retention.ms"); set {
		m = Millis(mustInt("log.retention.ms", v))
	} else if v, set := b.lookup("log.retention.minutes"); set {
		m = Millis(minute * mustInt("log.retention.minutes", v))
	} else {
		v, _ := b.lookup("log.retention.hours")
		m = Millis(hour * mustInt("log.retention.hours", v))
	}
	if m < 0 {
		return -1
	}
	return m
}

// hoursOr is the finer key when it is set, else the coarser one in hours.
func (b *Broker) hoursOr(ms, hours string) Millis {
	if v, set := b.lookup(ms); set {
		return Millis(mustInt(ms, v))
	}
	v, _ := b.lookup(hours)
	return Millis(60 * 60 * 1000 * mustInt(hours, v))
}

// mustInt reads a number that has been checked.
func mustInt(name, v string) int64 {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		invariant.Violated("%s: %q passed its check and is no number", name, v)
	}
	return n
}

// mustFloat reads a number that has been checked.
func mustFloat(name, v string) float64 {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		invariant.Violated("%s: %q passed its check and is no number", name, v)
	}
	return f
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
