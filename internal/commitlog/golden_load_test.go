package commitlog

import (
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// loadable lists the partitions of a stage that a broker loads as logs.
func loadable(stage *golden.Stage) []*golden.Partition {
	var out []*golden.Partition
	for i := range stage.Partitions {
		if p := &stage.Partitions[i]; p.Suffix == "" {
			out = append(out, p)
		}
	}
	return out
}

// TestGoldenContents opens every golden directory, clean or killed, of every
// release, and wants to read exactly the batches that are in it.
func TestGoldenContents(t *testing.T) {
	partitions, batches := 0, 0
	for _, name := range golden.Names(t) {
		if strings.HasPrefix(name, "09-") {
			continue // damaged: see TestGoldenKilled and its neighbours
		}
		c := golden.Load(t, name)
		for i := range c.Stages {
			stage := &c.Stages[i]
			t.Run(name+"/"+stage.Name, func(t *testing.T) {
				disk := memfs.New()
				stage.UnpackTo(t, disk, "/d")
				for _, p := range loadable(stage) {
					partitions++
					batches += checkContents(t, disk, stage, p)
				}
			})
		}
	}
	if partitions < 450 || batches < 7800 {
		t.Errorf("%d partitions with %d batches read, the golden data has more", partitions, batches)
	}
}

func checkContents(t *testing.T, disk *memfs.FS, stage *golden.Stage, p *golden.Partition) int {
	t.Helper()
	l := openStage(t, disk, "/d", stage, p)
	defer func() {
		if err := l.Abandon(); err != nil {
			t.Errorf("%s: %v", p.Dir, err)
		}
	}()
	var want []golden.Batch
	for _, s := range p.Segments {
		if s.Suffix == "" && s.Log != nil {
			for _, b := range s.Log.Batches {
				if b.Last >= int64(l.StartOffset()) {
					want = append(want, b)
				}
			}
		}
	}
	end := int64(l.StartOffset())
	if n := len(want); n > 0 {
		end = want[n-1].Last + 1
	}
	if got := int64(l.EndOffset()); got != end {
		t.Errorf("%s: end offset %d, want %d", p.Dir, got, end)
	}
	got := readAll(t, l, 700)
	if len(got) != len(want) {
		t.Errorf("%s: %d batches read, want %d", p.Dir, len(got), len(want))
		return 0
	}
	for i, b := range got {
		h, err := record.ParseHeader(b)
		if err != nil {
			t.Fatal(err)
		}
		w := &want[i]
		if int64(h.LastOffset) != w.Last || h.Size != w.Size || h.CRC != w.CRC || h.Magic != w.Magic {
			t.Errorf("%s: batch %d is %+v, want %+v", p.Dir, i, h, w)
		}
		if err := record.Check(b); (err == nil) != w.Valid {
			t.Errorf("%s: batch %d: %v, want valid = %v", p.Dir, i, err, w.Valid)
		}
	}
	return len(got)
}

// readAll reads the log from its start to its end, maxBytes at a time.
func readAll(t testing.TB, l *Log, maxBytes int64) [][]byte {
	t.Helper()
	var out [][]byte
	for next := l.StartOffset(); next < l.EndOffset(); {
		info, err := l.Read(next, ReadOptions{MaxBytes: maxBytes, Bound: LogEnd, MinOneBatch: true})
		if err != nil {
			t.Fatalf("%s: read %d: %v", l.Partition(), next, err)
		}
		if info.Region.Length == 0 {
			break // offsets at the end that compaction or truncation left without a batch
		}
		buf := make([]byte, info.Region.Length)
		if _, err := info.Region.File.ReadAt(buf, info.Region.Offset); err != nil {
			t.Fatalf("%s: read %d: %v", l.Partition(), next, err)
		}
		info.Region.Release()
		n := 0
		for len(buf) > 0 {
			size, ok, err := record.NextBatch(buf)
			if err != nil {
				t.Fatalf("%s: read %d: %v", l.Partition(), next, err)
			}
			if !ok {
				break
			}
			h, err := record.ParseHeader(buf)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, buf[:size:size])
			next = h.LastOffset + 1
			buf = buf[size:]
			n++
		}
		if n == 0 {
			t.Fatalf("%s: read %d: no whole batch in %d bytes", l.Partition(), next, info.Region.Length)
		}
	}
	return out
}

// TestGoldenReopened opens directories that Kafka closed cleanly and closes
// them again: nothing may change but for epochs without records, which go.
func TestGoldenReopened(t *testing.T) {
	equal := 0
	for _, name := range []string{"02-segments-4.4.0", "03-codecs-4.4.0", "04-records-4.4.0", "05-transactions-4.4.0", "06-compaction-4.4.0", "07-groups-4.4.0", "08-deletion-4.4.0"} {
		c := golden.Load(t, name)
		for i := range c.Stages {
			stage := &c.Stages[i]
			if stage.CleanShutdown == nil {
				continue
			}
			t.Run(name+"/"+stage.Name, func(t *testing.T) {
				disk := memfs.New()
				stage.UnpackTo(t, disk, "/d")
				for _, p := range loadable(stage) {
					if p.Topic == kafka.ClusterMetadataTopic {
						continue // it is not closed as others are
					}
					want := listFiles(t, disk, "/d/"+p.Dir)
					l := openStage(t, disk, "/d", stage, p)
					if err := l.Close(); err != nil {
						t.Fatal(err)
					}
					got := listFiles(t, disk, "/d/"+p.Dir)
					for name := range want {
						if name == "leader-epoch-checkpoint" || strings.HasSuffix(name, ".deleted") || len(p.Segments) > 0 && l.StartOffset() > 0 && strings.HasSuffix(name, ".snapshot") {
							delete(want, name) // snapshots at and below the log start go, as in Kafka
							delete(got, name)
						}
					}
					for name := range got {
						if l.StartOffset() > 0 && strings.HasSuffix(name, ".snapshot") {
							delete(got, name)
						}
					}
					equal += diffFiles(t, p.Dir, want, got)
				}
			})
		}
	}
	if equal < 1000 {
		t.Errorf("%d files compared equal, want at least 1000", equal)
	}
}

// TestGoldenRecovered recovers directories whose broker was killed and closes
// them, and wants the files that Kafka left after the same.
func TestGoldenRecovered(t *testing.T) {
	equal := 0
	for _, name := range []string{"02-segments-4.4.0", "05-transactions-4.4.0", "08-deletion-4.4.0"} {
		t.Run(name, func(t *testing.T) {
			c := golden.Load(t, name)
			killed, recovered := c.Stage(t, "killed"), c.Stage(t, "recovered")
			disk := memfs.New()
			killed.UnpackTo(t, disk, "/d")
			recovered.UnpackTo(t, disk, "/want")
			for _, p := range loadable(recovered) {
				if strings.HasPrefix(p.Topic, "__") {
					continue // the started broker wrote to them
				}
				l := openStage(t, disk, "/d", killed, killed.Partition(t, p.Dir))
				last := p.LeaderEpochs[len(p.LeaderEpochs)-1]
				if err := l.AssignEpoch(kafka.LeaderEpoch(last[0]), l.EndOffset()); err != nil {
					t.Fatal(err)
				}
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
				equal += diffFiles(t, p.Dir, listFiles(t, disk, "/want/"+p.Dir), listFiles(t, disk, "/d/"+p.Dir))
			}
		})
	}
	if equal < 100 {
		t.Errorf("%d files compared equal, want at least 100", equal)
	}
}
