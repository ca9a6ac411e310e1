package sendfile

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// pair returns the two ends of a TCP connection on loopback.
func pair(t testing.TB) (server, client *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialed, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialed.Close(); accepted.Close() })
	return accepted.(*net.TCPConn), dialed.(*net.TCPConn)
}

func newSender(t testing.TB, c *net.TCPConn) *Sender {
	t.Helper()
	s, err := NewSender(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// newFile writes size seeded bytes to a file of disk.
func newFile(t testing.TB, disk vfs.FS, name string, size int) (vfs.File, []byte) {
	t.Helper()
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{7})
	random.Read(content)
	f, err := disk.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return f, content
}

func realFile(t testing.TB, size int) (vfs.File, []byte) {
	return newFile(t, vfs.OS(), filepath.Join(t.TempDir(), "segment.log"), size)
}

func TestSendBurst(t *testing.T) {
	disk, diskBytes := realFile(t, 3<<20)
	memory, memoryBytes := newFile(t, memfs.New(), "segment.log", 300<<10)
	tests := []struct {
		name    string
		file    vfs.File
		content []byte
		header  string
		off, n  int64
	}{
		{"header and a region from the middle of a file", disk, diskBytes, "header", 12345, 2 << 20},
		{"a region to the last byte", disk, diskBytes, "h", 3<<20 - 5, 5},
		{"no header", disk, diskBytes, "", 0, 100},
		{"an empty region sends the header alone", disk, diskBytes, "header", 77, 0},
		{"nothing at all", disk, diskBytes, "", 0, 0},
		{"a file without a descriptor is copied", memory, memoryBytes, "header", 1, 200<<10 + 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			server, client := pair(t)
			sent := make(chan error, 1)
			go func() {
				err := newSender(t, server).SendBurst([]byte(tt.header), vfs.Region{File: tt.file, Offset: tt.off, Length: tt.n})
				server.Close()
				sent <- err
			}()
			got, err := io.ReadAll(client)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			want := append([]byte(tt.header), tt.content[tt.off:tt.off+tt.n]...)
			if !bytes.Equal(got, want) {
				t.Errorf("peer got %d bytes that differ from the %d wanted", len(got), len(want))
			}
		})
	}
}

