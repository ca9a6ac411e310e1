package cleaner

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/verify"
)

// TestCompactionAgainstAModel does random appends, transactions, rounds and
// restarts, and wants after each round: the newest record of every key, offsets
// and order unchanged, nothing that a newer record below the checkpoint
// supersedes, and for readers of committed transactions the same state as
// without compaction.
func TestCompactionAgainstAModel(t *testing.T) {
	seeds := 60 / thorough
	if testing.Short() {
		seeds = 8
	}
	for seed := range uint64(seeds) {
		if err := oracle(seed, 60); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

func oracle(seed uint64, steps int) error {
	rng := rand.New(rand.NewPCG(seed, 0x636c65616e))
	cfg := worldConfig()
	cfg.SegmentBytes = int32(1500 + rng.IntN(4000))
	cfg.IndexInterval = []int32{0, 100, 4096}[rng.IntN(3)]
	cfg.SegmentIndexBytes = []int32{48, 1 << 20}[rng.IntN(2)]
	w, err := newWorld(cfg)
	if err != nil {
		return err
	}
	w.lowered = []int32{300, cfg.MaxMessageBytes}[rng.IntN(2)]
	w.mem.mapBytes = []int64{entrySize * 5, entrySize * 40, 1 << 20}[rng.IntN(3)]
	w.mem.bufferBytes = []int{record.HeaderSize, 500, 64 << 10}[rng.IntN(3)]
	keys := 3 + rng.IntN(60)
	for step := range steps {
		if err := oracleStep(w, rng, keys); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		w.now += int64(rng.IntN(4000))
	}
	for range 60 { // the map may be small
		w.now += cfg.DeleteRetentionMs
		s, err := w.clean()
		if err != nil {
			return err
		}
		if err := w.check(); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
		if s.NextDirty == s.Uncleanable || s.NextDirty == s.FirstDirty && s.BytesBefore == 0 {
			break
		}
	}
	if w.checkpoint != kafka.NoOffset && w.checkpoint < w.log.Segments()[len(w.log.Segments())-1].BaseOffset() && len(w.txns) == 0 {
		return fmt.Errorf("sixty rounds came to offset %d only", w.checkpoint)
	}
	if err := w.reopen(rng.IntN(2) == 0); err != nil {
		return err
	}
	if err := w.check(); err != nil {
		return fmt.Errorf("after the last restart: %w", err)
	}
	if err := w.log.Close(); err != nil {
		return err
	}
	return w.verify()
}

// verify looks at the closed log as `varve verify` does.
func (w *world) verify() error {
	found, err := verify.Check(context.Background(), verify.Options{FS: w.disk, Paths: []string{worldDir}, Deep: true, Parallel: 1})
	for _, f := range found.Findings {
		if f.Severity != verify.Note {
			err = errors.Join(err, fmt.Errorf("verify: %v", f))
		}
	}
	return err
}

func oracleStep(w *world, rng *rand.Rand, keys int) error {
	codec := record.None
	if rng.IntN(3) == 0 {
		codec = record.Codec(rng.IntN(5))
	}
	switch n := rng.IntN(100); {
	case n < 45:
		return w.append(kafka.NoProducerID, false, codec, randomItems(rng, 9, keys)...)
	case n < 55:
		return w.append(kafka.ProducerID(100+rng.IntN(3)), false, codec, randomItems(rng, 5, keys)...)
	case n < 68:
		return w.append(kafka.ProducerID(200+rng.IntN(3)), true, codec, randomItems(rng, 6, keys)...)
	case n < 80:
		pid := kafka.ProducerID(200 + rng.IntN(3))
		if w.txns[pid] == nil && rng.IntN(4) > 0 {
			return nil
		}
		return w.end(pid, rng.IntN(2) == 0)
	case n < 84:
		if w.log.Segments()[len(w.log.Segments())-1].Size() == 0 {
			return nil
		}
		return w.log.Roll()
	case n < 94:
		before := w.producers()
		if _, err := w.clean(); err != nil {
			return err
		}
		if err := w.check(); err != nil {
			return fmt.Errorf("after a round at %d to %d: %w", w.round, w.checkpoint, err)
		}
		if left, err := w.leftovers(); err != nil || len(left) > 0 {
			return fmt.Errorf("left behind: %v, %v", left, err)
		}
		if after := w.producers(); before != after {
			return fmt.Errorf("producers %v, were %v", after, before)
		}
		return nil
	default:
		before := w.producers()
		if err := w.reopen(rng.IntN(2) == 0); err != nil {
			return err
		}
		if after := w.producers(); before != after {
			return fmt.Errorf("producers after a restart %v, were %v", after, before)
		}
		return w.check()
	}
}

// producers is what the log knows of its producers, as far as their records are
// in it. Their times and coordinator epochs are left out: the newest record of a
// batch may be compacted away, and the marker too.
func (w *world) producers() string {
	list := slices.DeleteFunc(w.log.ActiveProducers(), func(e producer.Entry) bool { return e.LastOffset < 0 })
	for i := range list {
		list[i].Timestamp, list[i].CoordinatorEpoch = 0, 0
	}
	return fmt.Sprint(list)
}
