//go:build !linux

package vfs

// OpenFilesLimit is how many descriptors the process may have open; not known here.
func OpenFilesLimit() (int64, bool) { return 0, false }

// Maps is how many memory maps the process has and may have; not known here.
func Maps() (maps, limit int, ok bool) { return 0, 0, false }

// OpenFiles is how many descriptors the process has open; not known here.
func OpenFiles() (n int, ok bool) { return 0, false }
