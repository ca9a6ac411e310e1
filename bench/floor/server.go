package floor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/big"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A request is a 16-byte header (operation, method, size) and, for a put, size bytes of payload.
// A response is a 64-byte header and, for a fetch or a wait, size bytes of the data file.
const (
	requestHeader  = 16
	responseHeader = 64
	ringSize       = 256 << 20
	allocStep      = 16 << 20
)

const (
	opFetch = iota
	opPut
	opWait
)

// The methods of the jobs that a broker is compared with.
const (
	BySendfile = bySendfile
	ByPread    = byPread
	PutAhead   = doCRC | doAppend | doPrealloc // receive, checksum, append with blocks allocated ahead
)

const ( // methods of a fetch
	bySendfile      = iota // header with MSG_MORE, then sendfile, in one visit to the socket
	bySendfileTwice        // header without MSG_MORE, then sendfile
	byPread                // header and body read into one buffer, one write
	byWritev               // header and mapped log in one writev
)

const ( // what a put does, or-ed together
	doCRC = 1 << iota
	doAppend
	doPrealloc
	doQueue // through a shared queue, four handlers and a writer per connection
	doPublish
	doEmpty // empty the file before
)

// wal is the file that puts append to: one writer at a time, offset kept in memory, recycled at ringSize.
type wal struct {
	pwrite   func(fd int, b []byte, off int64) (int, error)
	mu       sync.Mutex
	f        *os.File
	fd       int
	off, end int64 // next position; end of the blocks allocated ahead
	ahead    bool
}

// empty gives the file's memory back.
func (w *wal) empty() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off, w.end = 0, 0
	return w.f.Truncate(0)
}

func (w *wal) append(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.off+int64(len(b)) > ringSize {
		if err := w.f.Truncate(0); err != nil {
			return err
		}
		w.off, w.end = 0, 0
	}
	if w.ahead && w.off+int64(len(b)) > w.end {
		step := max(int64(allocStep), int64(len(b)))
		if err := unix.Fallocate(w.fd, unix.FALLOC_FL_KEEP_SIZE, w.end, step); err != nil {
			return err
		}
		w.end += step
	}
	_, err := w.pwrite(w.fd, b, w.off)
	w.off += int64(len(b))
	return err
}

// tail is what fetches at the end of the log wait on.
type tail struct {
	mu      sync.Mutex
	seq     uint64
	waiters []chan struct{}
}

func (t *tail) now() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seq
}

// wait returns the sequence number once it is above seq.
func (t *tail) wait(seq uint64, ch chan struct{}) uint64 {
	t.mu.Lock()
	if now := t.seq; now > seq {
		t.mu.Unlock()
		return now
	}
	t.waiters = append(t.waiters, ch)
	t.mu.Unlock()
	<-ch
	return t.now()
}

func (t *tail) publish() {
	t.mu.Lock()
	t.seq++
	woken := t.waiters
	for _, ch := range woken {
		ch <- struct{}{}
	}
	t.waiters = woken[:0]
	t.mu.Unlock()
}

type floorServer struct {
	calls  calls
	data   *os.File // kept: a descriptor taken from a file dies with the file
	mapped []byte
	logs   [2]wal // plain, allocated ahead
	tail   tail
	queue  chan queued
	failed atomic.Pointer[error]
}

type queued struct {
	b    []byte
	what int
	out  chan struct{}
}

func serve(dataPath, dir string, c calls) error {
	s := &floorServer{calls: c, queue: make(chan queued, 500)}
	var err error
	if s.data, err = os.Open(dataPath); err != nil {
		return err
	}
	if s.mapped, err = unix.Mmap(int(s.data.Fd()), 0, dataSize, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return err
	}
	for i := range s.logs {
		if s.logs[i].f, err = os.CreateTemp(dir, "ring-"); err != nil {
			return err
		}
		defer os.Remove(s.logs[i].f.Name())
		s.logs[i].fd, s.logs[i].ahead, s.logs[i].pwrite = int(s.logs[i].f.Fd()), i == 1, c.pwrite
	}
	for range 4 {
		go func() {
			for q := range s.queue {
				if err := s.apply(q.what, q.b); err != nil {
					s.failed.Store(&err)
				}
				q.out <- struct{}{}
			}
		}()
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	secure, err := s.listenTLS()
	if err != nil {
		return err
	}
	ready := serverReady{ln.Addr().(*net.TCPAddr).Port, secure.Addr().(*net.TCPAddr).Port}
	if err := PrintJSON(ready); err != nil {
		return err
	}
	go s.accept(ln)
	go s.acceptTLS(secure)
	untilStdinCloses()
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

type serverReady struct {
	Port, TLSPort int
}

func (s *floorServer) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			k, err := newConn(s, c.(*net.TCPConn))
			if err == nil {
				err = k.loop()
			}
			if err != nil && err != io.EOF {
				s.failed.Store(&err)
			}
		}()
	}
}

