package logdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
)

// Offline describes a directory that went offline.
type Offline struct {
	Dir        string
	ID         kafka.UUID
	Partitions []kafka.TopicPartition // that lay in it; not yet known before Load
	Err        error
}

func (d *dir) err() error {
	if p := d.offline.Load(); p != nil {
		return *p
	}
	if p := d.broken.Load(); p != nil {
		return fmt.Errorf("%w: %s: %w", ErrOffline, d.path, *p)
	}
	return nil
}

// online is how many directories are left.
func (m *Manager) online() int {
	n := 0
	for _, d := range m.dirs {
		if d.err() == nil {
			n++
		}
	}
	return n
}

// goOffline takes a directory out of use, for good: nothing is written to it
// again by this process (faults O15). A failed write or sync may have left the
// kernel's pages and the disk apart; only a restart, which reads the disk, can
// tell what is there. A caller may hold its log's lock, but no lock of this package.
func (m *Manager) goOffline(d *dir, op string, cause error) {
	err := fmt.Errorf("%w: %s: %w", ErrOffline, d.path, cause)
	d.broken.CompareAndSwap(nil, &err) // the logs look at it before each change
	if !d.offline.CompareAndSwap(nil, &err) {
		return
	}
	o := Offline{Dir: d.path, ID: d.id, Err: cause}
	for _, p := range m.partitions(d) {
		p.log.Fail(err)
		o.Partitions = append(o.Partitions, p.tp)
	}
	m.o.Logger.Error("data directory offline", append([]any{"event", "dir-offline", "dir", d.path, "op", op, "file", fileOf(cause), "err", cause, "partitions", len(o.Partitions)},
		adviceOn(cause, "check the disk, then restart; nothing will be written to it until then")...)...)
	if m.o.OnOffline != nil {
		online := m.online()
		m.jobs.background(func() { m.o.OnOffline(o, online) })
	}
}

// logFailed is told that a log has given up. When somebody has taken its
// directory away from a data directory that is otherwise there, the log is
// the matter of that partition alone.
func (m *Manager) logFailed(d *dir, tp kafka.TopicPartition, err error) {
	if errors.Is(err, fs.ErrNotExist) && m.stillMounted(d) == nil {
		if _, statErr := m.o.FS.Stat(filepath.Join(d.path, tp.String())); errors.Is(statErr, fs.ErrNotExist) {
			m.o.Logger.Error("the partition's directory was taken away, it is offline", "event", "partition-missing", "topic", tp.Topic, "partition", tp.Partition,
				"dir", d.path, "err", err, "hint", "put it back and restart; until then nothing is written to it")
			return
		}
	}
	m.goOffline(d, "log", err)
}

// fileOf is the file that an error of the disk is about; empty when it names none.
func fileOf(err error) string {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Path
	}
	return ""
}

// Health is the state of one partition's directory: a pointer that its user
// keeps, to look at before each append without a lock.
type Health struct {
	m   *Manager
	dir *dir
}

// Err is nil while the directory is online. The zero Health is always online.
func (h Health) Err() error {
	if h.dir == nil {
		return nil
	}
	return h.dir.err()
}

// Room is ErrLow while producers are refused. What the broker itself appends,
// such as committed offsets, does not ask.
func (h Health) Room() error {
	if h.dir != nil && h.dir.space.refuses.Load() {
		return ErrLow
	}
	return nil
}

// Health returns the state of the directory that tp lies in.
func (m *Manager) Health(tp kafka.TopicPartition) Health {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if p := m.logs[tp]; p != nil {
		return Health{m, p.dir}
	}
	return Health{}
}

// isDiskError tells an error of the disk, which concerns the whole directory,
// from one of a file's content or of this process's resources.
func isDiskError(err error) bool {
	for _, errno := range []syscall.Errno{
		syscall.EIO, syscall.EROFS, syscall.ESTALE, syscall.ENXIO, syscall.ENODEV, syscall.ENOTCONN, syscall.ETIMEDOUT,
		syscall.EACCES, syscall.EPERM, syscall.ENOTDIR,
	} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// adviceOn is what a log record says besides the error: what to do, and who asked
// when the answer was that they may not (faults F6). Permission is no damage.
func adviceOn(err error, hint string) []any {
	if errors.Is(err, fs.ErrPermission) {
		return []any{"user", os.Geteuid(), "hint", "give the file back to the user that runs varve, or run it as the owner, then restart; nothing was changed"}
	}
	return []any{"hint", hint}
}

// Transient tells a failure that says nothing of what is on the disk and may be
// gone at the next attempt: no room, no descriptor, no memory.
func Transient(err error) bool {
	if errors.Is(err, ErrOffline) {
		return false
	}
	return vfs.IsFull(err) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}
