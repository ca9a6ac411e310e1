package index

import (
	"errors"
	"testing"

	"github.com/varvelog/varve/internal/vfs/memfs"
)

// A transaction index that is damaged so that it can be seen is found, and a
// sparse one of a TiB without being read to its end.
func TestTxnSanityCheck(t *testing.T) {
	good := []AbortedTxn{{ProducerID: 1, FirstOffset: 3, LastOffset: 9, LastStable: 4}, {ProducerID: 2, FirstOffset: 4, LastOffset: 12, LastStable: 13}}
	tests := []struct {
		name   string
		damage func(data []byte) []byte
		size   int64 // the file's length; 0: that of the data
		want   bool
	}{
		{"as it was written", func(b []byte) []byte { return b }, 0, false},
		{"the last entry cut", func(b []byte) []byte { return b[:len(b)-5] }, 0, true},
		{"a byte more", func(b []byte) []byte { return append(b, 0) }, 0, true},
		{"the entries in each other's place", func(b []byte) []byte {
			return append(append([]byte{}, b[TxnEntrySize:]...), b[:TxnEntrySize]...)
		}, 0, true},
		{"an entry that begins behind its end", func(b []byte) []byte { b[10] = 1; return b }, 0, true},
		{"a TiB of zeros behind the entries", func(b []byte) []byte { return b }, 1 << 40, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := memfs.New()
			x := NewTxn(Options{FS: disk, Path: "/i.txnindex"})
			for _, a := range good {
				if err := x.Append(a); err != nil {
					t.Fatal(err)
				}
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
			f, err := disk.OpenFile("/i.txnindex", 2, 0)
			if err != nil {
				t.Fatal(err)
			}
			data := make([]byte, len(good)*TxnEntrySize)
			if _, err := f.ReadAt(data, 0); err != nil {
				t.Fatal(err)
			}
			data = tt.damage(data)
			if err := f.Truncate(0); err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(data, 0); err != nil {
				t.Fatal(err)
			}
			if tt.size > 0 {
				if err := f.Truncate(tt.size); err != nil {
					t.Fatal(err)
				}
			}
			x = NewTxn(Options{FS: disk, Path: "/i.txnindex"})
			err = x.SanityCheck()
			if got := errors.Is(err, ErrCorrupt); got != tt.want || err != nil && !got {
				t.Errorf("SanityCheck = %v, want corrupt = %v", err, tt.want)
			}
			if err := x.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
