package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// interval is that of retention checks in the clock row, and so how long a jump
// has to last before it is believed.
const interval = 2 * time.Second

// clock moves the wall clock of a broker that keeps records for two hours. A
// jump that does not last deletes nothing. With the guard off it must, or this
// row shows nothing.
func clock(r *run) {
	n := r.of(10, 50)
	r.plan(n + 1)
	half := max(1, n/2)
	parts := []func(){
		func() { r.jumps(0, half) },
		func() {
			r.case1("guard off", func(dir, log string) bool {
				v, move, err := r.startClock(dir, log, "varve.clock.jump.max=0")
				if err != nil {
					r.violation("%v", err)
					return false
				}
				defer v.kill()
				if move(10*365*24*time.Hour) != nil {
					return false
				}
				time.Sleep(2 * interval)
				if res := r.ack(v, time.Minute, "verify"); res.status != 1 {
					r.violation("with the guard off a jump of ten years has deleted nothing: the row cannot fail: %s", res.text)
					return false
				}
				r.done(1, 0)
				return true
			})
		},
	}
	if n > half {
		parts = append(parts, func() { r.jumps(half, n-half) })
	}
	parallel(parts...)
}

// startClock starts a broker with records in it; move sets its wall clock so
// far off.
func (r *run) startClock(dir, log string, settings ...string) (v *server, move func(time.Duration) error, err error) {
	file := filepath.Join(log, "clock")
	move = func(by time.Duration) error {
		return os.WriteFile(file, fmt.Appendf(nil, "%d\n", by.Milliseconds()), 0o644)
	}
	if err := move(0); err != nil {
		return nil, nil, err
	}
	settings = append([]string{"log.retention.ms=7200000", fmt.Sprintf("log.retention.check.interval.ms=%d", interval.Milliseconds()), "log.initial.task.delay.ms=100",
		"log.message.timestamp.after.max.ms=9223372036854775807"}, append(settings, small...)...)
	v, err = r.start(dir, log, script{varve: r.seams, settings: settings, env: []string{"VARVE_CLOCK_FILE=" + file}})
	if err != nil {
		return nil, nil, err
	}
	if res := r.ack(v, time.Minute, "produce", "-strict", "-records", "1000"); res.status != 0 {
		v.kill()
		return nil, nil, fmt.Errorf("produce: status %d: %s\n%s", res.status, res.text, v.tail())
	}
	return v, move, nil
}

// jumps moves the clock n times, by 1 s to 10 years, forward and back, for less
// than a retention check interval each.
func (r *run) jumps(first, n int) {
	r.case1("jumps", func(dir, log string) bool {
		v, move, err := r.startClock(dir, log)
		if err != nil {
			r.violation("%v", err)
			return false
		}
		defer v.kill()
		for i := range n {
			rng := rand.New(rand.NewPCG(r.seed, uint64(first+i)))
			const years = 10 * 365 * 24 * 3600
			by := time.Duration(math.Exp(rng.Float64()*math.Log(years)) * float64(time.Second))
			if rng.IntN(2) == 0 {
				by = -by
			}
			if err := move(by); err != nil {
				r.violation("%v", err)
				return false
			}
			time.Sleep(interval * 3 / 4)
			res := r.ack(v, 20*time.Second, "produce", "-strict", "-records", "50")
			if err := move(0); err != nil {
				r.violation("%v", err)
				return false
			}
			time.Sleep(200 * time.Millisecond)
			if res.status != 0 || v.ended() {
				r.violation("a jump of %v: produce: status %d: %s; broker %s\n%s", by, res.status, res.text, v.state(), v.tail())
				return false
			}
			r.done(1, 0)
			r.most("farthest_hours", math.Abs(by.Hours()))
		}
		time.Sleep(interval)
		if v.logged("clock-jump") {
			r.count("told", 1)
		}
		return r.readBack(v) && r.stopped(v)
	})
}
