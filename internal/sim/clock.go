package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/varvelog/varve/internal/clock"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/record"
)

// ClockOptions say how often the wall clock jumps.
type ClockOptions struct {
	Seed    uint64
	Jumps   int
	JumpMax time.Duration // of the guard; 0 believes every time, a planted bug
	Case    string        // one jump again: its number
}

// Clock lets the wall clock jump by a second to ten years, forth and back, for
// less than the guard waits, while retention by time runs on records that are
// young: nothing is deleted, and appends go on.
func Clock(row *Row, o ClockOptions) {
	p := newPool(row)
	defer p.wait()
	for n := range o.Jumps {
		if o.Case != "" && o.Case != fmt.Sprint(n) {
			continue
		}
		row.Plan(1)
		p.do(func() string { return fmt.Sprint(n) }, func() {
			rng := rand.New(rand.NewPCG(o.Seed, uint64(n)))
			acked := 0
			err := guard(func() (err error) {
				acked, err = oneJump(rng, o.JumpMax)
				return err
			})
			if err != nil {
				row.Violation("clock: jump %d: %v\n\treplay: go test ./internal/sim -run 'TestRow/clock' -args -faults.seed=%d -faults.case=%d", n, err, o.Seed, n)
			}
			row.Done(1, acked)
		})
	}
}

// oneJump is one directory on which the wall clock jumps.
func oneJump(rng *rand.Rand, jumpMax time.Duration) (acked int, err error) {
	const confirm = 5 * time.Minute
	began := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	var mu sync.Mutex // guards real and jump: a flush after a roll looks at the clock too
	real, jump := began, time.Duration(0)
	both := func() (time.Time, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		return real, jump
	}
	setJump := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		jump = d
	}
	g := clock.New(clock.Options{JumpMax: jumpMax, Confirm: confirm, Built: began})
	wall := func() time.Time {
		real, jump := both()
		return real.Add(jump)
	}
	disk, err := formatted("/data")
	if err != nil {
		return 0, err
	}
	disk.SetNow(wall)
	o := managerOptions(disk, wall, []string{"/data"})
	o.Expiry = func() time.Time {
		real, jump := both()
		return g.Look(real.Add(jump), real.Sub(began))
	}
	dirs, err := logdir.Open(o)
	if err != nil {
		return 0, err
	}
	defer dirs.Close(1)
	if err := dirs.Load(logdir.LoadOptions{}); err != nil {
		return 0, err
	}
	c := smallConfig()
	c.SegmentBytes, c.RetentionMs = 300, (2*time.Hour + time.Duration(rng.IntN(100))*time.Hour).Milliseconds()
	log, err := dirs.Create(logdir.NewPartition{Partition: kafka.TopicPartition{Topic: "orders"}, TopicID: kafka.TopicID{1: 1}, Config: c})
	if err != nil {
		return 0, err
	}
	step := func(by time.Duration) error {
		mu.Lock()
		real = real.Add(by)
		mu.Unlock()
		_ = o.Expiry()
		var b record.Builder
		b.Reset(record.NewBuildOptions())
		b.Append(kafka.TimestampOf(real), []byte("key"), bytes.Repeat([]byte{'v'}, 100), nil)
		raw, err := b.Finish()
		if err != nil {
			return err
		}
		if _, err := log.AppendAsLeader(bytes.Clone(raw), 0, commitlog.AppendOptions{}); err != nil && jump == 0 {
			return err // while the clock is wrong a timestamp may be refused as one of the future
		} else if err == nil {
			acked++
		}
		log.MaybeIncrementHighWatermark(log.EndOffset())
		if n, err := log.DeleteOldSegments(); err != nil || n > 0 {
			return fmt.Errorf("clock off by %v for less than %v: %d segments deleted, %v", jump, confirm, n, err)
		}
		log.ExpireProducers()
		return nil
	}
	minutes := func(n int) error {
		for range n {
			if err := step(time.Minute); err != nil {
				return err
			}
		}
		return nil
	}
	if err := minutes(8); err != nil {
		return acked, err
	}
	off := min(time.Second<<rng.IntN(29), 10*365*24*time.Hour)
	if rng.IntN(2) == 0 {
		off = -off
	}
	setJump(off)
	if err := minutes(1 + rng.IntN(4)); err != nil {
		return acked, err
	}
	setJump(0)
	if err := minutes(3); err != nil {
		return acked, err
	}
	if log.StartOffset() != 0 || int(log.EndOffset()) != acked {
		return acked, fmt.Errorf("the log holds offsets %d to %d, want 0 to %d", log.StartOffset(), log.EndOffset(), acked)
	}
	return acked, nil
}
