package slowfs_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
	"github.com/varvelog/varve/internal/vfs/slowfs"
)

// slow is a disk whose syncs and writes take their time.
type slow struct {
	vfs.FS
	takes *time.Duration
}

func (s slow) OpenFile(name string, flag int, perm os.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	return slowFile{f, s.takes}, err
}

type slowFile struct {
	vfs.File
	takes *time.Duration
}

func (f slowFile) SyncData() error { time.Sleep(*f.takes); return f.File.SyncData() }

func (f slowFile) WriteAt(p []byte, off int64) (int, error) {
	time.Sleep(*f.takes)
	return f.File.WriteAt(p, off)
}

func TestSlowCallsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var takes time.Duration
		var told []string
		disk := slowfs.Wrap(slow{memfs.New(), &takes}, slowfs.Options{Slow: time.Second, OnSlow: func(op, file string, took time.Duration) {
			told = append(told, op+" "+file+" "+took.String())
		}})
		f, err := disk.OpenFile("/f", os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, takes = range []time.Duration{0, time.Second - 1, time.Second} {
			if _, err := f.WriteAt([]byte("x"), 0); err != nil {
				t.Fatal(err)
			}
			if err := f.SyncData(); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(told, ", "); got != "write /f 1s, sync /f 1s" {
			t.Errorf("told %q, want the two calls of a second", got)
		}
		h := disk.Syncs()
		if h.Count != 3 || h.Sum != 2*time.Second-1 || h.Cumulative[0] != 1 || h.Cumulative[13] != 3 {
			t.Errorf("Syncs = %+v, want 3: one of 0 and two of a second", h)
		}
	})
}

func TestWhatDoesNotComeBackIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := time.Hour
		disk := slowfs.Wrap(slow{memfs.New(), &takes}, slowfs.Options{Slow: time.Second, OnSlow: func(string, string, time.Duration) {}})
		f, err := disk.OpenFile("/f", os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		go f.SyncData()
		time.Sleep(30 * time.Second)
		if s := disk.Stuck(30 * time.Second); len(s) != 0 {
			t.Errorf("Stuck after 30 s = %v, want nothing", s)
		}
		time.Sleep(time.Second)
		if s := disk.Stuck(30 * time.Second); len(s) != 1 || s[0] != "sync of /f has not come back for 31s" {
			t.Errorf("Stuck after 31 s = %q", s)
		}
		time.Sleep(time.Hour)
		if s := disk.Stuck(30 * time.Second); len(s) != 0 {
			t.Errorf("Stuck when it has come back = %v", s)
		}
	})
}

func TestWritesAllocateNothingMore(t *testing.T) {
	disk := slowfs.Wrap(vfs.OS(), slowfs.Options{Slow: time.Hour, OnSlow: func(string, string, time.Duration) {}})
	f, err := disk.OpenFile(t.TempDir()+"/f", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := []byte("x")
	if n := testing.AllocsPerRun(100, func() { f.WriteAt(b, 0) }); n != 0 {
		t.Errorf("a write allocates %v times", n)
	}
}
