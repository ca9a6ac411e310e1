package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// osFile keeps the *os.File next to its number: a descriptor dies with the file
// it was taken from, and its number may then be another file.
type osFile struct {
	file *os.File
	fd   int
}

// OpenFile implements FS. A symbolic link as the last element is not followed,
// and what is no regular file is not opened: a FIFO would block the caller for
// ever, a device answer with anything (faults F5).
func (osFS) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	fresh := flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0 // nothing else can be there
	mode := flag | unix.O_CLOEXEC | unix.O_LARGEFILE
	if !fresh {
		mode |= unix.O_NOFOLLOW | unix.O_NONBLOCK
	}
	// Not os.OpenFile: it would register a regular file with the poller, a
	// system call that always fails with EPERM.
	for {
		fd, err := unix.Open(name, mode, uint32(perm.Perm()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && !fresh {
			if err = regular(fd, flag); err != nil {
				_ = unix.Close(fd) // nothing was done with it
			}
		}
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: openError(name, err)}
		}
		return &osFile{file: os.NewFile(uintptr(fd), name), fd: fd}, nil
	}
}

// regular checks what was opened, and takes O_NONBLOCK off again, which only the
// open needed.
func regular(fd, flag int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFREG {
		return &NotRegularError{Mode: modeOf(kind)}
	}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, flag&(unix.O_ACCMODE|unix.O_APPEND|unix.O_SYNC)|unix.O_LARGEFILE)
	return err
}

// openError tells what is in the way of a file from an error of the disk.
func openError(name string, err error) error {
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENXIO): // a link, a directory, a FIFO without a reader or a socket
		var st unix.Stat_t
		if unix.Lstat(name, &st) == nil && st.Mode&unix.S_IFMT != unix.S_IFREG {
			return &NotRegularError{Mode: modeOf(st.Mode & unix.S_IFMT)}
		}
	}
	return err
}

func modeOf(kind uint32) fs.FileMode {
	switch kind {
	case unix.S_IFDIR:
		return fs.ModeDir
	case unix.S_IFLNK:
		return fs.ModeSymlink
	case unix.S_IFIFO:
		return fs.ModeNamedPipe
	case unix.S_IFSOCK:
		return fs.ModeSocket
	case unix.S_IFCHR:
		return fs.ModeDevice | fs.ModeCharDevice
	}
	return fs.ModeDevice
}

// maxVec is IOV_MAX: more buffers in one call are refused by the kernel.
const maxVec = 1024

// WritevAt implements File. bufs is left as it is; a short write goes on with
// what is left.
func (f *osFile) WritevAt(bufs [][]byte, off int64) (int64, error) {
	var done int64
	var skip int // bytes of bufs[0] already written
	for {
		for len(bufs) > 0 && skip == len(bufs[0]) {
			bufs, skip = bufs[1:], 0
		}
		if len(bufs) == 0 {
			return done, nil
		}
		var n int
		var err error
		if skip > 0 || len(bufs) == 1 {
			// The rest of a buffer that a short write cut.
			n, err = f.file.WriteAt(bufs[0][skip:], off+done)
		} else {
			n, err = unix.Pwritev(f.fd, bufs[:min(len(bufs), maxVec)], off+done)
			runtime.KeepAlive(f.file)
		}
		if n > 0 {
			done += int64(n)
			bufs, skip = advance(bufs, skip+n)
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return done, f.wrap("pwritev", err)
		}
	}
}

// advance drops n bytes from the front of bufs and returns the buffers left and
// how much of the first one is gone.
func advance(bufs [][]byte, n int) (rest [][]byte, skip int) {
	for len(bufs) > 0 && n >= len(bufs[0]) {
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	return bufs, n
}

// Reserve implements File.
func (f *osFile) Reserve(off, n int64) error {
	for {
		err := unix.Fallocate(f.fd, unix.FALLOC_FL_KEEP_SIZE, off, n)
		runtime.KeepAlive(f.file)
		switch err {
		case nil:
			return nil
		case unix.EINTR:
			continue
		case unix.EOPNOTSUPP, unix.ENOSYS:
			return f.wrap("fallocate", ErrUnsupported)
		}
		return f.wrap("fallocate", err)
	}
}

// SyncData implements File.
func (f *osFile) SyncData() error {
	for {
		err := unix.Fdatasync(f.fd)
		runtime.KeepAlive(f.file)
		if err == unix.EINTR {
			continue
		}
		return f.wrap("fdatasync", err)
	}
}

// Map implements File.
func (f *osFile) Map(size int, mode MapMode) (Map, error) {
	if size == 0 {
		return &osMap{name: f.file.Name()}, nil
	}
	prot := unix.PROT_READ
	if mode == MapReadWrite {
		prot |= unix.PROT_WRITE
	}
	data, err := unix.Mmap(f.fd, 0, size, prot, unix.MAP_SHARED)
	runtime.KeepAlive(f.file)
	if err == unix.ENODEV {
		err = ErrUnsupported
	}
	if err != nil {
		return nil, f.wrap("mmap", err)
	}
	return &osMap{name: f.file.Name(), data: data}, nil
}

// SetModTime implements File. It goes by the descriptor: the file may have been
// renamed since it was opened.
func (f *osFile) SetModTime(ms int64) error {
	t := unix.NsecToTimeval(ms * int64(time.Millisecond))
	err := unix.Futimes(f.fd, []unix.Timeval{t, t})
	runtime.KeepAlive(f.file)
	return f.wrap("futimes", err)
}

// Fd implements File.
func (f *osFile) Fd() (uintptr, bool) { return uintptr(f.fd), true }

func (f *osFile) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		return err
	}
	return &fs.PathError{Op: op, Path: f.file.Name(), Err: err}
}

