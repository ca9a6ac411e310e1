package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/varvelog/varve/internal/kafka"
)

func (b *Broker) text(name string) string {
	v, _ := b.lookup(name)
	return v
}

func (b *Broker) number(name string) int64 { return mustInt(name, b.text(name)) }

func (b *Broker) millis(name string) Millis { return Millis(b.number(name)) }

func (b *Broker) duration(name string) time.Duration { return b.millis(name).Duration() }

func (b *Broker) flag(name string) bool { return b.text(name) == "true" }

// ownDuration reads a duration of a varve key that has passed its check.
func (b *Broker) ownDuration(name string) time.Duration {
	d, _ := ParseDuration(b.text(name))
	return d
}

// fill sets every typed field from the keys. All values are in normal form.
func (b *Broker) fill() {
	b.NodeID = kafka.BrokerID(b.number("node.id"))
	b.Rack = b.text("broker.rack")
	b.LogDirs = SplitList(b.text("log.dirs"))
	if len(b.LogDirs) == 0 {
		b.LogDirs = SplitList(b.text("log.dir"))
	}
	b.MetadataLogDir = b.text("metadata.log.dir")
	if b.MetadataLogDir == "" && len(b.LogDirs) > 0 {
		b.MetadataLogDir = b.LogDirs[0]
	}
	b.AutoFormat = b.flag("varve.format.auto")

	b.AutoCreateTopics = b.flag("auto.create.topics.enable")
	b.AutoPartitionsCap = int(b.number("varve.topic.auto.partitions.cap"))
	b.NumPartitions = int32(b.number("num.partitions"))
	b.DefaultReplicationFactor = int16(b.number("default.replication.factor"))
	b.DeleteTopics = b.flag("delete.topic.enable")

	b.fillNetwork()
	b.fillLog()
	b.fillCoordinators()
	b.fillMetadata()

	b.LogLevel = strings.ToLower(b.text("varve.log.level"))
	b.LogFormat = b.text("varve.log.format")
	b.ClockJumpMax = b.ownDuration("varve.clock.jump.max")
	b.HTTPListen = b.text("varve.http.listen")
	b.MetricsPartitionLimit = int(b.number("varve.metrics.partition.limit"))
	b.ShutdownGrace = b.ownDuration("varve.shutdown.grace")
	b.CutRetention = b.ownDuration("varve.cut.retention")
	b.ScrubRate, _ = ParseSize(b.text("varve.scrub.rate"))
	b.DiskReserve, _ = ParseReserve(b.text("varve.disk.reserve"))
	b.Topic = topicOver(nil, b)
}

func (b *Broker) fillNetwork() {
	b.SocketRequestMaxBytes = int32(b.number("socket.request.max.bytes"))
	b.SocketSendBufferBytes = int(b.number("socket.send.buffer.bytes"))
	b.SocketReceiveBufferBytes = int(b.number("socket.receive.buffer.bytes"))
	b.SocketListenBacklog = int(b.number("socket.listen.backlog.size"))
	b.MaxConnections = int(b.number("max.connections"))
	b.MaxConnectionsPerIP = int(b.number("max.connections.per.ip"))
	b.MaxConnectionsPerIPOverrides = map[string]int{}
	for _, item := range SplitList(b.text("max.connections.per.ip.overrides")) {
		if host, limit, ok := cutLast(item, ':'); ok {
			n, _ := strconv.Atoi(trimJava(limit)) // checked before
			b.MaxConnectionsPerIPOverrides[trimJava(host)] = n
		}
	}
	b.MaxConnectionCreationRate = int(b.number("max.connection.creation.rate"))
	b.ConnectionsMaxIdle = b.duration("connections.max.idle.ms")
	b.QueuedMaxRequestBytes = b.number("queued.max.request.bytes")
	b.RequestTimeout = b.duration("request.timeout.ms")
	b.FetchMaxBytes = int32(b.number("fetch.max.bytes"))
	b.FetchSessionSlots = int(b.number("max.incremental.fetch.session.cache.slots"))
	b.MaxRequestPartitionSizeLimit = int(b.number("max.request.partition.size.limit"))
	b.FetchPath = b.text("varve.fetch.path")
	b.IndexAccess = b.text("varve.index.access")
}

