package checkpoint

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
	"github.com/varvelog/varve/internal/vfs/tracefs"
)

// The files under testdata/kafka were written by Apache Kafka 4.4.0 and 3.9.2.
func kafkaFiles(t *testing.T, name string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("testdata", "kafka", "*", name))
	if err != nil || len(found) == 0 {
		t.Fatalf("no files %s: %v", name, err)
	}
	return found
}

func readReal(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sortedLines(b []byte) []string {
	lines := strings.Split(string(b), "\n")
	slices.Sort(lines)
	return lines
}

func TestOffsetsOfKafka(t *testing.T) {
	entries := 0
	for _, name := range slices.Concat(
		kafkaFiles(t, RecoveryPointFile), kafkaFiles(t, LogStartFile), kafkaFiles(t, HighWatermarkFile), kafkaFiles(t, CleanerFile)) {
		offsets, err := ReadOffsets(vfs.OS(), name)
		if err != nil {
			t.Error(err)
			continue
		}
		entries += len(offsets)
		raw := readReal(t, name)
		if len(raw) == 0 {
			if len(offsets) != 0 {
				t.Errorf("%s: %v, want no entries", name, offsets)
			}
			continue
		}
		// Kafka writes the entries in hash order.
		if diff := cmp.Diff(sortedLines(raw), sortedLines(encodeOffsets(offsets))); diff != "" {
			t.Errorf("%s encoded again (-Kafka +varve):\n%s", name, diff)
		}
	}
	if entries < 50 {
		t.Errorf("%d entries read, want more", entries)
	}
}

func TestEpochsOfKafka(t *testing.T) {
	for _, name := range kafkaFiles(t, EpochFile) {
		epochs, err := ReadEpochs(vfs.OS(), name)
		if err != nil || len(epochs) == 0 {
			t.Errorf("ReadEpochs(%s) = %v, %v", name, epochs, err)
		}
		if diff := cmp.Diff(string(readReal(t, name)), string(encodeEpochs(epochs))); diff != "" {
			t.Errorf("%s encoded again (-Kafka +varve):\n%s", name, diff)
		}
	}
}

func TestMetaOfKafka(t *testing.T) {
	for _, name := range kafkaFiles(t, MetaFile) {
		m, err := ReadMeta(vfs.OS(), name)
		if err != nil {
			t.Error(err)
			continue
		}
		if m.Version != 1 || m.NodeID != 1 || m.ClusterID == "" || m.DirectoryID.IsZero() || m.Extra != nil {
			t.Errorf("ReadMeta(%s) = %+v", name, m)
		}
		raw := readReal(t, name)
		written, err := time.Parse("#Mon Jan 02 15:04:05 MST 2006", strings.Split(string(raw), "\n")[1])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(raw), string(encodeMeta(m, written))); diff != "" {
			t.Errorf("%s encoded again (-Kafka +varve):\n%s", name, diff)
		}
	}
}

func TestPartitionMetadataOfKafka(t *testing.T) {
	for _, name := range kafkaFiles(t, PartitionFile) {
		id, err := ReadPartitionMetadata(vfs.OS(), name)
		if err != nil || id != kafka.MetadataTopicID {
			t.Errorf("ReadPartitionMetadata(%s) = %v, %v", name, id, err)
		}
		if raw := readReal(t, name); !bytes.Equal(raw, encodePartitionMetadata(id)) {
			t.Errorf("%s encoded again differs from %q", name, raw)
		}
	}
}

func TestQuorumStateOfKafka(t *testing.T) {
	for _, name := range kafkaFiles(t, QuorumStateFile) {
		s, err := ReadQuorumState(vfs.OS(), name)
		if err != nil || s.Version != 0 || s.LeaderID != 1 || s.LeaderEpoch < 1 || len(s.CurrentVoters) != 1 {
			t.Errorf("ReadQuorumState(%s) = %+v, %v", name, s, err)
		}
		again, err := encodeQuorumState(s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(readReal(t, name)), string(again)); diff != "" {
			t.Errorf("%s encoded again (-Kafka +varve):\n%s", name, diff)
		}
	}
}

