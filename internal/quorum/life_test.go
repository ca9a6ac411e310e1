package quorum

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// clock is a wall clock that moves only when told.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: testTime} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func open(t testing.TB, disk vfs.FS, change func(*Options)) *Quorum {
	t.Helper()
	meta, err := checkpoint.ReadMeta(disk, "/data/"+checkpoint.MetaFile)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{FS: disk, Dir: "/data", NodeID: 1, DirectoryID: meta.DirectoryID, Now: newClock().Now}
	if change != nil {
		change(&o)
	}
	q, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func level(name string, n int16) metadata.Record {
	return &metadata.FeatureLevelRecord{Name: name, Level: n}
}

func setConfig(key, value string) metadata.Record {
	return &metadata.ConfigRecord{ResourceType: metadata.ResourceBroker, Name: key, Value: &value}
}

func appendOK(t testing.TB, q *Quorum, records ...metadata.Record) kafka.Offset {
	t.Helper()
	base, err := q.Append(records)
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// state is the image as the lines of a snapshot.
func state(i *metadata.Image) string {
	var b strings.Builder
	for r := range i.SnapshotRecords() {
		b.Write(metadata.AppendJSON(nil, r, metadata.RecordVersion(r, i.Feature(metadata.MetadataVersion))))
		b.WriteByte('\n')
	}
	return b.String()
}

func TestEveryStartRaisesTheEpochAndKeepsTheState(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	q := open(t, disk, nil)
	first, needed := q.Bootstrap()
	if !needed || len(first) != 6 {
		t.Fatalf("Bootstrap = %d records, %v, want the 6 levels of the format tool", len(first), needed)
	}
	if q.Epoch() != 1 || q.EndOffset() != 1 {
		t.Fatalf("first start: epoch %d, end %d, want 1, 1", q.Epoch(), q.EndOffset())
	}
	if base := appendOK(t, q, first...); base != 1 {
		t.Errorf("first record at offset %d, want 1", base)
	}
	appendOK(t, q, setConfig("a", "1"), setConfig("b", "2"))
	want := state(q.Image())
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Append([]metadata.Record{&metadata.NoOpRecord{}}); !errors.Is(err, ErrClosed) {
		t.Errorf("Append after Close = %v, want ErrClosed", err)
	}
	q = open(t, disk, nil)
	if _, needed := q.Bootstrap(); needed {
		t.Error("a log with records wants to be bootstrapped")
	}
	if q.Epoch() != 2 || q.EndOffset() != 10 {
		t.Errorf("second start: epoch %d, end %d, want 2, 10", q.Epoch(), q.EndOffset())
	}
	if got := state(q.Image()); got != want {
		t.Errorf("state after restart:\n%s\nwant:\n%s", got, want)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	epochs, err := checkpoint.ReadEpochs(disk, "/data/"+DirName+"/"+checkpoint.EpochFile)
	if err != nil || !slices.Equal(epochs, []checkpoint.Epoch{{Epoch: 1, Start: 0}, {Epoch: 2, Start: 9}}) {
		t.Errorf("epochs %v, %v", epochs, err)
	}
}

// TestCleanStopLeavesKafkasFiles compares names, sizes and contents with those
// that 4.4.0 leaves (metadata.md section 1).
func TestCleanStopLeavesKafkasFiles(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	q := open(t, disk, nil)
	first, _ := q.Bootstrap()
	appendOK(t, q, first...)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	dir := "/data/" + DirName + "/"
	sizes := map[string]int64{}
	for _, name := range fileNames(t, disk, "/data") {
		info, err := disk.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		sizes[name] = info.Size()
	}
	logSize := int64(91 + 253)
	want := map[string]int64{
		"/data/meta.properties":                            122,
		dir + "00000000000000000000-0000000000.checkpoint": 411,
		dir + "00000000000000000000.log":                   logSize,
		dir + "00000000000000000000.index":                 10485760,
		dir + "00000000000000000000.timeindex":             10485756,
		dir + "00000000000000000007.snapshot":              10,
		dir + "leader-epoch-checkpoint":                    8,
		dir + "partition.metadata":                         43,
		dir + "quorum-state":                               125,
	}
	if fmt.Sprint(sizes) != fmt.Sprint(want) {
		t.Errorf("files are\n%v, want\n%v", sizes, want)
	}
	kafkas, _ := unpack(t, "01-fresh-4.4.0", "stopped")
	for _, name := range []string{"leader-epoch-checkpoint", "partition.metadata", "quorum-state", "00000000000000000000.index", "00000000000000000000.timeindex"} {
		got, err := vfs.ReadFile(disk, dir+name)
		if err != nil {
			t.Fatal(err)
		}
		want, err := vfs.ReadFile(kafkas, dir+name)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s differs from Kafka's", name)
		}
	}
	file, err := vfs.ReadFile(disk, dir+"00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	kafkasFile, err := vfs.ReadFile(kafkas, dir+"00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	file, kafkasFile = file[:91], kafkasFile[:91]
	clearTimes(file)
	clearTimes(kafkasFile)
	if string(file) != string(kafkasFile) {
		t.Errorf("LeaderChange batch is %x, want %x", file, kafkasFile)
	}
}

func TestConcurrentOperationsShareBatchesInOrder(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	syncs := 0
	var mu sync.Mutex
	slow := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if op.Kind == faultfs.Sync && strings.HasSuffix(op.Name, ".log") {
			mu.Lock()
			syncs++
			mu.Unlock()
		}
		return faultfs.Fault{}
	})
	q := open(t, slow, nil)
	first, _ := q.Bootstrap()
	appendOK(t, q, first...)
	var seen []kafka.Offset
	q.Subscribe(func(old, next *metadata.Image, _ *metadata.Delta) {
		if len(seen) > 0 && old.End != seen[len(seen)-1] {
			t.Errorf("subscriber was given %d after %d", old.End, seen[len(seen)-1])
		}
		seen = append(seen, next.End)
	})
	const callers = 50
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			var want int
			_, err := q.Update(func(image *metadata.Image) ([]metadata.Record, error) {
				value, _ := image.ConfigValue(metadata.ConfigResource{Type: metadata.ResourceBroker}, "count")
				fmt.Sscan(value, &want)
				want++
				return []metadata.Record{setConfig("count", fmt.Sprint(want))}, nil
			})
			if err != nil {
				t.Error(err)
			}
			var got int
			value, _ := q.Image().ConfigValue(metadata.ConfigResource{Type: metadata.ResourceBroker}, "count")
			fmt.Sscan(value, &got)
			if got < want {
				t.Errorf("count %d is committed, want at least %d", got, want)
			}
		})
	}
	wg.Wait()
	value, _ := q.Image().ConfigValue(metadata.ConfigResource{Type: metadata.ResourceBroker}, "count")
	if value != fmt.Sprint(callers) || len(seen) != callers {
		t.Errorf("count %s after %d changes seen, want %d", value, len(seen), callers)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if q = open(t, disk, nil); !strings.Contains(state(q.Image()), `"value":"50"`) {
		t.Errorf("after restart:\n%s", state(q.Image()))
	}
	mu.Lock()
	t.Logf("%d syncs for %d operations", syncs, callers)
	mu.Unlock()
}

