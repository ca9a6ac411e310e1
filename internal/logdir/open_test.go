package logdir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func setMeta(t testing.TB, disk vfs.FS, dir string, m checkpoint.MetaProperties) {
	t.Helper()
	must(t, disk.MkdirAll(dir, 0o755), checkpoint.WriteMeta(disk, filepath.Join(dir, checkpoint.MetaFile), m, start))
}

func TestOpenRefuses(t *testing.T) {
	good := checkpoint.MetaProperties{Version: 1, NodeID: 1, ClusterID: testCluster, DirectoryID: kafka.UUID{15: 101}}
	tests := []struct {
		name    string
		prepare func(t *testing.T, disk *memfs.FS)
		change  func(o *Options)
		want    string // in the message of a RefusedError
	}{
		{"a directory of another node", func(t *testing.T, disk *memfs.FS) {
			m := good
			m.NodeID = 2
			setMeta(t, disk, "/a", m)
		}, nil, "/a: belongs to node 2, this is node 1"},
		{"a directory of another cluster than configured", func(t *testing.T, disk *memfs.FS) { setMeta(t, disk, "/a", good) },
			func(o *Options) { o.ClusterID = "other" }, "belongs to cluster " + testCluster + ", configured is other"},
		{"two directories of different clusters", func(t *testing.T, disk *memfs.FS) {
			m := good
			m.ClusterID, m.DirectoryID = "other", kafka.UUID{15: 102}
			setMeta(t, disk, "/a", good)
			setMeta(t, disk, "/b", m)
		}, func(o *Options) { o.Dirs = []string{"/a", "/b"} }, "/b: belongs to cluster other, /a to " + testCluster},
		{"two directories with one directory id", func(t *testing.T, disk *memfs.FS) {
			setMeta(t, disk, "/a", good)
			setMeta(t, disk, "/b", good)
		}, func(o *Options) { o.Dirs = []string{"/a", "/b"} }, "has the directory.id"},
		{"a directory of the ZooKeeper era", func(t *testing.T, disk *memfs.FS) {
			setMeta(t, disk, "/a", checkpoint.MetaProperties{Version: 0, NodeID: 1, ClusterID: testCluster})
		}, nil, "meta.properties has version 0"},
		{"a meta.properties that cannot be read", func(t *testing.T, disk *memfs.FS) {
			must(t, disk.Mkdir("/a", 0o755))
			writeFile(t, disk, "/a/meta.properties", "")
		}, nil, "version is missing"},
		{"data without meta.properties", func(t *testing.T, disk *memfs.FS) { must(t, disk.MkdirAll("/a/orders-0", 0o755)) },
			func(o *Options) { o.Format = func() error { return errors.New("formatted") } }, "holds orders-0 and no meta.properties"},
		{"a metadata log without meta.properties", func(t *testing.T, disk *memfs.FS) {
			must(t, disk.MkdirAll("/a/__cluster_metadata-0", 0o755))
			writeFile(t, disk, "/a/__cluster_metadata-0/00000000000000000000.log", "x")
		}, func(o *Options) { o.Format = func() error { return errors.New("formatted") } }, "holds __cluster_metadata-0"},
		{"an empty directory when formatting is not wanted", func(*testing.T, *memfs.FS) {}, nil, "/a: is not formatted"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := memfs.New()
			tt.prepare(t, disk)
			o := options(disk, "/a")
			if tt.change != nil {
				tt.change(&o)
			}
			_, err := Open(o)
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Open = %v, want a RefusedError with %q", err, tt.want)
			}
			if _, err := disk.Lock("/a/.lock"); err != nil && exists(disk, "/a") {
				t.Errorf("the lock was not given back: %v", err)
			}
		})
	}
}

func TestOpenFormatsWhatIsEmpty(t *testing.T) {
	disk := memfs.New()
	must(t, disk.MkdirAll("/a/__cluster_metadata-0", 0o755), disk.MkdirAll("/a/lost+found", 0o755))
	writeFile(t, disk, "/a/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint", "of a format that was cut short")
	o := options(disk, "/a", "/b")
	o.Format = func() error {
		if _, err := disk.Lock("/a/.lock"); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("not locked while it is formatted: %v", err)
		}
		format(t, disk, "/a", "/b")
		return nil
	}
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.abandon()
	if id, ok := m.DirectoryID("/b"); !ok || id != (kafka.UUID{15: 102}) || m.ClusterID() != testCluster {
		t.Errorf("directory id of /b = %v, %v, cluster %s", id, ok, m.ClusterID())
	}
}