func TestCleanShutdownOfKafka(t *testing.T) {
	for _, name := range kafkaFiles(t, CleanShutdownFile) {
		epoch, found, err := ReadCleanShutdown(vfs.OS(), filepath.Dir(name))
		if err != nil || !found || epoch < 1 {
			t.Errorf("ReadCleanShutdown(%s) = %d, %v, %v", name, epoch, found, err)
		}
		if raw := readReal(t, name); !bytes.Equal(raw, encodeCleanShutdown(epoch)) {
			t.Errorf("%s encoded again differs from %q", name, raw)
		}
	}
}

func TestDecodeOffsets(t *testing.T) {
	tp := kafka.TopicPartition{Topic: "a.b_c-d", Partition: 12}
	tests := []struct {
		name, text string
		want       map[kafka.TopicPartition]kafka.Offset // nil: corrupt
		line       int
	}{
		{"empty file", "", map[kafka.TopicPartition]kafka.Offset{}, 0},
		{"version only", "0\n", map[kafka.TopicPartition]kafka.Offset{}, 0},
		{"no entries", "0\n0\n", map[kafka.TopicPartition]kafka.Offset{}, 0},
		{"one entry", "0\n1\na.b_c-d 12 34\n", map[kafka.TopicPartition]kafka.Offset{tp: 34}, 0},
		{"no line feed at the end", "0\n1\na.b_c-d 12 34", map[kafka.TopicPartition]kafka.Offset{tp: 34}, 0},
		{"runs of white space and carriage returns", "0\r\n1\r\na.b_c-d\t 12  34 \r\n", map[kafka.TopicPartition]kafka.Offset{tp: 34}, 0},
		{"another version", "1\n0\n", nil, 1},
		{"no version", "x\n0\n", nil, 1},
		{"no count", "0\nx\n", nil, 2},
		{"negative count", "0\n-1\n", nil, 2},
		{"fewer entries than counted", "0\n2\na 0 1\n", nil, 0},
		{"more entries than counted", "0\n1\na 0 1\nb 0 1\n", nil, 0},
		{"entry with two words", "0\n1\na 0\n", nil, 3},
		{"entry with four words", "0\n1\na 0 1 2\n", nil, 3},
		{"entry after white space", "0\n1\n a 0 1\n", nil, 3},
		{"empty entry", "0\n1\n\n", nil, 3},
		{"partition that is no number", "0\n1\na b 1\n", nil, 3},
		{"offset that is no number", "0\n1\na 0 9223372036854775808\n", nil, 3},
		{"zeros as a lost write leaves them", "\x00\x00\x00\x00", nil, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decodeOffsets("file", []byte(tt.text))
			if tt.want != nil {
				if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
					t.Errorf("decodeOffsets: %v, diff:\n%s", err, diff)
				}
				return
			}
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || !errors.Is(err, ErrCorrupt) || corrupt.Line != tt.line {
				t.Errorf("decodeOffsets = %v, %v, want a CorruptError of line %d", got, err, tt.line)
			}
		})
	}
}

func TestDecodeEpochs(t *testing.T) {
	got, err := decodeEpochs("file", []byte("0\n2\n0 0\n3 17\n"))
	if diff := cmp.Diff([]Epoch{{0, 0}, {3, 17}}, got); err != nil || diff != "" {
		t.Errorf("decodeEpochs: %v, diff:\n%s", err, diff)
	}
	for _, text := range []string{"0\n1\n0\n", "0\n1\n4294967296 0\n", "0\n1\n0 x\n", "0\n0\n0 0\n"} {
		if _, err := decodeEpochs("file", []byte(text)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("decodeEpochs(%q) = %v, want ErrCorrupt", text, err)
		}
	}
}

func TestDecodePartitionMetadata(t *testing.T) {
	id := kafka.UUID{1, 2, 3}
	tests := []struct {
		name, text string
		ok         bool
	}{
		{"as Kafka writes it", "version: 0\ntopic_id: " + id.String(), true},
		{"a newer version and a line feed", "version: 7\ntopic_id:   " + id.String() + "\n", true},
		{"negative version", "version: -1\ntopic_id: " + id.String(), false},
		{"no white space", "version:0\ntopic_id: " + id.String(), false},
		{"zero id", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", false},
		{"short id", "version: 0\ntopic_id: AAAA", false},
		{"no id", "version: 0\n", false},
		{"another key", "version: 0\ntopic: " + id.String(), false},
		{"empty, as a rename without a sync leaves it", "", false},
	}
	for _, tt := range tests {
		got, err := decodePartitionMetadata("file", []byte(tt.text))
		if tt.ok != (err == nil) || tt.ok && got != id || !tt.ok && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, %v", tt.name, got, err)
		}
	}
}

