package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/logtest/golden"
	"github.com/varvelog/varve/internal/vfs"
)

func check(t *testing.T, o Options) Result {
	t.Helper()
	o.FS = vfs.OS()
	r, err := Check(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Every directory that Kafka left, after a clean stop or SIGKILL, is without
// an error, and nothing but what is listed here is even a warning.
func TestGoldenDirectoriesAreFree(t *testing.T) {
	for _, name := range golden.Names(t) {
		if strings.HasPrefix(name, "09-") {
			continue // damaged on purpose
		}
		c := golden.Load(t, name)
		for i := range c.Stages {
			s := &c.Stages[i]
			t.Run(name+"/"+s.Name, func(t *testing.T) {
				dir := s.Unpack(t)
				for _, o := range []Options{{Deep: true}, {Fast: true}} {
					o.Paths = []string{dir}
					checkFree(t, s, check(t, o), name)
				}
			})
		}
	}
}

func checkFree(t *testing.T, s *golden.Stage, r Result, name string) {
	t.Helper()
	logs := 0
	for i := range s.Partitions {
		for _, g := range s.Partitions[i].Segments {
			if g.Log != nil && g.Suffix == "" {
				logs++
			}
		}
	}
	if r.Partitions != len(s.Partitions) || r.Segments != logs {
		t.Errorf("verified %d partitions, %d segments; want %d, %d", r.Partitions, r.Segments, len(s.Partitions), logs)
	}
	for _, f := range r.Findings {
		if f.Severity == Note ||
			f.Code == CodeMeta && s.MetaProperties == nil || // logs alone
			f.Code == CodeStray && strings.HasPrefix(name, "08-deletion") || // a partition that no topic has
			f.Code == CodeRecords && name == "12-produce-4.4.0" || // offset deltas of the script's choice
			f.Code == CodeEpochBatch && s.Name == "refusals.closed" || // epochs of the script's choice
			f.Severity == Warning && name == "12-direct-4.4.0" && !strings.HasSuffix(s.Name, ".closed") { // of a log in use
			continue
		}
		t.Errorf("%v", f)
	}
}

// What was done to the partitions of 09 before Kafka was started on them, and
// what is found there.
func TestDamageOfEveryKindIsFound(t *testing.T) {
	wants := map[string][]Code{ // by partition
		"1": {CodeTail}, "2": {CodeTail}, "3": {CodeTail}, "4": {CodeChecksum}, "5": {CodeTail}, "6": {CodeTail},
		"7": {CodeChecksum}, "8": {CodeChecksum}, "9": {CodeIndexMissing}, "10": {CodeTimeMissing}, "11": {CodeIndexSize},
		"12": {CodeNoLog}, "13": {CodeLeftover}, "14": {CodeLeftover}, "15": {CodeLeftover}, "16": {CodeSnapshot},
		"18": {CodeIndexPosition, CodeTimeOffset}, "19": {CodeNoLog}, "22": {CodeCheckpointLog},
		"24": {CodeTxnOrder}, "25": {CodeTail, CodeIndexMissing}, "26": {CodeTimeOrder}, "27": {CodeMagic},
	}
	for _, name := range []string{"09-crash-killed-4.4.0", "09-crash-killed-3.9.2", "09-crash-trusted-4.4.0"} {
		c := golden.Load(t, name)
		dir := c.Stage(t, "before").Unpack(t)
		found := map[string][]Code{}
		for _, f := range check(t, Options{Paths: []string{dir}}).Findings {
			rel := strings.TrimPrefix(f.File, dir+"/")
			part, _, _ := strings.Cut(strings.TrimPrefix(rel, "crash-"), "/")
			if f.Code == CodeCheckpointLog {
				part, _, _ = strings.Cut(strings.TrimPrefix(f.Message, "crash-"), ":")
			}
			found[part] = append(found[part], f.Code)
		}
		for part, codes := range wants {
			if name == "09-crash-trusted-4.4.0" && (part == "5" || part == "6") {
				continue // left alone in this case
			}
			for _, code := range codes {
				if !slices.Contains(found[part], code) {
					t.Errorf("%s: partition %s: found %v, want %s", name, part, found[part], code)
				}
			}
		}
		for _, part := range []string{"0", "20"} {
			if len(found[part]) > 0 {
				t.Errorf("%s: partition %s was not damaged, found %v", name, part, found[part])
			}
		}
	}
}

// flip changes one bit of a file for the time of f.
func flip(t *testing.T, file string, at int64, bit uint, f func()) {
	t.Helper()
	w, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var b [1]byte
	for _, then := range []func(){f, func() {}} {
		if _, err := w.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1 << bit
		if _, err := w.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		then()
	}
}

// A single flipped bit anywhere in a log, index, transaction index or snapshot
// is found, and the file with it is named (or, where a log's header changed so
// that it still is a batch, one that contradicts it).
func TestEverySingleFlippedBitIsFound(t *testing.T) {
	dir := golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").Unpack(t)
	partition := filepath.Join(dir, "txn-0")
	entries, err := os.ReadDir(partition)
	if err != nil {
		t.Fatal(err)
	}
	flipped := map[string]int{}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if !slices.Contains([]string{".log", ".index", ".timeindex", ".txnindex", ".snapshot"}, ext) {
			continue
		}
		file := filepath.Join(partition, e.Name())
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		for at := range info.Size() {
			if ext == ".log" && at >= 61 && at%37 != 0 {
				continue // every byte of the first header, some of the rest
			}
			bit := uint(at) % 8
			flip(t, file, at, bit, func() {
				flipped[ext]++
				r := check(t, Options{Paths: []string{partition}, Parallel: 1})
				named, errors := false, 0
				for _, f := range r.Findings {
					// A header that still is one contradicts another file of its segment.
					if strings.HasPrefix(f.File, strings.TrimSuffix(file, ext)+".") && (f.File == file || ext == ".log") {
						named = true
					}
					if f.Severity == Error || f.Code == CodeEpochBatch {
						errors++ // a wrong epoch is a warning: Kafka takes any
					}
				}
				if !named || errors == 0 {
					t.Errorf("bit %d of byte %d of %s: found %v", bit, at, e.Name(), r.Findings)
				}
			})
		}
	}
	for _, ext := range []string{".log", ".index", ".timeindex", ".txnindex", ".snapshot"} {
		if flipped[ext] == 0 {
			t.Errorf("no bit of a %s was flipped", ext)
		}
	}
}

func TestBrokenSmallFilesAreFound(t *testing.T) {
	c := golden.Load(t, "05-transactions-4.4.0")
	tests := []struct {
		file string
		data string
		code Code
	}{
		{"meta.properties", "node.id=1\nversion=1\ndirectory.id=xx\ncluster.id=c\n", CodeMeta},
		{"meta.properties", "version=7\n", CodeMeta},
		{"recovery-point-offset-checkpoint", "0\n2\ntxn 0 1\n", CodeCheckpoint},
		{"recovery-point-offset-checkpoint", "1\n0\n", CodeCheckpoint},
		{"replication-offset-checkpoint", "0\n1\ntxn 0 many\n", CodeCheckpoint},
		{"replication-offset-checkpoint", "0\n1\ntxn 0 100000\n", CodeCheckpointLog},
		{"log-start-offset-checkpoint", "0\n1\ntxn 0 100000\n", CodeCheckpointLog},
		{"recovery-point-offset-checkpoint", "0\n1\ntxn 0 100000\n", CodeCheckpointLog},
		{"cleaner-offset-checkpoint", "0\nx\n", CodeCheckpoint},
		{".kafka_cleanshutdown", `{"version":0}`, CodeCleanMarker},
		{"txn-0/leader-epoch-checkpoint", "0\n2\n1 0\n0 5\n", CodeEpochFile},
		{"txn-0/leader-epoch-checkpoint", "0\n1\n0 0", ""},
		{"txn-0/leader-epoch-checkpoint", "0\n2\n0 0\n1 100000\n", CodeEpochRange},
		{"txn-0/leader-epoch-checkpoint", "0\n2\n0 0\n", CodeCheckpoint},
		{"txn-0/partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", CodePartition},
		{"txn-0/partition.metadata", "version: 0\ntopic_id: 2l38-5c-zCi5udQnpqao4g", CodeTopicID},
		{"__cluster_metadata-0/quorum-state", "{}{", CodeQuorumState},
		{"__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", "short", CodeKRaftSnapshot},
	}
	for _, tt := range tests {
		t.Run(tt.file+" "+string(tt.code), func(t *testing.T) {
			dir := c.Stage(t, "clean").Unpack(t)
			file := filepath.Join(dir, tt.file)
			if err := os.WriteFile(file, []byte(tt.data), 0o644); err != nil {
				t.Fatal(err)
			}
			r := check(t, Options{Paths: []string{dir}})
			hit := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.File == file && f.Code == tt.code && f.Severity > Note })
			if hit != (tt.code != "") {
				t.Errorf("found %v, want %s", r.Findings, tt.code)
			}
		})
	}
	t.Run("no partition.metadata", func(t *testing.T) {
		dir := c.Stage(t, "clean").Unpack(t)
		if err := os.Remove(filepath.Join(dir, "txn-0", "partition.metadata")); err != nil {
			t.Fatal(err)
		}
		if r := check(t, Options{Paths: []string{dir}}); r.Count(Error) != 1 || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == CodePartition }) {
			t.Errorf("found %v", r.Findings)
		}
	})
	t.Run("a partition that was still being created", func(t *testing.T) {
		dir := c.Stage(t, "clean").Unpack(t)
		for _, f := range []string{"partition.metadata", "leader-epoch-checkpoint"} {
			if err := os.Remove(filepath.Join(dir, "txn-0", f)); err != nil {
				t.Fatal(err)
			}
		}
		segments, err := filepath.Glob(filepath.Join(dir, "txn-0", "0*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range segments {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
		r := check(t, Options{Paths: []string{dir}})
		missing := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == CodePartition && f.Severity == Warning })
		if !missing || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == CodePartition && f.Severity == Error }) {
			t.Errorf("found %v", r.Findings)
		}
	})
	t.Run("a directory that is none of Kafka's", func(t *testing.T) {
		dir := c.Stage(t, "clean").Unpack(t)
		if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o755); err != nil {
			t.Fatal(err)
		}
		if r := check(t, Options{Paths: []string{dir}}); !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == CodeForeign }) {
			t.Errorf("found %v", r.Findings)
		}
	})
}