// Two connections read one file at the same time, each from its own offset: a
// shared file position would mix them up.
func TestTwoConnectionsOnOneFile(t *testing.T) {
	file, content := realFile(t, 8<<20)
	var wg sync.WaitGroup
	for _, off := range []int64{0, 3 << 20} {
		server, client := pair(t)
		wg.Go(func() {
			s := newSender(t, server)
			for i := range int64(64) {
				r := vfs.Region{File: file, Offset: off + i*64<<10, Length: 64 << 10}
				if err := s.SendBurst([]byte{byte(i)}, r); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Go(func() {
			buf := make([]byte, 1+64<<10)
			for i := range int64(64) {
				if _, err := io.ReadFull(client, buf); err != nil {
					t.Error(err)
					return
				}
				from := off + i*64<<10
				if buf[0] != byte(i) || !bytes.Equal(buf[1:], content[from:from+64<<10]) {
					t.Errorf("connection at %d: region %d has other bytes", off, i)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSendFromShortenedFile(t *testing.T) {
	file, _ := realFile(t, 100<<10)
	if err := file.Truncate(60 << 10); err != nil {
		t.Fatal(err)
	}
	memory, _ := newFile(t, memfs.New(), "segment.log", 100)
	for _, f := range []vfs.File{file, memory} {
		server, client := pair(t)
		go io.Copy(io.Discard, client)
		err := newSender(t, server).SendRegion(vfs.Region{File: f, Offset: 0, Length: 100 << 10})
		var fileErr *FileError
		if !errors.As(err, &fileErr) || !errors.Is(err, ErrShortened) {
			t.Errorf("SendRegion = %v, want a FileError of ErrShortened", err)
		}
	}
}

func TestSendToClosedPeer(t *testing.T) {
	file, _ := realFile(t, 1<<20)
	server, client := pair(t)
	client.SetLinger(0)
	client.Close()
	s := newSender(t, server)
	var err error
	for err == nil { // the first bursts may still fit into the socket's buffer
		err = s.SendBurst([]byte("header"), vfs.Region{File: file, Length: 1 << 20})
	}
	var fileErr *FileError
	if errors.As(err, &fileErr) {
		t.Errorf("SendBurst = %v, want an error of the peer, not of the file", err)
	}
}

func TestClosingTheConnectionEndsASend(t *testing.T) {
	file, _ := realFile(t, 32<<20)
	server, client := pair(t)
	result := make(chan error, 1)
	go func() { result <- newSender(t, server).SendRegion(vfs.Region{File: file, Length: 32 << 20}) }()
	var one [1]byte
	if _, err := io.ReadFull(client, one[:]); err != nil { // it is under way
		t.Fatal(err)
	}
	server.Close()
	if err := <-result; err == nil {
		t.Error("SendRegion on a connection that was closed returned no error")
	}
}

func TestPeerThatAcceptsNothingRunsIntoTheStallDeadline(t *testing.T) {
	file, _ := realFile(t, 32<<20)
	server, _ := pair(t)
	s := newSender(t, server)
	s.SetStall(time.Millisecond)
	err := s.SendBurst([]byte("header"), vfs.Region{File: file, Length: 32 << 20})
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("SendBurst = %v, want a timeout", err)
	}
}

func TestDeadlineIsLiftedAfterASlowSend(t *testing.T) {
	file, content := realFile(t, 4<<20)
	server, client := pair(t)
	server.SetWriteBuffer(256 << 10) // park often
	s := newSender(t, server)
	s.SetStall(time.Minute)
	result := make(chan error, 1)
	go func() {
		err := s.SendRegion(vfs.Region{File: file, Length: 4 << 20})
		result <- err
	}()
	got := make([]byte, len(content))
	if _, err := io.ReadFull(client, got); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil || !bytes.Equal(got, content) {
		t.Errorf("SendRegion = %v, bytes equal %v", err, bytes.Equal(got, content))
	}
	if s.armed {
		t.Error("a write deadline is left behind")
	}
}

func TestSendAllocatesNothing(t *testing.T) {
	file, _ := realFile(t, 1<<20)
	server, client := pair(t)
	go io.Copy(io.Discard, client)
	s := newSender(t, server)
	header := make([]byte, 64)
	region := vfs.Region{File: file, Offset: 4096, Length: 512 << 10}
	send := func() {
		if err := s.WriteBurst(header, true); err != nil {
			t.Fatal(err)
		}
		if err := s.SendBurst(header, region); err != nil {
			t.Fatal(err)
		}
		if err := s.WriteBurst(header, false); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(50, send); n != 0 {
		t.Errorf("a response allocates %v times, want 0", n)
	}
}

func TestCopyRegion(t *testing.T) {
	file, content := realFile(t, 200<<10)
	var out bytes.Buffer
	if err := CopyRegion(&out, vfs.Region{File: file, Offset: 10, Length: 150 << 10}, make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), content[10:10+150<<10]) {
		t.Error("CopyRegion wrote other bytes")
	}
	got, err := AppendRegion([]byte("ab"), vfs.Region{File: file, Offset: 5, Length: 7})
	if err != nil || string(got) != "ab"+string(content[5:12]) {
		t.Errorf("AppendRegion = %q, %v", got, err)
	}
	if _, err := AppendRegion(nil, vfs.Region{File: file, Offset: 200<<10 - 1, Length: 2}); !errors.Is(err, ErrShortened) {
		t.Errorf("AppendRegion past the end = %v, want ErrShortened", err)
	}
}

func BenchmarkSendBurst(b *testing.B) {
	file, _ := realFile(b, 1<<20)
	server, client := pair(b)
	go io.Copy(io.Discard, client)
	s := newSender(b, server)
	header := make([]byte, 64)
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.SendBurst(header, vfs.Region{File: file, Length: 1 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}
