package commitlog

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/vfs/faultfs"
)

// A segment that stays in the log because the disk has no room for the longer
// name of one of its files has all of its names.
func TestASegmentThatCannotBeRenamedForDeletionKeepsItsNames(t *testing.T) {
	for _, ext := range []string{".log", ".timeindex", ".snapshot"} {
		t.Run(ext, func(t *testing.T) {
			full := false
			b := newBench(t, func(o *Options) {
				o.FS = faultfs.Wrap(o.FS, func(op faultfs.Op) faultfs.Fault {
					if full && op.Kind == faultfs.Rename && strings.HasSuffix(op.New, "05"+ext+".deleted") {
						return faultfs.Fault{Err: syscall.ENOSPC}
					}
					return faultfs.Fault{}
				})
			})
			for range 3 {
				b.append(5)
				if err := b.log.Roll(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := b.log.MaybeIncrementStartOffset(10); err != nil {
				t.Fatal(err)
			}
			full = true
			if n, err := b.log.DeleteOldSegments(); n != 1 || !errors.Is(err, ErrFull) {
				t.Fatalf("DeleteOldSegments = %d, %v, want the first one and ErrFull", n, err)
			}
			if files := b.files(); strings.Contains(files, "05.log.deleted") || strings.Contains(files, "05.timeindex.deleted") {
				t.Errorf("files: %s", files)
			}
			full = false
			if n, err := b.log.DeleteOldSegments(); n != 1 || err != nil {
				t.Errorf("DeleteOldSegments with room again = %d, %v, want the other one", n, err)
			}
		})
	}
}
