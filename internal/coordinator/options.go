package coordinator

import (
	"log/slog"

	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// OptionsFrom takes the options of a coordinator from the broker's
// configuration. errorCode and logger are as in Options.
func OptionsFrom(c *config.Broker, errorCode func(error) kafka.ErrorCode, logger *slog.Logger) Options {
	g := group.DefaultConfig()
	g.InitialRebalanceDelay = c.GroupInitialRebalanceDelay
	g.MinSessionTimeout = c.GroupMinSessionTimeout
	g.MaxSessionTimeout = c.GroupMaxSessionTimeout
	g.MaxSize = c.GroupMaxSize
	g.OffsetMetadataMaxSize = c.OffsetMetadataMaxBytes
	g.OffsetsRetention = c.OffsetsRetention
	return Options{
		Group:         g,
		Partitions:    c.OffsetsTopicPartitions,
		CommitTimeout: c.OffsetCommitTimeout,
		CheckInterval: c.OffsetsRetentionCheckInterval,
		LoadBuffer:    int(c.OffsetsLoadBufferSize),
		Codec:         record.Codec(c.OffsetsTopicCompressionCodec),
		ErrorCode:     errorCode,
		Logger:        logger,
	}
}
