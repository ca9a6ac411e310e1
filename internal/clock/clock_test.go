package clock_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/internal/clock"
)

const (
	day     = 24 * time.Hour
	year    = 365 * day
	confirm = 5 * time.Minute
)

func built() time.Time { return time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC) }

// world is a machine with two clocks and a Guard that looks at them.
type world struct {
	wall    time.Time
	mono    time.Duration
	guard   *clock.Guard
	changes []clock.Change
}

func newWorld(o clock.Options) *world {
	w := &world{wall: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), mono: time.Hour}
	o.OnChange = func(c clock.Change) { w.changes = append(w.changes, c) }
	w.guard = clock.New(o)
	w.guard.SetNewest(w.wall.Add(-time.Minute))
	return w
}

func usual() clock.Options {
	return clock.Options{JumpMax: time.Hour, Confirm: confirm, Built: built()}
}

func (w *world) pass(d time.Duration) { w.wall, w.mono = w.wall.Add(d), w.mono+d }

func (w *world) look() time.Time { return w.guard.Look(w.wall, w.mono) }

// TestJumps has the clock jump once after a good look, and looks at once, just
// before the jump has lasted, and when it has.
func TestJumps(t *testing.T) {
	tests := []struct {
		name     string
		by       time.Duration
		held     bool // not followed at once
		believed bool // followed once it has lasted
	}{
		{"a second forward is followed", time.Second, false, true},
		{"a second back is followed", -time.Second, false, true},
		{"an hour forward is followed", time.Hour, false, true},
		{"an hour back is followed", -time.Hour, false, true},
		{"an hour and a millisecond forward is not, until it has lasted", time.Hour + time.Millisecond, true, true},
		{"a day forward is not, until it has lasted", day, true, true},
		{"a month forward is not, until it has lasted", 30 * day, true, true},
		{"ten years forward is not, until it has lasted", 10 * year, true, true},
		{"a day back is never: files are newer", -day, true, false},
		{"ten years back is never", -10 * year, true, false},
		{"thirty years forward is never: the program is not so old", 30 * year, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(usual())
			w.look()
			w.pass(time.Minute)
			right := w.wall
			w.wall = w.wall.Add(tt.by)
			want := w.wall
			if tt.held {
				want = right
			}
			if got := w.look(); !got.Equal(want) {
				t.Errorf("at the jump: %v, want %v", got, want)
			}
			if jumped := len(w.changes) > 0; jumped != tt.held {
				t.Errorf("changes = %+v, want a jump told: %v", w.changes, tt.held)
			}
			w.pass(confirm - time.Millisecond)
			if got := w.look(); tt.held && !got.Equal(right.Add(confirm-time.Millisecond)) {
				t.Errorf("just before it has lasted: %v, want the time before the jump carried on", got)
			}
			w.pass(time.Millisecond)
			want = w.wall
			if !tt.believed {
				want = right.Add(confirm)
			}
			if got := w.look(); !got.Equal(want) {
				t.Errorf("when it has lasted: %v, want %v", got, want)
			}
		})
	}
}

