package cleaner

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// crashScript fills a log, and then does rounds, in which the machine stops.
type crashScript struct {
	name   string
	config func(*commitlog.Config)
	lazy   bool // nothing is flushed after a roll
	fill   func(w *world) error
	rounds func(w *world) error
}

func steps(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

func cleanOnce(w *world) error {
	_, err := w.clean()
	return err
}

// twoRounds are a round, and one in which the horizons of the first have passed.
func twoRounds(w *world) error {
	if err := cleanOnce(w); err != nil {
		return err
	}
	w.now += 2 * w.cfg.DeleteRetentionMs
	if err := steps(w.put(kv("late", "1")), w.log.Roll()); err != nil {
		return err
	}
	return cleanOnce(w)
}

func fillPlain(w *world) error {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 22 {
		if err := w.put(randomItems(rng, 9, 12)...); err != nil {
			return err
		}
	}
	return steps(w.log.Roll(), w.put(kv("active", "1")))
}

// fillUnsynced leaves the newest record of each key in the page cache.
func fillUnsynced(w *world) error {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 12 {
		if err := w.put(randomItems(rng, 9, 6)...); err != nil {
			return err
		}
	}
	if err := steps(w.log.Roll(), w.log.Flush(w.log.EndOffset())); err != nil {
		return err
	}
	var newest []item
	for i := range 6 {
		newest = append(newest, kv(fmt.Sprintf("key-%d", i), "newest"))
	}
	return steps(w.put(newest...), w.log.Roll())
}

// fillLeaving makes segments of which the first keeps records and the ones
// behind it lose all: what replaces a group does not reach as far as the group.
func fillLeaving(w *world) error {
	if err := steps(w.put(kv("a", value(60)), kv("b", value(61))), w.log.Roll()); err != nil {
		return err
	}
	for i := range 3 {
		if err := steps(w.put(kv("x", value(i)), kv("y", value(i+9))), w.log.Roll()); err != nil {
			return err
		}
	}
	if err := steps(w.put(tombstone("y"), kv("x", "kept no longer")), w.log.Roll()); err != nil {
		return err
	}
	if err := steps(w.put(tombstone("x")), w.log.Roll()); err != nil {
		return err
	}
	return steps(w.put(kv("z", "1")), w.log.Roll(), w.put(kv("active", "1")))
}

// fillEmptied makes first segments of which nothing is left.
func fillEmptied(w *world) error {
	const pid = 7
	if err := steps(w.append(pid, true, record.None, kv("x", value(1)), kv("y", value(2))), w.log.Roll(), w.end(pid, false), w.log.Roll()); err != nil {
		return err
	}
	if err := steps(w.append(pid, true, record.None, kv("x", value(3))), w.end(pid, true), w.log.Roll()); err != nil {
		return err
	}
	if err := steps(w.put(kv("x", value(4)), tombstone("y")), w.log.Roll(), w.put(kv("x", value(5)))); err != nil {
		return err
	}
	return steps(w.log.Roll(), w.put(kv("active", "1")))
}

func fillTransactions(w *world) error {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 30 {
		pid := kafka.ProducerID(1 + rng.IntN(2))
		var err error
		switch rng.IntN(4) {
		case 0:
			err = w.put(randomItems(rng, 5, 9)...)
		case 1, 2:
			err = w.append(pid, true, record.LZ4, randomItems(rng, 6, 9)...)
		case 3:
			err = w.end(pid, rng.IntN(2) == 0)
		}
		if err != nil {
			return err
		}
	}
	return steps(w.end(1, true), w.end(2, false), w.log.Roll(), w.put(kv("active", "1")))
}

func crashScripts() []crashScript {
	small := func(c *commitlog.Config) { c.SegmentBytes = 700 }
	return []crashScript{
		{"keys and tombstones", nil, false, fillPlain, twoRounds},
		{"newest records that are not on the disk yet", nil, true, fillUnsynced, cleanOnce},
		{"segments that a group's output does not reach", nil, false, fillLeaving, twoRounds},
		{"an output without a record", small, false, fillEmptied, twoRounds},
		{"transactions", func(c *commitlog.Config) { c.SegmentBytes = 900 }, false, fillTransactions, twoRounds},
		{"a group with two outputs", func(c *commitlog.Config) { c.SegmentIndexBytes = 24; c.IndexInterval = 0 }, false, fillPlain, cleanOnce},
	}
}

// TestCrashInARound stops the machine after each file operation of a round, in
// the ways that a power cut can leave the disk, and wants: every record that was
// there is as it was, a reader builds the state of all durable records, and the
// next round ends what the crashed one began.
func TestCrashInARound(t *testing.T) {
	for _, s := range crashScripts() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			whole, first, err := s.run(-1, false)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := whole.checkReaders(); err != nil {
				t.Fatalf("without a crash: %v", err)
			}
			if whole.ops-first < 20 {
				t.Fatalf("the rounds took %d file operations, want at least 20", whole.ops-first)
			}
			for n := first; n <= whole.ops; n += thorough {
				w, _, err := s.run(n, n%3 == 0)
				if err != nil && !w.stopped {
					t.Fatalf("stop after operation %d: %v", n, err)
				}
				for name, choice := range crashChoices(n) {
					if err := s.verify(w, choice, n); err != nil {
						t.Fatalf("stop after operation %d, %s: %v", n, name, err)
					}
				}
			}
		})
	}
}

