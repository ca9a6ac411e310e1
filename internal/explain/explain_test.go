package explain

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// Every offset of a directory that Kafka left is explained to the batch and the
// segment that hold it, and every record's time to an offset with that time or a later one.
func TestEveryOffsetIsExplainedToItsBatch(t *testing.T) {
	c := golden.Load(t, "05-transactions-4.4.0")
	s := c.Stage(t, "clean")
	disk := memfs.New()
	s.UnpackTo(t, disk, "/data")
	seen := 0
	for i := range s.Partitions {
		part := &s.Partitions[i]
		if part.Suffix != "" {
			continue
		}
		tp := kafka.TopicPartition{Topic: part.Topic, Partition: part.Partition}
		for _, g := range part.Segments {
			for j := range g.Log.Batches {
				b := &g.Log.Batches[j]
				r, err := Explain(Options{FS: disk, Dir: "/data", Partition: tp, Offset: kafka.Offset(b.Last)})
				if err != nil {
					t.Fatalf("%v offset %d: %v", tp, b.Last, err)
				}
				var found *Step
				for k := range r.Steps {
					if r.Steps[k].Kind == FoundStep {
						found = &r.Steps[k]
					}
				}
				if found == nil || found.Position != b.Pos || !strings.HasSuffix(found.File, segment.Name(kafka.Offset(g.Base), segment.LogExt)) {
					t.Errorf("%v offset %d: found %+v, want byte %d of segment %d", tp, b.Last, found, b.Pos, g.Base)
				}
				seen++
				r, err = Explain(Options{FS: disk, Dir: "/data", Partition: tp, Timestamp: kafka.Timestamp(b.MaxTs), ByTime: true})
				if err != nil || r.Offset > kafka.Offset(b.Last) {
					t.Errorf("%v timestamp %d: offset %d, want at most %d: %v", tp, b.MaxTs, r.Offset, b.Last, err)
				}
			}
		}
	}
	if seen < 50 {
		t.Errorf("%d batches, want more", seen)
	}
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	disk := memfs.New()
	golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").UnpackTo(t, disk, "/data")
	tp := kafka.TopicPartition{Topic: "txn"}
	var outside *RangeError
	_, err := Explain(Options{FS: disk, Dir: "/data", Partition: tp, Offset: 100000})
	if !errors.As(err, &outside) || outside.Start != 0 || outside.End != 26 {
		t.Errorf("an offset above the end: %v", err)
	}
	if _, err := Explain(Options{FS: disk, Dir: "/data", Partition: tp, Timestamp: 1 << 60, ByTime: true}); !errors.As(err, &outside) {
		t.Errorf("a time in the future: %v", err)
	}
	if _, err := Explain(Options{FS: disk, Dir: "/data", Partition: kafka.TopicPartition{Topic: "none"}}); !errors.Is(err, ErrNoPartition) {
		t.Errorf("a partition that is not there: %v", err)
	}
	r, err := Explain(Options{FS: disk, Dir: "/data", Partition: tp, Offset: 26})
	if err != nil || !strings.Contains(r.Steps[len(r.Steps)-1].Text, "waits there") {
		t.Errorf("the end: %v %v", r.Steps, err)
	}
}

// The probes are those of Kafka's search: in the warm section at the end first,
// else in what lies before it.
func TestProbesFollowTheWarmSection(t *testing.T) {
	x := &indexFile{path: "i", entry: offsetEntry, base: 1000}
	for i := range 5000 {
		x.data = binary.BigEndian.AppendUint32(x.data, uint32(i*10))
		x.data = binary.BigEndian.AppendUint32(x.data, uint32(i*4096))
	}
	tests := []struct {
		name         string
		target       int64
		slot, probes int
		first        string
	}{
		{"the last entry, in the warm section", 1000 + 49990, 4999, 11, "entry 3975"},
		{"between two entries of it", 1000 + 45005, 4500, 11, "entry 3975"},
		{"before it", 1000 + 105, 10, 14, "entry 3975"},
		{"below the first entry", 999, -1, 2, "entry 3975"},
	}
	for _, tt := range tests {
		w := &walk{}
		slot := w.lookup(x, tt.target)
		if slot != tt.slot || len(w.r.Steps) > tt.probes+1 || !strings.Contains(w.r.Steps[0].Text, tt.first) {
			t.Errorf("%s: slot %d after %d probes, first %q; want %d after at most %d", tt.name, slot, len(w.r.Steps), w.r.Steps[0].Text, tt.slot, tt.probes+1)
		}
	}
}

// A damaged index does not lead a walk astray further than the log goes.
func TestADamagedIndexEndsInAnAnswer(t *testing.T) {
	disk := memfs.New()
	golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").UnpackTo(t, disk, "/data")
	f, err := disk.OpenFile("/data/txn-0/00000000000000000000.index", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0, 0, 0, 1, 0x7f, 0xff, 0xff, 0xff}, 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for offset := range kafka.Offset(26) {
		if r, err := Explain(Options{FS: disk, Dir: "/data", Partition: kafka.TopicPartition{Topic: "txn"}, Offset: offset}); err == nil && len(r.Steps) == 0 {
			t.Errorf("offset %d: no steps", offset)
		}
	}
}
