package segment

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// The stages that are what a recovery of Apache Kafka 4.4.0 left, and the
// settings of topics that are not the default there.
var recovered = []struct {
	name, stage string
	interval    map[string]int64 // by partition directory
}{
	{"02-segments-4.4.0", "recovered", map[string]int64{"interval0-0": 0, "idxfull-0": 0}},
	{"12-produce-4.4.0", "recovered", map[string]int64{"dense-0": 0, "full-0": 200}},
}

// TestRecoveryBuildsTheIndexesOfKafka recovers each active segment that Kafka
// recovered, from the .log alone, and compares the indexes.
func TestRecoveryBuildsTheIndexesOfKafka(t *testing.T) {
	compared := 0
	for _, c := range recovered {
		stage := golden.Load(t, c.name).Stage(t, c.stage)
		for _, p := range stage.Partitions {
			if strings.HasPrefix(p.Dir, "__") || len(p.Segments) == 0 {
				continue
			}
			// Sealed segments were written, not recovered.
			want := p.Segments[len(p.Segments)-1]
			t.Run(c.name+"/"+p.Dir, func(t *testing.T) {
				fsys := memfs.New()
				stage.UnpackTo(t, fsys, "/data")
				at := filepath.Join("/data", p.Dir)
				for _, ext := range []string{IndexExt, TimeIndexExt} {
					check(t, fsys.Remove(filepath.Join(at, Name(kafka.Offset(want.Base), ext))))
				}
				o := options()
				o.MaxIndexBytes = 10 << 20
				if n, ok := c.interval[p.Dir]; ok {
					o.IndexInterval = n
				}
				s, err := Open(fsys, at, kafka.Offset(want.Base), o)
				check(t, err)
				closed(t, s)
				cut, err := s.Recover(nil)
				if cut != 0 || err != nil {
					t.Fatalf("Recover = %d, %v", cut, err)
				}
				got := readEntries(t, s)
				if len(got.offsets) != len(want.Index.Entries) || len(got.times) != len(want.TimeIndex.Entries) {
					t.Fatalf("%d and %d entries, want %v and %v", len(got.offsets), len(got.times), want.Index.Entries, want.TimeIndex.Entries)
				}
				for i, e := range want.Index.Entries {
					if g := got.offsets[i]; int64(g.Offset) != e[0] || g.Byte != e[1] {
						t.Errorf("offset entry %d is %+v, want %v", i, g, e)
					}
				}
				for i, e := range want.TimeIndex.Entries {
					if g := got.times[i]; int64(g.Timestamp) != e[0] || int64(g.Offset) != e[1] {
						t.Errorf("time entry %d is %+v, want %v", i, g, e)
					}
				}
				compared += len(want.Index.Entries) + len(want.TimeIndex.Entries)
			})
		}
	}
	if compared < 40 {
		t.Errorf("only %d entries were compared", compared)
	}
}

// TestSegmentsOfKafkaAreReadAsKafkaSays opens every segment of every golden
// directory and looks up each of its batches.
func TestSegmentsOfKafkaAreReadAsKafkaSays(t *testing.T) {
	batches := 0
	for _, name := range golden.Names(t) {
		c := golden.Load(t, name)
		for i := range c.Stages {
			stage := &c.Stages[i]
			fsys := memfs.New()
			stage.UnpackTo(t, fsys, "/data")
			for _, p := range stage.Partitions {
				for _, g := range p.Segments {
					if g.Log == nil || g.Log.ScanError != "" {
						continue
					}
					o := options()
					o.ReadOnly, o.Suffix = true, g.Suffix
					s, err := Open(fsys, filepath.Join("/data", p.Dir), kafka.Offset(g.Base), o)
					check(t, err)
					batches += lookUpAll(t, name+"/"+stage.Name+"/"+p.Dir, s, g.Log)
					check(t, s.Close())
				}
			}
		}
	}
	if batches < 5000 {
		t.Errorf("only %d batches were looked up", batches)
	}
}

func lookUpAll(t *testing.T, where string, s *Segment, want *golden.Log) int {
	t.Helper()
	prev := int64(s.BaseOffset()) - 1
	for i, b := range want.Batches {
		for _, offset := range []int64{prev + 1, b.Last} {
			if offset > b.Last {
				continue // an old message whose offset does not rise
			}
			at, ok, err := s.Locate(kafka.Offset(offset))
			if at.Byte != b.Pos || at.Size != int64(b.Size) || !ok || err != nil {
				t.Errorf("%s: Locate(%d) = %+v, %v, %v, want batch %d at %d", where, offset, at, ok, err, i, b.Pos)
				return i
			}
		}
		prev = max(prev, b.Last)
	}
	if _, ok, err := s.Locate(kafka.Offset(prev + 1)); ok || err != nil {
		t.Errorf("%s: Locate(%d) past the end = %v, %v", where, prev+1, ok, err)
	}
	if n := len(want.Batches); n > 0 {
		if next, err := s.ReadNextOffset(); int64(next) != want.Batches[n-1].Last+1 || err != nil {
			t.Errorf("%s: ReadNextOffset() = %d, %v, want %d", where, next, err, want.Batches[n-1].Last+1)
		}
	}
	return len(want.Batches)
}
