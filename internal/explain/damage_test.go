package explain

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

const middle = "/data/txn-1/00000000000000000022"

func golden05(t *testing.T) *memfs.FS {
	t.Helper()
	disk := memfs.New()
	golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").UnpackTo(t, disk, "/data")
	return disk
}

// change rewrites a file.
func change(t *testing.T, disk *memfs.FS, path string, how func(b []byte) []byte) {
	t.Helper()
	data, err := vfs.ReadFile(disk, path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := disk.OpenFile(path, os.O_RDWR|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(how(slices.Clone(data)), 0)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// answer is where a walk ends.
func answer(r *Result) (s Step, doubted bool) {
	for i := range r.Steps {
		if r.Steps[i].Kind == FoundStep {
			s = r.Steps[i]
		}
		doubted = doubted || r.Steps[i].Kind == DoubtStep
	}
	s.Text, s.Bytes = "", 0 // the way there may be longer
	return s, doubted
}

// times are the timestamps of the segment's batches, and those before them.
func times(t *testing.T, disk *memfs.FS) []kafka.Timestamp {
	t.Helper()
	f, err := disk.OpenFile(middle+".log", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	out := []kafka.Timestamp{0}
	for s := record.NewScanner(f, 0, size, record.HeaderSize); s.Next(); {
		out = append(out, s.Header().MaxTimestamp-1, s.Header().MaxTimestamp)
	}
	return out
}

func lookups(t *testing.T, disk *memfs.FS) (all []Step, doubted bool) {
	t.Helper()
	o := Options{FS: disk, Dir: "/data", Partition: kafka.TopicPartition{Topic: "txn", Partition: 1}}
	for o.Offset = 20; o.Offset < 49; o.Offset++ {
		r, err := Explain(o)
		if err != nil {
			t.Fatalf("offset %d: %v", o.Offset, err)
		}
		s, d := answer(&r)
		all, doubted = append(all, s), doubted || d
	}
	o.ByTime = true
	for _, at := range times(t, disk) {
		o.Timestamp = at
		r, err := Explain(o)
		var outside *RangeError
		if err != nil && !errors.As(err, &outside) {
			t.Fatalf("timestamp %d: %v", at, err)
		}
		s, d := answer(&r)
		all, doubted = append(all, s), doubted || d
	}
	return all, doubted
}

// Whatever an index says, the walk ends where it would with a good one; an entry
// that contradicts the .log is shown and not followed.
func TestADamagedIndexIsDoubtedAndTheAnswerIsTheSame(t *testing.T) {
	whole := golden05(t)
	want, doubted := lookups(t, whole)
	if doubted {
		t.Fatal("a good index is doubted")
	}
	for _, name := range []string{middle + ".index", middle + ".timeindex"} {
		data, err := vfs.ReadFile(whole, name)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for bit := range len(data) * 8 {
			disk := whole.Crash(memfs.KeepAll())
			change(t, disk, name, func(b []byte) []byte { b[bit/8] ^= 1 << (bit % 8); return b })
			got, doubted := lookups(t, disk)
			if !slices.Equal(got, want) {
				t.Fatalf("bit %d of %s: other answers", bit, name)
			}
			if doubted {
				seen++
			}
		}
		if seen == 0 {
			t.Errorf("no bit of %s is doubted", name)
		}
		for _, how := range []func(b []byte) []byte{
			func([]byte) []byte { return nil },
			func(b []byte) []byte { return b[:len(b)-3] },
			func(b []byte) []byte { return append(b, b...) },
		} {
			disk := whole.Crash(memfs.KeepAll())
			change(t, disk, name, how)
			if got, _ := lookups(t, disk); !slices.Equal(got, want) {
				t.Errorf("%s of another length: other answers", name)
			}
		}
		disk := whole.Crash(memfs.KeepAll())
		if err := errors.Join(disk.Remove(name), disk.Mkdir(name, 0o755)); err != nil {
			t.Fatal(err)
		}
		if got, doubted := lookups(t, disk); !slices.Equal(got, want) || !doubted {
			t.Errorf("a directory as %s: other answers, or none doubted", name)
		}
	}
}

// Damaged bytes of a .log are shown and passed over; what was asked for in them is
// a *DamageError that names the place, and everything else is found as before.
func TestDamagedBytesAreShown(t *testing.T) {
	whole := golden05(t)
	o := Options{FS: whole, Dir: "/data", Partition: kafka.TopicPartition{Topic: "txn", Partition: 1}, Offset: 33}
	r, err := Explain(o)
	if err != nil {
		t.Fatal(err)
	}
	found, _ := answer(&r)
	first := found.Offset
	for _, tt := range []struct {
		name string
		at   int64 // of the batch
		most int   // offsets that are lost
	}{{"a length: up to the next index entry, as by a broker", 8, 8}, {"a record: those of its batch", 70, 3}} {
		o.FS = whole.Crash(memfs.KeepAll())
		change(t, o.FS.(*memfs.FS), middle+".log", func(b []byte) []byte { b[found.Position+tt.at] ^= 0x10; return b })
		lost := 0
		for o.Offset = 20; o.Offset < 49; o.Offset++ {
			r, err := Explain(o)
			if r.End != 49 {
				t.Errorf("%s: the log ends at %d", tt.name, r.End)
			}
			var damaged *DamageError
			switch {
			case errors.As(err, &damaged):
				lost++
				if damaged.File != middle+".log" || damaged.Position != found.Position || o.Offset < first {
					t.Errorf("%s: offset %d: %v", tt.name, o.Offset, err)
				}
				if !slices.ContainsFunc(r.Steps, func(s Step) bool { return s.Kind == DamageStep && strings.Contains(s.Text, "CORRUPT_MESSAGE") }) {
					t.Errorf("%s: offset %d: no step shows the damage", tt.name, o.Offset)
				}
			case err != nil:
				t.Errorf("%s: offset %d: %v", tt.name, o.Offset, err)
			}
		}
		if lost == 0 || lost > tt.most {
			t.Errorf("%s: %d offsets are lost, want at most %d", tt.name, lost, tt.most)
		}
	}
}
