package quorum

import (
	"errors"
	"os"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// twoSnapshots is a log with two snapshots and records behind each.
func twoSnapshots(t *testing.T) (disk *memfs.FS, snapshots []string, want string) {
	t.Helper()
	disk = memfs.New()
	format(t, disk)
	q := open(t, disk, nil)
	first, _ := q.Bootstrap()
	appendOK(t, q, first...)
	for _, key := range []string{"a", "b"} {
		appendOK(t, q, setConfig(key, "1"))
		if err := q.WriteSnapshot(); err != nil {
			t.Fatal(err)
		}
		snapshots = append(snapshots, q.path(q.maintenance.snapshot.name()))
	}
	appendOK(t, q, setConfig("c", "1"))
	want = state(q.Image())
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return disk, snapshots, want
}

func damage(t *testing.T, disk vfs.FS, name string) {
	t.Helper()
	data, err := vfs.ReadFile(disk, name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	f, err := disk.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

// Faults 4.1: the next older snapshot and the log say the same as the newest.
func TestADamagedSnapshotIsPassedOver(t *testing.T) {
	for name, broken := range map[string]int{"the newest": 1, "both, the log goes back to its start": 2} {
		t.Run(name, func(t *testing.T) {
			disk, snapshots, want := twoSnapshots(t)
			for _, s := range snapshots[2-broken:] {
				damage(t, disk, s)
			}
			for range 2 { // what is set aside is not asked again
				q := open(t, disk, nil)
				if got := state(q.Image()); got != want {
					t.Errorf("state:\n%s\nwant:\n%s", got, want)
				}
				for _, s := range snapshots[2-broken:] {
					if _, err := disk.Stat(s); err == nil {
						t.Errorf("%s is still where Kafka takes it for the newest", s)
					}
					if _, err := disk.Stat(s + ".cut"); err != nil {
						t.Error(err)
					}
				}
				appendOK(t, q, setConfig("d", "1"))
				want = state(q.Image())
				if err := q.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestADamagedSnapshotThatNothingReplacesIsRefused(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, disk *memfs.FS, dir string){
		"the log is gone": func(t *testing.T, disk *memfs.FS, dir string) {
			if err := disk.Remove(path.Join(dir, "00000000000000000000.log")); err != nil {
				t.Fatal(err)
			}
		},
		"the log ends below it": func(t *testing.T, disk *memfs.FS, dir string) {
			f, err := disk.OpenFile(path.Join(dir, "00000000000000000000.log"), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Truncate(200); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk, snapshots, _ := twoSnapshots(t)
			dir := path.Dir(snapshots[0])
			damage(t, disk, snapshots[0])
			damage(t, disk, snapshots[1])
			lose(t, disk, dir)
			before := tree(t, disk, "/data")
			meta, err := checkpoint.ReadMeta(disk, "/data/"+checkpoint.MetaFile)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Open(Options{FS: disk, Dir: "/data", NodeID: 1, DirectoryID: meta.DirectoryID, Now: newClock().Now})
			if !errors.Is(err, ErrRefused) || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), snapshots[1]) || !strings.Contains(err.Error(), "byte") {
				t.Errorf("Open = %v, want a refusal that names the snapshot and where it is damaged", err)
			}
			if after := tree(t, disk, "/data"); len(after) != len(before) {
				t.Errorf("changed: %v, was %v", after, before)
			}
		})
	}
}

// Faults 4.1: with one voter the epoch of the log is all that quorum-state says.
func TestQuorumStateIsRebuilt(t *testing.T) {
	for name, spoil := range map[string]func(disk *memfs.FS, path string) error{
		"missing":   func(disk *memfs.FS, path string) error { return disk.Remove(path) },
		"empty":     func(disk *memfs.FS, path string) error { return checkpoint.WriteFile(disk, path, nil) },
		"senseless": func(disk *memfs.FS, path string) error { return checkpoint.WriteFile(disk, path, []byte("{\"")) },
		"a directory": func(disk *memfs.FS, path string) error {
			return errors.Join(disk.Remove(path), disk.Mkdir(path, 0o755))
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk, snapshots, want := twoSnapshots(t)
			file := path.Join(path.Dir(snapshots[0]), checkpoint.QuorumStateFile)
			if err := spoil(disk, file); err != nil {
				t.Fatal(err)
			}
			q := open(t, disk, nil)
			if got := state(q.Image()); got != want || q.Epoch() != 2 {
				t.Errorf("epoch %d, state:\n%s\nwant epoch 2:\n%s", q.Epoch(), got, want)
			}
			if s, err := checkpoint.ReadQuorumState(disk, file); err != nil || s.LeaderEpoch != 2 {
				t.Errorf("quorum-state %+v, %v", s, err)
			}
		})
	}
}

// Faults S5: what a start has to write waits for room and is in force meanwhile;
// what comes after the start is refused. When there is room it is written, in
// the order in which it was said.
func TestTheRecordsOfAStartWaitForRoom(t *testing.T) {
	for name, noRoom := range map[string]func(op faultfs.Op) bool{
		"for anything": func(op faultfs.Op) bool { return op.Kind == faultfs.Write || op.Kind == faultfs.Create },
		"for quorum-state": func(op faultfs.Op) bool {
			return op.Kind == faultfs.Create && strings.Contains(op.Name, "quorum-state")
		},
		"for the log": func(op faultfs.Op) bool { return op.Kind == faultfs.Write && strings.HasSuffix(op.Name, ".log") },
	} {
		t.Run(name, func(t *testing.T) {
			disk, _, _ := twoSnapshots(t)
			full := true
			faulty := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
				if full && noRoom(op) {
					return faultfs.Fault{Err: syscall.ENOSPC}
				}
				return faultfs.Fault{}
			})
			q := open(t, faulty, func(o *Options) { o.AwaitRoom = true })
			end := q.EndOffset()
			appendOK(t, q, setConfig("started", "1"))
			if !q.EndStart() {
				t.Fatal("nothing waits for room")
			}
			want := state(q.Image())
			if q.EndOffset() != end+1 || !strings.Contains(want, "started") {
				t.Errorf("what the start said is not in force:\n%s", want)
			}
			if err := q.WriteSnapshot(); err != nil {
				t.Error(err)
			}
			if _, err := q.Append([]metadata.Record{setConfig("later", "1")}); !errors.Is(err, commitlog.ErrFull) {
				t.Errorf("Append after the start = %v, want ErrFull", err)
			}
			if err := q.Settle(); !errors.Is(err, commitlog.ErrFull) {
				t.Errorf("Settle without room = %v, want ErrFull", err)
			}
			// The process dies here, or goes on when there is room.
			died := disk.Crash(memfs.KeepAll())
			if got := open(t, died, nil); strings.Contains(state(got.Image()), "started") || got.EndOffset() != end {
				t.Errorf("end offset %d, want %d; state after the death of the process:\n%s", got.EndOffset(), end, state(got.Image()))
			}
			full = false
			if err := q.Settle(); err != nil {
				t.Fatal(err)
			}
			appendOK(t, q, setConfig("room", "1"))
			want = state(q.Image())
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			if q = open(t, disk, nil); state(q.Image()) != want {
				t.Errorf("after a restart:\n%s\nwant:\n%s", state(q.Image()), want)
			}
		})
	}
}

// A stop of a broker that never found room ends, and leaves a log to start on.
func TestAStopWithoutRoom(t *testing.T) {
	disk, _, want := twoSnapshots(t)
	full := false
	faulty := faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if full && (op.Kind == faultfs.Write || op.Kind == faultfs.Create || op.Kind == faultfs.Reserve) {
			return faultfs.Fault{Err: syscall.ENOSPC}
		}
		return faultfs.Fault{}
	})
	full = true
	q := open(t, faulty, func(o *Options) { o.AwaitRoom = true })
	appendOK(t, q, setConfig("started", "1"))
	q.EndStart()
	if err := q.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	full = false
	if q = open(t, faulty, nil); state(q.Image()) != want {
		t.Errorf("state:\n%s\nwant:\n%s", state(q.Image()), want)
	}
}
