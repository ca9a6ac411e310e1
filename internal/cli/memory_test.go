package cli

import (
	"os"
	"testing"
)

func TestTheMemoryLimitIsTheLeastOfAllGroups(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"no cgroup", nil, 0},
		{"version 1", map[string]string{"/proc/self/cgroup": "4:memory:/a\n3:cpu:/\n0::/\n", "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "67108864\n", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 64 << 20},
		{"version 1 without a limit", map[string]string{"/proc/self/cgroup": "4:cpu,memory:/a\n", "/sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n"}, 0},
		{"no limit", map[string]string{"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "max\n"}, 0},
		{"its own", map[string]string{"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "134217728\n", "/sys/fs/cgroup/a/memory.max": "max\n"}, 128 << 20},
		{"a smaller one above", map[string]string{"/proc/self/cgroup": "0::/a/b\n", "/sys/fs/cgroup/a/b/memory.max": "134217728\n", "/sys/fs/cgroup/a/memory.max": "67108864\n"}, 64 << 20},
		{"in a container", map[string]string{"/proc/self/cgroup": "0::/\n", "/sys/fs/cgroup/memory.max": "268435456\n"}, 256 << 20},
		{"beside version 1", map[string]string{"/proc/self/cgroup": "1:name=systemd:/x\n0::/a\n", "/sys/fs/cgroup/a/memory.max": "1000000\n"}, 1000000},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := cgroupLimit(func(name string) ([]byte, error) {
				if text, ok := tt.files[name]; ok {
					return []byte(text), nil
				}
				return nil, os.ErrNotExist
			})
			if got != tt.want {
				t.Errorf("cgroupLimit = %d, want %d", got, tt.want)
			}
		})
	}
}