func (b *Broker) fillLog() {
	b.FlushSchedulerInterval = b.millis("log.flush.scheduler.interval.ms")
	b.FlushOffsetCheckpointInterval = b.duration("log.flush.offset.checkpoint.interval.ms")
	b.FlushStartOffsetCheckpointInterval = b.duration("log.flush.start.offset.checkpoint.interval.ms")
	b.HighWatermarkCheckpointInterval = b.duration("replica.high.watermark.checkpoint.interval.ms")
	b.RetentionCheckInterval = b.duration("log.retention.check.interval.ms")
	b.InitialTaskDelay = b.duration("log.initial.task.delay.ms")
	b.RecoveryThreadsPerDir = int(b.number("num.recovery.threads.per.data.dir"))
	b.Sync = b.text("varve.sync")
	b.CleanerEnable = b.flag("log.cleaner.enable")
	b.CleanerThreads = int(b.number("log.cleaner.threads"))
	b.CleanerDedupeBytes = b.number("log.cleaner.dedupe.buffer.size")
	b.CleanerLoadFactor = mustFloat("log.cleaner.io.buffer.load.factor", b.text("log.cleaner.io.buffer.load.factor"))
	b.CleanerBufferBytes = int(b.number("log.cleaner.io.buffer.size"))
	b.CleanerBytesPerSecond = mustFloat("log.cleaner.io.max.bytes.per.second", b.text("log.cleaner.io.max.bytes.per.second"))
	b.CleanerBackoff = b.duration("log.cleaner.backoff.ms")
	b.ProducerIDExpiration = b.duration("producer.id.expiration.ms")
	b.ProducerIDExpirationCheckInterval = b.duration("producer.id.expiration.check.interval.ms")
}

func (b *Broker) fillCoordinators() {
	b.OffsetsTopicPartitions = int32(b.number("offsets.topic.num.partitions"))
	b.OffsetsTopicReplicationFactor = int16(b.number("offsets.topic.replication.factor"))
	b.OffsetsTopicSegmentBytes = int32(b.number("offsets.topic.segment.bytes"))
	b.OffsetsTopicCompressionCodec = int8(b.number("offsets.topic.compression.codec"))
	b.OffsetsRetention = Millis(b.number("offsets.retention.minutes") * 60 * 1000).Duration()
	b.OffsetsRetentionCheckInterval = b.duration("offsets.retention.check.interval.ms")
	b.OffsetsLoadBufferSize = int32(b.number("offsets.load.buffer.size"))
	b.OffsetCommitTimeout = b.duration("offsets.commit.timeout.ms")
	b.OffsetMetadataMaxBytes = int(b.number("offset.metadata.max.bytes"))
	b.GroupMinSessionTimeout = b.duration("group.min.session.timeout.ms")
	b.GroupMaxSessionTimeout = b.duration("group.max.session.timeout.ms")
	b.GroupInitialRebalanceDelay = b.duration("group.initial.rebalance.delay.ms")
	b.GroupMaxSize = int(b.number("group.max.size"))
	b.TransactionTopicPartitions = int32(b.number("transaction.state.log.num.partitions"))
	b.TransactionTopicReplicationFactor = int16(b.number("transaction.state.log.replication.factor"))
	b.TransactionTopicMinISR = int(b.number("transaction.state.log.min.isr"))
	b.TransactionTopicSegmentBytes = int32(b.number("transaction.state.log.segment.bytes"))
	b.TransactionMaxTimeout = b.duration("transaction.max.timeout.ms")
}

func (b *Broker) fillMetadata() {
	b.MetadataSegmentBytes = int32(b.number("metadata.log.segment.bytes"))
	if v, set := b.lookup("internal.metadata.log.segment.bytes"); set {
		b.MetadataSegmentBytes = int32(mustInt("internal.metadata.log.segment.bytes", v))
	}
	b.MetadataSegmentTime = b.millis("metadata.log.segment.ms")
	b.MetadataMaxRetentionBytes = b.number("metadata.max.retention.bytes")
	b.MetadataMaxRetentionTime = b.millis("metadata.max.retention.ms")
	b.MetadataSnapshotBytes = b.number("metadata.log.max.record.bytes.between.snapshots")
	b.MetadataSnapshotInterval = b.millis("metadata.log.max.snapshot.interval.ms")
	b.MetadataMaxIdleInterval = b.duration("metadata.max.idle.interval.ms")
	b.BrokerHeartbeatInterval = b.duration("broker.heartbeat.interval.ms")
	b.BrokerSessionTimeout = b.duration("broker.session.timeout.ms")
	b.InitialBrokerRegistrationTimeout = b.duration("initial.broker.registration.timeout.ms")
}

// cutLast splits at the last sep.
func cutLast(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}
