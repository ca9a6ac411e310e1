package floor

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// calls are the four system calls of the server's hot paths.
type calls struct {
	read, write   func(fd int, b []byte) (int, error)
	pread, pwrite func(fd int, b []byte, off int64) (int, error)
}

// announced calls tell the Go scheduler that the thread may block, as package os and net do. The first one
// after an idle spell wakes the runtime's monitor thread, which then polls for a while.
var announced = calls{unix.Read, unix.Write, unix.Pread, unix.Pwrite}

// raw calls do not. One that blocks keeps its Go processor and holds up a garbage collection; a non-blocking
// socket never blocks, a write to the page cache may (when too many pages are dirty).
var raw = calls{
	read:   func(fd int, b []byte) (int, error) { return rawCall(unix.SYS_READ, fd, b, 0) },
	write:  func(fd int, b []byte) (int, error) { return rawCall(unix.SYS_WRITE, fd, b, 0) },
	pread:  func(fd int, b []byte, off int64) (int, error) { return rawCall(unix.SYS_PREAD64, fd, b, off) },
	pwrite: func(fd int, b []byte, off int64) (int, error) { return rawCall(unix.SYS_PWRITE64, fd, b, off) },
}

func rawCall(trap uintptr, fd int, b []byte, off int64) (int, error) {
	n, _, e := unix.RawSyscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(off), 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
