//go:build !invariants

package invariant

// Enabled says whether this is a test build with -tags invariants.
const Enabled = false

// Check does nothing without -tags invariants.
func Check(bool, string, ...any) {}
