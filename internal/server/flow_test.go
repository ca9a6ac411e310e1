package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/internal/sendfile"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/wire"
)

// dataFile is a file of random bytes on the real disk.
func dataFile(t testing.TB, size int) (vfs.File, []byte) {
	t.Helper()
	data := make([]byte, size)
	rand.NewChaCha8([32]byte{1}).Read(data)
	name := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS().OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, data
}

func regionRequest(id int32, ranges ...[2]int) []byte {
	var body []byte
	for _, r := range ranges {
		body = binary.BigEndian.AppendUint64(body, uint64(r[0]))
		body = binary.BigEndian.AppendUint64(body, uint64(r[1]))
	}
	return request(keyRegion, 1, id, body)
}

// wantRegions is the body that keyRegion answers with.
func wantRegions(data []byte, ranges ...[2]int) []byte {
	var body []byte
	for _, r := range ranges {
		body = binary.BigEndian.AppendUint32(body, uint32(r[1]))
		body = append(body, data[r[0]:r[0]+r[1]]...)
	}
	return body
}

func TestRegionsAreInterleavedWithBytes(t *testing.T) {
	file, data := dataFile(t, 8<<20)
	const min = sendfile.MinRegion
	tests := []struct {
		name   string
		ranges [][2]int
	}{
		{"one small", [][2]int{{7, 100}}},
		{"one large", [][2]int{{100, min}}},
		{"one megabyte", [][2]int{{4096, 1 << 20}}},
		{"small, large, small", [][2]int{{1, 10}, {5, 200_000}, {9, 20}}},
		{"large, small, large", [][2]int{{1, min + 1}, {5, 20}, {9, min + 7}}},
		{"more small ones than a burst holds", [][2]int{{0, min - 1}, {1, min - 1}, {2, min - 1}, {3, min - 1}, {4, min - 1}}},
		{"ends at the end of the file", [][2]int{{8<<20 - 50, 50}}},
		{"larger than the socket's buffers", [][2]int{{0, 8 << 20}}},
	}
	l, _ := listen(t, Config{}, &testHandler{file: file})
	c := dial(t, l)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			frames := append(regionRequest(1, tt.ranges...), regionRequest(2, tt.ranges...)...)
			write(t, c, append(frames, request(keyEcho, 1, 3, []byte("behind"))...))
			wantAnswer(t, c, 1, wantRegions(data, tt.ranges...))
			wantAnswer(t, c, 2, wantRegions(data, tt.ranges...))
			wantAnswer(t, c, 3, []byte("behind"))
		})
	}
}

func TestRegionsReleaseTheirReferenceOnce(t *testing.T) {
	file, _ := dataFile(t, 1<<10)
	released := make(map[int]int)
	var c wire.Chunks
	c.Begin(1, false, false)
	for i := range 3 {
		c.Records(vfs.Region{File: file, Length: 10, Release: func() { released[i]++ }}, nil)
	}
	c.End()
	c.Begin(2, false, false)
	c.Records(vfs.Region{File: file, Length: 10, Release: func() { released[3]++ }}, nil)
	c.Abort()
	if len(released) != 1 || released[3] != 1 {
		t.Errorf("after the abort of the second answer released %v, want its region alone", released)
	}
	c.Reset()
	for i := range 4 {
		if released[i] != 1 {
			t.Errorf("region %d released %d times, want once", i, released[i])
		}
	}
}

func TestAFileThatEndsEarlyClosesTheConnection(t *testing.T) {
	file, _ := dataFile(t, 100_000)
	l, logs := listen(t, Config{}, &testHandler{file: file})
	for _, n := range []int{1000, 200_000} {
		c := dial(t, l)
		write(t, c, regionRequest(1, [2]int{99_900, n}))
		io.Copy(io.Discard, c)
		eventually(t, "the record", func() bool { return strings.Contains(logs.String(), "reason=file") })
	}
}

func TestAPeerThatTakesNothingIsClosed(t *testing.T) {
	file, _ := dataFile(t, 16<<20)
	l, logs := listen(t, Config{SendTimeout: 50 * time.Millisecond}, &testHandler{file: file})
	c := dial(t, l)
	write(t, c, regionRequest(1, [2]int{0, 16 << 20}))
	eventually(t, "the record", func() bool { return strings.Contains(logs.String(), "reason=send-timeout") })
}

