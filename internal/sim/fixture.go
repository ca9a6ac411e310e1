package sim

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// fixture is a small data directory twice: after a clean stop, and as the death
// of the process leaves it, with what is known of its content. The disks are
// durable and never changed: a case takes a copy.
type fixture struct {
	clean, killed *memfs.FS
	m             *moment
}

// copyOf is a disk with the same content, of its own.
func copyOf(disk *memfs.FS) *memfs.FS { return disk.Crash(memfs.KeepAll()) }

// makeFixture runs fill in a bubble. What fill leaves is killed, and then
// stopped cleanly.
func makeFixture(t *testing.T, seed uint64, fill func(w *world)) (*fixture, error) {
	var f fixture
	var err error
	synctest.Test(t, func(t *testing.T) {
		var w *world
		if w, err = newWorld(seed, nil, "/data"); err != nil {
			return
		}
		w.start()
		fill(w)
		f.killed = w.disk.Crash(memfs.KeepAll())
		f.m = w.moment()
		w.stop()
		f.clean = w.disk.Crash(memfs.KeepAll())
		err = w.broken
	})
	if err != nil {
		return nil, fmt.Errorf("fixture: %w", err)
	}
	now := f.m.now
	f.clean.SetNow(func() time.Time { return now })
	f.killed.SetNow(func() time.Time { return now })
	return &f, nil
}

// smallPartition fills one partition with every kind of batch: plain, in each
// codec, of an idempotent producer, of transactions that commit, abort and stay
// open, in segments of which the first is sealed and below the recovery point.
func smallPartition(rounds int) func(w *world) {
	return func(w *world) {
		w.topic("orders", 1, func(c *commitlog.Config) { c.SegmentIndexBytes, c.IndexInterval, c.SegmentBytes = 96, 200, 1<<20 })
		for range rounds {
			w.produce("orders", 0, 2, plain, false)
			w.produce("orders", 0, 2, 1, true)
			w.produce("orders", 0, 1, 3, false)
			w.end("orders", 0, 1, false)
			w.produce("orders", 0, 2, 2, true)
			w.end("orders", 0, 2, true)
		}
		w.roll("orders", 0)
		w.sleep(40 * time.Second) // the checkpoints are written
		w.deleteRecords("orders", 0, 0.1)
		w.epoch("orders", 0)
		for range rounds {
			w.produce("orders", 0, 2, 3, false)
			w.produce("orders", 0, 1, 1, true)
			w.end("orders", 0, 1, false)
			w.produce("orders", 0, 2, plain, false)
		}
		w.produce("orders", 0, 1, 2, true)
	}
}

// severalPartitions is for random damage: neighbours to take wrong pages from.
func severalPartitions(w *world) {
	w.topic("orders", 2, func(c *commitlog.Config) { c.SegmentIndexBytes, c.SegmentBytes = 600, 1500 })
	w.topic("state", 1, func(c *commitlog.Config) { c.SegmentIndexBytes, c.SegmentBytes = 600, 1500 })
	for i := range 8 {
		for _, p := range []struct {
			topic     string
			partition int32
		}{{"orders", 0}, {"orders", 1}, {"state", 0}} {
			w.produce(p.topic, p.partition, 1+w.rng.IntN(4), plain, false)
			w.produce(p.topic, p.partition, 1+w.rng.IntN(3), kafka.ProducerID(5), false)
			w.produce(p.topic, p.partition, 1, 6, true)
			if i%2 == 1 {
				w.end(p.topic, p.partition, 6, i%4 == 1)
			}
		}
		if i == 4 {
			w.sleep(40 * time.Second)
			w.deleteRecords("orders", 1, 0.3)
		}
	}
}