func TestDecodeMeta(t *testing.T) {
	id := kafka.UUID{9}
	tests := []struct {
		name, text string
		want       MetaProperties
		ok         bool
	}{
		{"version 1", "version=1\nnode.id=7\ncluster.id=c\ndirectory.id=" + id.String(),
			MetaProperties{Version: 1, NodeID: 7, ClusterID: "c", DirectoryID: id}, true},
		{"without directory.id, with keys of others", "version : 1\n node.id 7\n!note\ncluster.id=a\\u0062\\\n  c\nx.y=z\n",
			MetaProperties{Version: 1, NodeID: 7, ClusterID: "abc", Extra: map[string]string{"x.y": "z"}}, true},
		{"version 0 of a ZooKeeper cluster", "version=0\nbroker.id=3\ncluster.id=c\n", MetaProperties{Version: 0, NodeID: 3, ClusterID: "c"}, true},
		{"no version", "node.id=1\ncluster.id=c\n", MetaProperties{}, false},
		{"unknown version", "version=2\nnode.id=1\ncluster.id=c\n", MetaProperties{}, false},
		{"no node.id", "version=1\ncluster.id=c\n", MetaProperties{}, false},
		{"node.id that is no number", "version=1\nnode.id=one\ncluster.id=c\n", MetaProperties{}, false},
		{"no cluster.id", "version=1\nnode.id=1\n", MetaProperties{}, false},
		{"broken directory.id", "version=1\nnode.id=1\ncluster.id=c\ndirectory.id=x\n", MetaProperties{}, false},
		{"broken escape", "version=\\u00\n", MetaProperties{}, false},
		{"empty", "", MetaProperties{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decodeMeta("file", []byte(tt.text))
			if !tt.ok {
				if !errors.Is(err, ErrCorrupt) {
					t.Errorf("decodeMeta = %+v, %v, want ErrCorrupt", got, err)
				}
				return
			}
			if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
				t.Errorf("decodeMeta: %v, diff:\n%s", err, diff)
			}
		})
	}
}

func TestDecodeQuorumState(t *testing.T) {
	v1 := QuorumState{Version: 1, LeaderID: 2, LeaderEpoch: 5, VotedID: -1, VotedDirectoryID: kafka.UUID{}}
	b, err := encodeQuorumState(v1)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"leaderId":2,"leaderEpoch":5,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}`
	if string(b) != want {
		t.Errorf("version 1 = %s, want %s", b, want)
	}
	if got, err := decodeQuorumState("file", b); err != nil || !cmp.Equal(got, v1) {
		t.Errorf("decodeQuorumState = %+v, %v", got, err)
	}
	for _, text := range []string{"", "{}", "null", `{"leaderId":1,"leaderEpoch":1,"data_version":2}`, `{"leaderId":1,"data_version":0}`,
		`{"leaderId":1,"leaderEpoch":1,"votedDirectoryId":"x","data_version":1}`} {
		if _, err := decodeQuorumState("file", []byte(text)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("decodeQuorumState(%q) = %v, want ErrCorrupt", text, err)
		}
	}
	if _, err := encodeQuorumState(QuorumState{Version: 2}); err == nil {
		t.Error("version 2 was encoded")
	}
}

func TestCleanShutdownMarker(t *testing.T) {
	disk := memfs.New()
	if err := disk.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	if epoch, found, err := ReadCleanShutdown(disk, "/data"); epoch != NoBrokerEpoch || found || err != nil {
		t.Errorf("without a marker: %d, %v, %v", epoch, found, err)
	}
	if err := RemoveCleanShutdown(disk, "/data"); err != nil {
		t.Errorf("RemoveCleanShutdown without a marker = %v", err)
	}
	if err := WriteCleanShutdown(disk, "/data", 17); err != nil {
		t.Fatal(err)
	}
	if epoch, found, err := ReadCleanShutdown(disk, "/data"); epoch != 17 || !found || err != nil {
		t.Errorf("ReadCleanShutdown = %d, %v, %v", epoch, found, err)
	}
	if err := WriteFile(disk, "/data/"+CleanShutdownFile, []byte("garbage")); err != nil {
		t.Fatal(err)
	}
	if epoch, found, err := ReadCleanShutdown(disk, "/data"); epoch != NoBrokerEpoch || !found || err != nil {
		t.Errorf("with an unreadable marker: %d, %v, %v", epoch, found, err)
	}
	if err := RemoveCleanShutdown(disk, "/data"); err != nil {
		t.Fatal(err)
	}
	if err := disk.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	if _, found, _ := ReadCleanShutdown(disk.Crash(memfs.DropAll()), "/data"); found {
		t.Error("the removed marker came back after a crash")
	}
}

func TestWriteFileInOrder(t *testing.T) {
	disk := memfs.New()
	if err := disk.MkdirAll("/data", 0o755); err != nil {
		t.Fatal(err)
	}
	var log tracefs.Log
	if err := WriteOffsets(tracefs.Wrap(disk, &log), "/data/"+RecoveryPointFile, nil); err != nil {
		t.Fatal(err)
	}
	const want = `create /data/recovery-point-offset-checkpoint.tmp trunc
