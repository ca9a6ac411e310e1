package logdir

import (
	"math"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// LogConfig is a topic's settings as its logs take them.
func LogConfig(t config.Topic) commitlog.Config {
	codec, compressProducer := codecOf(t.CompressionType)
	timestampType := kafka.CreateTime
	if t.TimestampType == config.LogAppendTime {
		timestampType = kafka.LogAppendTime
	}
	c := commitlog.Config{
		CleanupDelete:        t.Delete,
		CleanupCompact:       t.Compact,
		CompressProducer:     compressProducer,
		Codec:                codec,
		GzipLevel:            t.GzipLevel,
		LZ4Level:             t.LZ4Level,
		ZstdLevel:            t.ZstdLevel,
		TimestampType:        timestampType,
		TimestampBeforeMax:   int64(t.TimestampBefore),
		TimestampAfterMax:    int64(t.TimestampAfter),
		MaxMessageBytes:      t.MaxMessageBytes,
		MaxDecompressedBytes: t.MaxDecompressedMessageBytes,
		SegmentBytes:         t.SegmentBytes,
		SegmentMs:            int64(t.SegmentTime),
		SegmentJitterMs:      int64(t.SegmentJitter),
		SegmentIndexBytes:    t.SegmentIndexBytes,
		IndexInterval:        t.IndexIntervalBytes,
		Preallocate:          t.Preallocate,
		RetentionBytes:       t.RetentionBytes,
		RetentionMs:          int64(t.RetentionTime),
		FlushMessages:        t.FlushMessages,
		FlushMs:              int64(t.FlushInterval),
		FileDeleteDelay:      t.FileDeleteDelay.Duration(),
		MinCompactionLagMs:   int64(t.MinCompactionLag),
		MaxCompactionLagMs:   int64(t.MaxCompactionLag),
		DeleteRetentionMs:    int64(t.DeleteRetention),
		MinCleanableRatio:    t.MinCleanableDirtyRatio,
	}
	if t.Sync == config.SyncGroup || t.Sync == config.SyncAlways {
		c.FlushMessages, c.SyncAlone = 1, t.Sync == config.SyncAlways
	}
	return c
}

// codecOf reads compression.type. The configuration was checked, so any other
// word is "producer".
func codecOf(compressionType string) (codec record.Codec, producer bool) {
	switch compressionType {
	case "uncompressed":
		return record.None, false
	case "gzip":
		return record.Gzip, false
	case "snappy":
		return record.Snappy, false
	case "lz4":
		return record.LZ4, false
	case "zstd":
		return record.Zstd, false
	}
	return record.None, true
}

// flushEnabled reports whether the topic has a time-based flush.
func flushEnabled(c *commitlog.Config) bool { return c.FlushMs != math.MaxInt64 }