// osMap is a shared mapping; data is nil when it is empty or unmapped.
type osMap struct {
	name string
	data []byte
}

// Bytes implements Map.
func (m *osMap) Bytes() []byte { return m.data }

// Flush implements Map.
func (m *osMap) Flush(from, to int) error {
	if from >= to || len(m.data) == 0 {
		return nil
	}
	page := os.Getpagesize()
	from -= from % page
	if err := unix.Msync(m.data[from:to], unix.MS_SYNC); err != nil {
		return &fs.PathError{Op: "msync", Path: m.name, Err: err}
	}
	return nil
}

// AdviseRandom implements Map.
func (m *osMap) AdviseRandom() error {
	if len(m.data) == 0 {
		return nil
	}
	if err := unix.Madvise(m.data, unix.MADV_RANDOM); err != nil {
		return &fs.PathError{Op: "madvise", Path: m.name, Err: err}
	}
	return nil
}

// Unmap implements Map.
func (m *osMap) Unmap() error {
	data := m.data
	if data == nil {
		return nil
	}
	m.data = nil
	if err := unix.Munmap(data); err != nil {
		return &fs.PathError{Op: "munmap", Path: m.name, Err: err}
	}
	return nil
}

// Lock implements FS. Apache Kafka takes a POSIX record lock on the whole file.
// An open-file-description lock excludes it and is excluded by it, both ways,
// and is not lost when another descriptor of the file is closed; flock(2) would
// not see Kafka's lock at all. A clean stop of Kafka unlinks the file, so the
// name is compared with what was locked. The directory is locked besides, against
// another varve alone.
func (osFS) Lock(name string) (io.Closer, error) {
	for {
		opened, err := osFS{}.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		f := opened.(*osFile).file
		whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
		if err := lockOFD(f, &whole); err != nil {
			f.Close()
			return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
		}
		same, err := stillNamed(f, name)
		if err != nil {
			f.Close()
			return nil, err
		}
		if same {
			dir, err := lockDirectory(filepath.Dir(name))
			if err != nil {
				f.Close()
				return nil, &fs.PathError{Op: "lock", Path: name, Err: err}
			}
			return &osLock{f, dir}, nil
		}
		f.Close()
	}
}

// osLock is a lock file that is held, and its directory; dir may be nil.
type osLock struct{ file, dir *os.File }

// Close gives both back.
func (l *osLock) Close() error {
	err := l.file.Close()
	if l.dir != nil {
		err = errors.Join(err, l.dir.Close())
	}
	return err
}

// lockDirectory takes flock(2) on the directory of a lock file, since somebody
// may remove that file, for a stale one, while it is held. Where directories
// cannot be locked (NFS) the file has to do.
func lockDirectory(name string) (*os.File, error) {
	dir, _ := os.Open(name)
	if dir == nil {
		return nil, nil // one that cannot be opened is the matter of who uses it
	}
	for {
		switch err := unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
		case nil:
			return dir, nil
		case unix.EINTR:
		case unix.EWOULDBLOCK:
			dir.Close()
			return nil, ErrLocked
		default:
			dir.Close()
			return nil, nil
		}
	}
}

func lockOFD(f *os.File, lock *unix.Flock_t) error {
	for {
		switch err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, lock); err {
		case unix.EINTR:
		case unix.EAGAIN, unix.EACCES:
			return ErrLocked
		default:
			return err
		}
	}
}

// stillNamed reports whether name still leads to the open file f.
func stillNamed(f *os.File, name string) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return os.SameFile(opened, named), nil
}

// Usage implements FS.
func (osFS) Usage(name string) (total, free int64, err error) {
	var st unix.Statfs_t
	for {
		err = unix.Statfs(name, &st)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: name, Err: err}
	}
	unit := int64(st.Frsize)
	return int64(st.Blocks) * unit, int64(st.Bavail) * unit, nil
}
