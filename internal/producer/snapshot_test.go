package producer

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

var goldenCases = []string{"05-transactions-4.4.0", "05-transactions-3.9.2", "12-direct-4.4.0", "12-produce-4.4.0", "09-crash-killed-4.4.0", "07-groups-4.4.0"}

// TestGoldenSnapshots reads every snapshot that Apache Kafka wrote and writes
// it again.
func TestGoldenSnapshots(t *testing.T) {
	files, several := 0, 0
	for _, name := range goldenCases {
		c := golden.Load(t, name)
		for i := range c.Stages {
			stage := &c.Stages[i]
			dir := ""
			for _, p := range stage.Partitions {
				for _, want := range p.Snapshots {
					if want.Corrupt {
						continue
					}
					if dir == "" {
						dir = stage.Unpack(t)
					}
					file := filepath.Join(dir, p.Dir, SnapshotName(kafka.Offset(want.Offset))+want.Suffix)
					checkGoldenSnapshot(t, file, want)
					files++
					if len(want.Producers) > 1 {
						several++
					}
				}
			}
		}
	}
	if files < 100 || several < 20 {
		t.Errorf("%d snapshots, %d of them with several producers; the golden data has more", files, several)
	}
}

func checkGoldenSnapshot(t *testing.T, file string, want golden.Snapshot) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Error(err)
		return
	}
	entries, err := DecodeSnapshot(data)
	if err != nil {
		t.Errorf("%s: %v", file, err)
		return
	}
	got := make([][8]int64, len(entries))
	for i, e := range entries {
		got[i] = [8]int64{int64(e.ProducerID), int64(e.Epoch), int64(e.LastSequence), int64(e.LastOffset), int64(e.OffsetDelta),
			int64(e.Timestamp), int64(e.CoordinatorEpoch), int64(e.TxnFirstOffset)}
	}
	if diff := cmp.Diff(want.Producers, got); diff != "" && len(got)+len(want.Producers) > 0 {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
	if again := AppendSnapshot(nil, entries); !bytes.Equal(again, data) {
		t.Errorf("%s: encoded again it differs", file)
	}
	// Through the state: entries are kept and come in the order of Kafka's map.
	s := newState(t)
	for i := range entries {
		s.insert(entries[i].load())
	}
	if again := AppendSnapshot(nil, s.Entries()); !bytes.Equal(again, data) {
		t.Errorf("%s: the state orders its producers differently", file)
	}
}

func TestSnapshotOrderIsThatOfJavasHashMap(t *testing.T) {
	s := newState(t)
	// 16 buckets: 17 and 1 share one, in order of insertion; 2^32 hashes like 1.
	for i, pid := range []kafka.ProducerID{17, 5, 1 << 32, 1, 16, 0} {
		mustAdd(t, s, batch{pid: pid, n: 1, base: kafka.Offset(i)})
	}
	var got []kafka.ProducerID
	for _, e := range s.Entries() {
		got = append(got, e.ProducerID)
	}
	if want := []kafka.ProducerID{16, 0, 17, 1 << 32, 1, 5}; !cmp.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
	// 13 entries are more than three quarters of 16: the table doubles and 17 leaves 1.
	for i := range 7 {
		mustAdd(t, s, batch{pid: kafka.ProducerID(100 + i), n: 1, base: kafka.Offset(10 + i)})
	}
	if s.buckets != 32 {
		t.Errorf("%d buckets for 13 entries, want 32", s.buckets)
	}
}

