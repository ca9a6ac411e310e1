package index

import (
	"errors"
	"testing"

	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TestAFaultIsToldBesideAWriterThatWaitsForReaders: the writer holds the lock of
// the index meanwhile, and the reader that met the fault is one of those.
func TestAFaultIsToldBesideAWriterThatWaitsForReaders(t *testing.T) {
	o := options(memfs.New(), 4096)
	told := 0
	o.OnFault = func(file string, page int64, write bool, _ error) {
		if told++; file != o.Path || page != 2 || write {
			t.Errorf("told of %s, page %d, write %v; want %s, page 2", file, page, write, o.Path)
		}
	}
	x := NewOffset(o)
	check(t, x.Append(o.Base, 0))
	defer func() { check(t, x.Close()) }()
	v, err := x.acquire()
	check(t, err)
	defer v.release()
	done := make(chan struct{})
	x.mu.Lock()
	go func() {
		defer close(done)
		x.fault(v, 2*pageSize+8, false, errors.New("page"))
		x.fault(v, 3*pageSize, false, errors.New("page"))
	}()
	<-done
	x.mu.Unlock()
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
}
