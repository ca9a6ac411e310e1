package repair

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// clean is a directory after a clean stop: five partitions with transactions, one
// of the internal topics, and the metadata log, its preallocated indexes cut.
func clean(t testing.TB) *memfs.FS {
	t.Helper()
	all := memfs.New()
	golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").UnpackTo(t, all, "/all")
	disk := memfs.New()
	for path, data := range files(t, all, "/all") {
		rel := strings.TrimPrefix(path, "/all/")
		if strings.HasPrefix(rel, "__consumer_offsets-") || strings.HasPrefix(rel, "__transaction_state-") && !strings.HasPrefix(rel, "__transaction_state-3/") {
			continue
		}
		write(t, disk, "/data/"+rel, data)
	}
	return disk
}

// served are the batches that a broker serves from a partition after its start,
// each read by its offset; none when the partition is refused.
func served(t *testing.T, disk *memfs.FS, dir string) map[string]bool {
	t.Helper()
	disk = disk.Crash(memfs.KeepAll())
	tp, _ := livePartition(dir)
	points, _ := checkpoint.ReadOffsets(disk, filepath.Join(filepath.Dir(dir), checkpoint.RecoveryPointFile))
	_, found, _ := checkpoint.ReadCleanShutdown(disk, filepath.Dir(dir))
	out := map[string]bool{}
	l, err := commitlog.Open(commitlog.Options{
		FS: disk, Dir: dir, Partition: tp, Config: commitlog.DefaultConfig(), CleanShutdown: found, RecoveryPoint: points[tp],
		Now: func() time.Time { return time.UnixMilli(1_800_000_000_000) },
	})
	if err != nil {
		return out
	}
	for at := l.StartOffset(); at < l.EndOffset(); {
		info, err := l.Read(at, commitlog.ReadOptions{MaxBytes: 1, MinOneBatch: true, Bound: commitlog.LogEnd})
		var b record.Batch
		if err == nil && info.Region.Length > 0 {
			b = make([]byte, info.Region.Length)
			_, err = info.Region.File.ReadAt(b, info.Region.Offset)
		}
		if info.Region.Release != nil {
			info.Region.Release()
		}
		at++
		if err == nil && len(b) >= record.HeaderSize && record.Check(b) == nil {
			out[string(b)] = true
			h, _ := record.ParseHeader(b)
			at = max(at, h.NextOffset())
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

const (
	log22 = "txn-1/00000000000000000022"
	log48 = "txn-1/00000000000000000048"
)

// Each kind of plan: what it says, what it keeps, and what is there afterwards. No
// batch that a broker served before is one that it does not serve after it.
func TestEachKindOfPlan(t *testing.T) {
	type room map[string]string
	edit := func(name string, change func(b []byte) []byte) func(room) {
		return func(r room) { r["/data/"+name] = string(change([]byte(r["/data/"+name]))) }
	}
	gone := func(names ...string) func(room) {
		return func(r room) {
			for _, name := range names {
				delete(r, "/data/"+name)
			}
		}
	}
	flip := func(at int) func(b []byte) []byte {
		return func(b []byte) []byte { b[(at+len(b))%len(b)] ^= 0x10; return b }
	}
	tests := []struct {
		name   string
		damage func(room)
		allow  bool
		want   string // the plan
		kept   string // file that holds what went
		full   bool   // the file is again what it was
		loses  int    // batches that go, and may
	}{
		{"an index that contradicts its log is rebuilt", edit(log22+".index", flip(7)), false, "rebuild index txn-1/00000000000000000022.index\n", log22 + ".index.cut", true, 0},
		{"a time index that is missing is rebuilt", gone(log22 + ".timeindex"), false, "rebuild index txn-1/00000000000000000022.timeindex\n", "", true, 0},
		{"a transaction index that is missing is rebuilt", gone(log22 + ".txnindex"), false, "rebuild index txn-1/00000000000000000022.txnindex\n", "", true, 0},
		{"a torn tail is cut and kept", edit(log48+".log", func(b []byte) []byte { return append(b, "stray bytes"...) }), false,
			"truncate txn-1/00000000000000000048.log from 89 to 78: drops offsets from 49 on\n", log48 + ".log.cut", true, 0},
		{"a bad batch in the middle is held without leave", edit(log22+".log", flip(3000)), false, "held", "", false, 0},
		{"a bad batch in the middle is taken out with leave, and the whole old log is kept", edit(log22+".log", flip(3000)), true, "move aside", log22 + ".log.cut", false, 0},
		{"a missing segment in the middle is held without leave", gone(log22 + ".log"), false, "held", "", false, 0},
		{"a missing segment in the middle is accepted with leave", gone(log22 + ".log"), true, "move aside", log22 + ".index.cut", false, 0},
		{"a snapshot that cannot be read is rebuilt", edit("txn-1/00000000000000000049.snapshot", flip(20)), false, "rebuild snapshot txn-1/00000000000000000049.snapshot: 4 producers\n", "txn-1/00000000000000000049.snapshot.cut", true, 0},
		{"the last snapshot is missing and is rebuilt", gone("long-0/00000000000000000017.snapshot"), false, "rebuild snapshot long-0/00000000000000000017.snapshot: 4 producers\n", "", true, 0},
		{"leader epochs that are missing are read from the log", gone("txn-1/leader-epoch-checkpoint"), false, "rewrite checkpoint txn-1/leader-epoch-checkpoint: from the batches of the log\n", "", true, 0},
		{"leader epochs of nonsense are read from the log", edit("txn-1/leader-epoch-checkpoint", flip(0)), false, "rewrite checkpoint txn-1/leader-epoch-checkpoint: from the batches of the log\n", "txn-1/leader-epoch-checkpoint.cut", true, 0},
		{"a recovery point of nonsense is written anew", edit("recovery-point-offset-checkpoint", flip(0)), false, "rewrite checkpoint recovery-point", "recovery-point-offset-checkpoint.cut", false, 0},
		{"a log start of nonsense is written anew", edit("log-start-offset-checkpoint", flip(0)), false, "rewrite checkpoint log-start", "log-start-offset-checkpoint.cut", true, 0},
		{"a high watermark of nonsense is written anew", edit("replication-offset-checkpoint", flip(0)), false, "rewrite checkpoint replication", "replication-offset-checkpoint.cut", false, 0},
		{"a cleaner checkpoint of nonsense is written anew", edit("cleaner-offset-checkpoint", func([]byte) []byte { return []byte("x") }), false, "rewrite checkpoint cleaner", "cleaner-offset-checkpoint.cut", false, 0},
		{"partition.metadata that is missing is written from the metadata log", gone("txn-1/partition.metadata"), false, "rewrite checkpoint txn-1/partition.metadata: topic id ", "", true, 0},
		{"partition.metadata of nonsense is written from the metadata log", edit("txn-1/partition.metadata", func([]byte) []byte { return []byte("x") }), false, "rewrite checkpoint txn-1/partition.metadata: topic id ", "txn-1/partition.metadata.cut", true, 0},
		{"an index without its log is moved aside", edit("txn-1/00000000000000000070.index", func([]byte) []byte { return make([]byte, 8) }), false, "move aside txn-1/00000000000000000070.index: an index without its log\n", "txn-1/00000000000000000070.index.cut", false, 0},
		{"a segment of other numbers is left: nothing says which is right", edit("txn-1/00000000000000000030.log", func([]byte) []byte { return nil }), false, "left", "", false, 0},
		{"the identity of the directory is left", gone("meta.properties"), false, "left", "", false, 0},
		{"the metadata log is left", edit("__cluster_metadata-0/00000000000000000000.log", flip(3000)), true, "left", "", false, 0},
	}
	start := clean(t)
	whole := files(t, start, "/data")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := room(maps.Clone(whole))
			tt.damage(r)
			disk := memfs.New()
			for path, data := range r {
				write(t, disk, path, data)
			}
			parts := []string{"/data/idem-0", "/data/long-0", "/data/txn-0", "/data/txn-1", "/data/txn-2"}
			before := map[string]map[string]bool{}
			for _, dir := range parts {
				before[dir] = served(t, disk, dir)
			}
			o := Options{FS: disk, Paths: []string{"/data"}, AllowDataLoss: tt.allow, Parallel: 1}
			plan := mustMake(t, o)
			if got := lines(plan); !strings.Contains(got, tt.want) || strings.HasSuffix(tt.want, "\n") && got != tt.want {
				t.Fatalf("plan\n%s\nwant %s", got, tt.want)
			}
			for path, data := range files(t, disk, "/data") {
				if r[path] != data {
					t.Fatalf("%s was changed by the plan", path)
				}
			}
			_, result := mustApply(t, o)
			for _, f := range result.Findings {
				said := slices.ContainsFunc(plan.Left, func(l verify.Finding) bool { return l.Code == f.Code && l.File == f.File }) || len(plan.Held) > 0
				if f.Severity == verify.Error && !said {
					t.Errorf("after it: %v", f)
				}
			}
			after := files(t, disk, "/data")
			if tt.kept != "" && (after["/data/"+tt.kept] == "" && r["/data/"+strings.TrimSuffix(tt.kept, cutSuffix)] != "" || !strings.HasSuffix(r["/data/"+strings.TrimSuffix(tt.kept, cutSuffix)], after["/data/"+tt.kept])) {
				t.Errorf("%s holds %q", tt.kept, after["/data/"+tt.kept])
			}
			touched := map[string]bool{}
			for i := range plan.Steps {
				touched[plan.Steps[i].File] = true
			}
			for path, data := range r {
				dir, _, _ := strings.Cut(path, ".")
				if !touched[path] && !touched[dir+".log"] && after[path] != data {
					t.Errorf("%s was changed without a step", path)
				}
			}
			for path, data := range whole {
				if tt.full && touched[path] && after[path] != data {
					t.Errorf("%s is %q, was %q", path, after[path], data)
				}
			}
			for _, dir := range parts {
				if n := missing(served(t, disk, dir), before[dir]); n > tt.loses {
					t.Errorf("%d batches of %s are not served any more", n, dir)
				}
			}
			if again := mustMake(t, o); len(again.Steps) > 0 {
				t.Errorf("another plan:\n%s", lines(again))
			}
		})
	}
}