func TestDirectoriesOfAnotherNodeDisagree(t *testing.T) {
	a := golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").Unpack(t)
	b := golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").Unpack(t)
	r := check(t, Options{Paths: []string{a, b}})
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Code == CodeMetaDisagree && f.File == filepath.Join(b, "meta.properties")
	}) {
		t.Errorf("the same directory.id twice: found %v", r.Findings)
	}
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Code == CodeMetaDisagree && f.File == filepath.Join(b, "txn-1") && f.Severity == Error
	}) {
		t.Errorf("the same partition twice: found %v", r.Findings)
	}
	if r := check(t, Options{Paths: []string{a, filepath.Join(a, "txn-1")}}); r.Count(Error) > 0 {
		t.Errorf("a partition that is named twice: found %v", r.Findings)
	}
}

// What a broker does not start on is an error: the directory without its
// identity, and the one without its metadata log.
func TestWhatABrokerNeedsToStartIsMissed(t *testing.T) {
	for _, tt := range []struct {
		gone string
		code Code
	}{{"meta.properties", CodeMeta}, {"__cluster_metadata-0", CodeNoMetadata}} {
		t.Run(tt.gone, func(t *testing.T) {
			dir := golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").Unpack(t)
			if r := check(t, Options{Paths: []string{dir}, Node: true}); r.Count(Error) > 0 {
				t.Fatalf("before: %v", r.Findings)
			}
			if err := os.RemoveAll(filepath.Join(dir, tt.gone)); err != nil {
				t.Fatal(err)
			}
			r := check(t, Options{Paths: []string{dir}, Node: true})
			if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == tt.code && f.Severity == Error }) {
				t.Errorf("findings %v, want an error %s", r.Findings, tt.code)
			}
		})
	}
}

