package segment

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// Every bit of a transaction index, every length and its absence: an examination
// finds it, and the index is made anew as it was.
func TestADamagedTransactionIndexIsMadeAnew(t *testing.T) {
	disk := memfs.New()
	check(t, disk.Mkdir(dir, 0o755))
	var w told
	o := w.options()
	o.Create = true
	s, err := Open(disk, dir, 0, o)
	check(t, err)
	next := kafka.Offset(0)
	data := func(id kafka.ProducerID) {
		bo := record.NewBuildOptions()
		bo.BaseOffset, bo.ProducerID, bo.ProducerEpoch, bo.BaseSequence, bo.Transactional = next, id, 0, 0, true
		var b record.Builder
		b.Reset(bo)
		b.Append(1000, []byte("k"), []byte("v"), nil)
		raw, err := b.Finish()
		check(t, errors.Join(err, s.Append(next, raw)))
		next++
	}
	end := func(id kafka.ProducerID, commit bool) {
		raw := record.AppendEndTxnMarker(nil, &record.EndTxnMarker{ProducerID: id, Timestamp: 1000, Commit: commit})
		record.Batch(raw).SetBaseOffset(next)
		check(t, s.Append(next, raw))
		next++
	}
	data(1)
	data(2)
	end(1, false)
	data(1)
	end(1, true)
	end(2, false)
	want := []index.AbortedTxn{{ProducerID: 1, FirstOffset: 0, LastOffset: 2, LastStable: 1}, {ProducerID: 2, FirstOffset: 1, LastOffset: 5, LastStable: 6}}
	for _, a := range want {
		check(t, s.AppendTxn(a))
	}
	check(t, errors.Join(s.Seal(), s.Flush(), s.Close()))
	path := filepath.Join(dir, Name(0, TxnIndexExt))
	good, err := vfs.ReadFile(disk, path)
	check(t, err)
	try := func(name string, damage func(copied *memfs.FS)) {
		copied := disk.Crash(memfs.KeepAll())
		damage(copied)
		var w told
		o := w.options()
		s, err := Open(copied, dir, 0, o)
		check(t, err)
		known := ExamineOptions{Upper: next, Open: OpenTxns{}}
		e, err := s.Examine(s, known)
		check(t, err)
		if e.TxnIndex == "" {
			t.Fatalf("%s: not found", name)
		}
		if !s.MendTxns(&e, func() (OpenTxns, error) { return OpenTxns{}, nil }, func() bool { return true }) {
			t.Fatalf("%s: %s: not made anew", name, e.TxnIndex)
		}
		list, _, err := s.CollectAborted(nil, 0, next)
		check(t, err)
		if e, err = s.Examine(s, known); err != nil || e.TxnIndex != "" || !slices.Equal(list, want) {
			t.Fatalf("%s: %v, %+v, %v after mending", name, list, e, err)
		}
		check(t, s.Close())
	}
	for bit := range 8 * len(good) {
		try("bit", func(copied *memfs.FS) {
			b := slices.Clone(good)
			b[bit/8] ^= 1 << (bit % 8)
			replaceFile(t, copied, path, b)
		})
	}
	for n := range len(good) {
		try("cut", func(copied *memfs.FS) { replaceFile(t, copied, path, good[:n]) })
	}
	try("missing", func(copied *memfs.FS) { check(t, copied.Remove(path)) })
}
