package logdir

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/cleaner"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// compactedTopic makes a partition of a compacted topic with n segments of two
// records each, of which the last is superseded by the first of the next, and an
// empty active one.
func compactedTopic(t *testing.T, m *Manager, topic string, n int) *commitlog.Log {
	t.Helper()
	c := testConfig(topic)
	c.CleanupCompact, c.CleanupDelete = true, false
	l, err := m.Create(NewPartition{Partition: tpOf(topic, 0), TopicID: topicID(topic), Config: c})
	must(t, err)
	fillCompacted(t, l, n)
	return l
}

func fillCompacted(t *testing.T, l *commitlog.Log, n int) {
	t.Helper()
	var b record.Builder
	for range n {
		b.Reset(record.NewBuildOptions())
		for _, key := range []string{"a", "b"} {
			b.Append(kafka.TimestampOf(start), []byte(key), []byte(strings.Repeat("v", 100)), nil)
		}
		batch, err := b.Finish()
		must(t, err)
		_, err = l.AppendAsLeader(batch, 0, commitlog.AppendOptions{})
		l.MaybeIncrementHighWatermark(l.EndOffset())
		must(t, err, l.Roll())
	}
}

func cleanerCheckpoint(t *testing.T, disk *memfs.FS) string {
	t.Helper()
	return readFile(t, disk, filepath.Join("/d", checkpoint.CleanerFile))
}

func leftoversOf(t *testing.T, disk *memfs.FS, dir string) (list []string) {
	t.Helper()
	for _, name := range names(t, disk, dir) {
		if strings.HasSuffix(name, ".cleaned") || strings.HasSuffix(name, ".swap") {
			list = append(list, name)
		}
	}
	return list
}

func TestCompactionKeepsItsCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memfs.New()
		format(t, disk, "/d")
		o := options(disk, "/d")
		o.Cleaner = &cleaner.Config{Backoff: time.Second}
		m := load(t, o, nil)
		synctest.Wait() // the cleaner has looked and waits: no round meets a topic half filled
		if got := cleanerCheckpoint(t, disk); got != "" {
			t.Errorf("checkpoint before any round %q, want an empty file", got)
		}
		compactedTopic(t, m, "one", 3)
		compactedTopic(t, m, "two", 2)
		create(t, m, "plain", 0)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got, want := cleanerCheckpoint(t, disk), "0\n2\none 0 6\ntwo 0 4\n"; got != want {
			t.Errorf("checkpoint %q, want %q", got, want)
		}
		must(t, m.Close(1))

		again := load(t, o, nil)
		synctest.Wait()
		for topic, want := range map[string]kafka.Offset{"one": 6, "two": 4} {
			if got, ok := again.logs[tpOf(topic, 0)].firstDirty(); !ok || got != want {
				t.Errorf("%s is clean up to %d, %v after a restart, want %d", topic, got, ok, want)
			}
		}
		must(t, again.Delete(tpOf("one", 0)))
		if got, want := cleanerCheckpoint(t, disk), "0\n1\ntwo 0 4\n"; got != want {
			t.Errorf("checkpoint after a deletion %q, want %q", got, want)
		}
		l := compactedTopic(t, again, "one", 1)
		if _, ok := again.logs[tpOf("one", 0)].firstDirty(); ok {
			t.Error("a topic of the same name begins clean")
		}
		// Cut below what is clean.
		time.Sleep(2 * time.Second)
		synctest.Wait()
		_, err := l.TruncateTo(1)
		must(t, err)
		if got, want := cleanerCheckpoint(t, disk), "0\n2\none 0 1\ntwo 0 4\n"; got != want {
			t.Errorf("checkpoint after a truncation %q, want %q", got, want)
		}
		// What a round found before the cut is not written over it.
		must(t, again.setCleaned(l, l.Generation()-1, 2), again.setCleaned(l, l.Generation(), 1))
		if got, want := cleanerCheckpoint(t, disk), "0\n2\none 0 1\ntwo 0 4\n"; got != want {
			t.Errorf("checkpoint after a late round %q, want %q", got, want)
		}
		must(t, again.Close(1))
	})
}

