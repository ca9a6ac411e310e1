package index

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// Whatever bytes an index file holds, every use of it ends without a panic, and
// the entries written to a new file give the same bytes.

func FuzzOffsetIndex(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add([]byte{0, 0, 0, 10, 0, 0, 16, 0, 0, 0, 0, 20, 0, 0, 32, 0}, int64(115))
	f.Add(make([]byte, 83), int64(100))
	f.Add(bytes.Repeat([]byte{0xff}, 16), int64(-1))
	f.Fuzz(func(t *testing.T, content []byte, target int64) {
		fsys := memfs.New()
		writeFile(t, fsys, path, content)
		x := NewOffset(options(fsys, 1<<16))
		n, err := x.Len()
		check(t, err)
		if n != len(content)/8 {
			t.Fatalf("Len() = %d for %d bytes", n, len(content))
		}
		var again []byte
		for i := range n {
			p, err := x.Entry(i)
			check(t, err)
			again = binary.BigEndian.AppendUint32(again, uint32(p.Offset-100))
			again = binary.BigEndian.AppendUint32(again, uint32(p.Byte))
		}
		if !bytes.Equal(again, content[:n*8]) {
			t.Errorf("entries encode to %x, want %x", again, content[:n*8])
		}
		if p, err := x.Lookup(kafka.Offset(target)); err != nil || p.Offset > kafka.Offset(target) && p != (Position{Offset: 100}) {
			t.Errorf("Lookup(%d) = %+v, %v", target, p, err)
		}
		if _, _, err := x.UpperBound(Position{Byte: target}, int32(target)); err != nil {
			t.Error(err)
		}
		if err := x.SanityCheck(); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
		check(t, x.TruncateTo(kafka.Offset(target)))
		check(t, x.Trim())
		check(t, x.Resize())
		if err := x.Append(100+1<<31-1, 1); err != nil && !errors.Is(err, ErrOrder) {
			t.Error(err)
		}
		check(t, x.Close())
	})
}

func FuzzTimeIndex(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0, 2}, int64(10))
	f.Add(make([]byte, 25), int64(-1))
	f.Add(bytes.Repeat([]byte{0xff}, 24), int64(7))
	f.Fuzz(func(t *testing.T, content []byte, target int64) {
		fsys := memfs.New()
		writeFile(t, fsys, path, content)
		x := NewTime(options(fsys, 1<<16))
		n, err := x.Len()
		check(t, err)
		var again []byte
		for i := range n {
			p, err := x.Entry(i)
			check(t, err)
			again = binary.BigEndian.AppendUint64(again, uint64(p.Timestamp))
			again = binary.BigEndian.AppendUint32(again, uint32(p.Offset-100))
		}
		if !bytes.Equal(again, content[:n*12]) {
			t.Errorf("entries encode to %x, want %x", again, content[:n*12])
		}
		if p, err := x.Lookup(kafka.Timestamp(target)); err != nil || p.Timestamp > kafka.Timestamp(target) && p != (TimePosition{-1, 100}) {
			t.Errorf("Lookup(%d) = %+v, %v", target, p, err)
		}
		if err := x.SanityCheck(); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
		check(t, x.TruncateTo(kafka.Offset(target)))
		check(t, x.Trim())
		check(t, x.Resize())
		if err := x.MaybeAppend(1<<62, 100+1<<31-1, true); err != nil && !errors.Is(err, ErrOrder) {
			t.Error(err)
		}
		check(t, x.Close())
	})
}

func FuzzTxnIndex(f *testing.F) {
	f.Add([]byte{}, int64(0))
	f.Add(AbortedTxn{1, 100, 110, 105}.AppendTo(AbortedTxn{2, 90, 104, 90}.AppendTo(nil)), int64(104))
	f.Add(append(AbortedTxn{1, 100, 110, 105}.AppendTo(nil), 0, 0, 1), int64(105))
	f.Add(bytes.Repeat([]byte{0, 1}, 17), int64(7))
	f.Fuzz(func(t *testing.T, content []byte, target int64) {
		fsys := memfs.New()
		writeFile(t, fsys, path, content)
		x := NewTxn(options(fsys, 0))
		var again []byte
		err := x.Each(func(_ int64, a AbortedTxn) bool {
			again = a.AppendTo(again)
			return true
		})
		var version *VersionError
		if err != nil && !errors.As(err, &version) {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(content, again) || err == nil && len(content)-len(again) >= TxnEntrySize {
			t.Errorf("entries encode to %x, want %x", again, content)
		}
		if err := x.SanityCheck(); err != nil && !errors.Is(err, ErrCorrupt) && version == nil {
			t.Error(err)
		}
		if _, _, err := x.Collect(nil, kafka.Offset(target), kafka.Offset(target)+10); err != nil && version == nil {
			t.Error(err)
		}
		if err := x.TruncateTo(kafka.Offset(target)); err != nil && version == nil {
			t.Error(err)
		}
		x.Rebuild()
		check(t, x.Append(AbortedTxn{1, 2, 3, 4}))
		_, err = x.Publish()
		check(t, err)
		check(t, x.Close())
		b, err := vfs.ReadFile(fsys, path)
		check(t, err)
		if len(b) != TxnEntrySize {
			t.Errorf("%d bytes after one append", len(b))
		}
	})
}
