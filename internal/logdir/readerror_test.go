package logdir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// failing is a disk on which the reads of chosen files fail.
type failing struct {
	mu    sync.Mutex
	times map[string]int // by a part of the name: how many still fail
	fault faultfs.Fault
	kind  faultfs.Kind
}

func (f *failing) inject(op faultfs.Op) faultfs.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for part, n := range f.times {
		if op.Kind == f.kind && strings.Contains(op.Name, part) && n > 0 {
			f.times[part]--
			return f.fault
		}
	}
	return faultfs.Fault{}
}

// Faults E3: bytes that cannot be read are not the end of the log. One more try;
// then the partition is offline, with the reason, and nothing of it is cut; the
// third file within a minute takes the directory offline.
func TestARecoveryThatCannotRead(t *testing.T) {
	const always = 1 << 30
	tests := []struct {
		name    string
		kind    faultfs.Kind
		fault   faultfs.Fault
		times   map[string]int
		opened  int // of three partitions
		offline bool
	}{
		{"one read fails once", faultfs.Read, faultfs.Fault{Err: syscall.EIO}, map[string]int{"a-0/00000000000000000000.log": 1}, 3, false},
		{"one read is short once", faultfs.Read, faultfs.Fault{Err: io.ErrUnexpectedEOF, Done: 10}, map[string]int{"a-0/00000000000000000000.log": 1}, 3, false},
		{"a log cannot be read", faultfs.Read, faultfs.Fault{Err: syscall.EIO}, map[string]int{"a-0/00000000000000000000.log": always}, 2, false},
		{"reads of a log are short", faultfs.Read, faultfs.Fault{Err: io.EOF, Done: 10}, map[string]int{"a-0/00000000000000000000.log": always}, 2, false},
		{"a log cannot be opened", faultfs.Open, faultfs.Fault{Err: syscall.EIO}, map[string]int{"a-0/00000000000000000000.log": always}, 2, false},
		{"partition.metadata cannot be read", faultfs.Read, faultfs.Fault{Err: syscall.EIO}, map[string]int{"a-0/partition.metadata": always}, 2, false},
		{"two logs cannot be read", faultfs.Read, faultfs.Fault{Err: syscall.EIO}, map[string]int{"a-0/00000000000000000000.log": always, "b-0/00000000000000000000.log": always}, 1, false},
		{"three logs cannot be read", faultfs.Read, faultfs.Fault{Err: syscall.EIO}, map[string]int{"-0/00000000000000000000.log": always}, 0, true},
		{"a log may not be opened", faultfs.Open, faultfs.Fault{Err: syscall.EACCES}, map[string]int{"a-0/00000000000000000000.log": always}, 2, false},
		{"partition.metadata may not be opened", faultfs.Open, faultfs.Fault{Err: syscall.EPERM}, map[string]int{"a-0/partition.metadata": always}, 2, false},
	}
	topics := []string{"a", "b", "c"}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			disk := memfs.New()
			format(t, disk, "/data", "/other")
			m := load(t, options(disk, "/data"), imageOf(t, topics...))
			for _, topic := range topics {
				appendRecords(t, create(t, m, topic, 0), 3)
			}
			m.abandon()
			before := map[string]string{}
			for _, topic := range topics {
				before[topic] = readFile(t, disk, "/data/"+topic+"-0/00000000000000000000.log")
			}
			var lines logLines
			f := &failing{times: tt.times, fault: tt.fault, kind: tt.kind}
			m = load(t, logTo(options(faultfs.Wrap(disk, f.inject), "/data", "/other"), &lines), imageOf(t, topics...))
			opened := 0
			for _, topic := range topics {
				log := m.Log(tpOf(topic, 0))
				if log != nil && m.dirs[0].err() == nil {
					opened++
					if log.EndOffset() != 3 {
						t.Errorf("%s ends at %d, want 3", topic, log.EndOffset())
					}
				}
				if got := readFile(t, disk, "/data/"+topic+"-0/00000000000000000000.log"); got != before[topic] {
					t.Errorf("the log of %s was changed from %d to %d bytes", topic, len(before[topic]), len(got))
				}
			}
			if offline := m.dirs[0].err() != nil; opened != tt.opened && !tt.offline || offline != tt.offline {
				t.Errorf("%d partitions opened, directory offline %v, want %d, %v\n%s", opened, offline, tt.opened, tt.offline, lines.text())
			}
			if tt.opened < 3 && !lines.contains("a-0/") {
				t.Errorf("the file is not named:\n%s", lines.text())
			}
			if errors.Is(tt.fault.Err, fs.ErrPermission) && !(lines.contains("user=") && lines.contains("owner")) {
				t.Errorf("the user is not named:\n%s", lines.text())
			}
			must(t, m.Health(tpOf("b", 0)).Err())
		})
	}
}

// Faults E3: what counts is three within a minute, from one directory.
func TestTheThirdUnreadableFileWithinAMinuteTakesTheDirectoryOffline(t *testing.T) {
	const log = "/data/orders-0/00000000000000000000.log"
	for _, tt := range []struct {
		name  string
		after []time.Duration // between the failures
		same  bool            // all are of one file
		want  bool            // offline
	}{
		{"two", []time.Duration{0, time.Second}, false, false},
		{"three at once", []time.Duration{0, 0, 0}, false, true},
		{"one file that a consumer asks for again and again", []time.Duration{0, 0, 0, time.Second, 58 * time.Second}, true, false},
		{"three within a minute", []time.Duration{0, 30 * time.Second, 29 * time.Second}, false, true},
		{"three in a little more", []time.Duration{0, 30 * time.Second, 30 * time.Second}, false, false},
		{"one a half minute", []time.Duration{0, 31 * time.Second, 31 * time.Second, 31 * time.Second, 31 * time.Second}, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk := memfs.New()
			format(t, disk, "/data", "/other")
			var lines logLines
			o := logTo(options(disk, "/data", "/other"), &lines)
			now := start
			o.Now = func() time.Time { return now }
			m := load(t, o, nil)
			create(t, m, "orders", 0)
			health := m.Health(tpOf("orders", 0))
			for _, err := range []error{nil, syscall.EMFILE, &fs.PathError{Op: "open", Err: syscall.EMFILE}, &fs.PathError{Op: "write", Err: syscall.EIO}, vfs.ErrNotRegular} {
				for range 5 {
					health.ReadFailed("fetch", err) // no failed read
				}
			}
			for i, d := range tt.after {
				now = now.Add(d)
				eio := &fs.PathError{Op: "read", Path: log, Err: syscall.EIO}
				if !tt.same {
					eio.Path = fmt.Sprintf("/data/orders-0/%020d.log", i)
				}
				if i%2 == 0 {
					health.ReadFailed("fetch", eio)
				} else {
					m.ReadFailed(eio.Path, "send", eio)
				}
				m.ReadFailed("/data2/x", "send", eio) // of nobody
			}
			if offline := health.Err() != nil; offline != tt.want || m.dirs[1].err() != nil {
				t.Errorf("offline %v, other directory %v, want %v\n%s", offline, m.dirs[1].err(), tt.want, lines.text())
			}
			if got := strings.Count(lines.text(), "event=read-failed"); got != len(tt.after) {
				t.Errorf("%d lines for %d failures:\n%s", got, len(tt.after), lines.text())
			}
		})
	}
}
