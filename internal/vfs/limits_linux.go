package vfs

import (
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenFilesLimit is how many descriptors the process may have open; false when
// that is not known.
func OpenFilesLimit() (int64, bool) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, false
	}
	return int64(min(l.Cur, 1<<40)), true
}

// Maps is how many memory maps the process has, and how many it may have
// (vm.max_map_count); false when that is not known.
func Maps() (maps, limit int, ok bool) {
	text, err := os.ReadFile("/proc/sys/vm/max_map_count")
	if err != nil {
		return 0, 0, false
	}
	if limit, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, 0, false
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, 0, false
	}
	defer f.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := f.Read(buf)
		maps += bytes.Count(buf[:n], []byte{'\n'})
		if err != nil {
			return maps, limit, err == io.EOF
		}
	}
}

// OpenFiles is how many descriptors the process has open; false when that is
// not known.
func OpenFiles() (n int, ok bool) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, false
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(1024)
		n += len(names)
		if err != nil {
			return n - 1, err == io.EOF // without dir itself
		}
	}
}