// What stands in place of a file and is none is moved aside for one that is made
// anew; a .log in whose place something else stands is left, and does not end the
// repair of everything else.
func TestWhatIsNoFileIsReplaced(t *testing.T) {
	start := clean(t)
	whole := files(t, start, "/data")
	kinds := map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"symlink":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"fifo":      func(path string) error { return unix.Mkfifo(path, 0o644) },
	}
	replaced := []string{
		log22 + ".index", log22 + ".timeindex", log22 + ".txnindex", "txn-1/00000000000000000049.snapshot",
		"txn-1/leader-epoch-checkpoint", "txn-1/partition.metadata", "recovery-point-offset-checkpoint",
	}
	for kind, make := range kinds {
		dir := t.TempDir()
		for path, data := range whole {
			path = filepath.Join(dir, strings.TrimPrefix(path, "/data"))
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		broken := filepath.Join(dir, "txn-2", "00000000000000000000.log")
		for _, name := range append(replaced, "txn-2/00000000000000000000.log") {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.Remove(path), make(path)); err != nil {
				t.Fatal(err)
			}
		}
		plan, result := mustApply(t, Options{FS: vfs.OS(), Paths: []string{dir}, Parallel: 1})
		for _, f := range result.Findings {
			if f.Severity == verify.Error && filepath.Dir(f.File) != filepath.Dir(broken) && !slices.Contains(plan.Left, f) && !strings.Contains(f.Message, "txn-2") {
				t.Errorf("%s: after it: %v", kind, f)
			}
		}
		if !slices.ContainsFunc(plan.Left, func(f verify.Finding) bool { return f.File == broken }) {
			t.Errorf("%s: %s is not left: %s", kind, broken, lines(plan))
		}
		for _, name := range replaced {
			path := filepath.Join(dir, name)
			if kind == "directory" && filepath.Dir(name) == "." {
				continue // Kafka does not start with a directory of that name, nor of another
			}
			info, err := os.Lstat(path)
			kept, keptErr := os.Lstat(path + cutSuffix)
			if err != nil || !info.Mode().IsRegular() || keptErr != nil || kept.Mode().IsRegular() {
				t.Errorf("%s as %s: replaced %v, kept %v", kind, name, err, keptErr)
				continue
			}
			if data, _ := os.ReadFile(path); string(data) != whole["/data/"+name] && name != "recovery-point-offset-checkpoint" {
				t.Errorf("%s as %s: %q, was %q", kind, name, data, whole["/data/"+name])
			}
		}
	}
}