// Operations that share a batch are published one by one; a snapshot between two
// of them would end inside the batch, and the next start would apply the first
// ones twice.
func TestASnapshotEndsWithABatch(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	q := open(t, disk, nil)
	first, _ := q.Bootstrap()
	appendOK(t, q, first...)
	var running sync.WaitGroup
	newTopic := func(n byte) {
		running.Go(func() {
			id := kafka.TopicID{15: n}
			appendOK(t, q, &metadata.TopicRecord{Name: fmt.Sprintf("topic%d", n), TopicID: id},
				&metadata.PartitionRecord{TopicID: id, Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1})
		})
	}
	var written atomic.Bool
	calls := 0
	q.Subscribe(func(*metadata.Image, *metadata.Image, *metadata.Delta) {
		switch calls++; calls {
		case 1: // the next two wait for this one, and so share a batch
			newTopic(1)
			newTopic(2)
			for queued := 0; queued < 2; runtime.Gosched() {
				q.mu.Lock()
				queued = len(q.queue)
				q.mu.Unlock()
			}
		case 2:
			running.Go(func() {
				if err := q.WriteSnapshot(); err != nil {
					t.Error(err)
				}
				written.Store(true)
			})
			for n := 0; n < 10_000 && !written.Load(); n++ { // the chance to be wrong
				runtime.Gosched()
			}
		}
	})
	appendOK(t, q, setConfig("a", "1"))
	running.Wait()
	want := state(q.Image())
	if err := q.Close(); err != nil || calls != 3 {
		t.Fatalf("Close: %v after %d operations, want 3", err, calls)
	}
	q = open(t, disk, nil)
	if got := state(q.Image()); got != want {
		t.Errorf("after restart:\n%s\nwant:\n%s", got, want)
	}
}

