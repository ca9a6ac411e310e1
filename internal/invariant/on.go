//go:build invariants

package invariant

// Enabled says whether this is a test build with -tags invariants.
const Enabled = true

// Check panics when ok is false. It costs nothing in a product build.
func Check(ok bool, format string, args ...any) {
	if !ok {
		Violated(format, args...)
	}
}
