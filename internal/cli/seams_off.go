//go:build !faults

package cli

import "time"

// withSeams says whether this build can be made to fail on purpose.
const withSeams = false

// wallClock is the clock of the broker; nil is the machine's.
func (a *app) wallClock() func() time.Time { return nil }
