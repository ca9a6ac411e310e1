package repair

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

var update = flag.Bool("update", false, "write the plans into testdata")

func mustMake(t testing.TB, o Options) Plan {
	t.Helper()
	p, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mustApply(t testing.TB, o Options) (Plan, verify.Result) {
	t.Helper()
	p, r, err := Apply(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

// lines is a plan as it is printed, without the directory.
func lines(p Plan) string {
	var b strings.Builder
	for i := range p.Steps {
		b.WriteString(strings.ReplaceAll(p.Steps[i].String(), "/data/", "") + "\n")
	}
	for i := range p.Held {
		b.WriteString("held: " + strings.ReplaceAll(p.Held[i].String(), "/data/", "") + "\n")
	}
	for _, f := range p.Left {
		b.WriteString("left: " + strings.ReplaceAll(f.String(), "/data/", "") + "\n")
	}
	return b.String()
}

// files reads every file below a directory; a preallocated tail of zeros is cut.
func files(t testing.TB, fsys vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			for name, data := range files(t, fsys, path) {
				out[name] = data
			}
			continue
		}
		out[path] = content(t, fsys, path)
	}
	return out
}

func content(t testing.TB, fsys vfs.FS, path string) string {
	t.Helper()
	f, err := fsys.OpenFile(path, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	if size > 1<<20 {
		size = 65520 // whole entries of a preallocated index
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); n < len(b) {
		t.Fatal(err)
	}
	return string(b)
}

// batches are the whole batches with a right checksum of a partition's logs, by
// their bytes: where they are does not count.
func batches(t testing.TB, fsys vfs.FS, dir string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for path, data := range files(t, fsys, dir) {
		if n, ok := segment.ParseName(filepath.Base(path)); !ok || n.Ext != segment.LogExt || n.Suffix != "" {
			continue
		}
		s := record.NewScanner(bytes.NewReader([]byte(data)), 0, int64(len(data)), 1<<16)
		for s.Next() {
			if b, err := s.Batch(); err == nil && record.Check(b) == nil {
				out[string(b)] = true
			}
		}
	}
	return out
}

// The plan for each kind of damage, and a directory without an error after it:
// what was not damaged is byte for byte what it was, and every byte that went
// is in a file beside it.
func TestGoldenDamageIsMended(t *testing.T) {
	for _, name := range []string{"09-crash-killed-4.4.0", "09-crash-killed-3.9.2", "09-crash-trusted-4.4.0"} {
		t.Run(name, func(t *testing.T) {
			disk := memfs.New()
			golden.Load(t, name).Stage(t, "before").UnpackTo(t, disk, "/data")
			o := Options{FS: disk, Paths: []string{"/data"}}
			compareGolden(t, name+".plan", lines(mustMake(t, o)))
			o.AllowDataLoss = true
			compareGolden(t, name+".loss.plan", lines(mustMake(t, o)))
			checkApplied(t, disk, o)
		})
	}
}

func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: the plan is\n%s\nwant\n%s", name, got, want)
	}
}

// checkApplied applies and compares before and after.
func checkApplied(t testing.TB, disk *memfs.FS, o Options) {
	t.Helper()
	before := files(t, disk, "/data")
	good := batches(t, disk, "/data")
	plan, r := mustApply(t, o)
	for _, f := range r.Findings {
		if f.Severity == verify.Error {
			t.Errorf("after the repair: %v", f)
		}
	}
	after := files(t, disk, "/data")
	touched := map[string]bool{}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		touched[s.File] = true
		if s.spans != nil && s.Kind == MoveAside {
			n, _ := segment.ParseName(filepath.Base(s.File))
			for _, ext := range []string{segment.IndexExt, segment.TimeIndexExt, segment.TxnIndexExt} {
				touched[filepath.Join(filepath.Dir(s.File), segment.Name(n.Base, ext))] = true
			}
		}
	}
	for path, data := range before {
		if !touched[path] {
			if after[path] != data {
				t.Errorf("%s was changed without a step", path)
			}
			continue
		}
		kept := false
		for i := range 3 {
			kept = kept || strings.HasSuffix(data, after[numbered(path, i)]) && (after[numbered(path, i)] != "" || strings.HasPrefix(after[path], data))
		}
		if !kept && data != "" && after[path] != data {
			t.Errorf("%s was changed and its bytes are in no file beside it", path)
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok && !strings.Contains(path, cutSuffix) && !touched[path] {
			t.Errorf("%s was made without a step", path)
		}
	}
	now := batches(t, disk, "/data")
	lost := 0
	for b := range good {
		if !now[b] {
			lost++
		}
	}
	allowed := false
	for i := range plan.Steps {
		allowed = allowed || plan.Steps[i].Loses
	}
	if lost > 0 && !allowed {
		t.Errorf("%d good batches are gone", lost)
	}
	for b := range now {
		found := good[b]
		for path, data := range before {
			found = found || strings.HasSuffix(path, segment.LogExt) && strings.Contains(data, b)
		}
		if !found {
			t.Error("a batch is there that was not")
		}
	}
	if again := mustMake(t, o); len(again.Steps) > 0 {
		t.Errorf("planned again after the repair:\n%s", lines(again))
	}
}

// Directories that Kafka left, after a clean stop or a kill, need nothing.
func TestGoldenDirectoriesNeedNoRepair(t *testing.T) {
	for _, name := range golden.Names(t) {
		if strings.HasPrefix(name, "09-") {
			continue
		}
		c := golden.Load(t, name)
		for i := range c.Stages {
			s := &c.Stages[i]
			if name == "12-direct-4.4.0" && !strings.HasSuffix(s.Name, ".closed") {
				continue // copies of a log in use
			}
			disk := memfs.New()
			s.UnpackTo(t, disk, "/data")
			p := mustMake(t, Options{FS: disk, Paths: []string{"/data"}, AllowDataLoss: true})
			if len(p.Steps) > 0 {
				t.Errorf("%s/%s:\n%s", name, s.Name, lines(p))
			}
		}
	}
}

