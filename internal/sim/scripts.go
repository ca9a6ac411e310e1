package sim

import (
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
)

// script is a workload that the machine is stopped in.
type script struct {
	name string
	run  func(w *world)
}

const plain = kafka.NoProducerID

// scripts cover each kind of change of the disk, with a load after each.
func scripts() []script {
	return []script{
		{"append", func(w *world) {
			w.start()
			w.topic("orders", 2, nil)
			for i := range 9 {
				w.produce("orders", int32(i%2), 1+w.rng.IntN(4), plain, false)
				if i%4 == 3 {
					w.flush("orders", int32(i%2))
				}
				if i == 5 {
					w.roll("orders", 0)
					w.epoch("orders", 1)
				}
			}
			w.restart()
			w.produce("orders", 1, 2, plain, false)
			w.stop()
		}},
		{"rolls and checkpoints", func(w *world) {
			w.start()
			w.topic("orders", 1, func(c *commitlog.Config) { c.SegmentBytes = 500 })
			w.topic("users", 1, nil)
			for range 8 {
				w.produce("orders", 0, 1+w.rng.IntN(4), plain, false)
				if w.rng.IntN(3) == 0 {
					w.sleep(11 * time.Second)
				}
			}
			w.produce("users", 0, 2, plain, false)
			w.sleep(30 * time.Second)
			w.stop()
		}},
		{"every append synced", func(w *world) {
			w.start()
			w.topic("money", 2, func(c *commitlog.Config) { c.FlushMessages, c.SegmentBytes = 1, 600 })
			for i := range 10 {
				w.produce("money", int32(i%2), 1+w.rng.IntN(3), kafka.ProducerID(20+i%2), false)
			}
			w.restart()
			w.produce("money", 0, 1, 20, false)
			w.stop()
		}},
		{"producers and transactions", func(w *world) {
			w.start()
			w.topic("orders", 1, nil)
			seen := 0
			for range 14 {
				pid := kafka.ProducerID(1 + w.rng.IntN(3))
				switch {
				case pid == 3:
					w.produce("orders", 0, 1+w.rng.IntN(3), 3, false)
				case w.rng.IntN(3) == 0:
					w.end("orders", 0, pid, w.rng.IntN(2) == 0)
				default:
					w.produce("orders", 0, 1+w.rng.IntN(3), pid, true)
				}
				if seen++; seen%4 == 0 {
					w.roll("orders", 0)
				}
				if seen%5 == 0 {
					w.flush("orders", 0)
				}
			}
			w.restart()
			w.end("orders", 0, 1, false)
			w.end("orders", 0, 2, true)
			w.stop()
		}},
		{"compaction", func(w *world) {
			w.start()
			w.topic("state", 1, func(c *commitlog.Config) {
				c.CleanupCompact, c.CleanupDelete, c.SegmentBytes = true, false, 700
			})
			for round := range 3 {
				for range 5 {
					w.produce("state", 0, 2+w.rng.IntN(3), plain, false)
				}
				if round == 1 {
					w.produce("state", 0, 2, 9, true)
					w.end("state", 0, 9, w.rng.IntN(2) == 0)
				}
				w.roll("state", 0)
				w.sleep(20 * time.Second)
			}
			w.sleep(2 * time.Minute)
			w.restart()
			w.produce("state", 0, 2, plain, false)
			w.stop()
		}},
		{"retention and DeleteRecords", func(w *world) {
			w.start()
			w.topic("orders", 1, func(c *commitlog.Config) { c.RetentionBytes, c.SegmentBytes = 2500, 500 })
			for i := range 12 {
				w.produce("orders", 0, 1+w.rng.IntN(4), kafka.ProducerID(5+i%2), false)
				switch i % 4 {
				case 1:
					w.retain("orders", 0)
				case 3:
					w.deleteRecords("orders", 0, w.rng.Float64())
				}
			}
			w.sleep(time.Minute)
			w.deleteRecords("orders", 0, 1)
			w.produce("orders", 0, 2, 5, false)
			w.restart()
			w.stop()
		}},
		{"truncation", func(w *world) {
			w.start()
			w.topic("orders", 1, func(c *commitlog.Config) { c.SegmentBytes = 500 })
			for i := range 10 {
				w.produce("orders", 0, 1+w.rng.IntN(3), plain, false)
				if i%3 == 2 {
					w.truncate("orders", 0, 1+w.rng.IntN(3))
				}
				if i == 4 {
					w.flush("orders", 0)
				}
			}
			w.restart()
			w.truncate("orders", 0, 2)
			w.stop()
		}},
		{"topics", func(w *world) {
			w.start()
			w.topic("a", 2, nil)
			w.produce("a", 0, 2, plain, false)
			w.topic("b", 1, nil)
			w.produce("b", 0, 3, 4, false)
			w.flush("a", 0)
			w.dropTopic("a")
			w.topic("a", 1, nil)
			w.produce("a", 0, 1, plain, false)
			w.sleep(70 * time.Second)
			w.dropTopic("b")
			w.restart()
			w.topic("b", 1, nil)
			w.produce("b", 0, 1, 4, false)
			w.stop()
		}},
		{"everything", everything},
	}
}

// everything is a random walk over all of it.
func everything(w *world) {
	w.start()
	w.topic("orders", 2, func(c *commitlog.Config) { c.SegmentBytes, c.RetentionBytes = 700, 4000 })
	w.topic("money", 1, func(c *commitlog.Config) { c.SegmentBytes, c.FlushMessages = 900, 1 })
	w.topic("state", 1, func(c *commitlog.Config) { c.SegmentBytes, c.CleanupCompact, c.CleanupDelete = 700, true, false })
	for range 26 {
		o := int32(w.rng.IntN(2))
		switch w.rng.IntN(14) {
		case 0, 1:
			w.produce("orders", o, 1+w.rng.IntN(4), plain, false)
		case 2:
			w.produce("orders", 0, 1+w.rng.IntN(4), kafka.ProducerID(1+w.rng.IntN(2)), false)
		case 3:
			w.produce("orders", 1, 1+w.rng.IntN(4), kafka.ProducerID(11+w.rng.IntN(2)), true)
		case 4:
			w.end("orders", 1, kafka.ProducerID(11+w.rng.IntN(2)), w.rng.IntN(2) == 0)
		case 5:
			w.produce("money", 0, 1+w.rng.IntN(3), kafka.ProducerID(20+w.rng.IntN(2)), false)
		case 6, 7:
			w.produce("state", 0, 2+w.rng.IntN(4), plain, false)
		case 8:
			w.flush("orders", o)
		case 9:
			w.roll("orders", o)
		case 10:
			w.deleteRecords("orders", 0, w.rng.Float64())
		case 11:
			w.retain("orders", o)
		case 12:
			w.sleep(time.Duration(1+w.rng.IntN(40)) * time.Second)
		case 13:
			w.restart()
		}
	}
	w.stop()
}