write /data/recovery-point-offset-checkpoint.tmp off=0 n=4
sync /data/recovery-point-offset-checkpoint.tmp
rename /data/recovery-point-offset-checkpoint.tmp /data/recovery-point-offset-checkpoint
syncdir /data
`
	if got := log.String(); got != want {
		t.Errorf("order:\n%s\nwant:\n%s", got, want)
	}
}

// At every operation that fails, and in every crash there, the old content or
// the new one is found, whole; after success, the new one.
func TestWriteFileIsAllOrNothing(t *testing.T) {
	oldOffsets := map[kafka.TopicPartition]kafka.Offset{{Topic: "a"}: 1}
	newOffsets := map[kafka.TopicPartition]kafka.Offset{{Topic: "a"}: 2, {Topic: "b"}: 3}
	prepare := func() *memfs.FS {
		disk := memfs.New()
		if err := errors.Join(disk.MkdirAll("/d", 0o755), disk.SyncDir("/"), WriteOffsets(disk, "/d/f", oldOffsets)); err != nil {
			t.Fatal(err)
		}
		return disk
	}
	check := func(disk *memfs.FS, where string, onlyNew bool) {
		got, err := ReadOffsets(disk, "/d/f")
		if err != nil || !(cmp.Equal(got, newOffsets) || !onlyNew && cmp.Equal(got, oldOffsets)) {
			t.Fatalf("%s: %v, %v", where, got, err)
		}
	}
	crash := func(disk *memfs.FS, where string, onlyNew bool) {
		check(disk.Crash(memfs.DropAll()), where+", nothing kept", onlyNew)
		check(disk.Crash(memfs.KeepAll()), where+", all kept", onlyNew)
		for seed := range uint64(50) {
			check(disk.Crash(memfs.Random(0.5, seed)), where, onlyNew)
		}
	}
	for n := 1; ; n++ {
		disk := prepare()
		c := &faultfs.Counter{From: n, Times: 1, Fault: faultfs.Fault{Err: syscall.EIO, Done: 3}}
		err := WriteOffsets(faultfs.Wrap(disk, c.Inject), "/d/f", newOffsets)
		crash(disk, "failed operation", err == nil)
		check(disk, "failed operation, process alive", err == nil)
		if err == nil {
			if n < 5 {
				t.Fatalf("only %d operations", n)
			}
			return
		}
	}
}

func TestMissingFilesAreErrNotExist(t *testing.T) {
	disk := memfs.New()
	_, err1 := ReadOffsets(disk, "/x")
	_, err2 := ReadEpochs(disk, "/x")
	_, err3 := ReadMeta(disk, "/x")
	_, err4 := ReadPartitionMetadata(disk, "/x")
	_, err5 := ReadQuorumState(disk, "/x")
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v, want ErrNotExist", err)
		}
	}
}

func TestHugeAndStrangeFilesAreNotRead(t *testing.T) {
	disk := memfs.New()
	f, err := disk.OpenFile("/x", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(maxFileSize+1), disk.Mkdir("/d", 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadOffsets(disk, "/x"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("ReadOffsets of a huge file = %v, want ErrCorrupt", err)
	}
	if _, err := ReadOffsets(disk, "/d"); err == nil {
		t.Error("a directory was read")
	}
}
