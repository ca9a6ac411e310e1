package quorum

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// testTime is the clock of tests that need none.
var testTime = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// unpack puts a golden stage on a memory disk as /data.
func unpack(t testing.TB, name, stage string) (vfs.FS, *golden.Stage) {
	t.Helper()
	s := golden.Load(t, name).Stage(t, stage)
	disk := memfs.New()
	s.UnpackTo(t, disk, "/data")
	return disk, s
}

// TestLoadReadsWhatKafkaWrote: of every metadata log, the state agrees with the
// partition directories that lie beside it, and the end with the last batch.
func TestLoadReadsWhatKafkaWrote(t *testing.T) {
	checked := 0
	for _, name := range golden.Names(t) {
		c := golden.Load(t, name)
		for i := range c.Stages {
			s := &c.Stages[i]
			var meta *golden.Partition
			for j := range s.Partitions {
				if s.Partitions[j].Topic == kafka.ClusterMetadataTopic {
					meta = &s.Partitions[j]
				}
			}
			if meta == nil || len(meta.Segments) == 0 {
				continue
			}
			checked++
			t.Run(name+"/"+s.Name, func(t *testing.T) {
				disk := memfs.New()
				s.UnpackTo(t, disk, "/data")
				checkLoaded(t, disk, s, meta)
			})
		}
	}
	if checked < 15 {
		t.Errorf("%d metadata logs checked, want at least 15", checked)
	}
}

func checkLoaded(t *testing.T, disk vfs.FS, s *golden.Stage, meta *golden.Partition) {
	l, err := load(disk, "/data")
	if err != nil {
		t.Fatal(err)
	}
	batches := meta.Segments[len(meta.Segments)-1].Log.Batches
	last := batches[len(batches)-1]
	if int64(l.image.End) != last.Last+1 || int32(l.image.Epoch) != last.LeaderEpoch || l.cut != 0 {
		t.Errorf("end %d, epoch %d, cut %d, want %d, %d, 0", l.image.End, l.image.Epoch, l.cut, last.Last+1, last.LeaderEpoch)
	}
	if want := metadataLevel(s.Kafka); l.image.Feature(metadata.MetadataVersion) != want {
		t.Errorf("metadata.version %d, want %d", l.image.Feature(metadata.MetadataVersion), want)
	}
	for _, p := range s.Partitions {
		// "ghost" was put there to become stray, crash-21 got a wrong epoch.
		if p.Topic == kafka.ClusterMetadataTopic || p.Topic == "ghost" || p.Dir == "crash-21" || p.Suffix != "" || p.TopicID == "" {
			continue
		}
		topic := l.image.Topic(p.Topic)
		if topic == nil || topic.ID.String() != p.TopicID {
			t.Errorf("topic %s is %+v, want id %s", p.Topic, topic, p.TopicID)
			continue
		}
		part, ok := topic.Partitions.Get(p.Partition)
		if !ok {
			t.Errorf("%s has no metadata", p.Dir)
			continue
		}
		for _, e := range p.LeaderEpochs {
			if e[0] > int64(part.LeaderEpoch) {
				t.Errorf("%s: epoch %d in its checkpoint is above %d in the metadata", p.Dir, e[0], part.LeaderEpoch)
			}
		}
	}
	o := Options{FS: disk, Dir: "/data", NodeID: 1}
	o.withDefaults()
	state, err := readQuorumState(o, "/data/"+DirName)
	if err != nil {
		t.Fatal(err)
	}
	if err := check(o, l, state); err != nil {
		t.Error(err)
	}
}

func metadataLevel(release string) int16 {
	if strings.HasPrefix(release, "3.9") {
		return metadata.V3_9_IV0
	}
	return metadata.V4_4_IV2
}

