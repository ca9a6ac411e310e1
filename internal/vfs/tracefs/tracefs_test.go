package tracefs

import (
	"os"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

func script(t *testing.T, disk vfs.FS) {
	t.Helper()
	f, err := disk.OpenFile("/f.tmp", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	m := func() vfs.Map {
		if err := f.Truncate(8); err != nil {
			t.Fatal(err)
		}
		m, err := f.Map(8, vfs.MapReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}()
	_, writeErr := f.WriteAt([]byte("abc"), 0)
	_, writevErr := f.WritevAt([][]byte{[]byte("d"), []byte("e")}, 3)
	_, readErr := f.ReadAt(make([]byte, 2), 0)
	for _, err := range []error{
		writeErr, writevErr, readErr, m.Flush(0, 5), m.Unmap(), f.Reserve(0, 4096), f.SyncData(), f.Sync(), f.SetModTime(5), f.Close(),
		disk.Rename("/f.tmp", "/f"), disk.Mkdir("/d", 0o755), disk.MkdirAll("/d/e", 0o755), disk.SyncDir("/"),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := disk.Lock("/.lock")
	if err != nil {
		t.Fatal(err)
	}
	_, statErr := disk.Stat("/f")
	_, listErr := disk.ReadDir("/")
	_, _, usageErr := disk.Usage("/")
	for _, err := range []error{l.Close(), statErr, listErr, usageErr} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := disk.Remove("/none"); err == nil {
		t.Fatal("Remove of a missing file succeeded")
	}
}

func TestTrace(t *testing.T) {
	const changes = `create /f.tmp trunc
truncate /f.tmp size=8
write /f.tmp off=0 n=3
write /f.tmp off=3 n=2
msync /f.tmp from=0 to=5
reserve /f.tmp off=0 n=4096
syncdata /f.tmp
sync /f.tmp
modtime /f.tmp
rename /f.tmp /f
mkdir /d
mkdirall /d/e
syncdir /
lock /.lock
unlock /.lock
remove /none: file does not exist
`
	var log Log
	script(t, Wrap(memfs.New(), &log))
	if got := log.String(); got != changes {
		t.Errorf("trace:\n%s\nwant:\n%s", got, changes)
	}
	log.Reset()
	if got := log.String(); got != "" {
		t.Errorf("after Reset: %q", got)
	}
}

func TestTraceWithReadsAndRewriting(t *testing.T) {
	log := Log{Reads: true, Rewrite: func(line string) string {
		if strings.HasPrefix(line, "write") {
			return ""
		}
		return strings.ReplaceAll(line, "/f", "FILE")
	}}
	script(t, Wrap(memfs.New(), &log))
	log.Printf("done %d", 1)
	got := log.String()
	for _, want := range []string{"read FILE.tmp off=0 n=2\n", "map FILE.tmp size=8\n", "unmap FILE.tmp\n", "stat FILE\n", "readdir /\n", "close FILE.tmp\n", "done 1\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
	if strings.Contains(got, "write") {
		t.Errorf("a dropped line is there:\n%s", got)
	}
}
