package floor

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// job tells the load generator what to do; Answer is what it saw.
type Job struct {
	Kind      string // fetch, put, ping, wake, tls
	Port      int
	Method    int
	Size      int
	Depth     int
	Conns     int
	Waiters   int
	Seconds   float64
	Times     int  // requests at most; 0 of a put: no bound
	Fresh     bool // a put begins with an empty file, into memory that is not in use
	PauseUSec int
}

type Answer struct {
	Bytes, Responses float64
	Seconds          float64
	P50, P99, P999   float64 // µs
	Err              string
}

// load reads jobs from its input and writes an Answer to each.
func load() error {
	runtime.LockOSThread()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var j Job
		if err := json.Unmarshal(in.Bytes(), &j); err != nil {
			return err
		}
		a, err := j.run()
		if err != nil {
			a.Err = err.Error()
		}
		if err := PrintJSON(a); err != nil {
			return err
		}
	}
	return in.Err()
}

func (j Job) run() (Answer, error) {
	switch j.Kind {
	case "fetch":
		return j.fetch()
	case "put":
		return j.put()
	case "ping":
		return j.ping()
	case "wake":
		return j.wake()
	case "tls":
		return j.tls()
	}
	return Answer{}, fmt.Errorf("no job %q", j.Kind)
}

// RawConn is a blocking socket used through raw system calls, as a C client would.
type RawConn int

func Dial(port int) (RawConn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return -1, err
	}
	return RawConn(fd), unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
}

func (c RawConn) Close() { _ = unix.Close(int(c)) }

func (c RawConn) Write(b []byte) error {
	for len(b) > 0 {
		n, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(c), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return e
		}
		b = b[n:]
	}
	return nil
}

func (c RawConn) Read(b []byte) (int, error) {
	for {
		n, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(c), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return 0, e
		}
		if n == 0 {
			return 0, io.EOF
		}
		return int(n), nil
	}
}

// drain reads and drops n bytes.
func (c RawConn) Drain(n int, buf []byte) error {
	for n > 0 {
		k, err := c.Read(buf[:min(n, len(buf))])
		if err != nil {
			return err
		}
		n -= k
	}
	return nil
}

func request(op, method, n, payload int) []byte {
	b := make([]byte, requestHeader+payload)
	b[0], b[1] = byte(op), byte(method)
	binary.LittleEndian.PutUint32(b[4:], uint32(n))
	if payload > 0 {
		fill(b[requestHeader:], 5)
	}
	return b
}

// fetch keeps Depth fetches of Size bytes outstanding on one connection.
func (j Job) fetch() (Answer, error) {
	var a Answer
	c, err := Dial(j.Port)
	if err != nil {
		return a, err
	}
	defer c.Close()
	req := request(opFetch, j.Method, j.Size, 0)
	buf := make([]byte, 256<<10)
	begin := time.Now()
	for range j.Depth {
		if err := c.Write(req); err != nil {
			return a, err
		}
	}
	pending := j.Depth
	for pending > 0 {
		if err := c.Drain(responseHeader+j.Size, buf); err != nil {
			return a, err
		}
		pending--
		a.Responses++
		a.Bytes += float64(j.Size)
		if time.Since(begin).Seconds() < j.Seconds {
			if err := c.Write(req); err != nil {
				return a, err
			}
			pending++
		}
	}
	a.Seconds = time.Since(begin).Seconds()
	return a, nil
}

// put keeps Depth puts of Size bytes outstanding on each of Conns connections, which it serves in turn.
func (j Job) put() (Answer, error) {
	var a Answer
	req := request(opPut, j.Method, j.Size, j.Size)
	conns := make([]RawConn, max(1, j.Conns))
	for i := range conns {
		c, err := Dial(j.Port)
		if err != nil {
			return a, err
		}
		defer c.Close()
		conns[i] = c
	}
	buf := make([]byte, 64<<10)
	if j.Fresh {
		if err := conns[0].Write(request(opPut, doEmpty, 0, 0)); err != nil {
			return a, err
		}
		if err := conns[0].Drain(responseHeader, buf); err != nil {
			return a, err
		}
	}
	sent := 0
	more := func(begin time.Time) bool {
		return (j.Times == 0 || sent < j.Times) && (j.Seconds == 0 || time.Since(begin).Seconds() < j.Seconds)
	}
	begin := time.Now()
	pending := make([]int, len(conns))
	left := 0
	for i, c := range conns {
		for ; pending[i] < j.Depth && more(begin); pending[i]++ {
			if err := c.Write(req); err != nil {
				return a, err
			}
			sent++
			left++
		}
	}
	for left > 0 {
		for i, c := range conns {
			if pending[i] == 0 {
				continue
			}
			n, err := c.Read(buf)
			for err == nil && n%responseHeader != 0 {
				var k int
				k, err = c.Read(buf[n:])
				n += k
			}
			if err != nil {
				return a, err
			}
			answers := n / responseHeader
			a.Responses += float64(answers)
			a.Bytes += float64(answers * j.Size)
			pending[i] -= answers
			left -= answers
			for range answers {
				if !more(begin) {
					break
				}
				if err := c.Write(req); err != nil {
					return a, err
				}
				sent++
				left++
				pending[i]++
			}
		}
	}
	a.Seconds = time.Since(begin).Seconds()
	return a, nil
}