func TestEveryCodeIsDocumented(t *testing.T) {
	source, err := os.ReadFile("codes.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := regexp.MustCompile(`V\d{3}`).FindAllString(string(source), -1)
	if len(codes) < 40 {
		t.Fatalf("%d codes", len(codes))
	}
	for _, code := range codes {
		if !strings.Contains(string(doc), "| "+code+" | ") {
			t.Errorf("%s is not in docs/operations.md", code)
		}
	}
	for _, line := range regexp.MustCompile(`(?m)^\| (V\d{3}) \|`).FindAllStringSubmatch(string(doc), -1) {
		if !slices.Contains(codes, line[1]) {
			t.Errorf("docs/operations.md has %s, which is no code", line[1])
		}
	}
}

func TestWhatIsNotKafkasIsRefused(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "orders-0", "README.md")
	for _, path := range []string{filepath.Join(dir, "README.md"), other, filepath.Join(dir, "empty", "x")} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("x"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "README.md"), other, filepath.Join(dir, "empty")} {
		var not *NotKafkaError
		if _, err := Check(t.Context(), Options{FS: vfs.OS(), Paths: []string{path}}); !errors.As(err, &not) || not.Path != path {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Beside a broker the end of a log is no finding, and damage still is one.
func TestBesideABrokerOnlyDamageIsReported(t *testing.T) {
	dir := golden.Load(t, "09-crash-killed-4.4.0").Stage(t, "before").Unpack(t)
	r := check(t, Options{Paths: []string{dir}, InUse: func(string) bool { return true }})
	if n := r.Count(Warning); n > 0 {
		t.Errorf("%d warnings: %v", n, r.Findings)
	}
	for _, code := range []Code{CodeInUse, CodeChecksum} {
		if !slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Code == code }) {
			t.Errorf("no %s in %v", code, r.Findings)
		}
	}
}

