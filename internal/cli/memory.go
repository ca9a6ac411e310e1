package cli

import (
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory has the Go runtime keep to half of the memory that the container
// or unit allows, unless GOMEMLIMIT says otherwise. The other half is for what
// the runtime does not count, and for the page cache. It returns the limit; 0
// when there is none.
func (a *app) limitMemory() int64 {
	limit := cgroupLimit(os.ReadFile)
	if limit > 0 && a.getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit / 2)
	}
	return limit
}

// cgroupLimit is the least memory limit of the process's cgroup (version 2) and
// those above it, in bytes; 0 when there is none.
func cgroupLimit(read func(string) ([]byte, error)) int64 {
	text, err := read("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	group := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		if g, ok := strings.CutPrefix(line, "0::"); ok {
			group = g
		}
	}
	if group == "" {
		return 0
	}
	var least int64
	for {
		// The root has no file; a container sees its own group as the root.
		if text, err := read(path.Join("/sys/fs/cgroup", group, "memory.max")); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && (least == 0 || n < least) {
				least = n
			}
		}
		if group == "/" || group == "." {
			return least
		}
		group = path.Dir(group)
	}
}
