// Package clock judges the wall clock for whoever deletes by age. A wall clock
// can jump: a virtual machine is resumed, a time server is wrong, a battery is
// empty. Retention by time, expired offsets, producers and tombstones must not
// act on a jump that may be a mistake: what they delete is gone.
//
// It is pure: both clocks are given. Before it on the path: node, which owns the
// Guard. After it: the packages that delete by age, which are given its time.
package clock

import (
	"math"
	"sync"
	"time"
)

// Options say when a jump is believed.
type Options struct {
	// JumpMax is how far the wall clock may go off the monotonic one between two
	// looks (varve.clock.jump.max). 0: every time is believed at once.
	JumpMax time.Duration
	// Confirm is how long a jump must have lasted before it is believed; one
	// retention check interval.
	Confirm time.Duration
	// Built is when the program was built; zero: not known. A wall clock 20 years
	// after it is not believed.
	Built time.Time
	// OnChange is told of a jump, of its end, and of one that is believed. It
	// must not call the Guard. May be nil.
	OnChange func(Change)
}

// Change is what a look has found.
type Change struct {
	Kind Kind
	By   time.Duration // how far the wall clock is off what was expected; saturates
	// Plausible says whether the wall clock is within what files and build allow.
	Plausible bool
}

// Kind is what happened to the clock.
type Kind int

// The kinds of a Change.
const (
	Jumped   Kind = iota // time by age stands on the monotonic clock from here on
	Returned             // the wall clock is again where it was expected
	Believed             // the jump has lasted: the wall clock is followed again
)

// How far before the newest file and after the build a clock is plausible.
const (
	beforeNewest = time.Hour
	afterBuilt   = 20 * 365 * 24 * time.Hour
)

// leastBuilt stands for a build time that is not known.
const leastBuilt = 1767225600 // 2026-01-01

// Guard tells the time that ages are counted by. It is the wall clock, and after
// a jump the time before it carried on by the monotonic clock, until the jump is
// believed. It may be used by several goroutines.
type Guard struct {
	o Options

	mu      sync.Mutex
	newest  time.Time // modification time of the newest file at the start; zero: not known
	begun   bool
	held    time.Time     // what the last look returned
	at      time.Duration // monotonic time of the last look
	suspect bool
	since   time.Duration // monotonic time at which the jump was seen
	wall    time.Time     // the wall clock then
}

// New returns a Guard that has not looked yet.
func New(o Options) *Guard {
	if o.Built.Unix() < leastBuilt {
		o.Built = time.Unix(leastBuilt, 0)
	}
	return &Guard{o: o}
}

// SetNewest tells when the newest file was modified. It is called before the
// first look.
func (g *Guard) SetNewest(t time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.newest = t
}

// Look returns the time to count ages by, given what both clocks show. Monotonic
// time counts from any start and never goes back.
func (g *Guard) Look(wall time.Time, mono time.Duration) time.Time {
	wall = wall.Round(0) // ages are of the wall clock alone
	if g.o.JumpMax <= 0 {
		return wall
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.begun {
		g.begin(wall, mono)
		return g.held
	}
	expected := add(g.held, max(0, mono-g.at))
	g.at = max(g.at, mono)
	by := sub(wall, expected)
	near := abs(by) <= g.o.JumpMax && g.plausible(wall)
	switch {
	case near && g.suspect:
		g.suspect = false
		g.held = wall
		g.tell(Returned, by, wall)
	case near:
		g.held = wall
	case !g.suspect:
		g.held = expected
		g.suspectFrom(wall, by)
	case abs(sub(wall, add(g.wall, g.at-g.since))) > g.o.JumpMax: // it jumped again
		g.held = expected
		g.suspectFrom(wall, by)
	case g.at-g.since >= g.o.Confirm && g.plausible(wall):
		g.suspect = false
		g.held = wall
		g.tell(Believed, by, wall)
	default:
		g.held = expected
	}
	return g.held
}

// begin takes the first look. A clock that is too late is not believed from the
// start; one that is too early deletes nothing, so it may stand.
func (g *Guard) begin(wall time.Time, mono time.Duration) {
	g.begun, g.held, g.at = true, wall, mono
	if g.plausible(wall) {
		return
	}
	if wall.After(g.latest()) {
		g.held = g.o.Built
		if g.newest.After(g.held) && g.newest.Before(g.latest()) {
			g.held = g.newest
		}
	}
	g.suspectFrom(wall, sub(wall, g.held))
}

func (g *Guard) suspectFrom(wall time.Time, by time.Duration) {
	g.suspect, g.since, g.wall = true, g.at, wall
	g.tell(Jumped, by, wall)
}

func (g *Guard) tell(k Kind, by time.Duration, wall time.Time) {
	if g.o.OnChange != nil {
		g.o.OnChange(Change{k, by, g.plausible(wall)})
	}
}

func (g *Guard) latest() time.Time { return g.o.Built.Add(afterBuilt) }

// plausible holds the clock against what is known: files were not written in
// the future, and programs are not run decades after they were built.
func (g *Guard) plausible(wall time.Time) bool {
	if !g.newest.IsZero() && wall.Before(g.newest.Add(-beforeNewest)) {
		return false
	}
	return !wall.After(g.latest())
}

// sub is a-b, held within what a Duration can be.
func sub(a, b time.Time) time.Duration {
	return a.Sub(b) // saturates by itself, without monotonic readings
}

// add is t+d, and t where that is no year any more.
func add(t time.Time, d time.Duration) time.Time {
	if s := t.Add(d); !s.Before(t) {
		return s
	}
	return t
}

func abs(d time.Duration) time.Duration {
	if d == math.MinInt64 {
		return math.MaxInt64
	}
	return max(d, -d)
}
