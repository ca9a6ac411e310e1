package broker

// InitProducerId (key 22), versions 0 to 5: flexible from 2; producer id and
// epoch of a producer that goes on from 3 (KIP-360); error 120 from 5 (KIP-890).
//
// A producer without a transactional id gets a new id with epoch 0, whatever id
// it says it had. Ids come from a block that the metadata log has given to this
// broker, so none is given twice, restarts included. Transactions are not
// served: their APIs are not in the table, and a transactional id is refused
// with UNSUPPORTED_VERSION, which clients report at once; a coordinator that is
// not available would be asked for again until the producer gives up.

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/kafka"
)

// producerIDs gives out producer ids, one block after the other.
type producerIDs struct {
	mu        sync.Mutex
	next, end kafka.ProducerID // [next, end) of the block are left
}

// take returns a new id. The first caller of a block waits for the disk, and so
// do those behind it.
func (p *producerIDs) take(c *controller.Controller) (kafka.ProducerID, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == p.end {
		first, err := c.AllocateProducerIDs()
		if err != nil {
			return kafka.NoProducerID, err
		}
		p.next, p.end = first, first+controller.ProducerIDBlock
	}
	id := p.next
	p.next++
	return id, nil
}

func (b *Broker) initProducerID(_ *Context, q *kmsg.InitProducerIDRequest) *kmsg.InitProducerIDResponse {
	answer := kmsg.NewPtrInitProducerIDResponse()
	answer.ProducerID, answer.ProducerEpoch = int64(kafka.NoProducerID), int16(kafka.NoProducerEpoch)
	switch {
	case q.TransactionalID == nil:
	case *q.TransactionalID == "":
		answer.ErrorCode = int16(kafka.ErrInvalidRequest)
		return answer
	default:
		answer.ErrorCode = int16(kafka.ErrUnsupportedVersion)
		return answer
	}
	id, err := b.producerIDs.take(b.opts.Controller)
	if err != nil {
		b.log.Error("producer id refused", "err", err)
		answer.ErrorCode = int16(kafka.ErrCoordinatorLoadInProgress) // retriable, as while Kafka waits for its first block
		return answer
	}
	answer.ProducerID, answer.ProducerEpoch = int64(id), 0
	return answer
}