// conn serves one connection: one goroutine, one input buffer parsed in place, acknowledgements gathered
// until the input holds no further request.
type conn struct {
	s       *floorServer
	c       *net.TCPConn
	rc      syscall.RawConn
	readFn  func(fd uintptr) bool // bound once, as writeFn and send.fn: a new closure per call would allocate
	writeFn func(fd uintptr) bool
	in      []byte
	r, w    int
	pending []byte // what writeFn still has to write
	failed  error  // of the last readFn or writeFn
	out     []byte // acknowledgements not yet written
	send    sender
	body    []byte
	off     int64
	wakeup  chan struct{}
	seq     uint64
	done    chan struct{} // answers of the queue, in order
}

func newConn(s *floorServer, c *net.TCPConn) (*conn, error) {
	k := &conn{s: s, c: c, in: make([]byte, 128<<10), wakeup: make(chan struct{}, 1), seq: s.tail.now()}
	var err error
	k.rc, err = c.SyscallConn()
	k.readFn, k.writeFn = k.stepRead, k.stepWrite
	k.send = sender{rc: k.rc, src: int(s.data.Fd())}
	k.send.fn = k.send.step
	return k, err
}

// stepRead and stepWrite report false, to wait for the socket, only after the kernel said EAGAIN: the
// poller is edge-triggered, and an edge that came before would be lost.
func (k *conn) stepRead(fd uintptr) bool {
	n, err := k.s.calls.read(int(fd), k.in[k.w:])
	switch {
	case err == unix.EAGAIN:
		return false
	case err == unix.EINTR:
	case err != nil:
		k.failed = err
	case n == 0:
		k.failed = io.EOF
	}
	k.w += max(n, 0)
	return true
}

func (k *conn) stepWrite(fd uintptr) bool {
	for len(k.pending) > 0 {
		n, err := k.s.calls.write(int(fd), k.pending)
		switch {
		case err == unix.EAGAIN:
			return false
		case err == unix.EINTR:
			continue
		case err != nil:
			k.failed = err
			return true
		}
		k.pending = k.pending[n:]
	}
	return true
}

func (k *conn) write(b []byte) error {
	k.pending, k.failed = b, nil
	if err := k.rc.Write(k.writeFn); err != nil {
		return err
	}
	return k.failed
}

// next returns the next n bytes of the input, in place.
func (k *conn) next(n int) ([]byte, error) {
	for k.w-k.r < n {
		if k.r == k.w {
			k.r, k.w = 0, 0
		}
		if k.r+n > len(k.in) {
			if n > len(k.in) {
				grown := make([]byte, n+64<<10)
				k.w = copy(grown, k.in[k.r:k.w])
				k.in, k.r = grown, 0
			} else {
				k.w = copy(k.in, k.in[k.r:k.w])
				k.r = 0
			}
		}
		if err := k.flush(); err != nil {
			return nil, err
		}
		k.failed = nil
		if err := k.rc.Read(k.readFn); err != nil {
			return nil, err
		}
		if k.failed != nil {
			return nil, k.failed
		}
	}
	b := k.in[k.r : k.r+n]
	k.r += n
	return b, nil
}

func (k *conn) flush() error {
	if len(k.out) == 0 {
		return nil
	}
	err := k.write(k.out)
	k.out = k.out[:0]
	return err
}

func (k *conn) loop() error {
	var reply [responseHeader]byte
	for {
		h, err := k.next(requestHeader)
		if err != nil {
			return err
		}
		op, method, n := h[0], int(h[1]), int(binary.LittleEndian.Uint32(h[4:]))
		switch op {
		case opFetch:
			err = k.respond(method, reply[:], n)
		case opPut:
			err = k.put(method, reply[:], n)
		case opWait:
			k.seq = k.s.tail.wait(k.seq, k.wakeup)
			err = k.respond(method, reply[:], n)
		}
		if err != nil {
			return err
		}
	}
}