// ping sends one put at a time, at most Times in Seconds, and times each.
func (j Job) ping() (Answer, error) {
	var a Answer
	c, err := Dial(j.Port)
	if err != nil {
		return a, err
	}
	defer c.Close()
	req := request(opPut, j.Method, j.Size, j.Size)
	buf := make([]byte, responseHeader)
	lat := make([]float64, 0, j.Times)
	start := time.Now()
	for i := 0; i < j.Times && time.Since(start).Seconds() < j.Seconds; i++ {
		begin := time.Now()
		if err := c.Write(req); err != nil {
			return a, err
		}
		if err := c.Drain(responseHeader, buf); err != nil {
			return a, err
		}
		if i >= 20 { // the first ones open the window
			lat = append(lat, float64(time.Since(begin).Nanoseconds())/1e3)
		}
		a.Responses++
	}
	a.latencies(lat)
	return a, nil
}

func (a *Answer) latencies(lat []float64) {
	slices.Sort(lat)
	a.P50, a.P99, a.P999 = Quantile(lat, 0.5), Quantile(lat, 0.99), Quantile(lat, 0.999)
}

// wake puts one batch at a time, at most Times in Seconds, while Waiters fetches wait for it; it times put to
// last delivery.
func (j Job) wake() (Answer, error) {
	var a Answer
	producer, err := Dial(j.Port)
	if err != nil {
		return a, err
	}
	defer producer.Close()
	readers := make([]RawConn, j.Waiters)
	for i := range readers {
		if readers[i], err = Dial(j.Port); err != nil {
			return a, err
		}
		defer readers[i].Close()
	}
	buf := make([]byte, 64<<10)
	hello := request(opPut, 0, 0, 0)
	for _, r := range readers { // answered once the server knows the connection, so that no wake-up is missed
		if err := r.Write(hello); err != nil {
			return a, err
		}
		if err := r.Drain(responseHeader, buf); err != nil {
			return a, err
		}
	}
	put := request(opPut, doCRC|doAppend|doPublish, j.Size, j.Size)
	wait := request(opWait, j.Method, j.Size, 0)
	var lat []float64
	start := time.Now()
	for i := 0; i < j.Times && time.Since(start).Seconds() < j.Seconds; i++ {
		for _, r := range readers {
			if err := r.Write(wait); err != nil {
				return a, err
			}
		}
		pause := unix.NsecToTimespec(int64(j.PauseUSec) * 1000)
		_ = unix.Nanosleep(&pause, nil)
		begin := time.Now()
		if err := producer.Write(put); err != nil {
			return a, err
		}
		for _, r := range readers {
			if err := r.Drain(responseHeader+j.Size, buf); err != nil {
				return a, err
			}
			a.Responses++
		}
		lat = append(lat, float64(time.Since(begin).Nanoseconds())/1e3)
		if err := producer.Drain(responseHeader, buf); err != nil {
			return a, err
		}
	}
	a.latencies(lat)
	return a, nil
}

// tls keeps Depth fetches outstanding on one TLS connection.
func (j Job) tls() (Answer, error) {
	var a Answer
	raw, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", j.Port))
	if err != nil {
		return a, err
	}
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	defer c.Close()
	req := request(opFetch, byPread, j.Size, 0)
	buf := make([]byte, responseHeader+j.Size)
	for range j.Depth {
		if _, err := c.Write(req); err != nil {
			return a, err
		}
	}
	begin := time.Now()
	for time.Since(begin).Seconds() < j.Seconds {
		if _, err := io.ReadFull(c, buf); err != nil {
			return a, err
		}
		a.Responses++
		a.Bytes += float64(j.Size)
		if _, err := c.Write(req); err != nil {
			return a, err
		}
	}
	a.Seconds = time.Since(begin).Seconds()
	return a, nil
}
