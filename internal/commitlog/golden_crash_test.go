package commitlog

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// opened is a partition of a damaged golden directory, opened and closed again.
type opened struct {
	got    map[string][]byte
	want   map[string][]byte
	events []Event
}

func openDamaged(t *testing.T, c *golden.Case, disk *memfs.FS, dir string, clean bool, interval int32) opened {
	t.Helper()
	before, after := c.Stage(t, "before"), c.Stage(t, "after")
	var o opened
	p := before.Partition(t, dir)
	opts := Options{
		FS: disk, Dir: "/before/" + dir, Partition: kafka.TopicPartition{Topic: p.Topic, Partition: p.Partition},
		Config: DefaultConfig(), CleanShutdown: clean,
		AfterDelay: func(time.Duration, func()) {}, // the broker stopped before the delay was over
		OnEvent:    func(e Event) { o.events = append(o.events, e) },
		OnFailure:  func(err error) { t.Errorf("log failed: %v", err) },
	}
	opts.Config.IndexInterval = interval
	opts.Config.SegmentMs = 1 << 62
	checkpointed := func(file string) kafka.Offset {
		for _, e := range before.Checkpoints[file] {
			if e.Topic == p.Topic && e.Partition == p.Partition {
				return kafka.Offset(e.Offset)
			}
		}
		return 0
	}
	opts.RecoveryPoint = checkpointed("recovery-point-offset-checkpoint")
	opts.LogStartOffset = checkpointed("log-start-offset-checkpoint")
	opts.HighWatermark = checkpointed("replication-offset-checkpoint")
	newest := int64(0)
	for _, s := range before.Partition(t, "crash-0").Segments {
		for _, b := range s.Log.Batches {
			newest = max(newest, b.MaxTs)
		}
	}
	opts.Now = func() time.Time { return time.UnixMilli(newest + 1000) }
	l, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	epochs := after.Partition(t, dir).LeaderEpochs
	if n := len(epochs); n > 0 {
		if err := l.AssignEpoch(kafka.LeaderEpoch(epochs[n-1][0]), l.EndOffset()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	o.got = listFiles(t, disk, "/before/"+dir)
	o.want = listFiles(t, disk, "/after/"+dir)
	return o
}

func damagedCase(t *testing.T, name string) (*golden.Case, *memfs.FS) {
	t.Helper()
	c := golden.Load(t, name)
	disk := memfs.New()
	c.Stage(t, "before").UnpackTo(t, disk, "/before")
	c.Stage(t, "after").UnpackTo(t, disk, "/after")
	return c, disk
}

// kept are the files in which varve leaves something else than Kafka, by
// partition, and why: each time more of the data stays readable.
type kept map[string]map[string]string

func testDamaged(t *testing.T, name string, clean bool, kept kept) {
	c, disk := damagedCase(t, name)
	equal := 0
	for _, p := range c.Stage(t, "before").Partitions {
		if !strings.HasPrefix(p.Dir, "crash-") {
			continue
		}
		t.Run(p.Dir, func(t *testing.T) {
			o := openDamaged(t, c, disk, p.Dir, clean, 500)
			for file, why := range kept[p.Dir] {
				if bytes.Equal(o.got[file], o.want[file]) && (o.got[file] == nil) == (o.want[file] == nil) {
					t.Errorf("%s is as Kafka leaves it, want a difference: %s", file, why)
				}
				delete(o.got, file)
				delete(o.want, file)
			}
			equal += diffFiles(t, p.Dir, o.want, o.got)
			if t.Failed() {
				t.Logf("events: %+v", o.events)
			}
		})
	}
	if equal < 250 {
		t.Errorf("%d files compared equal, want at least 250", equal)
	}
}

const (
	setAside  = "whole batches behind the damage are set aside, not deleted"
	rebuilt   = "a missing or damaged time index is rebuilt: retention and lookups by time go by it"
	tornTail  = "the clean marker is not believed when the end of the log is torn: Kafka appends behind it, where nobody reads"
	producers = "producer state without a snapshot is replayed, not forgotten"
	stale     = "indexes of an emptied log are emptied"
	beforeLog = "segments below a log start that no record reaches are set aside, not deleted: the checkpoint may be wrong"
)

// setAsideOf are the files of segments that are set aside where Kafka deletes them;
// those of withTxns have a transaction index.
func setAsideOf(bases []kafka.Offset, withTxns ...kafka.Offset) map[string]string {
	files := map[string]string{}
	for _, base := range bases {
		for _, ext := range []string{".log.cut", ".log.deleted", ".index.deleted", ".timeindex.deleted"} {
			files[segment.Name(base, ext)] = beforeLog
		}
	}
	for _, base := range withTxns {
		files[segment.Name(base, ".txnindex.deleted")] = beforeLog
	}
	return files
}

func TestGoldenKilled(t *testing.T) {
	testDamaged(t, "09-crash-killed-4.4.0", false, kept{
		"crash-7": {
			"00000000000000000013.log.cut": setAside, "00000000000000000030.log.cut": setAside,
			"00000000000000000030.log.deleted": setAside, "00000000000000000030.index.deleted": setAside,
			"00000000000000000030.timeindex.deleted": setAside, "00000000000000000030.txnindex.deleted": setAside,
		},
		"crash-10": {"00000000000000000013.timeindex": rebuilt},
		"crash-22": setAsideOf([]kafka.Offset{0, 14, 30}, 0, 30),
	})
}

func TestGoldenKilledBefore40(t *testing.T) {
	testDamaged(t, "09-crash-killed-3.9.2", false, kept{
		"crash-7": {
			"00000000000000000014.log.cut": setAside, "00000000000000000030.log.cut": setAside,
			"00000000000000000030.log.deleted": setAside, "00000000000000000030.index.deleted": setAside,
			"00000000000000000030.timeindex.deleted": setAside, "00000000000000000030.txnindex.deleted": setAside,
		},
		"crash-10": {"00000000000000000014.timeindex": rebuilt},
		"crash-22": setAsideOf([]kafka.Offset{0, 14, 30}, 0, 30),
		"crash-11": {"00000000000000000014.index": "3.9.2 trims the indexes of sealed segments at a clean stop, 4.4.0 does not"},
	})
}

func TestGoldenTrusted(t *testing.T) {
	testDamaged(t, "09-crash-trusted-4.4.0", true, kept{
		"crash-1": {"00000000000000000026.log": tornTail},
		"crash-2": {"00000000000000000026.log": tornTail, "00000000000000000026.log.cut": tornTail},
		"crash-3": {"00000000000000000026.log": tornTail},
		"crash-4": {
			"00000000000000000026.log": tornTail, "00000000000000000026.log.cut": tornTail, "leader-epoch-checkpoint": tornTail,
			"00000000000000000037.snapshot": tornTail, "00000000000000000038.snapshot": tornTail,
		},
		"crash-10": {"00000000000000000013.timeindex": rebuilt},
		"crash-17": {
			"00000000000000000013.snapshot": producers, "00000000000000000026.snapshot": producers, "00000000000000000038.snapshot": producers,
		},
		"crash-18": {
			"00000000000000000026.index": stale, "00000000000000000026.timeindex": stale, "00000000000000000026.txnindex": stale,
		},
		"crash-22": setAsideOf([]kafka.Offset{0, 13, 26}, 0, 26),
		"crash-26": {"00000000000000000026.timeindex": rebuilt},
	})
}