func (k *conn) put(what int, reply []byte, n int) error {
	b, err := k.next(n)
	if err != nil {
		return err
	}
	if what&doQueue != 0 {
		return k.viaQueue(b, what, reply)
	}
	if err := k.s.apply(what, b); err != nil {
		return err
	}
	k.out = append(k.out, reply...)
	if what&doPublish != 0 { // acknowledge first, wake readers after
		if err := k.flush(); err != nil {
			return err
		}
		k.s.tail.publish()
	}
	return nil
}

func (s *floorServer) apply(what int, b []byte) error {
	if what&doCRC != 0 && crc32.Checksum(b, castagnoli) == 1 {
		return errors.New("checksum")
	}
	if what&doEmpty != 0 {
		return errors.Join(s.logs[0].empty(), s.logs[1].empty())
	}
	if what&doAppend == 0 {
		return nil
	}
	if what&doPrealloc != 0 {
		return s.logs[1].append(b)
	}
	return s.logs[0].append(b)
}

func (k *conn) viaQueue(b []byte, what int, reply []byte) error {
	if k.done == nil {
		k.done = make(chan struct{}, 16)
		go func() {
			for range k.done {
				if _, err := k.c.Write(reply); err != nil {
					return
				}
			}
		}()
	}
	k.s.queue <- queued{b, what, k.done}
	return nil
}

func (k *conn) respond(method int, header []byte, n int) error {
	if k.off+int64(n) > dataSize {
		k.off = 0
	}
	off := k.off
	k.off += int64(n)
	switch method {
	case bySendfile:
		return k.send.do(header, unix.MSG_MORE, off, n)
	case bySendfileTwice:
		return k.send.do(header, 0, off, n)
	case byPread:
		if need := len(header) + n; cap(k.body) < need {
			k.body = make([]byte, need)
		}
		b := k.body[:len(header)+n]
		copy(b, header)
		if _, err := k.s.calls.pread(k.send.src, b[len(header):], off); err != nil {
			return err
		}
		return k.write(b)
	default:
		v := net.Buffers{header, k.s.mapped[off : off+int64(n)]}
		_, err := v.WriteTo(k.c)
		return err
	}
}

// sender writes a header and a range of a file to a socket. The file offset is explicit, so that any
// number of connections share one descriptor.
type sender struct {
	rc    syscall.RawConn
	fn    func(fd uintptr) bool
	src   int
	hdr   []byte
	flags int
	off   int64
	left  int
	err   error
}

func (s *sender) do(hdr []byte, flags int, off int64, n int) error {
	s.hdr, s.flags, s.off, s.left, s.err = hdr, flags, off, n, nil
	if err := s.rc.Write(s.fn); err != nil {
		return err
	}
	return s.err
}

// step reports true when the response is out or has failed, false when the socket must become writable.
func (s *sender) step(fd uintptr) bool {
	for len(s.hdr) > 0 {
		n, err := unix.SendmsgN(int(fd), s.hdr, nil, nil, s.flags)
		if done, retry := s.outcome(n, err); !retry {
			return done
		}
		s.hdr = s.hdr[n:]
	}
	for s.left > 0 {
		n, err := unix.Sendfile(int(fd), s.src, &s.off, s.left)
		if done, retry := s.outcome(n, err); !retry {
			return done
		}
		s.left -= n
	}
	return true
}

func (s *sender) outcome(n int, err error) (done, retry bool) {
	switch {
	case err == unix.EINTR:
		return false, true
	case err == unix.EAGAIN:
		return false, false
	case err != nil:
		s.err = err
		return true, false
	case n == 0: // the file ends before the range: the frame cannot be completed
		s.err = io.ErrUnexpectedEOF
		return true, false
	}
	return false, true
}

func (s *floorServer) listenTLS() (net.Listener, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return tls.NewListener(ln, &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:   tls.VersionTLS13,
	}), nil
}

// acceptTLS answers fetches with pread and a TLS write.
func (s *floorServer) acceptTLS(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			var h [requestHeader]byte
			var body []byte
			var off int64
			for {
				if _, err := io.ReadFull(c, h[:]); err != nil {
					return
				}
				n := int(binary.LittleEndian.Uint32(h[4:]))
				if cap(body) < responseHeader+n {
					body = make([]byte, responseHeader+n)
				}
				if off+int64(n) > dataSize {
					off = 0
				}
				b := body[:responseHeader+n]
				if _, err := s.data.ReadAt(b[responseHeader:], off); err != nil {
					return
				}
				off += int64(n)
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}()
	}
}
