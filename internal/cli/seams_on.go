//go:build faults

package cli

import (
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"
)

// withSeams says whether this build can be made to fail on purpose.
const withSeams = true

// wallClock is the machine's clock with the wall time moved by the milliseconds
// that the file VARVE_CLOCK_FILE holds at the time of each look; the monotonic
// reading stays. Without the variable, and with a file that cannot be read, it
// is the machine's.
func (a *app) wallClock() func() time.Time {
	path := a.getenv("VARVE_CLOCK_FILE")
	if path == "" {
		return nil
	}
	return func() time.Time {
		now := time.Now()
		text, err := os.ReadFile(path)
		if err != nil {
			return now
		}
		ms, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSpace(string(text)), "+"), 10, 64)
		if err != nil {
			return now
		}
		return moveWall(now, ms)
	}
}

// moveWall moves the wall time of t and not its monotonic reading, which package
// time does for nobody: in the first word of a Time with both, bits 30 to 62 are
// the seconds since 1885, and bits 0 to 29 the nanoseconds. A time that does not
// fit (before 1885, after 2157) loses the monotonic reading.
func moveWall(t time.Time, ms int64) time.Time {
	const (
		nanoBits = 30
		secBits  = 33
		monotone = 1 << 63
	)
	moved := t.Round(0).Add(time.Duration(min(max(ms, -1<<43), 1<<43)) * time.Millisecond)
	word := (*uint64)(unsafe.Pointer(&t))
	since1885 := moved.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	if *word&monotone == 0 || since1885 < 0 || since1885 >= 1<<secBits {
		return moved
	}
	*word = monotone | uint64(since1885)<<nanoBits | uint64(moved.Nanosecond())
	return t
}
