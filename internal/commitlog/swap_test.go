package commitlog

import (
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs/faultfs"
)

// A crash during a replacement leaves `.swap` files; the start that finishes it
// can be cut short too, and no old segment may come back beside the new ones.
func TestAReplacementIsFinishedInAnOrderThatSurvivesAnotherCrash(t *testing.T) {
	b := newBench(t, nil)
	for range 3 {
		b.append(5)
		if err := b.log.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	// What a rewrite of the first two segments left: the records of both in the first.
	one := b.stored(0)
	two := b.stored(5)
	cleaned, err := b.log.NewCleanedSegment(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		cleaned.Append(4, one), cleaned.Append(9, two), cleaned.Seal(), cleaned.Flush(),
		cleaned.ChangeSuffix(segment.SwapSuffix), cleaned.Abandon(), b.log.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	removed := false // and not yet durably so
	b.opts.FS = faultfs.Wrap(b.disk, func(op faultfs.Op) faultfs.Fault {
		switch {
		case op.Kind == faultfs.Remove:
			removed = true
		case op.Kind == faultfs.SyncDir:
			removed = false
		case op.Kind == faultfs.Rename && strings.HasSuffix(op.Name, segment.SwapSuffix) && removed:
			t.Errorf("%s gets its name before the old segments are durably gone", op.Name)
		}
		return faultfs.Fault{}
	})
	b.open(true)
	if got := len(b.log.Segments()); got != 3 {
		t.Errorf("%d segments, want 3: %s", got, b.files())
	}
	if got := b.stored(7); got.BaseOffset() != 5 {
		t.Errorf("the batch that holds 7 begins at %d, want 5", got.BaseOffset())
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
}
