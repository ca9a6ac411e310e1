package logdir

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// The directories were written by Apache Kafka 4.4.0.

// imageOfStage is the metadata that fits the live partitions of a stage.
func imageOfStage(t testing.TB, s *golden.Stage) *metadata.Image {
	t.Helper()
	d := metadata.NewDelta(metadata.NewImage())
	made := map[string]bool{}
	for _, p := range s.Partitions {
		if p.Suffix != "" || p.Topic == kafka.ClusterMetadataTopic {
			continue
		}
		id, err := kafka.ParseUUID(p.TopicID)
		must(t, err)
		if !made[p.Topic] {
			must(t, d.Apply(&metadata.TopicRecord{Name: p.Topic, TopicID: id}))
			made[p.Topic] = true
		}
		must(t, d.Apply(&metadata.PartitionRecord{
			TopicID: id, PartitionID: p.Partition, Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1,
		}))
	}
	return d.Finish(1, 1, 0)
}

// openStage copies a stage to a memory disk and loads it.
func openStage(t *testing.T, s *golden.Stage) (*Manager, *memfs.FS, *logLines) {
	t.Helper()
	disk := memfs.New()
	s.UnpackTo(t, disk, "/data")
	syncAll(t, disk, "/data")
	var lines logLines
	o := logTo(options(disk, "/data"), &lines)
	o.FileDeleteDelay = 0
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	config := func(string) commitlog.Config {
		c := commitlog.DefaultConfig()
		c.FileDeleteDelay = 0
		return c
	}
	if err := m.Load(LoadOptions{Image: imageOfStage(t, s), Config: config}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.abandon)
	return m, disk, &lines
}

// syncAll makes a tree durable.
func syncAll(t testing.TB, disk vfs.FS, dir string) {
	t.Helper()
	list, err := disk.ReadDir(dir)
	must(t, err)
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			syncAll(t, disk, path)
			continue
		}
		f, err := disk.OpenFile(path, 2, 0)
		must(t, err, f.Sync(), f.Close())
	}
	must(t, disk.SyncDir(dir), disk.SyncDir(filepath.Dir(dir)))
}

// endOf is the end offset that a description of a partition implies.
func endOf(p *golden.Partition) kafka.Offset {
	end := kafka.Offset(0)
	for _, s := range p.Segments {
		if s.Suffix != "" || s.Log == nil {
			continue
		}
		end = max(end, kafka.Offset(s.Base))
		if n := len(s.Log.Batches); n > 0 {
			end = max(end, kafka.Offset(s.Log.Batches[n-1].Last)+1)
		}
	}
	return end
}

// firstSegment is the base offset of the oldest live segment.
func firstSegment(p *golden.Partition) int64 {
	for _, s := range p.Segments {
		if s.Suffix == "" && s.Log != nil {
			return s.Base
		}
	}
	return 0
}

func TestLoadCleanDirectoriesOfKafka(t *testing.T) {
	for _, name := range []string{"02-segments-4.4.0", "02-segments-3.9.2", "05-transactions-4.4.0", "07-groups-4.4.0", "08-deletion-4.4.0"} {
		t.Run(name, func(t *testing.T) {
			stage := golden.Load(t, name).Stage(t, "clean")
			m, disk, _ := openStage(t, stage)
			if exists(disk, "/data/"+checkpoint.CleanShutdownFile) {
				t.Error("the clean-shutdown marker is still there")
			}
			if epoch, clean := m.CleanBrokerEpoch(); !clean || epoch != stage.CleanShutdown.BrokerEpoch {
				t.Errorf("CleanBrokerEpoch = %d, %v, want %d", epoch, clean, stage.CleanShutdown.BrokerEpoch)
			}
			starts := map[kafka.TopicPartition]kafka.Offset{}
			for _, e := range stage.Checkpoints[checkpoint.LogStartFile] {
				starts[tpOf(e.Topic, e.Partition)] = kafka.Offset(e.Offset)
			}
			for i := range stage.Partitions {
				p := &stage.Partitions[i]
				if p.Suffix != "" || p.Topic == kafka.ClusterMetadataTopic {
					continue
				}
				tp := tpOf(p.Topic, p.Partition)
				log := m.Log(tp)
				if log == nil {
					t.Errorf("%s is not open: %v", tp, m.Failure(tp))
					continue
				}
				wantStart := max(starts[tp], kafka.Offset(firstSegment(p)))
				if log.EndOffset() != endOf(p) || log.StartOffset() != wantStart || log.RecoveryPoint() != endOf(p) {
					t.Errorf("%s: start %d, end %d, recovery point %d, want %d, %d, %d", tp,
						log.StartOffset(), log.EndOffset(), log.RecoveryPoint(), wantStart, endOf(p), endOf(p))
				}
			}
		})
	}
}

