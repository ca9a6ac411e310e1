//go:build !faults

package node

// scrubNow is a seam of builds with the tag faults.
func scrubNow() bool { return false }
