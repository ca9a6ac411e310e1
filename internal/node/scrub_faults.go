//go:build faults

package node

import "os"

// scrubNow reports whether the data directories are to be scrubbed once, at once.
func scrubNow() bool { return os.Getenv("VARVE_SCRUB_NOW") == "1" }
