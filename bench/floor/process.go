package floor

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// StatusKB reads a field of /proc/PID/status that is given in kB.
func StatusKB(pid int, field string) float64 {
	for _, l := range strings.Split(readLine(fmt.Sprintf("/proc/%d/status", pid)), "\n") {
		if v, ok := strings.CutPrefix(l, field+":"); ok {
			n, err := strconv.ParseFloat(strings.Fields(v)[0], 64)
			if err == nil {
				return n
			}
		}
	}
	return 0
}

// startServer is the smallest program that a broker's start is compared with.
func startServer() error {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := PrintJSON(ln.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("ok"))
			_ = c.Close()
		}
	}()
	untilStdinCloses()
	return nil
}

func runStart(e *Env) error {
	for i := 0; i < 12*e.Rounds && e.More(i/12); i++ {
		begin := time.Now()
		c, err := Spawn(-1, 0, "child:start")
		if err != nil {
			return err
		}
		var port int
		if err := c.ReadJSON(&port); err != nil {
			return err
		}
		ready := time.Since(begin)
		k, err := Dial(port)
		if err != nil {
			return err
		}
		if err := k.Drain(2, make([]byte, 2)); err != nil {
			return err
		}
		served := time.Since(begin)
		k.Close()
		if i > 0 { // the first one reads the program in
			e.Add("start/exec to listening", "µs", float64(ready.Microseconds()))
			e.Add("start/exec to first Answer", "µs", float64(served.Microseconds()))
			e.Add("start/resident memory", "kB", StatusKB(c.Cmd.Process.Pid, "VmRSS"))
			e.Add("start/anonymous memory", "kB", StatusKB(c.Cmd.Process.Pid, "RssAnon"))
		}
		if err := c.Stop(); err != nil {
			return err
		}
	}
	e.Show("start/exec to listening", "start/exec to first Answer", "start/resident memory", "start/anonymous memory")
	return openPartitions(e)
}

// openPartitions measures what a start must at least do for every partition: list its folder, open three
// files, stat them and map the two indexes.
func openPartitions(e *Env) error {
	const n = 300
	dir := filepath.Join(e.Dir, "parts")
	for i := range n {
		d := filepath.Join(dir, fmt.Sprintf("t-%d", i))
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
		for _, ext := range []string{"log", "index", "timeindex"} {
			f, err := os.Create(filepath.Join(d, "00000000000000000000."+ext))
			if err != nil {
				return err
			}
			if ext != "log" {
				err = f.Truncate(10 << 20)
			}
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
		}
	}
	for r := 0; e.More(r); r++ {
		for _, mapped := range []bool{false, true} {
			took, err := openAll(dir, mapped)
			if err != nil {
				return err
			}
			key := "start/open a partition, 3 files"
			if mapped {
				key += ", 2 maps"
			}
			e.Add(key, "µs", took.Seconds()/n*1e6)
		}
	}
	e.Show("start/open a partition, 3 files", "start/open a partition, 3 files, 2 maps")
	return os.RemoveAll(dir)
}

func openAll(dir string, mapped bool) (took time.Duration, err error) {
	var files []*os.File
	var maps [][]byte
	defer func() {
		for _, m := range maps {
			err = errors.Join(err, unix.Munmap(m))
		}
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	begin := time.Now()
	parts, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, p := range parts {
		names, err := os.ReadDir(filepath.Join(dir, p.Name()))
		if err != nil {
			return 0, err
		}
		for _, x := range names {
			f, err := os.OpenFile(filepath.Join(dir, p.Name(), x.Name()), os.O_RDWR, 0)
			if err != nil {
				return 0, err
			}
			files = append(files, f)
			st, err := f.Stat()
			if err != nil {
				return 0, err
			}
			if mapped && st.Size() > 0 {
				m, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
				if err != nil {
					return 0, err
				}
				maps = append(maps, m)
			}
		}
	}
	return time.Since(begin), nil
}

// idle accepts connections and reads from each; how decides what a connection holds while it is idle.
func idle(how string) error {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := PrintJSON(ln.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	var n atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				n.Add(1)
				var h [4]byte
				switch how {
				case "no buffer":
					_, _ = io.ReadFull(c, h[:])
				case "4 KiB buffer", "64 KiB buffer":
					b := make([]byte, map[string]int{"4 KiB buffer": 4 << 10, "64 KiB buffer": 64 << 10}[how])
					fill(b, 7) // a buffer that was full once stays resident
					_, _ = io.ReadFull(c, b)
				case "pooled buffer on readiness":
					_ = waitReadable(c.(*net.TCPConn))
				case "no buffer, grown stack":
					grow(12)
					_, _ = io.ReadFull(c, h[:])
				}
			}()
		}
	}()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() { // each line asks for the memory now
		debug.FreeOSMemory()
		if err := PrintJSON([]float64{float64(n.Load()), StatusKB(os.Getpid(), "VmRSS")}); err != nil {
			return err
		}
	}
	return in.Err()
}