func TestADamagedCleanerCheckpointMakesAllLogsDirty(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/d")
	m := load(t, options(disk, "/d"), nil)
	compactedTopic(t, m, "one", 3)
	must(t, m.Close(1))
	for _, content := range []string{"0\n1\none 0 x\n", "0\n1\none 0 600\n", "\x00\x00\x00"} {
		writeFile(t, disk, filepath.Join("/d", checkpoint.CleanerFile), content)
		m := load(t, options(disk, "/d"), nil)
		if first, ok := m.logs[tpOf("one", 0)].firstDirty(); ok {
			t.Errorf("checkpoint %q: clean up to %d, want not known", content, first)
		}
		must(t, m.Close(1))
	}
}

func TestARoundUnderWayIsEndedBeforeItsDirectoryGoes(t *testing.T) {
	for _, what := range []string{"delete", "close"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := memfs.New()
				format(t, disk, "/d")
				o := options(disk, "/d")
				o.Cleaner = &cleaner.Config{Backoff: time.Second, BytesPerSecond: 10} // hours for a round
				m := load(t, o, nil)
				compactedTopic(t, m, "one", 40)
				for len(leftoversOf(t, disk, "/d/one-0")) == 0 {
					time.Sleep(time.Minute)
				}
				before := time.Now()
				if what == "delete" {
					must(t, m.Delete(tpOf("one", 0)))
				} else {
					must(t, m.Close(1))
				}
				if took := time.Since(before); took > 0 {
					t.Errorf("it took %v, want no wait for the round", took)
				}
				for _, name := range names(t, disk, "/d") {
					if strings.HasPrefix(name, "one-0") {
						if left := leftoversOf(t, disk, filepath.Join("/d", name)); len(left) > 0 {
							t.Errorf("left behind in %s: %v", name, left)
						}
					}
				}
				if what == "delete" {
					time.Sleep(2 * time.Minute)
					synctest.Wait()
					if got := fmt.Sprint(names(t, disk, "/d")); strings.Contains(got, "one-0") {
						t.Errorf("%s, want the directory of the partition gone", got)
					}
					must(t, m.Close(1))
				}
			})
		})
	}
}

func TestSettingsOfTheCleanerChangeAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memfs.New()
		format(t, disk, "/d")
		o := options(disk, "/d")
		o.Cleaner = &cleaner.Config{Backoff: time.Second, BytesPerSecond: 1}
		rounds := 0
		o.OnCompacted = func(*commitlog.Log, cleaner.Stats) { rounds++ }
		m := load(t, o, nil)
		compactedTopic(t, m, "one", 40)
		time.Sleep(time.Minute)
		synctest.Wait()
		m.ConfigureCleaner(cleaner.Config{Threads: 2, Backoff: time.Second})
		time.Sleep(time.Minute)
		synctest.Wait()
		if rounds != 1 {
			t.Errorf("%d rounds, want 1", rounds)
		}
		must(t, m.Close(1))
	})
}

// TestCheckpointOfKafka reads how far Apache Kafka 4.4.0 had compacted.
func TestCheckpointOfKafka(t *testing.T) {
	c := golden.Load(t, "06-compaction-4.4.0")
	for stage, want := range map[string]map[string]kafka.Offset{
		"dirty": {}, "cleaned": {"comp": 34, "comptx": 27}, "cleaned-again": {"comp": 77, "comptx": 44},
	} {
		m, disk, _ := openStage(t, c.Stage(t, stage))
		for _, topic := range []string{"comp", "comptx"} {
			first, ok := m.logs[tpOf(topic, 0)].firstDirty()
			if w, known := want[topic]; ok != known || first != w {
				t.Errorf("%s, %s: clean up to %d, %v, want %d, %v", stage, topic, first, ok, w, known)
			}
		}
		before := readFile(t, disk, filepath.Join("/data", checkpoint.CleanerFile))
		must(t, m.Close(1))
		if after := readFile(t, disk, filepath.Join("/data", checkpoint.CleanerFile)); len(after) != len(before) {
			t.Errorf("%s: checkpoint %q after a stop, was %q", stage, after, before)
		}
	}
}
