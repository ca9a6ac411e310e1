//go:build faults

package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestTheClockFileMovesTheWallClockAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	a := &app{Process: &Process{Env: []string{"VARVE_CLOCK_FILE=" + path}}}
	now := a.wallClock()
	for _, ms := range []int64{0, 1500, -3_600_000, 315_360_000_000, -315_360_000_000} {
		if err := os.WriteFile(path, []byte(strconv.FormatInt(ms, 10)+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		got := now()
		if d := got.Sub(before); d < 0 || d > time.Minute {
			t.Errorf("offset %d: %v passed by the monotonic clock", ms, d)
		}
		if d := got.Round(0).Sub(before.Round(0)).Milliseconds() - ms; d < 0 || d > 60_000 {
			t.Errorf("offset %d: the wall clock is off by %d ms more", ms, d)
		}
	}
}
