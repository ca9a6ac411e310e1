package segment

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// FuzzRecover: whatever a .log holds, opening it and looking around ends without
// a panic, and a recovery leaves a prefix of it that is whole: a second recovery
// cuts nothing and finds the same.
func FuzzRecover(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 100))
	one, two := newBatch(f, base, 10, 1, 2), newBatch(f, base+2, 300, 3)
	f.Add(one.bytes)
	f.Add(append(bytes.Clone(one.bytes), two.bytes...))
	f.Add(append(bytes.Clone(one.bytes), two.bytes[:70]...))
	f.Add(append(bytes.Clone(two.bytes), one.bytes...))
	f.Fuzz(func(t *testing.T, content []byte) {
		fsys := memfs.New()
		check(t, fsys.MkdirAll(dir, 0o755))
		file, err := fsys.OpenFile(dir+"/"+Name(base, LogExt), os.O_RDWR|os.O_CREATE, 0o644)
		check(t, err)
		if len(content) > 0 {
			_, err = file.WriteAt(content, 0)
			check(t, err)
		}
		o := options()
		o.IndexInterval, o.MaxIndexBytes = 50, 480
		s, err := Open(fsys, dir, base, o)
		check(t, err)
		dec := &record.Decompressor{Max: 1 << 20}
		// Before the recovery any of these may fail, but only cleanly.
		_, _ = s.ReadNextOffset()
		_, _, _ = s.Locate(base + 1)
		_, _, _ = s.FindByTimestamp(2, base, dec)
		cut, err := s.Recover(nil)
		if errors.Is(err, ErrOverflow) {
			check(t, s.Abandon())
			return
		}
		if err != nil {
			// Entries of offsets that do not rise have no place in an index.
			check(t, s.Abandon())
			return
		}
		size := s.Size()
		if size+cut != int64(len(content)) {
			t.Fatalf("Recover kept %d and cut %d of %d bytes", size, cut, len(content))
		}
		got := make([]byte, size)
		if size > 0 {
			_, err = file.ReadAt(got, 0)
			check(t, err)
		}
		if !bytes.Equal(got, content[:size]) {
			t.Error("Recover changed bytes that it kept")
		}
		before := readEntries(t, s)
		if cut, err := s.Recover(nil); cut != 0 || err != nil {
			t.Errorf("a second Recover = %d, %v", cut, err)
		}
		after := readEntries(t, s)
		if len(before.offsets) != len(after.offsets) || len(before.times) != len(after.times) {
			t.Errorf("entries %v after the second recovery, want %v", after, before)
		}
		if _, err := s.ReadNextOffset(); err != nil {
			t.Errorf("ReadNextOffset() after a recovery: %v", err)
		}
		check(t, s.Close())
	})
}