func TestRecordsFollowMetadataVersion(t *testing.T) {
	disk := memfs.New()
	err := Format(FormatOptions{FS: disk, Dirs: []string{"/data"}, NodeID: 1, ClusterID: "c", Now: testTime,
		Features: []metadata.FeatureLevelRecord{{Name: metadata.MetadataVersion, Level: metadata.V3_9_IV0}}})
	if err != nil {
		t.Fatal(err)
	}
	q := open(t, disk, nil)
	first, _ := q.Bootstrap()
	appendOK(t, q, first...)
	topic := kafka.UUID{1, 15: 200}
	p := &metadata.Partition{Replicas: []kafka.BrokerID{1}, ISR: []kafka.BrokerID{1}, Leader: 1, Directories: []kafka.UUID{{9, 15: 200}}, ELR: []kafka.BrokerID{1}}
	appendOK(t, q, &metadata.TopicRecord{Name: "t", TopicID: topic}, p.Record(topic, 0))
	got := q.Image().Partition(kafka.TopicPartition{Topic: "t"})
	if got.ELR != nil || len(got.Directories) != 1 {
		t.Errorf("partition %+v: version 1 of the record has directories and no eligible leaders", got)
	}
	want := state(q.Image())
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if q = open(t, disk, nil); state(q.Image()) != want {
		t.Errorf("after restart:\n%s\nwant:\n%s", state(q.Image()), want)
	}
}

