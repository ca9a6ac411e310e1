package server

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/sendfile"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
)

// Faults E4: the frame's length is promised, so a response whose file fails, or
// has become shorter, ends its connection; and it is the file's error, not that
// of a client that left.
func TestAResponseWhoseFileFailsIsADiskError(t *testing.T) {
	for name, tt := range map[string]struct {
		length int
		fault  error // of reads; nil: the file is cut instead
		want   error
	}{
		"a large region of a file that was cut":    {100_000, nil, sendfile.ErrShortened},
		"a small region of a file that was cut":    {4000, nil, sendfile.ErrShortened},
		"a small region of a disk that fails":      {4000, syscall.EIO, syscall.EIO},
		"a large region of a disk that fails":      {100_000, syscall.EIO, syscall.EIO},
		"a disk without sendfile gives too little": {100_000, io.EOF, sendfile.ErrShortened},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "00000000000000000000.log")
			disk := vfs.OS()
			if tt.fault != nil {
				disk = faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
					if op.Kind == faultfs.Read {
						return faultfs.Fault{Err: tt.fault, Done: 10}
					}
					return faultfs.Fault{}
				})
			}
			file, err := disk.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if _, err := file.WriteAt(make([]byte, 200_000), 0); err != nil {
				t.Fatal(err)
			}
			if tt.fault == nil {
				if err := file.Truncate(50); err != nil {
					t.Fatal(err)
				}
			}
			type failed struct {
				file string
				err  error
			}
			told := make(chan failed, 4)
			l, _ := listen(t, Config{OnFileError: func(file string, err error) { told <- failed{file, err} }}, &testHandler{file: file})
			c := dial(t, l)
			write(t, c, regionRequest(1, [2]int{0, tt.length}))
			n, err := io.Copy(io.Discard, c)
			var timeout net.Error
			if n >= int64(tt.length) || errors.As(err, &timeout) && timeout.Timeout() {
				t.Errorf("%d bytes came, then %v, want fewer than %d and the end of the connection", n, err, tt.length)
			}
			got := <-told
			if got.file != path || !errors.Is(got.err, tt.want) || len(told) > 0 {
				t.Errorf("told of %s: %v, and %d more, want %s: %v", got.file, got.err, len(told), path, tt.want)
			}
			// A client that leaves is none.
			c = dial(t, l)
			c.Close()
		})
	}
}