func TestASingleFileIsChecked(t *testing.T) {
	dir := golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").Unpack(t)
	index, err := filepath.Glob(filepath.Join(dir, "txn-0", "*.timeindex"))
	if err != nil || len(index) == 0 {
		t.Fatal("no time index")
	}
	flip(t, index[0], 3, 1, func() {
		r := check(t, Options{Paths: index[:1]})
		if r.Count(Error) == 0 || r.Findings[0].File != index[0] {
			t.Errorf("found %v", r.Findings)
		}
		log := strings.TrimSuffix(index[0], ".timeindex") + ".log"
		if r := check(t, Options{Paths: []string{log}}); len(r.Findings) != 0 {
			t.Errorf("the log alone: found %v", r.Findings)
		}
	})
}

func TestRunPrintsFindingsAndASummary(t *testing.T) {
	dir := golden.Load(t, "05-transactions-4.4.0").Stage(t, "clean").Unpack(t)
	var out, errs strings.Builder
	if code := Run(t.Context(), Options{FS: vfs.OS(), Paths: []string{dir}}, &out, &errs); code != ExitClean ||
		!strings.HasPrefix(out.String(), "verified ") || !strings.HasSuffix(out.String(), ": 0 errors, 0 warnings\n") {
		t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
	}
	log := filepath.Join(dir, "txn-0", "00000000000000000000.log")
	flip(t, log, 70, 0, func() {
		out.Reset()
		code := Run(t.Context(), Options{FS: vfs.OS(), Paths: []string{dir}}, &out, &errs)
		if want := fmt.Sprintf("error  V011  %s:0  offsets 0 to ", log); code != ExitProblems || !strings.HasPrefix(out.String(), want) {
			t.Errorf("exit %d: %s\nwant it to begin with %s", code, out.String(), want)
		}
	})
	if code := Run(t.Context(), Options{FS: vfs.OS(), Paths: []string{dir + "/none"}}, &out, &errs); code != ExitFailed || !strings.Contains(errs.String(), "none") {
		t.Errorf("a missing path: exit %d: %s", code, errs.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := Run(ctx, Options{FS: vfs.OS(), Paths: []string{dir}}, &out, &errs); code != ExitFailed {
		t.Errorf("a cancelled check: exit %d", code)
	}
}

// Nothing is written, created or opened for writing.
func TestTheDirectoryIsNotWrittenTo(t *testing.T) {
	dir := golden.Load(t, "05-transactions-4.4.0").Stage(t, "killed").Unpack(t)
	fs := readOnly{vfs.OS(), t}
	if _, err := Check(t.Context(), Options{FS: fs, Paths: []string{dir}, Deep: true}); err != nil {
		t.Fatal(err)
	}
}

type readOnly struct {
	vfs.FS
	t *testing.T
}

func (r readOnly) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	if flag != os.O_RDONLY {
		r.t.Errorf("%s opened with flags %#x", name, flag)
	}
	f, err := r.FS.OpenFile(name, flag, perm)
	return noMap{f, r.t}, err
}

func (r readOnly) Rename(a, _ string) error { r.t.Errorf("rename %s", a); return nil }
func (r readOnly) Remove(a string) error    { r.t.Errorf("remove %s", a); return nil }

type noMap struct {
	vfs.File
	t *testing.T
}

func (f noMap) Map(int, vfs.MapMode) (vfs.Map, error) {
	f.t.Errorf("%s is mapped", f.Name())
	return nil, vfs.ErrUnsupported
}

// vanishing is a disk on which one file is deleted once its name has been read.
type vanishing struct {
	vfs.FS
	name string
}

func (v vanishing) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	if name == v.name {
		return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
	}
	return v.FS.OpenFile(name, flag, perm)
}

func (v vanishing) Stat(name string) (os.FileInfo, error) {
	if name == v.name {
		return nil, &os.PathError{Op: "stat", Path: name, Err: os.ErrNotExist}
	}
	return v.FS.Stat(name)
}

// Retention may delete a segment while verify is at work beside the broker: it is
// not missed.
func TestASegmentThatIsDeletedMeanwhileIsNotMissed(t *testing.T) {
	disk := faultDisk(t)
	for _, inUse := range []bool{true, false} {
		o := Options{FS: vanishing{disk, "/data/" + seg0 + ".log"}, Paths: []string{"/data"}, InUse: func(string) bool { return inUse }}
		r, err := Check(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if found := r.Count(Error) > 0; found == inUse {
			t.Errorf("in use %v: found %v", inUse, r.Findings)
		}
	}
}