func TestSnapshotsOverARestart(t *testing.T) {
	disk := memfs.New()
	if err := disk.MkdirAll("/p-0", 0o755); err != nil {
		t.Fatal(err)
	}
	cfg := Config{FS: disk, Dir: "/p-0"}
	s, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	snapshot := func() {
		t.Helper()
		if _, err := s.TakeSnapshot(true); err != nil {
			t.Fatal(err)
		}
	}
	mustAdd(t, s, batch{pid: 1, n: 2, ts: 10})
	snapshot()
	mustAdd(t, s, batch{pid: 1, seq: 2, n: 2, base: 2, ts: 20, txn: true})
	snapshot()
	if wrote, err := s.TakeSnapshot(true); wrote || err != nil {
		t.Errorf("TakeSnapshot without news = (%v, %v), want nothing written", wrote, err)
	}
	want := s.Entries()

	again, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]kafka.Offset{2, 4}, again.Snapshots()); diff != "" {
		t.Errorf("snapshots (-want +got):\n%s", diff)
	}
	if err := again.Reload(0, 4, 30); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, again.Entries()); diff != "" {
		t.Errorf("entries after a restart (-want +got):\n%s", diff)
	}
	if first, ok := again.FirstUnstable(); !ok || first != 2 {
		t.Errorf("FirstUnstable = (%d, %v), want 2", first, ok)
	}

	// Truncated to 3: the snapshot at 4 goes, the one at 2 is loaded.
	if err := again.Reload(0, 3, 30); err != nil {
		t.Fatal(err)
	}
	if again.MapEnd() != 2 || len(again.Snapshots()) != 1 {
		t.Errorf("after Reload(0, 3): map ends at %d with snapshots %v, want 2 and [2]", again.MapEnd(), again.Snapshots())
	}
	// A log start at 2 removes the last one.
	if err := again.Reload(2, 3, 30); err != nil {
		t.Fatal(err)
	}
	if again.MapEnd() != 2 || again.Len() != 0 || len(again.Snapshots()) != 0 {
		t.Errorf("after Reload(2, 3): map ends at %d, %d producers, snapshots %v", again.MapEnd(), again.Len(), again.Snapshots())
	}
}

func TestACorruptSnapshotIsDroppedForAnOlderOne(t *testing.T) {
	s := newState(t)
	mustAdd(t, s, batch{pid: 1, n: 2, ts: 10})
	if _, err := s.TakeSnapshot(true); err != nil {
		t.Fatal(err)
	}
	want := s.Entries()
	mustAdd(t, s, batch{pid: 2, n: 2, base: 2, ts: 20})
	if _, err := s.TakeSnapshot(true); err != nil {
		t.Fatal(err)
	}
	f, err := s.cfg.FS.OpenFile(s.path(4), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, 20); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(0, 9, 30); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, s.Entries()); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if _, err := s.cfg.FS.Stat(s.path(4)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("corrupt snapshot still there: %v", err)
	}
}

func TestStraySnapshots(t *testing.T) {
	tests := []struct {
		name  string
		have  []kafka.Offset
		bases []kafka.Offset
		want  []kafka.Offset
	}{
		{"those of segments stay", []kafka.Offset{10, 20}, []kafka.Offset{0, 10, 20}, []kafka.Offset{10, 20}},
		{"the one of a clean stop stays", []kafka.Offset{10, 20, 25}, []kafka.Offset{0, 10, 20}, []kafka.Offset{10, 20, 25}},
		{"only the newest stray stays", []kafka.Offset{5, 10, 22, 25}, []kafka.Offset{0, 10, 20}, []kafka.Offset{10, 25}},
		{"a stray below the last segment goes", []kafka.Offset{5, 10}, []kafka.Offset{0, 10, 20}, []kafka.Offset{10}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newState(t)
			for _, o := range tt.have {
				s.SetMapEnd(o)
				if _, err := s.TakeSnapshot(false); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.RemoveStray(tt.bases); err != nil {
				t.Fatal(err)
			}
			if err := s.listSnapshots(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, s.Snapshots()); diff != "" {
				t.Errorf("files left (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSnapshotErrorsKeepTheOldFile(t *testing.T) {
	disk := memfs.New()
	if err := disk.MkdirAll("/p-0", 0o755); err != nil {
		t.Fatal(err)
	}
	s := New(Config{FS: vfs.FS(disk), Dir: "/missing"})
	s.SetMapEnd(5)
	if _, err := s.TakeSnapshot(true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("TakeSnapshot into a missing directory: %v, want fs.ErrNotExist", err)
	}
	if _, ok := s.LatestSnapshot(); ok {
		t.Error("a snapshot that could not be written is listed")
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendSnapshot(nil, nil))
	f.Add(AppendSnapshot(nil, []Entry{
		{ProducerID: 1, Epoch: 2, LastSequence: 3, LastOffset: 4, OffsetDelta: 1, Timestamp: 5, CoordinatorEpoch: -1, TxnFirstOffset: -1},
		{ProducerID: 1 << 40, Epoch: -1, LastSequence: -1, LastOffset: -1, Timestamp: -1, CoordinatorEpoch: 6, TxnFirstOffset: 7},
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := DecodeSnapshot(data)
		if err != nil {
			if !errors.Is(err, ErrCorruptSnapshot) {
				t.Errorf("error %v is not ErrCorruptSnapshot", err)
			}
			return
		}
		if again := AppendSnapshot(nil, entries); !bytes.Equal(again, data) {
			t.Errorf("%x decodes to entries that encode to %x", data, again)
		}
	})
}