func TestOnePartitionIsRepairedAlone(t *testing.T) {
	disk := memfs.New()
	golden.Load(t, "09-crash-killed-4.4.0").Stage(t, "before").UnpackTo(t, disk, "/data")
	before := files(t, disk, "/data")
	plan, _ := mustApply(t, Options{FS: disk, Paths: []string{"/data/crash-5"}})
	want := "truncate crash-5/00000000000000000030.log from 5134 to 1038: drops no offsets\n"
	if got := lines(plan); got != want {
		t.Errorf("did %s, want %s", got, want)
	}
	for path, data := range files(t, disk, "/data") {
		if old, ok := before[path]; !strings.HasPrefix(path, "/data/crash-5/") && (!ok || old != data) {
			t.Errorf("%s was changed", path)
		}
	}
}

func TestADirectoryInUseIsRefused(t *testing.T) {
	disk := memfs.New()
	golden.Load(t, "09-crash-killed-4.4.0").Stage(t, "before").UnpackTo(t, disk, "/data")
	l, err := disk.Lock(filepath.Join("/data", checkpoint.LockFile))
	if err != nil {
		t.Fatal(err)
	}
	before := files(t, disk, "/data")
	for _, path := range []string{"/data", "/data/crash-5"} {
		if _, _, err := Apply(t.Context(), Options{FS: disk, Paths: []string{path}}); err == nil || !strings.Contains(err.Error(), ErrInUse.Error()) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for path, data := range files(t, disk, "/data") {
		if before[path] != data {
			t.Errorf("%s was changed", path)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Apply(t.Context(), Options{FS: disk, Paths: []string{"/data/crash-5"}}); err != nil {
		t.Error(err)
	}
}

func TestSmallFilesAreRebuiltFromEvidence(t *testing.T) {
	tests := []struct{ name, file, data, want string }{
		{"a recovery point file that cannot be read", "recovery-point-offset-checkpoint", "0\n2\ntxn 0 1\n",
			"rewrite checkpoint recovery-point-offset-checkpoint: without entries: the logs are looked at instead\n"},
		{"a high watermark above the end", "replication-offset-checkpoint", "0\n1\ntxn 0 100000\n", "rewrite checkpoint replication-offset-checkpoint: txn-0 100000 -> 26\n"},
		{"a log start above the end", "log-start-offset-checkpoint", "0\n1\ntxn 0 100000\n", "rewrite checkpoint log-start-offset-checkpoint: txn-0 100000 -> none\n"},
		{"epochs that do not rise", "txn-0/leader-epoch-checkpoint", "0\n2\n1 0\n0 5\n", "rewrite checkpoint txn-0/leader-epoch-checkpoint: from the batches of the log\n"},
		{"an epoch file of nonsense", "txn-0/leader-epoch-checkpoint", "nonsense", "rewrite checkpoint txn-0/leader-epoch-checkpoint: from the batches of the log\n"},
		{"an epoch above the end", "txn-0/leader-epoch-checkpoint", "0\n2\n0 0\n1 100000\n", "rewrite checkpoint txn-0/leader-epoch-checkpoint: without epochs that start above offset 26\n"},
		{"a broken partition.metadata", "txn-0/partition.metadata", "x", "rewrite checkpoint txn-0/partition.metadata: topic id "},
	}
	c := golden.Load(t, "05-transactions-4.4.0")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := memfs.New()
			c.Stage(t, "clean").UnpackTo(t, disk, "/data")
			whole := files(t, disk, "/data")
			path := filepath.Join("/data", tt.file)
			if err := checkpoint.WriteFile(disk, path, []byte(tt.data)); err != nil {
				t.Fatal(err)
			}
			o := Options{FS: disk, Paths: []string{"/data"}}
			if got := lines(mustMake(t, o)); !strings.HasPrefix(got, tt.want) {
				t.Errorf("plan %q, want %q", got, tt.want)
			}
			checkApplied(t, disk, o)
			after := files(t, disk, "/data")
			if strings.HasPrefix(tt.file, "txn-0/") && after[path] != whole[path] {
				t.Errorf("rebuilt as %q, was %q", after[path], whole[path])
			}
			if after[path+cutSuffix] != tt.data {
				t.Errorf("kept %q, want %q", after[path+cutSuffix], tt.data)
			}
		})
	}
}

// A base offset is not covered by the checksum: the batch that jumped is taken
// for the damaged one, not those behind it.
func TestABatchThatJumpedDoesNotTakeTheRestWithIt(t *testing.T) {
	disk := memfs.New()
	golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").UnpackTo(t, disk, "/data")
	log := "/data/txn-0/00000000000000000000.log"
	f, err := disk.OpenFile(log, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, 5); err != nil { // offset 0 becomes 65536
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	p := mustMake(t, Options{FS: disk, Paths: []string{"/data"}, AllowDataLoss: true})
	for i := range p.Steps {
		if s := &p.Steps[i]; s.File == log {
			if s.Kind != MoveAside || s.First != 0 || s.Last > 5 {
				t.Errorf("planned %v", s)
			}
			return
		}
	}
	t.Errorf("planned %s", lines(p))
}

func TestSpansOfSpans(t *testing.T) {
	outer := []span{{10, 20}, {30, 40}}
	got := compose(outer, []span{{0, 5}, {8, 12}})
	want := []span{{10, 15}, {18, 20}, {30, 32}}
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if got := compose(outer, []span{}); got == nil || len(got) != 0 {
		t.Errorf("nothing of something is %v", got)
	}
}