func TestSnapshotsAreWrittenByBytesAndAgeAndReplaceTheLog(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	time0 := newClock()
	options := func(o *Options) {
		o.Now, o.SnapshotBytes, o.SnapshotInterval, o.SegmentBytes, o.RetentionBytes = time0.Now, 3000, time.Hour, MaxBatchBytes, 1
	}
	q := open(t, disk, options)
	first, _ := q.Bootstrap()
	appendOK(t, q, first...)
	if next, err := q.Maintain(); err != nil || !next.Equal(testTime.Add(time.Hour)) {
		t.Errorf("Maintain = %v, %v, want to come again in an hour", next, err)
	}
	for i := range 100 {
		appendOK(t, q, setConfig(fmt.Sprint("key", i%7), fmt.Sprint(i)))
	}
	if _, err := q.Maintain(); err != nil { // by bytes
		t.Fatal(err)
	}
	byBytes := q.EndOffset()
	appendOK(t, q, setConfig("later", "1"))
	time0.advance(time.Hour)
	if _, err := q.Maintain(); err != nil { // by age
		t.Fatal(err)
	}
	appendOK(t, q, setConfig("last", "1"))
	want := state(q.Image())
	files, err := listFiles(disk, q.Dir())
	if err != nil {
		t.Fatal(err)
	}
	// Retention of one byte leaves the newest snapshot alone.
	if len(files.snapshots) != 1 || files.snapshots[0].end != byBytes+1 {
		t.Errorf("snapshots %v, want the one of offset %d", files.snapshots, byBytes+1)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = open(t, disk, options)
	if got := state(q.Image()); got != want {
		t.Errorf("state from snapshot and log:\n%s\nwant:\n%s", got, want)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	// The snapshot alone, through its own reader, gives what it was taken from.
	l := &loaded{image: metadata.NewImage(), snapshot: files.snapshots[0]}
	if err := l.readSnapshot(disk, "/data/"+DirName+"/"+files.snapshots[0].name()); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(state(l.image), `"last"`) || !strings.Contains(state(l.image), `"later"`) {
		t.Errorf("snapshot holds\n%s", state(l.image))
	}
}

func TestALogThatEndsWithItsSnapshotIsNotBootstrappedAgain(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	q := open(t, disk, nil)
	appendOK(t, q, level(metadata.MetadataVersion, metadata.V3_9_IV0))
	if err := q.WriteSnapshot(); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		q = open(t, disk, nil)
		if _, needed := q.Bootstrap(); needed {
			t.Error("a log below its snapshot wants to be bootstrapped")
		}
		if got := q.Image().Feature(metadata.MetadataVersion); got != metadata.V3_9_IV0 {
			t.Errorf("metadata.version %d, want it as it was", got)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoOpRecordsAreWrittenOnlyWhenIdle(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	time0 := newClock()
	q := open(t, disk, func(o *Options) { o.Now, o.IdleInterval = time0.Now, 500*time.Millisecond })
	end := q.EndOffset()
	next, err := q.Maintain()
	if err != nil || q.EndOffset() != end || !next.Equal(testTime.Add(500*time.Millisecond)) {
		t.Errorf("Maintain at once = %v, %v, end %d", next, err, q.EndOffset())
	}
	time0.advance(500 * time.Millisecond)
	if _, err := q.Maintain(); err != nil || q.EndOffset() != end+1 {
		t.Errorf("Maintain when idle: end %d, %v, want one NoOp", q.EndOffset(), err)
	}
	time0.advance(300 * time.Millisecond)
	appendOK(t, q, setConfig("a", "1"))
	time0.advance(300 * time.Millisecond)
	if _, err := q.Maintain(); err != nil || q.EndOffset() != end+2 {
		t.Errorf("Maintain soon after a write: end %d, %v, want none", q.EndOffset(), err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = open(t, disk, nil)
	if next, err := q.Maintain(); err != nil || !next.IsZero() {
		t.Errorf("Maintain without intervals = %v, %v, want never", next, err)
	}
}

func TestAFullDiskRefusesAndPasses(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	full := false
	q := open(t, faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if full && op.Kind == faultfs.Write && strings.HasSuffix(op.Name, ".log") {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	}), nil)
	first, _ := q.Bootstrap()
	appendOK(t, q, first...)
	before := state(q.Image())
	full = true
	if _, err := q.Append([]metadata.Record{setConfig("a", "1")}); !errors.Is(err, commitlog.ErrFull) {
		t.Fatalf("Append on a full disk = %v, want ErrFull", err)
	}
	if got := state(q.Image()); got != before {
		t.Errorf("state changed to\n%s", got)
	}
	full = false
	appendOK(t, q, setConfig("b", "1"))
	want := state(q.Image())
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if q = open(t, disk, nil); state(q.Image()) != want || strings.Contains(want, `"name":"a"`) {
		t.Errorf("after restart:\n%s\nwant:\n%s", state(q.Image()), want)
	}
}

func TestAFailedSyncEndsTheLog(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	broken := false
	failed := make(chan error, 1)
	q := open(t, faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if broken && op.Kind == faultfs.Sync {
			return faultfs.Fault{Err: syscall.EIO}
		}
		return faultfs.Fault{}
	}), func(o *Options) { o.OnFailure = func(err error) { failed <- err } })
	before := state(q.Image())
	broken = true
	if _, err := q.Append([]metadata.Record{setConfig("a", "1")}); err == nil {
		t.Fatal("Append with a failing sync succeeded")
	}
	broken = false
	if _, err := q.Append([]metadata.Record{setConfig("b", "1")}); err == nil {
		t.Error("Append after a failed sync succeeded")
	}
	if err := <-failed; err == nil || state(q.Image()) != before {
		t.Errorf("OnFailure(%v), state\n%s", err, state(q.Image()))
	}
	if err := q.Close(); err != nil {
		t.Errorf("Close after a failure = %v", err)
	}
}

func TestAnOpenTransactionIsAborted(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	q := open(t, disk, nil)
	name := "Bootstrap records"
	// The image of Update ignores marks; only a replay waits for the end.
	appendOK(t, q, &metadata.BeginTransactionRecord{Name: &name}, level(metadata.MetadataVersion, 33))
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = open(t, disk, nil)
	if _, needed := q.Bootstrap(); !needed {
		t.Error("an aborted bootstrap is not repeated")
	}
	l, err := load(disk, "/data")
	if err != nil || l.openTxn || l.data {
		t.Errorf("log after the start: open transaction %v, data %v, %v", l.openTxn, l.data, err)
	}
}

func TestTooLargeOperationsAreRefused(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	q := open(t, disk, nil)
	end := q.EndOffset()
	if _, err := q.Append([]metadata.Record{setConfig("a", strings.Repeat("x", MaxBatchBytes))}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Append of %d bytes = %v, want ErrTooLarge", MaxBatchBytes, err)
	}
	if _, err := q.Append([]metadata.Record{&metadata.RemoveTopicRecord{TopicID: kafka.UUID{1}}}); err == nil {
		t.Error("a record that does not fit the state was accepted")
	}
	if q.EndOffset() != end {
		t.Errorf("end %d, want %d", q.EndOffset(), end)
	}
}

// TestADirectoryOfAStandaloneFormatIsTakenOver: kafka-storage format
// --standalone of 4.4.0 sets kraft.version 1; the directory was started and
// stopped once by Kafka.
func TestADirectoryOfAStandaloneFormatIsTakenOver(t *testing.T) {
	disk := memfs.New()
	copyTree(t, "testdata/standalone-4.4.0", disk, "/data")
	q := open(t, disk, nil)
	if q.kraft.version != 1 || len(q.kraft.voters) != 1 || q.Epoch() != 2 || q.Image().Broker(1) == nil {
		t.Errorf("kraft state %+v, epoch %d", q.kraft, q.Epoch())
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	// From the format alone, the first batch is Kafka's.
	disk = memfs.New()
	copyTree(t, "testdata/standalone-4.4.0", disk, "/data")
	kafkas, err := vfs.ReadFile(disk, "/data/"+DirName+"/00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00000000000000000000.log", "00000000000000000034-0000000001.checkpoint", "leader-epoch-checkpoint", "quorum-state"} {
		if err := disk.Remove("/data/" + DirName + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	if err := open(t, disk, nil).Close(); err != nil {
		t.Fatal(err)
	}
	ours, err := vfs.ReadFile(disk, "/data/"+DirName+"/00000000000000000000.log")
	if err != nil {
		t.Fatal(err)
	}
	kafkas = kafkas[:len(ours)]
	clearTimes(ours)
	clearTimes(kafkas)
	if len(ours) != 174 || string(ours) != string(kafkas) {
		t.Errorf("first batch is\n%x, want\n%x", ours, kafkas)
	}
}

// copyTree copies a directory of this package to another disk.
func copyTree(t testing.TB, from string, disk vfs.FS, to string) {
	t.Helper()
	for _, name := range fileNames(t, vfs.OS(), from) {
		content, err := vfs.ReadFile(vfs.OS(), name)
		if err != nil {
			t.Fatal(err)
		}
		target := to + strings.TrimPrefix(name, from)
		if err := disk.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := checkpoint.WriteFile(disk, target, content); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDynamicVotersOfOneNode(t *testing.T) {
	disk := memfs.New()
	id := format(t, disk)
	voters := record.Voters{Voters: []record.VoterInfo{{ID: 1, Directory: id, MaxVersion: 1, Endpoints: []record.Endpoint{{Name: "CONTROLLER", Host: "127.0.0.1", Port: 9093}}}}}
	content := snapshotContent{now: kafka.TimestampOf(testTime), level: 33, kraft: kraftState{version: 1, voters: voters.Voters},
		records: func(yield func(metadata.Record) bool) { yield(level(metadata.MetadataVersion, 33)) }}
	file, err := content.encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := disk.Remove("/data/" + DirName + "/" + snapshotID{}.name()); err != nil {
		t.Fatal(err)
	}
	if err := writeSnapshotFile(disk, "/data/"+DirName, snapshotID{}, file); err != nil {
		t.Fatal(err)
	}
	q := open(t, disk, nil)
	first, _ := q.Bootstrap()
	appendOK(t, q, first...)
	if err := q.WriteSnapshot(); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	state, err := checkpoint.ReadQuorumState(disk, "/data/"+DirName+"/quorum-state")
	if err != nil || state.Version != 1 || state.LeaderID != 1 {
		t.Errorf("quorum-state %+v, %v, want version 1", state, err)
	}
	q = open(t, disk, nil)
	if q.kraft.version != 1 || len(q.kraft.voters) != 1 || q.Epoch() != 2 {
		t.Errorf("kraft state %+v, epoch %d after a restart from the snapshot", q.kraft, q.Epoch())
	}
	if _, err := Open(Options{FS: disk, Dir: "/data", NodeID: 1, DirectoryID: kafka.UUID{3}}); !errors.Is(err, ErrRefused) {
		t.Errorf("Open with another directory id = %v, want a refusal", err)
	}
}
