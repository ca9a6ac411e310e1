package cli

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/quorum"
)

func TestExitStatusOfAFailedStart(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want int
		says []string // in the message and the hint
	}{
		{"in use", &logdir.InUseError{Dir: "/d", Err: errors.New("locked")}, exitRefused, []string{"/d", "in use"}},
		{"another cluster", &logdir.RefusedError{Dir: "/d", Why: "belongs to cluster a, configured is b", Hint: "name another"}, exitRefused, []string{"a, configured is b", "name another"}},
		{"two names of one directory", &logdir.SameDirectoryError{First: "/a", Second: "/b"}, exitConfig, []string{"/a", "/b", "same directory"}},
		{"damaged metadata", &quorum.DamagedError{Path: "/d/0.log", Offset: 7, Byte: 99, Reason: "checksum"}, exitRefused, []string{"/d/0.log", "offset 7", "byte 99", "checksum", "copy"}},
		{"metadata of several nodes", &quorum.RefusedError{Path: "/d", Reason: "node 2 is a voter"}, exitRefused, []string{"node 2"}},
		{"a disk that fails", &logdir.UnusableError{Dir: "/d", Err: syscall.EIO}, exitFailed, []string{"/d", "input/output"}},
		{"no permission", &logdir.UnusableError{Dir: "/d", Err: syscall.EACCES}, exitFailed, []string{"/d", "permission denied", "user"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var f *failure
			if err := startFailure(fmt.Errorf("open: %w", tt.err)); !errors.As(err, &f) || f.code != tt.want {
				t.Fatalf("startFailure = %v, want status %d", err, tt.want)
			}
			for _, s := range tt.says {
				if !strings.Contains(f.Error()+" "+f.hint, s) {
					t.Errorf("%q is not in %q, hint %q", s, f.Error(), f.hint)
				}
			}
		})
	}
}
