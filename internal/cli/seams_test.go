package cli

import (
	"bytes"
	"strings"
	"testing"
)

// TestVersionTellsABuildThatFailsOnPurpose: such a build must not be taken for a
// release.
func TestVersionTellsABuildThatFailsOnPurpose(t *testing.T) {
	var out bytes.Buffer
	a := &app{Process: &Process{Stdout: &out}}
	a.printVersion()
	if got := strings.Contains(out.String(), " faults"); got != withSeams {
		t.Errorf("version = %q, with faults: %v", out.String(), withSeams)
	}
}
