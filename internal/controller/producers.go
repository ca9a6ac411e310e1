package controller

import (
	"math"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
)

// ProducerIDBlock is how many producer ids are given out at a time
// (ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE).
const ProducerIDBlock = 1000

// AllocateProducerIDs takes the next block of producer ids for this broker and
// returns its first id; [first, first+ProducerIDBlock) may be used. The block
// is committed before the call returns, so no id is ever given out twice.
func (c *Controller) AllocateProducerIDs() (first kafka.ProducerID, err error) {
	_, err = c.q.Update(func(image *metadata.Image) ([]metadata.Record, error) {
		b := image.Broker(c.id)
		if b == nil {
			return nil, refuse(kafka.ErrStaleBrokerEpoch, "broker %d is not registered", c.id)
		}
		first = max(0, image.NextProducerID)
		if first > math.MaxInt64-ProducerIDBlock {
			return nil, refuse(kafka.ErrUnknownServerError, "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit")
		}
		return []metadata.Record{&metadata.ProducerIDsRecord{
			BrokerID:       c.id,
			BrokerEpoch:    b.Epoch,
			NextProducerID: first + ProducerIDBlock,
		}}, nil
	})
	return first, err
}
