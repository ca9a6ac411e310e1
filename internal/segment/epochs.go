package segment

import (
	"fmt"
	"math/bits"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// epochComparison holds the leader epochs of batches, which no checksum covers,
// against those of the log's checkpoint, which has none either. A batch that
// stands alone with an epoch one bit away is damaged; what several batches agree
// on, or what no flipped bit explains, is right, and the checkpoint wrong.
type epochComparison struct {
	at    func(kafka.Offset) (kafka.LeaderEpoch, bool)
	start kafka.Offset // of the log

	before  goodBatch // the last good one
	has     bool
	found   []checkpoint.Epoch
	problem string
}

// look says what the checkpoint has for a batch.
func (c *epochComparison) look(b *goodBatch) {
	b.want = b.LeaderEpoch
	if c.at == nil || b.Magic < record.MagicV2 || b.LeaderEpoch < 0 || b.LastOffset < c.start {
		return
	}
	b.want = kafka.NoLeaderEpoch
	if epoch, ok := c.at(max(b.BaseOffset, c.start)); ok {
		b.want = epoch
	}
	b.odd = b.want != b.LeaderEpoch
}

// alone reports whether the epoch of a batch is damaged. after is the batch
// behind it; nil when that is not known.
func (c *epochComparison) alone(b, after *goodBatch) bool {
	if !b.odd || b.want == kafka.NoLeaderEpoch {
		return false
	}
	supports := func(o *goodBatch) bool { return o.odd && o.LeaderEpoch == b.LeaderEpoch }
	if after != nil && supports(after) || c.has && supports(&c.before) {
		return false
	}
	return bits.OnesCount32(uint32(b.LeaderEpoch^b.want)) == 1
}

// batch takes the next good batch.
func (c *epochComparison) batch(b *goodBatch) {
	if c.at == nil || b.Magic < record.MagicV2 || b.LeaderEpoch < 0 || b.LastOffset < c.start {
		return
	}
	if n := len(c.found); n == 0 || c.found[n-1].Epoch < b.LeaderEpoch {
		c.found = append(c.found, checkpoint.Epoch{Epoch: b.LeaderEpoch, Start: max(b.BaseOffset, c.start)})
	}
	if b.odd && c.problem == "" {
		c.problem = fmt.Sprintf("epoch %d at offset %d, whose batch has %d", b.want, b.BaseOffset, b.LeaderEpoch)
	}
	c.before, c.has = *b, true
}