func TestTimesNoClockShouldShow(t *testing.T) {
	tests := []struct {
		name string
		wall time.Time
	}{
		{"1970", time.Unix(0, 0)},
		{"before 1970", time.UnixMilli(-1 << 62)},
		{"9999", time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
		{"the last millisecond", time.UnixMilli(1<<63 - 1)},
		{"the first millisecond", time.UnixMilli(-1 << 63)},
		{"2106, the end of 32 bits", time.Unix(1<<32, 0)},
	}
	for _, tt := range tests {
		t.Run(tt.name+" while running", func(t *testing.T) {
			w := newWorld(usual())
			good := w.look()
			w.wall = tt.wall
			for range 100 {
				w.mono += confirm
				w.look()
			}
			if got, want := w.look(), good.Add(100*confirm); !got.Equal(want) {
				t.Errorf("%v, want %v: never believed, and time goes on", got, want)
			}
		})
		t.Run(tt.name+" from the start", func(t *testing.T) {
			w := newWorld(usual())
			right := w.wall
			w.wall = tt.wall
			if got := w.look(); got.After(right) {
				t.Errorf("%v is later than the right time %v: what is not expired would be deleted", got, right)
			}
			w.mono += confirm
			w.wall = right.Add(confirm)
			w.look()
			w.pass(confirm)
			if got := w.look(); !got.Equal(w.wall) {
				t.Errorf("once the clock was set: %v, want %v", got, w.wall)
			}
		})
	}
	// 2038 is a time like others.
	w := newWorld(usual())
	w.look()
	w.wall = time.Unix(1<<31, 0)
	w.look()
	w.pass(confirm)
	if got := w.look(); !got.Equal(w.wall) {
		t.Errorf("2038 that has lasted: %v, want %v", got, w.wall)
	}
}

func TestAClockThatComesBackIsFollowedAtOnce(t *testing.T) {
	w := newWorld(usual())
	w.look()
	w.wall = w.wall.Add(10 * year)
	w.look()
	w.pass(time.Minute)
	w.wall = w.wall.Add(-10 * year)
	if got := w.look(); !got.Equal(w.wall) {
		t.Errorf("%v, want %v", got, w.wall)
	}
	if len(w.changes) != 2 || w.changes[1].Kind != clock.Returned {
		t.Errorf("changes = %+v, want the jump and its end", w.changes)
	}
}

func TestAClockThatKeepsJumpingIsNeverBelieved(t *testing.T) {
	w := newWorld(usual())
	good := w.look()
	for i := range 50 {
		w.mono += confirm
		w.wall = good.Add(time.Duration(i+1) * 30 * day)
		if got, want := w.look(), good.Add(time.Duration(i+1)*confirm); !got.Equal(want) {
			t.Fatalf("look %d: %v, want %v", i, got, want)
		}
	}
}

// TestSuspendAndResume: the monotonic clock stands while the machine sleeps.
func TestSuspendAndResume(t *testing.T) {
	w := newWorld(usual())
	before := w.look()
	w.wall = w.wall.Add(day)
	if got := w.look(); !got.Equal(before) {
		t.Errorf("on waking: %v, want %v", got, before)
	}
	w.pass(confirm)
	if got := w.look(); !got.Equal(w.wall) {
		t.Errorf("one check later: %v, want %v", got, w.wall)
	}
}

func TestTheGuardCanBeOff(t *testing.T) {
	o := usual()
	o.JumpMax = 0
	w := newWorld(o)
	w.look()
	w.wall = w.wall.Add(100 * year)
	if got := w.look(); !got.Equal(w.wall) {
		t.Errorf("%v, want %v", got, w.wall)
	}
}

// TestTimeNeverRunsAwayWithoutConfirmation drives both clocks at random: the
// Guard's time never goes further at one look than the monotonic clock and the
// permitted jump allow, except to a wall clock that has been steady for the time
// it takes to believe it.
func TestTimeNeverRunsAwayWithoutConfirmation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(usual())
		last, lastMono := w.look(), w.mono
		steady := time.Duration(0) // since the last jump
		for i := range rapid.IntRange(1, 60).Draw(t, "looks") {
			d := time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, fmt.Sprint("pass", i)))
			w.pass(d)
			steady += d
			if rapid.Bool().Draw(t, "jump") {
				by := time.Duration(rapid.Int64Range(-int64(10*year), int64(10*year)).Draw(t, "by"))
				w.wall = w.wall.Add(by)
				if by.Abs() > 2*time.Hour { // less may be taken for one clock
					steady = 0
				}
			}
			got := w.look()
			if limit := last.Add(w.mono - lastMono + time.Hour); got.After(limit) && (steady < confirm || !got.Equal(w.wall)) {
				t.Fatalf("look %d: %v is after %v, with a clock steady for %v", i, got, limit, steady)
			}
			last, lastMono = got, w.mono
		}
	})
}

func TestLooksFromManyGoroutines(t *testing.T) {
	w := newWorld(usual())
	done := make(chan struct{})
	for i := range 4 {
		go func() {
			defer func() { done <- struct{}{} }()
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 1000 {
				w.guard.Look(w.wall, w.mono+time.Duration(r.Int64N(int64(time.Second))))
			}
		}()
	}
	for range 4 {
		<-done
	}
}