// format makes a data directory /data with one snapshot and no log.
func format(t testing.TB, disk vfs.FS) kafka.UUID {
	t.Helper()
	id := kafka.UUID{0: 7, 15: 7}
	err := Format(FormatOptions{FS: disk, Dirs: []string{"/data"}, NodeID: 1, ClusterID: "MkU3OEVBNTcwNTJENDM2Qg", Now: testTime,
		NewID: func() kafka.UUID { return id }})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestFormatLeavesWhatKafkaStorageLeaves(t *testing.T) {
	disk := memfs.New()
	format(t, disk)
	kafkas, stage := unpack(t, "01-fresh-4.4.0", "formatted")
	for _, f := range stage.Files {
		want, err := vfs.ReadFile(kafkas, "/data/"+f.Path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := vfs.ReadFile(disk, "/data/"+f.Path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Path, ".checkpoint") {
			clearTimes(got)
			clearTimes(want)
		} else { // the date and the directory id differ
			got, want = withoutDate(got), withoutDate(want)
		}
		if string(got) != string(want) {
			t.Errorf("%s is\n%q, want\n%q", f.Path, got, want)
		}
	}
	info, err := disk.Stat("/data/" + DirName + "/" + snapshotID{}.name())
	if err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("mode %v, %v, want 0400", info.Mode(), err)
	}
	if names := fileNames(t, disk, "/data"); len(names) != len(stage.Files) {
		t.Errorf("files %q, want those of %d", names, len(stage.Files))
	}
}

// clearTimes takes what depends on the clock out of a snapshot file.
func clearTimes(file []byte) {
	for at := 0; at < len(file); {
		b := record.Batch(file[at:])
		b = b[:b.Size()]
		clear(b[17:21]) // checksum
		clear(b[27:43]) // base and maximum timestamp
		if b.IsControl() && len(b) == 83 {
			clear(b[len(b)-10 : len(b)-2]) // LastContainedLogTimestamp
		}
		at += len(b)
	}
}

func withoutDate(properties []byte) []byte {
	var kept []string
	for line := range strings.Lines(string(properties)) {
		if !strings.HasPrefix(line, "#M") && !strings.HasPrefix(line, "directory.id=") {
			kept = append(kept, line)
		}
	}
	return []byte(strings.Join(kept, ""))
}

// fileNames lists all files below dir.
func fileNames(t testing.TB, disk vfs.FS, dir string) []string {
	t.Helper()
	entries, err := disk.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if path := filepath.Join(dir, e.Name()); e.IsDir() {
			names = append(names, fileNames(t, disk, path)...)
		} else {
			names = append(names, path)
		}
	}
	return names
}

