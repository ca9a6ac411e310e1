package logdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// Faults X7: the directory was moved or unmounted while the broker runs, and an
// empty one answers in its place. Nothing is made there.
func TestAnotherDirectoryInThePlaceIsNotWrittenTo(t *testing.T) {
	for name, write := range map[string]func(m *Manager) error{
		"a new partition": func(m *Manager) error {
			_, err := m.Create(NewPartition{Partition: tpOf("users", 0), TopicID: topicID("users"), Config: testConfig("")})
			return err
		},
		"a checkpoint": func(m *Manager) error { return m.writeCheckpoint(m.dirs[0], recoveryPoints, nil) },
		"a stop":       func(m *Manager) error { return m.Close(1) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			format(t, vfs.OS(), dir)
			var lines logLines
			m := load(t, logTo(options(vfs.OS(), dir), &lines), nil)
			appendRecords(t, create(t, m, "orders", 0), 1)
			must(t, os.Rename(dir, dir+".moved"), os.Mkdir(dir, 0o755))
			if err := write(m); err == nil {
				t.Error("no error")
			}
			if m.dirs[0].err() == nil || !lines.contains("event=dir-offline") {
				t.Errorf("the directory is online still:\n%s", lines.text())
			}
			if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
				t.Errorf("made there: %v, %v", list, err)
			}
		})
	}
}

// A start that comes to nothing leaves nothing: not the lock file, not the
// directory, and none above it.
func TestAFailedOpenLeavesNothing(t *testing.T) {
	root := t.TempDir()
	o := options(vfs.OS(), filepath.Join(root, "new", "deep", "data"))
	o.Format = func() error { return errors.New("address already in use") }
	if _, err := Open(o); err == nil {
		t.Fatal("no error")
	}
	if list, err := os.ReadDir(root); err != nil || len(list) > 0 {
		t.Errorf("left behind: %v, %v", list, err)
	}
	dir := filepath.Join(root, "theirs")
	must(t, os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, ".lock"), nil, 0o644))
	o.Dirs = []string{dir}
	if _, err := Open(o); err == nil {
		t.Fatal("no error")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 {
		t.Errorf("what was there before: %v, %v", list, err)
	}
}

// Faults E10: never without a lock.
func TestADirectoryThatCannotBeLockedIsRefused(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOLCK, syscall.ENOSYS, syscall.EOPNOTSUPP} {
		disk := memfs.New()
		format(t, disk, "/a", "/b")
		_, err := Open(options(faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
			if op.Kind == faultfs.Lock && strings.HasPrefix(op.Name, "/a") {
				return faultfs.Fault{Err: errno}
			}
			return faultfs.Fault{}
		}), "/a", "/b"))
		var refused *RefusedError
		if !errors.As(err, &refused) || refused.Dir != "/a" || !strings.Contains(err.Error(), errno.Error()) {
			t.Errorf("%v: Open = %v, want a RefusedError of /a", errno, err)
		}
	}
}

// Faults F5: what is no file has the name of a checkpoint. The start neither
// stops nor blocks at it, the checkpoint is made anew, and what was there is
// still there, under a name that Apache Kafka starts on.
func TestWhatIsNoFileInPlaceOfACheckpoint(t *testing.T) {
	for kind, put := range map[string]func(path string) error{
		"directory": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "x"), []byte("keep"), 0o644))
		},
		"FIFO":            func(path string) error { return syscall.Mkfifo(path, 0o644) },
		"link":            func(path string) error { return os.Symlink("/etc/hostname", path) },
		"link to nothing": func(path string) error { return os.Symlink("nowhere", path) },
	} {
		for _, name := range []string{checkpoint.RecoveryPointFile, checkpoint.LogStartFile, checkpoint.HighWatermarkFile, checkpoint.CleanerFile, checkpoint.CleanShutdownFile} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				format(t, vfs.OS(), dir)
				m := load(t, options(vfs.OS(), dir), nil)
				appendRecords(t, create(t, m, "orders", 0), 3)
				must(t, m.Close(1))
				path := filepath.Join(dir, name)
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				must(t, put(path))
				var lines logLines
				m = load(t, logTo(options(vfs.OS(), dir), &lines), nil)
				if log := m.Log(tpOf("orders", 0)); log == nil || log.EndOffset() != 3 {
					t.Fatalf("the partition is not there:\n%s", lines.text())
				}
				must(t, m.Close(2))
				if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
					t.Errorf("%s was not made anew: %v, %v", name, info, err)
				}
				list, err := os.ReadDir(dir)
				must(t, err)
				at := slices.IndexFunc(list, func(e os.DirEntry) bool { return strings.HasSuffix(e.Name(), "-stray") })
				if at < 0 || list[at].Type().IsRegular() {
					t.Errorf("what was there is gone: %v", list)
				}
				load(t, options(vfs.OS(), dir), nil)
			})
		}
	}
}

// Faults F5, F7: what varve does not know it leaves alone, whatever its name is.
func TestUnknownEntriesAreLeftAlone(t *testing.T) {
	dir := t.TempDir()
	format(t, vfs.OS(), dir)
	var lines logLines
	must(t, load(t, options(vfs.OS(), dir), nil).Close(1))
	names := []string{"lost+found", ".nfs000000000000000100000001", "a-", "-1", "x-99999999999", "line\nfeed-0", strings.Repeat("n", 255), strings.Repeat("n", 253) + "-0"}
	for _, name := range names {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe-0"), 0o644), os.WriteFile(filepath.Join(dir, "orders-0.bak"), nil, 0o644),
		os.WriteFile(filepath.Join(dir, "README"), nil, 0o644))
	m := load(t, logTo(options(vfs.OS(), dir), &lines), nil)
	must(t, m.Close(2))
	for _, name := range append(names, "pipe-0", "orders-0.bak", "README") {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if got := strings.Count(lines.text(), "event=left-alone"); got != len(names)+1 {
		t.Errorf("%d left-alone, want one for each directory and the pipe:\n%s", got, lines.text())
	}
}
