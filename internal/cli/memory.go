package cli

import (
	"os"
	"path"
	"runtime/debug"
	"slices"
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

// unlimited is from where on a limit is none: version 1 writes the largest
// multiple of a page.
const unlimited = 1 << 60

// cgroupLimit is the least memory limit of the process's control group and those
// above it, in bytes; 0 when there is none. It knows version 2 and version 1.
func cgroupLimit(read func(string) ([]byte, error)) int64 {
	text, err := read("/proc/self/cgroup")
	if err != nil {
		return 0
	}
	var least int64
	for line := range strings.SplitSeq(string(text), "\n") {
		// hierarchy number, controllers (none in version 2), group
		parts := strings.SplitN(line, ":", 3)
		var limit int64
		switch {
		case len(parts) < 3:
		case parts[0] == "0" && parts[1] == "":
			limit = leastLimit(read, "/sys/fs/cgroup", parts[2], "memory.max")
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			limit = leastLimit(read, "/sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes")
		}
		if limit > 0 && (least == 0 || limit < least) {
			least = limit
		}
	}
	return least
}

// leastLimit looks at a group and all above it. The root has no file; a
// container sees its own group as the root.
func leastLimit(read func(string) ([]byte, error), mount, group, file string) int64 {
	var least int64
	for {
		if text, err := read(path.Join(mount, group, file)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 && n < unlimited && (least == 0 || n < least) {
				least = n
			}
		}
		if group == "/" || group == "." || group == "" {
			return least
		}
		group = path.Dir(group)
	}
}