// tree is the content of every file below dir.
func tree(t testing.TB, disk vfs.FS, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, name := range fileNames(t, disk, dir) {
		b, err := vfs.ReadFile(disk, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	return files
}

// batchOf builds a batch of records at an offset.
func batchOf(t testing.TB, base kafka.Offset, epoch kafka.LeaderEpoch, values ...[]byte) record.Batch {
	t.Helper()
	o := record.NewBuildOptions()
	o.BaseOffset, o.LeaderEpoch = base, epoch
	var b record.Builder
	b.Reset(o)
	for _, v := range values {
		b.Append(kafka.TimestampOf(testTime), nil, v, nil)
	}
	batch, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return append(record.Batch{}, batch...)
}

func encoded(records ...metadata.Record) [][]byte {
	var values [][]byte
	for _, r := range records {
		values = append(values, metadata.AppendRecord(nil, r, metadata.RecordVersion(r, metadata.LatestMetadataVersion)))
	}
	return values
}

// writeLog writes a segment file of the metadata log.
func writeLog(t testing.TB, disk vfs.FS, base kafka.Offset, content ...[]byte) string {
	t.Helper()
	name := fmt.Sprintf("/data/%s/%020d.log", DirName, base)
	f, err := disk.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(0)
	for _, b := range content {
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
		at += int64(len(b))
	}
	return name
}

func TestLoadRefusesWithoutChangingAnything(t *testing.T) {
	topicID := kafka.UUID{1, 15: 200}
	features := encoded(&metadata.FeatureLevelRecord{Name: metadata.MetadataVersion, Level: metadata.LatestMetadataVersion})
	level := func(name string, n int16) []byte {
		return encoded(&metadata.FeatureLevelRecord{Name: name, Level: n})[0]
	}
	first := batchOf(t, 0, 1, features...)
	second := batchOf(t, 1, 1, encoded(&metadata.NoOpRecord{}, &metadata.NoOpRecord{})...)
	third := batchOf(t, 3, 1, encoded(&metadata.NoOpRecord{})...)
	flipped := func(b record.Batch) record.Batch {
		b = append(record.Batch{}, b...)
		b[len(b)-1] ^= 1
		return b
	}
	partition := &metadata.PartitionRecord{TopicID: topicID, Replicas: []kafka.BrokerID{1, 2}, ISR: []kafka.BrokerID{1}, Leader: 1}
	tests := []struct {
		name string
		log  [][]byte
		want error
		text string
	}{
		{"an unknown record type", [][]byte{first, batchOf(t, 1, 1, []byte{1, 60, 0, 0})}, ErrRefused, "a newer release has written here: offset 1: metadata record of type 60"},
		{"an unknown record version", [][]byte{first, batchOf(t, 1, 1, []byte{1, 12, 9, 0})}, ErrRefused, "version 9"},
		{"a metadata.version above the supported", [][]byte{batchOf(t, 0, 1, level(metadata.MetadataVersion, 34))}, ErrRefused, "metadata.version is at level 34, this release supports 7 to 33"},
		{"a metadata.version below the supported", [][]byte{batchOf(t, 0, 1, level(metadata.MetadataVersion, 6))}, ErrRefused, "level 6"},
		{"an unknown feature", [][]byte{first, batchOf(t, 1, 1, level("quantum.version", 1))}, ErrRefused, "quantum.version is at level 1"},
		{"a replica on another node", [][]byte{first, batchOf(t, 1, 1, encoded(&metadata.TopicRecord{Name: "t", TopicID: topicID}, partition)...)}, ErrRefused, "partition t-0 has a replica on node 2"},
		{"records that contradict each other", [][]byte{first, batchOf(t, 1, 1, encoded(partition)...)}, ErrRefused, "no topic of that id"},
		{"a damaged batch before sound ones", [][]byte{first, flipped(second), third}, ErrDamaged, "offset 1"},
		{"an offset that was left out", [][]byte{first, third}, ErrDamaged, "base offset 3, want 1"},
		{"a batch of an older epoch", [][]byte{first, batchOf(t, 1, 0, encoded(&metadata.NoOpRecord{})...)}, ErrDamaged, "epoch 0 after epoch 1"},
		{"no log behind a snapshot and no bootstrap", nil, ErrNotFormatted, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := memfs.New()
			if err := disk.MkdirAll("/data/"+DirName, 0o755); err != nil {
				t.Fatal(err)
			}
			if tt.log != nil {
				writeLog(t, disk, 0, tt.log...)
			}
			before := tree(t, disk, "/data")
			q, err := Open(Options{FS: disk, Dir: "/data", NodeID: 1, Now: func() time.Time { return testTime }})
			if q != nil || !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Open = %v, want %v with %q", err, tt.want, tt.text)
			}
			if after := tree(t, disk, "/data"); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("files changed: %q, were %q", after, before)
			}
		})
	}
}

