package invariant

import "testing"

func TestAViolationEndsTheProcess(t *testing.T) {
	defer func() {
		if got := recover(); got != "invariant violated: offset 3 before 4" {
			t.Errorf("panic = %v", got)
		}
	}()
	Violated("offset %d before %d", 3, 4)
}

func TestChecksHoldOnlyInTestBuilds(t *testing.T) {
	defer func() {
		if got := recover(); (got != nil) != Enabled {
			t.Errorf("a false check panicked with %v, and invariants are on: %t", got, Enabled)
		}
	}()
	Check(true, "holds")
	Check(false, "does not hold")
}
