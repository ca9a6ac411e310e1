package vfs

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Faults F5: to open a FIFO for reading would block for ever, a link could lead
// out of the data directory, a device answers with anything.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	create(t, at("file"))
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for _, err := range []error{
		os.Mkdir(at("directory"), 0o755), syscall.Mkfifo(at("fifo"), 0o644),
		os.Symlink("file", at("link")), os.Symlink("nowhere", at("broken")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{at("directory"), at("fifo"), at("link"), at("broken"), at("socket"), "/dev/null"} {
		for _, flag := range []int{os.O_RDONLY, os.O_RDWR, os.O_WRONLY | os.O_CREATE | os.O_TRUNC} {
			f, err := OS().OpenFile(name, flag, 0o644)
			var kind *NotRegularError
			if !errors.Is(err, ErrNotRegular) || !errors.As(err, &kind) {
				t.Errorf("OpenFile(%s, %#x) = %v, %v, want ErrNotRegular", name, flag, f, err)
			}
			if err == nil {
				f.Close()
			}
		}
	}
	if f, err := Following().OpenFile(at("link"), os.O_RDONLY, 0); err != nil {
		t.Errorf("a link that the user named: %v", err)
	} else {
		f.Close()
	}
	if _, err := os.Stat(at("nowhere")); err == nil {
		t.Error("a file was made through the link")
	}
	if _, err := OS().Lock(at("fifo")); !errors.Is(err, ErrNotRegular) {
		t.Errorf("Lock of a FIFO = %v, want ErrNotRegular", err)
	}
}

// What only the open needed must not stay on the descriptor: sendfile and the
// file systems of user space look at it.
func TestAnOpenFileBlocks(t *testing.T) {
	f := create(t, filepath.Join(t.TempDir(), "f"))
	fd, ok := f.Fd()
	if !ok {
		return // no descriptor on this platform
	}
	flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_GETFL, 0)
	if errno != 0 || flags&syscall.O_NONBLOCK != 0 || flags&syscall.O_ACCMODE != syscall.O_RDWR {
		t.Errorf("flags of the descriptor are %#x, %v", flags, errno)
	}
}