func TestLoadRefusesAQuorumOfSeveral(t *testing.T) {
	for _, state := range []string{
		`{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1},{"voterId":2}],"data_version":0}`,
		`{"clusterId":"","leaderId":2,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,"currentVoters":[],"data_version":0}`,
	} {
		disk := memfs.New()
		format(t, disk)
		f, err := disk.OpenFile("/data/"+DirName+"/quorum-state", os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(state), 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if _, err := Open(Options{FS: disk, Dir: "/data", NodeID: 1}); !errors.Is(err, ErrRefused) {
			t.Errorf("Open with %s = %v, want a refusal", state, err)
		}
	}
}

func TestLoadCutsOnlyATornTail(t *testing.T) {
	first := batchOf(t, 0, 1, encoded(&metadata.FeatureLevelRecord{Name: metadata.MetadataVersion, Level: 33})...)
	last := batchOf(t, 1, 1, encoded(&metadata.NoOpRecord{}, &metadata.NoOpRecord{})...)
	whole := len(first)
	for name, tail := range map[string][]byte{
		"half a batch":       last[:len(last)/2],
		"a header":           last[:12],
		"a batch with zeros": append(append([]byte{}, last[:60]...), make([]byte, len(last)-60)...),
		"zeros":              make([]byte, 5000),
		"garbage":            []byte(strings.Repeat("garbage", 50)),
		"nothing":            nil,
	} {
		disk := memfs.New()
		if err := disk.MkdirAll("/data/"+DirName, 0o755); err != nil {
			t.Fatal(err)
		}
		writeLog(t, disk, 0, first, tail)
		l, err := load(disk, "/data")
		if err != nil || l.image.End != 1 || l.cut != int64(len(tail)) {
			t.Errorf("%s behind %d bytes: load = %+v, %v, want end 1 and cut %d", name, whole, l, err, len(tail))
		}
	}
}

func TestTransactionsCountWhenTheyEnd(t *testing.T) {
	level := &metadata.FeatureLevelRecord{Name: metadata.MetadataVersion, Level: 33}
	group := &metadata.FeatureLevelRecord{Name: metadata.GroupVersion, Level: 1}
	tests := []struct {
		name    string
		records []metadata.Record
		level   int16
		group   int16
		open    bool
	}{
		{"ended", []metadata.Record{&metadata.BeginTransactionRecord{}, level, &metadata.EndTransactionRecord{}}, 33, 0, false},
		{"aborted", []metadata.Record{&metadata.BeginTransactionRecord{}, level, &metadata.AbortTransactionRecord{}}, 0, 0, false},
		{"aborted and begun again", []metadata.Record{&metadata.BeginTransactionRecord{}, group, &metadata.AbortTransactionRecord{},
			&metadata.BeginTransactionRecord{}, level, &metadata.EndTransactionRecord{}}, 33, 0, false},
		{"left open", []metadata.Record{&metadata.BeginTransactionRecord{}, level}, 0, 0, true},
		{"left open after another", []metadata.Record{level, &metadata.BeginTransactionRecord{}, group}, 33, 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := memfs.New()
			if err := disk.MkdirAll("/data/"+DirName, 0o755); err != nil {
				t.Fatal(err)
			}
			writeLog(t, disk, 0, batchOf(t, 0, 1, encoded(tt.records...)...))
			l, err := load(disk, "/data")
			if err != nil {
				t.Fatal(err)
			}
			if got := l.image.Feature(metadata.MetadataVersion); got != tt.level || l.image.Feature(metadata.GroupVersion) != tt.group || l.openTxn != tt.open {
				t.Errorf("metadata.version %d, group.version %d, open %v", got, l.image.Feature(metadata.GroupVersion), l.openTxn)
			}
		})
	}
}

func FuzzReplaySnapshot(f *testing.F) {
	disk := memfs.New()
	format(f, disk)
	file, err := vfs.ReadFile(disk, "/data/"+DirName+"/"+snapshotID{}.name())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add(file[:100])
	f.Fuzz(func(t *testing.T, content []byte) {
		disk := memfs.New()
		if err := disk.MkdirAll("/data/"+DirName, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeSnapshotFile(disk, "/data/"+DirName, snapshotID{}, content); err != nil {
			t.Fatal(err)
		}
		if l, err := load(disk, "/data"); err == nil && l.first == nil && len(content) > 0 {
			// A snapshot without records is legal; it must at least have had its marks.
			if len(content) < 158 {
				t.Errorf("%d bytes were taken for a snapshot", len(content))
			}
		}
	})
}

func FuzzLoadLog(f *testing.F) {
	f.Add([]byte(batchOf(f, 0, 1, encoded(level(metadata.MetadataVersion, 33))...)))
	topic := kafka.UUID{1, 15: 200}
	f.Add([]byte(batchOf(f, 0, 1, encoded(&metadata.TopicRecord{Name: "t", TopicID: topic},
		&metadata.PartitionRecord{TopicID: topic, Replicas: []kafka.BrokerID{1}}, &metadata.RemoveTopicRecord{TopicID: topic})...)))
	kafkas, err := os.ReadFile("testdata/standalone-4.4.0/" + DirName + "/00000000000000000000.log")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(kafkas)
	f.Fuzz(func(t *testing.T, content []byte) {
		disk := memfs.New()
		if err := disk.MkdirAll("/data/"+DirName, 0o755); err != nil {
			t.Fatal(err)
		}
		// Checksums are made right, so that what is behind them is reached.
		for at := 0; at < len(content); {
			size, ok, err := record.NextBatch(content[at:])
			if err != nil || !ok {
				break
			}
			if b := record.Batch(content[at : at+size]); b.Magic() == record.MagicV2 && size >= record.HeaderSize {
				binary.BigEndian.PutUint32(content[at+17:], b.ComputeCRC())
			}
			at += size
		}
		writeLog(t, disk, 0, content)
		l, err := load(disk, "/data")
		if err != nil {
			return
		}
		state(l.image)
		o := Options{FS: disk, Dir: "/data", NodeID: 1}
		_ = check(o, l, checkpoint.QuorumState{})
	})
}