func TestOpenCompletesIdentity(t *testing.T) {
	disk := memfs.New()
	m := checkpoint.MetaProperties{Version: 1, NodeID: 1, ClusterID: testCluster}
	setMeta(t, disk, "/a", m) // no directory.id
	o := options(disk, "/a", "/b")
	manager, err := Open(o) // /b does not exist
	if err != nil {
		t.Fatal(err)
	}
	defer manager.abandon()
	ids := map[kafka.UUID]bool{}
	for _, dir := range o.Dirs {
		written, err := checkpoint.ReadMeta(disk, filepath.Join(dir, checkpoint.MetaFile))
		if err != nil || written.ClusterID != testCluster || written.NodeID != 1 {
			t.Errorf("meta.properties of %s = %+v, %v", dir, written, err)
		}
		if id, _ := manager.DirectoryID(dir); id != written.DirectoryID || id.IsZero() {
			t.Errorf("directory id of %s is %v, written %v", dir, id, written.DirectoryID)
		}
		ids[written.DirectoryID] = true
	}
	if len(ids) != 2 || len(manager.DirectoryIDs()) != 2 {
		t.Errorf("directory ids = %v", ids)
	}
}

func TestOpenLocksFirst(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/a", "/b")
	held, err := disk.Lock("/b/.lock")
	must(t, err)
	o := options(disk, "/a", "/b")
	_, err = Open(o)
	var inUse *InUseError
	if !errors.As(err, &inUse) || inUse.Dir != "/b" || !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("Open = %v, want an InUseError of /b", err)
	}
	must(t, held.Close())
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.abandon()
	if _, err := Open(o); !errors.As(err, &inUse) {
		t.Errorf("second Open = %v, want an InUseError", err)
	}
}

func TestOpenRefusesOneDirectoryTwice(t *testing.T) {
	dir := t.TempDir()
	format(t, vfs.OS(), dir)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	for _, second := range []string{dir + "/", filepath.Join(dir, "..", filepath.Base(dir)), link} {
		_, err := Open(options(vfs.OS(), dir, second))
		var same *SameDirectoryError
		if !errors.As(err, &same) {
			t.Errorf("Open with %s = %v, want a SameDirectoryError", second, err)
		}
	}
}

func TestOpenWithABrokenDirectory(t *testing.T) {
	disk := memfs.New()
	format(t, disk, "/a", "/b")
	c := &faultfs.Counter{From: 1, Match: func(op faultfs.Op) bool { return strings.HasPrefix(op.Name, "/a") }, Fault: faultfs.Fault{Err: syscall.EIO}}
	var lines logLines
	o := logTo(options(faultfs.Wrap(disk, c.Inject), "/a", "/b"), &lines)
	m, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer m.abandon()
	if ids := m.DirectoryIDs(); len(ids) != 1 || ids[0] != (kafka.UUID{15: 102}) {
		t.Errorf("online directories = %v, want /b alone", ids)
	}
	if !lines.contains("data directory offline") {
		t.Error("nothing was logged")
	}
	if _, clean := m.CleanBrokerEpoch(); clean {
		t.Error("a start without one of the directories counts as clean")
	}
	o.Dirs = []string{"/a"}
	if _, err := Open(o); !errors.Is(err, syscall.EIO) {
		t.Errorf("Open of the broken one alone = %v, want EIO", err)
	}
}

func TestCleanBrokerEpoch(t *testing.T) {
	tests := []struct {
		name  string
		a, b  int64 // marker of the directory; -2: none
		epoch int64
		clean bool
	}{
		{"the same in all", 17, 17, 17, true},
		{"missing in one", 17, -2, -1, false},
		{"different", 17, 18, -1, false},
		{"unreadable", -1, -1, -1, false},
		{"no marker", -2, -2, -1, false},
	}
	for _, tt := range tests {
		disk := memfs.New()
		format(t, disk, "/a", "/b")
		for dir, epoch := range map[string]int64{"/a": tt.a, "/b": tt.b} {
			if epoch != -2 {
				must(t, checkpoint.WriteCleanShutdown(disk, dir, epoch))
			}
		}
		m, err := Open(options(disk, "/a", "/b"))
		must(t, err)
		if epoch, clean := m.CleanBrokerEpoch(); epoch != tt.epoch || clean != tt.clean {
			t.Errorf("%s: CleanBrokerEpoch = %d, %v, want %d, %v", tt.name, epoch, clean, tt.epoch, tt.clean)
		}
		must(t, m.Close(1))
		if tt.a != -2 && !exists(disk, "/a/"+checkpoint.CleanShutdownFile) {
			t.Errorf("%s: a start that never loaded removed the marker", tt.name)
		}
	}
}
