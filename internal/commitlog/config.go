package commitlog

import (
	"math"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// Config is the settings of one topic as the log needs them (Kafka's LogConfig).
// A Config is never changed once it was given to a Log; SetConfig replaces it.
// Settings marked "at open" take effect for segments created or opened later.
type Config struct {
	// CleanupDelete and CleanupCompact are the members of cleanup.policy. With
	// neither, records are kept for ever (KIP-1149).
	CleanupDelete, CleanupCompact bool
	// CompressProducer keeps the codec that the producer chose
	// (compression.type=producer); otherwise Codec is the target.
	CompressProducer bool
	Codec            record.Codec
	// GzipLevel, LZ4Level and ZstdLevel are used when the broker compresses.
	GzipLevel, LZ4Level, ZstdLevel int

	TimestampType kafka.TimestampType
	// TimestampBeforeMax and TimestampAfterMax bound record timestamps around
	// the broker's clock, in milliseconds (message.timestamp.before.max.ms and after.max.ms).
	TimestampBeforeMax, TimestampAfterMax int64
	// MaxMessageBytes bounds a whole batch with its 12-byte prefix.
	MaxMessageBytes int32
	// MaxDecompressedBytes bounds one record inside a compressed batch.
	MaxDecompressedBytes int32

	SegmentBytes      int32
	SegmentMs         int64 // segment.ms
	SegmentJitterMs   int64
	SegmentIndexBytes int32 // at open
	IndexInterval     int32 // index.interval.bytes, at open
	Preallocate       bool

	RetentionBytes int64 // -1: no limit
	RetentionMs    int64 // -1: no limit
	FlushMessages  int64
	FlushMs        int64
	// SyncAlone gives each append a sync of its own (varve.sync=always);
	// FlushMessages is 1 then.
	SyncAlone bool
	// FileDeleteDelay is how long a removed file stays as `.deleted`.
	FileDeleteDelay time.Duration

	// MinCompactionLagMs, MaxCompactionLagMs, DeleteRetentionMs and
	// MinCleanableRatio are read by the cleaner; MaxCompactionLagMs also rolls
	// segments of compacted logs.
	MinCompactionLagMs, MaxCompactionLagMs, DeleteRetentionMs int64
	MinCleanableRatio                                         float64
}

// DefaultConfig is a topic without overrides on a broker without settings.
func DefaultConfig() Config {
	return Config{
		CleanupDelete:        true,
		CompressProducer:     true,
		GzipLevel:            -1,
		LZ4Level:             9,
		ZstdLevel:            3,
		TimestampType:        kafka.CreateTime,
		TimestampBeforeMax:   math.MaxInt64,
		TimestampAfterMax:    3_600_000,
		MaxMessageBytes:      1_048_588,
		MaxDecompressedBytes: 2_147_483_639,
		SegmentBytes:         1 << 30,
		SegmentMs:            604_800_000,
		SegmentIndexBytes:    10_485_760,
		IndexInterval:        4096,
		RetentionBytes:       -1,
		RetentionMs:          604_800_000,
		FlushMessages:        math.MaxInt64,
		FlushMs:              math.MaxInt64,
		FileDeleteDelay:      60 * time.Second,
		MaxCompactionLagMs:   math.MaxInt64,
		DeleteRetentionMs:    86_400_000,
		MinCleanableRatio:    0.5,
	}
}

// maxSegmentMs is the age at which a segment rolls (LogConfig.maxSegmentMs).
func (c *Config) maxSegmentMs() int64 {
	if c.CleanupCompact && c.MaxCompactionLagMs > 0 {
		return min(c.MaxCompactionLagMs, c.SegmentMs)
	}
	return c.SegmentMs
}

// SyncsEachAppend reports whether every append is durable before it is answered:
// flush.messages=1, or varve.sync=group or always.
func (c *Config) SyncsEachAppend() bool { return c.FlushMessages <= 1 }

// targetCodec is the codec that a batch of source codec is stored with.
func (c *Config) targetCodec(source record.Codec) record.Codec {
	if c.CompressProducer {
		return source
	}
	return c.Codec
}

// level is the compression level for codec.
func (c *Config) level(codec record.Codec) int {
	switch codec {
	case record.Gzip:
		return c.GzipLevel
	case record.LZ4:
		return c.LZ4Level
	case record.Zstd:
		return c.ZstdLevel
	}
	return 0
}
