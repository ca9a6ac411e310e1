//go:build !linux

package cli

import (
	"os"
	"path/filepath"

	"github.com/varvelog/varve/internal/checkpoint"
)

// inUse takes a data directory for one in use when it has a lock file and no
// marker of a clean stop.
func inUse(dir string) bool {
	_, lockErr := os.Stat(filepath.Join(dir, checkpoint.LockFile))
	_, cleanErr := os.Stat(filepath.Join(dir, checkpoint.CleanShutdownFile))
	return lockErr == nil && cleanErr != nil
}