func crashChoices(n int) map[string]memfs.Choice {
	kept := []float64{0.2, 0.5, 0.8}[n%3]
	return map[string]memfs.Choice{
		"nothing unsynced is kept":                            memfs.DropAll(),
		"everything is kept":                                  memfs.KeepAll(),
		fmt.Sprintf("%g of what is not synced is kept", kept): memfs.Random(kept, uint64(n)),
	}
}

// run fills a log and does the rounds, until limit operations have run. first is
// how many the filling took.
func (s *crashScript) run(limit int, torn bool) (w *world, first int, err error) {
	cfg := worldConfig()
	if s.config != nil {
		s.config(&cfg)
	}
	if w, err = newWorld(cfg); err != nil {
		return w, 0, err
	}
	if s.lazy {
		w.lazy = true
		if err := w.reopen(true); err != nil {
			return w, 0, err
		}
	}
	w.limit, w.torn = limit, torn
	if err := s.fill(w); err != nil {
		return w, w.ops, err
	}
	first = w.ops
	return w, first, s.rounds(w)
}

// verify reopens what a crash leaves of the disk.
func (s *crashScript) verify(w *world, choice memfs.Choice, n int) error {
	after := &world{cfg: w.cfg, now: w.now, mem: testMemory(), checkpoint: w.checkpoint, start: w.start, limit: -1,
		txns: map[kafka.ProducerID]*openTxn{}, sequence: map[kafka.ProducerID]kafka.Sequence{}, seen: map[kafka.Offset]int64{}}
	durable := w.log.RecoveryPoint()
	if n%2 == 0 {
		after.recovery = durable // the checkpoint was written just before
	}
	disk := w.disk.Crash(choice)
	if n%5 == 0 { // and the recovery is stopped too
		after.mount(disk)
		after.limit = n % 37
		_ = after.open(false)
		after.limit = -1
		disk = after.disk.Crash(choice)
	}
	after.mount(disk)
	if err := after.open(false); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer after.log.Abandon()
	end := after.log.EndOffset()
	if end < durable || end < after.checkpoint {
		return fmt.Errorf("the log ends at %d, durable was %d, clean %d", end, durable, after.checkpoint)
	}
	for _, r := range w.recs {
		if r.offset < end {
			after.recs = append(after.recs, r)
		}
	}
	there, err := after.checkReaders()
	if err != nil {
		return err
	}
	if left, err := after.leftovers(); err != nil || len(left) > 0 {
		return fmt.Errorf("left behind after the start: %v, %v", left, err)
	}
	var kept []appended
	for _, r := range after.recs {
		if there[r.offset] {
			kept = append(kept, r)
			after.seen[r.offset] = -1 << 50 // by the round that the crash ended
		}
	}
	after.recs = kept
	if err := steps(after.put(kv("after", "the crash"), kv("x", "new")), after.log.Roll(), cleanOnce(after)); err != nil {
		return fmt.Errorf("going on: %w", err)
	}
	if err := after.check(); err != nil {
		return fmt.Errorf("after the next round: %w", err)
	}
	return nil
}
