package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Faults X1: somebody who removes the lock file under a running broker, for a
// stale one, does not make room for a second broker.
func TestLockHoldsWhenItsFileIsRemoved(t *testing.T) {
	name := filepath.Join(t.TempDir(), ".lock")
	held, err := OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if second, err := OS().Lock(name); !errors.Is(err, ErrLocked) {
		t.Errorf("Lock after the file was removed = %v, want ErrLocked", err)
		if err == nil {
			second.Close()
		}
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
