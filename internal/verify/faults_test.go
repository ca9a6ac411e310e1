package verify

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// room is a data directory that a case damages.
type room struct {
	t    *testing.T
	disk *memfs.FS
}

func (r room) path(name string) string { return "/data/" + name }

func (r room) read(name string) []byte {
	r.t.Helper()
	data, err := vfs.ReadFile(r.disk, r.path(name))
	if err != nil {
		r.t.Fatal(err)
	}
	return data
}

func (r room) write(name string, data []byte) {
	r.t.Helper()
	f, err := r.disk.OpenFile(r.path(name), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = f.WriteAt(data, 0)
	if err := errors.Join(err, f.Close()); err != nil {
		r.t.Fatal(err)
	}
}

func (r room) remove(names ...string) {
	r.t.Helper()
	for _, name := range names {
		if err := r.disk.Remove(r.path(name)); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r room) rename(from, to string) {
	r.t.Helper()
	if err := r.disk.Rename(r.path(from), r.path(to)); err != nil {
		r.t.Fatal(err)
	}
}

// batch is where the i-th batch of a .log starts, and its size.
func (r room) batch(name string, i int) (at, size int64) {
	r.t.Helper()
	data := r.read(name)
	s := record.NewScanner(bytes.NewReader(data), 0, int64(len(data)), record.HeaderSize)
	for range i + 1 {
		if !s.Next() {
			r.t.Fatalf("%s has not %d batches", name, i+1)
		}
	}
	return s.Position(), int64(s.Header().Size)
}

// What a case does to a file.
func flipAt(name string, at int) func(room) {
	return func(r room) {
		data := r.read(name)
		data[(at+len(data))%len(data)] ^= 0x10
		r.write(name, data)
	}
}

func put(name, data string) func(room) { return func(r room) { r.write(name, []byte(data)) } }

func short(name string, by int) func(room) {
	return func(r room) { data := r.read(name); r.write(name, data[:len(data)-by]) }
}

func gone(names ...string) func(room) { return func(r room) { r.remove(names...) } }

func unclean(then func(room)) func(room) {
	return func(r room) { r.remove(".kafka_cleanshutdown"); then(r) }
}

const (
	seg0  = "txn-1/00000000000000000000"
	seg22 = "txn-1/00000000000000000022"
	seg48 = "txn-1/00000000000000000048"
	meta  = "__cluster_metadata-0/00000000000000000000"
)

// faultCase is one row of the catalogue of damage (faults, file by file).
type faultCase struct {
	name     string
	damage   func(r room)
	file     string
	code     Code // "" is no finding about the file
	severity Severity
	position int64 // -1: the file as a whole; batchOf + n: where the n-th batch of the file starts
}

const batchOf = 1 << 40

func faultCases() []faultCase {
	return []faultCase{
		{"log: a flipped bit in a record", func(r room) {
			at, size := r.batch(seg22+".log", 3)
			flipAt(seg22+".log", int(at+size-2))(r)
		}, seg22 + ".log", CodeChecksum, Error, batchOf + 3},
		{"log: a flipped bit in a base offset", func(r room) {
			at, _ := r.batch(seg22+".log", 3)
			flipAt(seg22+".log", int(at)+7)(r)
		}, seg22 + ".log", CodeOffsets, Error, batchOf + 3},
		{"log: a base offset that jumps ahead", func(r room) {
			at, _ := r.batch(seg22+".log", 3)
			flipAt(seg22+".log", int(at)+5)(r)
		}, seg22 + ".log", CodeOffsets, Error, batchOf + 3},
		{"log: a flipped bit in a length", func(r room) {
			at, _ := r.batch(seg22+".log", 3)
			flipAt(seg22+".log", int(at)+8)(r)
		}, seg22 + ".log", CodeFraming, Error, batchOf + 3},
		{"log: a format that does not exist", func(r room) {
			at, _ := r.batch(seg22+".log", 3)
			flipAt(seg22+".log", int(at)+16)(r)
		}, seg22 + ".log", CodeMagic, Error, batchOf + 3},
		{"log: a sealed segment is cut short", short(seg22+".log", 5), seg22 + ".log", CodeTail, Error, batchOf + 15},
		{"log: the active segment is cut short after a clean stop", short(seg48+".log", 5), seg48 + ".log", CodeTail, Error, 0},
		{"log: the active segment is cut short by a crash", unclean(func(r room) {
			short(seg48+".log", 5)(r)
			put("recovery-point-offset-checkpoint", "0\n1\ntxn 1 48\n")(r)
		}), seg48 + ".log", CodeTail, Warning, 0},
		{"log: what had reached the disk is gone after a crash", unclean(short(seg48+".log", 5)), "recovery-point-offset-checkpoint", CodeCheckpointLog, Error, -1},
		{"log: a sealed segment is empty", put(seg22+".log", ""), seg48 + ".log", CodeHole, Error, -1},
		{"log: the active segment is empty after a clean stop", put(seg48+".log", ""), "recovery-point-offset-checkpoint", CodeCheckpointLog, Error, -1},
		{"log: missing from the middle, its indexes are there", gone(seg22 + ".log"), seg22 + ".log", CodeHole, Error, -1},
		{"log: missing from the middle with all its files", gone(seg22+".log", seg22+".index", seg22+".timeindex", seg22+".txnindex"), seg48 + ".log", CodeHole, Error, -1},
		{"log: the last is missing", gone(seg48 + ".log"), "recovery-point-offset-checkpoint", CodeCheckpointLog, Error, -1},
		{"log: the first is missing", gone(seg0 + ".log"), seg0 + ".index", CodeNoLog, Warning, -1},
		{"log: under the number of another segment", func(r room) { r.rename(seg22+".log", "txn-1/00000000000000000023.log") },
			"txn-1/00000000000000000023.log", CodeOffsets, Error, 0},
		{"log: under a name that is none", func(r room) { r.rename(seg22+".log", "txn-1/22.log") }, "txn-1/22.log", CodeUnknown, Error, -1},
		{"log: two overlap", func(r room) { r.write("txn-1/00000000000000000030.log", r.read(seg22+".log")) }, "txn-1/00000000000000000030.log", CodeRange, Error, -1},
		{"log: zeros behind the end after a clean stop", func(r room) { r.write(seg48+".log", append(r.read(seg48+".log"), make([]byte, 700)...)) }, seg48 + ".log", CodeTail, Error, 78},
		{"log: zeros behind the end after a crash", unclean(func(r room) { r.write(seg48+".log", append(r.read(seg48+".log"), make([]byte, 700)...)) }), seg48 + ".log", CodeTail, Warning, 78},
		{"log: a hole in the middle", func(r room) {
			at, size := r.batch(seg22+".log", 3)
			data := r.read(seg22 + ".log")
			clear(data[at : at+size+20])
			r.write(seg22+".log", data)
		}, seg22 + ".log", CodeFraming, Error, batchOf + 3},
		{"log: damage behind a hole", func(r room) {
			at, _ := r.batch(seg22+".log", 3)
			next, size := r.batch(seg22+".log", 9)
			data := r.read(seg22 + ".log")
			clear(data[at : at+30])
			data[next+size-2] ^= 1
			r.write(seg22+".log", data)
		}, seg22 + ".log", CodeChecksum, Error, batchOf + 9},
		{"log: stray bytes at the end", func(r room) { r.write(seg48+".log", append(r.read(seg48+".log"), bytes.Repeat([]byte{7}, 777)...)) }, seg48 + ".log", CodeTail, Error, 78},

		{"index: an entry that points elsewhere", flipAt(seg22+".index", 7), seg22 + ".index", CodeIndexPosition, Error, 0},
		{"index: short", short(seg22+".index", 3), seg22 + ".index", CodeIndexSize, Error, 0},
		{"index: empty, which is a sparse one", put(seg22+".index", ""), seg22 + ".index", "", Error, 0},
		{"index: missing", gone(seg22 + ".index"), seg22 + ".index", CodeIndexMissing, Warning, -1},
		{"index: of another segment", func(r room) { r.write(seg22+".index", r.read(seg0+".index")) }, seg22 + ".index", CodeIndexPosition, Error, 0},
		{"index: entries that do not rise", func(r room) {
			data := r.read(seg22 + ".index")
			r.write(seg22+".index", append(data, data...))
		}, seg22 + ".index", CodeIndexOrder, Error, 8},
		{"index: a zero entry between others", func(r room) {
			data := r.read(seg22 + ".index")
			r.write(seg22+".index", append(make([]byte, 8), data...))
		}, seg22 + ".index", CodeIndexOrder, Error, 0},
		{"time index: another time", flipAt(seg22+".timeindex", 3), seg22 + ".timeindex", CodeTimestamp, Error, 0},
		{"time index: another offset", flipAt(seg22+".timeindex", 11), seg22 + ".timeindex", CodeTimeOffset, Error, 0},
		{"time index: short", short(seg22+".timeindex", 5), seg22 + ".timeindex", CodeTimeSize, Error, 12},
		{"time index: empty", put(seg22+".timeindex", ""), seg22 + ".timeindex", CodeTimestamp, Warning, -1},
		{"time index: missing", gone(seg22 + ".timeindex"), seg22 + ".timeindex", CodeTimeMissing, Warning, -1},
		{"time index: entries that do not rise", func(r room) {
			data := r.read(seg22 + ".timeindex")
			r.write(seg22+".timeindex", append(data, data...))
		}, seg22 + ".timeindex", CodeTimeOrder, Error, 24},

		{"transaction index: a tail that is no entry", short(seg22+".txnindex", 4), seg22 + ".txnindex", CodeTxnIndex, Error, 3 * 34},
		{"transaction index: another version", flipAt(seg22+".txnindex", 1), seg22 + ".txnindex", CodeTxnIndex, Error, 0},
		{"transaction index: another producer", flipAt(seg22+".txnindex", 9), seg22 + ".txnindex", CodeTxnMarker, Error, 0},
		{"transaction index: another first offset", flipAt(seg22+".txnindex", 17), seg22 + ".txnindex", CodeTxnOrder, Error, 0},
		{"transaction index: empty", put(seg22+".txnindex", ""), seg22 + ".txnindex", CodeTxnMarker, Warning, -1},
		{"transaction index: missing", gone(seg22 + ".txnindex"), seg22 + ".txnindex", CodeTxnMarker, Error, -1},

		{"snapshot: a flipped bit", flipAt(seg48+".snapshot", 20), seg48 + ".snapshot", CodeSnapshot, Error, 0},
		{"snapshot: short", short(seg48+".snapshot", 20), seg48 + ".snapshot", CodeSnapshot, Error, 0},
		{"snapshot: empty", put(seg48+".snapshot", ""), seg48 + ".snapshot", CodeSnapshot, Error, 0},
		{"snapshot: of records that are not there", func(r room) { r.rename(seg48+".snapshot", "txn-1/00000000000000000090.snapshot") },
			"txn-1/00000000000000000090.snapshot", CodeSnapshotRange, Error, -1},
		{"snapshot: all are missing", gone("long-0/00000000000000000017.snapshot"), "long-0/00000000000000000017.snapshot", CodeNoSnapshot, Warning, -1},

		{"leader epochs: nonsense", put("txn-1/leader-epoch-checkpoint", "0\nx\n"), "txn-1/leader-epoch-checkpoint", CodeCheckpoint, Error, -1},
		{"leader epochs: short", short("txn-1/leader-epoch-checkpoint", 3), "txn-1/leader-epoch-checkpoint", CodeCheckpoint, Error, -1},
		{"leader epochs: that fall", put("txn-1/leader-epoch-checkpoint", "0\n2\n1 0\n0 5\n"), "txn-1/leader-epoch-checkpoint", CodeEpochFile, Error, -1},
		{"leader epochs: beyond the end", put("txn-1/leader-epoch-checkpoint", "0\n2\n0 0\n1 100000\n"), "txn-1/leader-epoch-checkpoint", CodeEpochRange, Error, -1},
		{"leader epochs: empty", put("txn-1/leader-epoch-checkpoint", ""), "txn-1/leader-epoch-checkpoint", CodeNoEpochs, Warning, -1},
		{"leader epochs: missing", gone("txn-1/leader-epoch-checkpoint"), "txn-1/leader-epoch-checkpoint", CodeNoEpochs, Warning, -1},

		{"partition.metadata: nonsense", put("txn-1/partition.metadata", "x"), "txn-1/partition.metadata", CodePartition, Error, -1},
		{"partition.metadata: short", short("txn-1/partition.metadata", 9), "txn-1/partition.metadata", CodePartition, Error, -1},
		{"partition.metadata: empty", put("txn-1/partition.metadata", ""), "txn-1/partition.metadata", CodePartition, Error, -1},
		{"partition.metadata: missing", gone("txn-1/partition.metadata"), "txn-1/partition.metadata", CodePartition, Error, -1},
		{"partition.metadata: another topic's", func(r room) { r.write("txn-1/partition.metadata", r.read("idem-0/partition.metadata")) },
			"txn-1/partition.metadata", CodeTopicID, Error, -1},

		{"recovery point: nonsense", put("recovery-point-offset-checkpoint", "0\nx\n"), "recovery-point-offset-checkpoint", CodeCheckpoint, Error, -1},
		{"recovery point: short", short("recovery-point-offset-checkpoint", 9), "recovery-point-offset-checkpoint", CodeCheckpoint, Error, -1},
		{"recovery point: empty", put("recovery-point-offset-checkpoint", ""), "recovery-point-offset-checkpoint", CodeNoCheckpoint, Warning, -1},
		{"recovery point: missing", gone("recovery-point-offset-checkpoint"), "recovery-point-offset-checkpoint", CodeNoCheckpoint, Warning, -1},
		{"recovery point: from the future", put("recovery-point-offset-checkpoint", "0\n1\ntxn 1 5000\n"), "recovery-point-offset-checkpoint", CodeCheckpointLog, Error, -1},
		{"log start: nonsense", put("log-start-offset-checkpoint", "0\n1\ntxn"), "log-start-offset-checkpoint", CodeCheckpoint, Error, -1},
		{"log start: empty", put("log-start-offset-checkpoint", ""), "log-start-offset-checkpoint", CodeNoCheckpoint, Warning, -1},
		{"log start: missing", gone("log-start-offset-checkpoint"), "log-start-offset-checkpoint", CodeNoCheckpoint, Warning, -1},
		{"log start: from the future", put("log-start-offset-checkpoint", "0\n1\ntxn 1 5000\n"), "log-start-offset-checkpoint", CodeCheckpointLog, Error, -1},
		{"high watermark: nonsense", put("replication-offset-checkpoint", "1\n0\n"), "replication-offset-checkpoint", CodeCheckpoint, Error, -1},
		{"high watermark: missing", gone("replication-offset-checkpoint"), "replication-offset-checkpoint", CodeNoCheckpoint, Warning, -1},
		{"high watermark: from the future", put("replication-offset-checkpoint", "0\n1\ntxn 1 5000\n"), "replication-offset-checkpoint", CodeCheckpointLog, Error, -1},
		{"cleaner: nonsense", put("cleaner-offset-checkpoint", "0\n5\n"), "cleaner-offset-checkpoint", CodeCheckpoint, Error, -1},
		{"cleaner: missing", gone("cleaner-offset-checkpoint"), "cleaner-offset-checkpoint", CodeNoCheckpoint, Note, -1},

		{"clean marker: without a broker epoch", put(".kafka_cleanshutdown", "x"), ".kafka_cleanshutdown", CodeCleanMarker, Warning, -1},
		{"clean marker: empty", put(".kafka_cleanshutdown", ""), ".kafka_cleanshutdown", CodeCleanMarker, Warning, -1},
		{"clean marker: missing", gone(".kafka_cleanshutdown"), ".kafka_cleanshutdown", CodeCleanMarker, Note, -1},
		{"meta.properties: nonsense", put("meta.properties", "version=7\n"), "meta.properties", CodeMeta, Error, -1},
		{"meta.properties: empty", put("meta.properties", ""), "meta.properties", CodeMeta, Error, -1},
		{"meta.properties: missing", gone("meta.properties"), "meta.properties", CodeMeta, Error, -1},
		{".lock: whatever is in it", put(".lock", "here"), ".lock", "", Error, 0},

		{"metadata log: a flipped bit", func(r room) {
			at, size := r.batch(meta+".log", 20)
			flipAt(meta+".log", int(at+size-2))(r)
		}, meta + ".log", CodeChecksum, Error, batchOf + 20},
		{"metadata log: a torn tail", short(meta+".log", 7), meta + ".log", CodeTail, Warning, batchOf + 81},
		{"metadata log: missing", gone(meta + ".log"), meta + ".log", CodeNoMetadata, Error, -1},
		{"metadata log: empty", put(meta+".log", ""), meta + ".log", CodeNoMetadata, Error, -1},
		{"metadata log: missing, and its indexes are left for a copy of it", gone(meta + ".log"), meta + ".index", "", Error, -1},
		{"partition: one that its topic has not", func(r room) {
			if err := r.disk.MkdirAll("/data/txn-77", 0o755); err != nil {
				r.t.Fatal(err)
			}
			r.write("txn-77/00000000000000000000.log", r.read("idem-0/00000000000000000000.log"))
		}, "txn-77/partition.metadata", CodeStray, Warning, -1},
		{"metadata log: a record that nobody can read", func(r room) {
			at, size := r.batch(meta+".log", 20)
			data := r.read(meta + ".log")
			b := data[at : at+size]
			for i := record.HeaderSize + 8; i < len(b)-1; i++ {
				b[i] = 0x7f // another type of record
			}
			binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
			r.write(meta+".log", data)
		}, meta + ".log", CodeMetadata, Error, batchOf + 20},
		{"metadata log: its start is gone and no snapshot has it", func(r room) { r.rename(meta+".log", "__cluster_metadata-0/00000000000000000060.log") },
			"__cluster_metadata-0", CodeKRaftSnapshot, Error, -1},
		{"metadata snapshot: a flipped bit", flipAt(meta+"-0000000000.checkpoint", 200), meta + "-0000000000.checkpoint", CodeChecksum, Error, -2},
		{"metadata snapshot: short", short(meta+"-0000000000.checkpoint", 20), meta + "-0000000000.checkpoint", CodeKRaftSnapshot, Error, -2},
		{"metadata snapshot: empty", put(meta+"-0000000000.checkpoint", ""), meta + "-0000000000.checkpoint", CodeKRaftSnapshot, Error, -1},
		{"quorum-state: nonsense", put("__cluster_metadata-0/quorum-state", "{}{"), "__cluster_metadata-0/quorum-state", CodeQuorumState, Warning, -1},
		{"quorum-state: empty", put("__cluster_metadata-0/quorum-state", ""), "__cluster_metadata-0/quorum-state", CodeQuorumState, Warning, -1},
		{"quorum-state: missing", gone("__cluster_metadata-0/quorum-state"), "__cluster_metadata-0/quorum-state", CodeQuorumState, Warning, -1},
		{"internal topics: a flipped bit", flipAt("__transaction_state-3/00000000000000000000.log", -2), "__transaction_state-3/00000000000000000000.log", CodeChecksum, Error, -2},

		{"unknown: a file beside the partitions", put("notes.txt", "x"), "notes.txt", CodeUnknown, Note, -1},
		{"unknown: a file in a partition", put("txn-1/notes.txt", "x"), "txn-1/notes.txt", CodeUnknown, Note, -1},
		{"unknown: a directory in a partition", func(r room) {
			if err := r.disk.Mkdir(r.path("txn-1/sub"), 0o755); err != nil {
				r.t.Fatal(err)
			}
		}, "txn-1/sub", CodeUnknown, Note, -1},
		{"unknown: a directory beside the partitions", func(r room) {
			if err := r.disk.Mkdir(r.path("lost+found"), 0o755); err != nil {
				r.t.Fatal(err)
			}
		}, "lost+found", CodeForeign, Error, -1},
		{"unknown: what recovery set aside", put(seg22+".log.cut", "x"), seg22 + ".log.cut", CodeKept, Note, -1},
		{"unknown: what a compaction left", put(seg22+".log.cleaned", "x"), seg22 + ".log.cleaned", CodeLeftover, Note, -1},
		{"unknown: a file where a partition should be", put("other-0", "x"), "other-0", CodeUnreadable, Error, -1},
	}
}

// faultDisk is a directory after a clean stop, its preallocated indexes cut to a page.
func faultDisk(t *testing.T) *memfs.FS {
	t.Helper()
	disk := memfs.New()
	golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").UnpackTo(t, disk, "/data")
	for _, name := range []string{meta + ".index", meta + ".timeindex"} {
		f, err := disk.OpenFile("/data/"+name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(4800), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := disk.ReadDir("/data")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries { // fifty of them hold nothing
		if e.IsDir() && (strings.HasPrefix(e.Name(), "__consumer_offsets-") || strings.HasPrefix(e.Name(), "__transaction_state-") && e.Name() != "__transaction_state-3") {
			files, err := disk.ReadDir("/data/" + e.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if err := disk.Remove(filepath.Join("/data", e.Name(), f.Name())); err != nil {
					t.Fatal(err)
				}
			}
			if err := disk.Remove("/data/" + e.Name()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return disk
}

// Every row of the catalogue of damage is named: code, severity, file and byte,
// and the exit status goes by it. Nothing is written.
func TestEveryRowOfTheCatalogueIsNamed(t *testing.T) {
	whole := faultDisk(t)
	o := Options{FS: whole, Paths: []string{"/data"}, Node: true, Parallel: 1}
	if r, err := Check(t.Context(), o); err != nil || r.Count(Error)+r.Count(Warning) > 0 {
		t.Fatalf("before: %v %v", r.Findings, err)
	}
	for _, tt := range faultCases() {
		t.Run(tt.name, func(t *testing.T) {
			r := room{t, whole.Crash(memfs.KeepAll())}
			want := tt.position
			if want >= batchOf {
				want, _ = room{t, whole}.batch(tt.file, int(want-batchOf))
			}
			tt.damage(r)
			o := o
			o.FS = readOnly{r.disk, t}
			got, err := Check(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			hit := false
			for _, f := range got.Findings {
				if f.File != r.path(tt.file) {
					if part, _, inside := strings.Cut(tt.file, "/"); f.Severity == Error && inside && !strings.HasPrefix(f.File, r.path(part)) && f.Code != CodeCheckpointLog {
						t.Errorf("an error elsewhere: %v", f)
					}
					continue
				}
				if tt.code == "" && f.Severity > Note {
					t.Errorf("found %v", f)
				}
				hit = hit || f.Code == tt.code && f.Severity == tt.severity && (f.Position == want || want == -2)
			}
			if !hit && tt.code != "" {
				t.Errorf("want %v %s at %d of %s, found", tt.severity, tt.code, want, tt.file)
				for _, f := range got.Findings {
					if f.Severity > Note || f.File == r.path(tt.file) {
						t.Log(f)
					}
				}
			}
			var out, errs strings.Builder
			status := Run(t.Context(), o, &out, &errs)
			if wantStatus := map[bool]int{true: ExitProblems, false: ExitClean}[got.Count(Error) > 0]; status != wantStatus {
				t.Errorf("status %d with %d errors, want %d", status, got.Count(Error), wantStatus)
			}
			if tt.severity == Error && tt.code != "" && status != ExitProblems {
				t.Errorf("status %d", status)
			}
			if tt.severity < Error && status != ExitClean {
				t.Errorf("status %d for no more than a %v: %v", status, tt.severity, got.Findings)
			}
		})
	}
}

// --fast reads headers: framing and order, no checksum. --deep reads what is in
// the records too, which a checksum says nothing of.
func TestFastReadsHeadersAndDeepReadsRecords(t *testing.T) {
	whole := faultDisk(t)
	nonsense := func(r room) { // a batch with a right checksum around bytes that are no record
		at, size := r.batch(seg22+".log", 3)
		data := r.read(seg22 + ".log")
		b := data[at : at+size]
		clear(b[record.HeaderSize:])
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
		r.write(seg22+".log", data)
	}
	checksum := func(r room) {
		at, size := r.batch(seg22+".log", 3)
		flipAt(seg22+".log", int(at+size-2))(r)
	}
	tests := []struct {
		name              string
		damage            func(r room)
		code              Code
		fast, plain, deep bool // whether it is found
	}{
		{"records", nonsense, CodeRecords, false, false, true},
		{"a checksum", checksum, CodeChecksum, false, true, true},
		{"a length", func(r room) {
			at, _ := r.batch(seg22+".log", 3)
			flipAt(seg22+".log", int(at)+8)(r)
		}, CodeFraming, true, true, true},
		{"an index entry", flipAt(seg22+".index", 7), CodeIndexPosition, true, true, true},
	}
	for _, tt := range tests {
		r := room{t, whole.Crash(memfs.KeepAll())}
		tt.damage(r)
		for _, mode := range []struct {
			o    Options
			want bool
		}{{Options{Fast: true}, tt.fast}, {Options{}, tt.plain}, {Options{Deep: true}, tt.deep}} {
			mode.o.FS, mode.o.Paths = r.disk, []string{"/data"}
			got, err := Check(t.Context(), mode.o)
			if err != nil {
				t.Fatal(err)
			}
			if found := slices.ContainsFunc(got.Findings, func(f Finding) bool { return f.Code == tt.code && f.Severity == Error }); found != mode.want {
				t.Errorf("%s, fast %v, deep %v: found is %v, want %v: %v", tt.name, mode.o.Fast, mode.o.Deep, found, mode.want, got.Findings)
			}
		}
	}
}

// What stands in place of a file and is none is named, and not waited for: a FIFO
// would block the reader for ever.
func TestWhatIsNoFileIsNamed(t *testing.T) {
	whole := faultDisk(t)
	kinds := map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"symlink":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"fifo":      func(path string) error { return unix.Mkfifo(path, 0o644) },
	}
	names := []string{
		seg22 + ".log", seg22 + ".index", seg22 + ".timeindex", seg22 + ".txnindex", seg48 + ".snapshot", "txn-1/leader-epoch-checkpoint", "txn-1/partition.metadata",
		"recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint",
		"meta.properties", ".kafka_cleanshutdown", meta + ".log", meta + "-0000000000.checkpoint", "__cluster_metadata-0/quorum-state",
	}
	dir := t.TempDir()
	copyOut(t, whole, "/data", dir)
	for _, name := range names {
		for kind, make := range kinds {
			path, aside := filepath.Join(dir, name), filepath.Join(dir, "..", "aside")
			if err := errors.Join(os.Rename(path, aside), make(path)); err != nil {
				t.Fatal(err)
			}
			r := check(t, Options{Paths: []string{dir}, Node: true, Parallel: 1})
			if !slices.ContainsFunc(r.Findings, func(f Finding) bool {
				return f.File == path && f.Severity == Error && strings.Contains(f.Message, "not a regular file")
			}) {
				t.Errorf("a %s as %s: found %v", kind, name, r.Findings)
			}
			if err := errors.Join(os.Remove(path), os.Rename(aside, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(os.Rename(filepath.Join(dir, "txn-1"), filepath.Join(dir, "..", "aside")), os.Symlink("../aside", filepath.Join(dir, "txn-1"))); err != nil {
		t.Fatal(err)
	}
	r := check(t, Options{Paths: []string{dir}, Node: true, Parallel: 1})
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.File == filepath.Join(dir, "txn-1") && f.Code == CodeUnreadable }) {
		t.Errorf("a link to a partition: found %v", r.Findings)
	}
}

// copyOut writes a directory of the memory disk to the real one.
func copyOut(t *testing.T, from vfs.FS, dir, to string) {
	t.Helper()
	entries, err := from.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path, target := filepath.Join(dir, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			if err := os.Mkdir(target, 0o755); err != nil {
				t.Fatal(err)
			}
			copyOut(t, from, path, target)
			continue
		}
		data, err := vfs.ReadFile(from, path)
		if err := errors.Join(err, os.WriteFile(target, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}
