package node

import (
	"runtime/debug"
	"time"

	"github.com/varvelog/varve/internal/clock"
)

// watchClock makes the time that ages are counted by: the wall clock, unless it
// jumps.
func (n *Node) watchClock() {
	start := n.opts.Now()
	guard := clock.New(clock.Options{
		JumpMax: n.static.ClockJumpMax, Confirm: n.static.RetentionCheckInterval, Built: builtAt(), OnChange: n.clockChanged,
	})
	n.guard = guard
	n.expiry = func() time.Time {
		now := n.opts.Now()
		return guard.Look(now, now.Sub(start)) // Sub goes by the monotonic readings
	}
}

// clockChanged has the log say what became of the wall clock.
func (n *Node) clockChanged(c clock.Change) {
	switch c.Kind {
	case clock.Jumped:
		hint := "nothing is deleted by age on its word until it has lasted for log.retention.check.interval.ms"
		if !c.Plausible {
			hint = "nothing is deleted by age on its word: set the clock"
		}
		n.log.Warn("wall clock jumped", "event", "clock-jump", "byMs", c.By.Milliseconds(), "hint", hint)
	case clock.Returned:
		n.log.Info("wall clock is right again", "event", "clock-back", "byMs", c.By.Milliseconds())
	case clock.Believed:
		n.log.Warn("wall clock that jumped is followed now", "event", "clock-followed", "byMs", c.By.Milliseconds())
	}
}

// lookAtClock looks often enough for a jump to be told from a slow change.
func (n *Node) lookAtClock() {
	tick := time.NewTicker(10 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-n.stopping:
			return
		case <-tick.C:
			n.expiry()
		}
	}
}

// builtAt is the time of the commit that the program was built from; zero when
// the build does not say.
func builtAt() time.Time {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return time.Time{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			t, _ := time.Parse(time.RFC3339, s.Value)
			return t
		}
	}
	return time.Time{}
}