// What verify calls a stray, because its topic has not that many partitions, gets
// no partition.metadata: a start sets it aside.
func TestAPartitionThatItsTopicHasNotIsNotMended(t *testing.T) {
	for _, content := range []string{"", "nonsense"} {
		disk := clean(t)
		write(t, disk, "/data/txn-77/00000000000000000000.log", content)
		if content != "" {
			write(t, disk, "/data/txn-77/00000000000000000000.log", "")
			write(t, disk, "/data/txn-77/partition.metadata", content)
		}
		plan := mustMake(t, Options{FS: disk, Paths: []string{"/data"}, Node: true})
		if got := lines(plan); strings.Contains(got, "txn-77/partition.metadata") {
			t.Errorf("partition.metadata %q: %s", content, got)
		}
	}
}

// A metadata log that is lost is left, and nothing beside it is moved away.
func TestALostMetadataLogIsLeft(t *testing.T) {
	for _, empty := range []bool{true, false} {
		disk := clean(t)
		const log = "/data/__cluster_metadata-0/00000000000000000000.log"
		if err := disk.Remove(log); err != nil {
			t.Fatal(err)
		}
		if empty {
			write(t, disk, log, "")
		}
		plan := mustMake(t, Options{FS: disk, Paths: []string{"/data"}, Node: true})
		if len(plan.Left) != 1 || plan.Left[0].Code != verify.CodeNoMetadata || strings.Contains(lines(plan), "aside") {
			t.Errorf("empty %v: %s", empty, lines(plan))
		}
	}
}