// client sends the same bytes again and again and reads answers of a known
// size, without allocating.
type client struct {
	conn net.Conn
	send []byte
	recv []byte
}

func (c *client) roundTrip(t testing.TB) {
	if _, err := c.conn.Write(c.send); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c.conn, c.recv); err != nil {
		t.Fatal(err)
	}
}

// flow is a shape of traffic whose costs are asserted.
type flow struct {
	name          string
	send          []byte // in one write
	answer        int    // bytes that come back
	reads, writes int    // system calls of the server a round, as /proc/self/io counts them: at most
}

// answerSize is how many bytes answer a request of the echo: the request without
// key, version and client id.
func answerSize(request []byte) int { return len(request) - 10 }

// flows are the shapes. A read that finds nothing is counted too: one before
// each wait. sendmsg, which writes bursts, is not counted by the kernel.
func flows() []flow {
	small := request(keyEcho, 1, 1, make([]byte, 1024))
	large := request(keySilent, 3, 1, make([]byte, 900_000))
	return []flow{
		{"one request at a time", small, answerSize(small), 2, 0},
		{"fifteen requests at once", bytes.Repeat(small, 15), 15 * answerSize(small), 2, 0},
		{"a large request without an answer before a small one", append(large, small...), answerSize(small), 20, 0},
		{"a small region", regionRequest(1, [2]int{0, 4000}), 12 + 4000, 3, 0},
		{"a large region", regionRequest(1, [2]int{0, 100_000}), 12 + 100_000, 3, 1},
	}
}

func TestSteadyTrafficAllocatesNothing(t *testing.T) {
	file, _ := dataFile(t, 1<<20)
	l, _ := listen(t, Config{}, &testHandler{file: file})
	for _, f := range flows() {
		t.Run(f.name, func(t *testing.T) {
			c := client{conn: dial(t, l), send: f.send, recv: make([]byte, f.answer)}
			for range 50 {
				c.roundTrip(t)
			}
			if n := testing.AllocsPerRun(1000, func() { c.roundTrip(t) }); n > 0 {
				t.Errorf("%.2f allocations a round, want none", n)
			}
		})
	}
}

func TestSystemCallsPerRequest(t *testing.T) {
	file, _ := dataFile(t, 1<<20)
	l, _ := listen(t, Config{}, &testHandler{file: file})
	const rounds = 1000
	for _, f := range flows() {
		t.Run(f.name, func(t *testing.T) {
			// The client's end is a blocking descriptor, so that its calls can be counted.
			blocking, err := dial(t, l).File()
			if err != nil {
				t.Fatal(err)
			}
			defer blocking.Close()
			fd, answer := int(blocking.Fd()), make([]byte, f.answer)
			clientReads, clientWrites := 0, 0
			round := func() {
				for b := f.send; len(b) > 0; clientWrites++ {
					n, err := unix.Write(fd, b)
					if err != nil {
						t.Fatal(err)
					}
					b = b[n:]
				}
				for got := 0; got < f.answer; clientReads++ {
					n, err := unix.Read(fd, answer[got:])
					if err != nil || n == 0 {
						t.Fatalf("read: %d, %v", n, err)
					}
					got += n
				}
			}
			round()
			clientReads, clientWrites = 0, 0
			r0, w0 := ioCalls(t)
			for range rounds {
				round()
			}
			r1, w1 := ioCalls(t)
			reads, writes := r1-r0-clientReads, w1-w0-clientWrites
			if limit := f.reads*rounds*101/100 + 2; reads > limit { // 2: reading the counters
				t.Errorf("%d reads in %d rounds, want at most %d", reads, rounds, limit)
			}
			if limit := (f.writes*100 + 1) * rounds / 100; writes > limit { // and the runtime's own wake-ups
				t.Errorf("%d writes in %d rounds, want at most %d", writes, rounds, limit)
			}
			t.Logf("%d reads, %d writes in %d rounds", reads, writes, rounds)
		})
	}
}

// ioCalls are the read and write system calls of this process so far.
func ioCalls(t testing.TB) (reads, writes int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, _ := strconv.Atoi(value)
		switch name {
		case "syscr":
			reads = n
		case "syscw":
			writes = n
		}
	}
	return reads, writes
}
