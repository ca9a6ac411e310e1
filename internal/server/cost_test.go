//go:build !race && !invariants

package server

// The race detector makes pools forget, and invariants are checked with
// arguments that escape: costs are those of the product build.

import (
	"bytes"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

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
			// Room for what runs besides (the runtime wakes its poller by a write), a
			// quarter of a call a round: one call more in each would still show.
			if limit := f.reads*rounds + rounds/4; reads > limit {
				t.Errorf("%d reads in %d rounds, want at most %d", reads, rounds, limit)
			}
			if limit := f.writes*rounds + rounds/4; writes > limit {
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