// What was opened and closed again without an append is the same files, but
// for the marker's epoch and the order of lines in the checkpoints.
func TestOpenAndCloseLeavesKafkasFiles(t *testing.T) {
	for _, name := range []string{"02-segments-4.4.0", "05-transactions-4.4.0", "06-compaction-4.4.0"} {
		t.Run(name, func(t *testing.T) {
			stage := golden.Load(t, name).Stage(t, map[bool]string{true: "cleaned", false: "clean"}[name == "06-compaction-4.4.0"])
			m, disk, _ := openStage(t, stage)
			before := memfs.New()
			stage.UnpackTo(t, before, "/data")
			for i := range stage.Partitions {
				p := &stage.Partitions[i]
				log := m.Log(tpOf(p.Topic, p.Partition))
				if log == nil {
					continue
				}
				log.MaybeIncrementHighWatermark(log.EndOffset())
				if n := len(p.LeaderEpochs); n > 0 {
					// An epoch without a record goes at load and comes back with the next leader.
					last := p.LeaderEpochs[n-1]
					must(t, log.AssignEpoch(kafka.LeaderEpoch(last[0]), kafka.Offset(last[1])))
				}
			}
			must(t, m.Close(stage.CleanShutdown.BrokerEpoch))
			for _, f := range stage.Files {
				path := "/data/" + f.Path
				if strings.HasPrefix(f.Path, "__cluster_metadata") {
					continue
				}
				if strings.HasSuffix(f.Path, ".deleted") {
					continue // unlinked at load
				}
				if !exists(disk, path) {
					t.Errorf("%s is gone", f.Path)
					continue
				}
				want, got := readFile(t, before, path), readFile(t, disk, path)
				if strings.HasSuffix(f.Path, "-offset-checkpoint") {
					want, got = sortLines(want), sortLines(got)
				}
				if want != got {
					t.Errorf("%s differs: %d bytes, want %d\n%s", f.Path, len(got), len(want), cmp.Diff(clip(want), clip(got)))
				}
			}
		})
	}
}

func sortLines(s string) string {
	lines := strings.Split(s, "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func clip(s string) string { return s[:min(len(s), 300)] }

// Twenty-eight damages of a killed directory: the outcome is Kafka's.
func TestLoadKilledDirectoriesOfKafka(t *testing.T) {
	for _, name := range []string{"09-crash-killed-4.4.0", "09-crash-killed-3.9.2", "09-crash-trusted-4.4.0", "02-segments-4.4.0", "05-transactions-4.4.0"} {
		t.Run(name, func(t *testing.T) {
			c := golden.Load(t, name)
			beforeName, afterName := "before", "after"
			if !strings.HasPrefix(name, "09") {
				beforeName, afterName = "killed", "recovered"
			}
			after := c.Stage(t, afterName)
			m, _, lines := openStage(t, c.Stage(t, beforeName))
			for i := range after.Partitions {
				p := &after.Partitions[i]
				if p.Suffix != "" || p.Topic == kafka.ClusterMetadataTopic {
					continue
				}
				tp := tpOf(p.Topic, p.Partition)
				if name == "09-crash-trusted-4.4.0" && p.Partition == 4 {
					continue // a bad last batch under a clean marker: Kafka keeps it, varve cuts it
				}
				log := m.Log(tp)
				if log == nil {
					t.Errorf("%s is not open: %v", tp, m.Failure(tp))
					continue
				}
				if got := log.EndOffset(); got != endOf(p) {
					t.Errorf("%s: end offset %d, want %d", tp, got, endOf(p))
				}
				var wantBases, gotBases []kafka.Offset
				for _, s := range p.Segments {
					if s.Suffix == "" && s.Log != nil {
						wantBases = append(wantBases, kafka.Offset(s.Base))
					}
				}
				for _, s := range log.Segments() {
					gotBases = append(gotBases, s.BaseOffset())
				}
				if diff := cmp.Diff(wantBases, gotBases); diff != "" {
					t.Errorf("%s: segments (-Kafka +varve):\n%s", tp, diff)
				}
			}
			if t.Failed() {
				t.Log(lines.buf.String())
			}
		})
	}
}

// The wait of the delayed unlinks is virtual.
func TestLoadRemovesDeletedDirectoriesOfKafka(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, disk, _ := openStage(t, golden.Load(t, "08-deletion-4.4.0").Stage(t, "clean"))
		time.Sleep(time.Second)
		synctest.Wait()
		for _, name := range names(t, disk, "/data") {
			if strings.HasSuffix(name, "-delete") {
				t.Errorf("%s is still there", name)
			}
		}
	})
}