var pool = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// waitReadable holds a pooled buffer only while there is something to read: the buffer is taken before the
// read and given back when the socket turns out to be empty.
func waitReadable(c *net.TCPConn) error {
	rc, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = rc.Read(func(fd uintptr) bool {
		b := pool.Get().(*[]byte)
		defer pool.Put(b)
		_, failed = unix.Read(int(fd), *b)
		return failed != unix.EAGAIN
	})
	return errors.Join(err, failed)
}

// grow uses about n KiB of stack, as a deep call does once in the life of a connection.
//
//go:noinline
func grow(n int) byte {
	var b [1024]byte
	b[n] = byte(n)
	if n > 0 {
		return grow(n-1) + b[n]
	}
	return b[0]
}

func runConns(e *Env) error {
	const n = 1000
	for _, how := range []string{"no buffer", "pooled buffer on readiness", "no buffer, grown stack", "4 KiB buffer", "64 KiB buffer"} {
		c, err := Spawn(-1, 0, "child:idle", how)
		if err != nil {
			return err
		}
		var port int
		if err := c.ReadJSON(&port); err != nil {
			return err
		}
		var before, after []float64
		ask := func(v *[]float64) error {
			if _, err := io.WriteString(c.In, "\n"); err != nil {
				return err
			}
			return c.ReadJSON(v)
		}
		if err := ask(&before); err != nil {
			return err
		}
		var conns []RawConn
		for range n {
			k, err := Dial(port)
			if err != nil {
				return err
			}
			conns = append(conns, k)
		}
		for range 100 {
			if err := ask(&after); err != nil {
				return err
			}
			if after[0] == n {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		for _, k := range conns {
			k.Close()
		}
		if err := c.Stop(); err != nil {
			return err
		}
		e.Add("conns/"+how, "KiB per connection", (after[1]-before[1])/n)
		e.Show("conns/" + how)
	}
	return nil
}

const coldSize = 24 << 20

// coldReader reads a cold file in one of several ways while a second goroutine times short sleeps.
func coldReader(how, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	fd := int(f.Fd())
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	m, err := unix.Mmap(fd, 0, coldSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if err := unix.Madvise(m, unix.MADV_RANDOM); err != nil {
		return err
	}
	var stop atomic.Bool
	late := make(chan []float64)
	go func() {
		var v []float64
		for !stop.Load() {
			t := time.Now()
			time.Sleep(200 * time.Microsecond)
			v = append(v, float64(time.Since(t).Nanoseconds())/1e3-200)
		}
		late <- v
	}()
	time.Sleep(10 * time.Millisecond)
	begin := time.Now()
	buf := make([]byte, 1<<20)
	sum := byte(0)
	pipe, err := drainedSocket()
	if err != nil {
		return err
	}
	for off := 0; off < coldSize; off += 1 << 20 {
		switch how {
		case "none":
			time.Sleep(4 * time.Millisecond)
		case "pread":
			_, err = f.ReadAt(buf, int64(off))
		case "sendfile":
			err = pipe.do(nil, 0, int64(off), 1<<20, fd)
		case "mmap touch":
			for i := 0; i < 1<<20; i += 4096 {
				sum += m[off+i]
			}
		}
		if err != nil {
			return err
		}
	}
	seconds := time.Since(begin).Seconds()
	stop.Store(true)
	v := <-late
	slices.Sort(v)
	sink = uint32(sum)
	return PrintJSON([]float64{coldSize / seconds / 1e9, Quantile(v, 0.5), Quantile(v, 0.99), v[len(v)-1]})
}

// coldSender sends file ranges to a socket whose other end drops what it reads.
type coldSender struct{ sender }

func drainedSocket() (*coldSender, error) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		c, err := ln.Accept()
		if err == nil {
			_, _ = io.Copy(io.Discard, c)
		}
	}()
	c, err := net.Dial("tcp4", ln.Addr().String())
	if err != nil {
		return nil, err
	}
	rc, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &coldSender{sender{rc: rc}}
	s.fn = s.step
	return s, nil
}

func (s *coldSender) do(hdr []byte, flags int, off int64, n, src int) error {
	s.src = src
	return s.sender.do(hdr, flags, off, n)
}

func runCold(e *Env) error {
	name := filepath.Join(e.Dir, "cold.log")
	buf := make([]byte, coldSize)
	fill(buf, 6)
	if err := os.WriteFile(name, buf, 0o644); err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil { // only clean pages can be dropped
		return err
	}
	ways := []string{"none", "pread", "sendfile", "mmap touch"}
	for r := 0; e.More(r); r++ {
		for _, how := range ways {
			c, err := Spawn(e.Cores[0], 1, "child:cold", how, name)
			if err != nil {
				return err
			}
			var v []float64
			if err := c.ReadJSON(&v); err != nil {
				return err
			}
			if err := c.Stop(); err != nil {
				return err
			}
			e.Add("cold/"+how+", timer p50", "µs late", v[1])
			e.Add("cold/"+how+", timer p99", "µs late", v[2])
			if how != "none" {
				e.Add("cold/"+how+", rate", "GB/s", v[0])
			}
		}
	}
	for _, how := range ways {
		e.Show("cold/"+how+", timer p50", "cold/"+how+", timer p99", "cold/"+how+", rate")
	}
	return nil
}
