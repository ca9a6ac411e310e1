package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/varvelog/varve/internal/events"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Keys that testHandler serves; a request body goes back as it came unless said.
const (
	keyEcho   = 3
	keySilent = 0  // no answer
	keyRefuse = 11 // closes
	keyWait   = 1  // waits for release or the end of the listener
	keyRegion = 32 // answers with regions of handler.file, as the body lists them
)

type testHandler struct {
	release chan struct{}
	file    vfs.File
	served  func(r *Request)
}

func (h *testHandler) Serve(r *Request) (Verdict, error) {
	if h.served != nil {
		h.served(r)
	}
	switch r.Header.Key {
	case keySilent:
		return NoReply, nil
	case keyRefuse:
		return Close, fmt.Errorf("refused: %w", wire.ErrMalformed)
	case keyWait:
		if err := r.Flush(); err != nil {
			return Close, err
		}
		select {
		case <-h.release:
		case <-r.Conn.Done():
		}
	case keyRegion:
		for b := r.Body; len(b) >= 16; b = b[16:] {
			off, n := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
			r.Out.Records(vfs.Region{File: h.file, Offset: int64(off), Length: int64(n)}, nil)
		}
		return Reply, nil
	}
	r.Out.Raw(r.Body)
	return Reply, nil
}

// lockedBuffer collects log records of several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func listen(t testing.TB, cfg Config, h Handler) (*Listener, *lockedBuffer) {
	t.Helper()
	logs := &lockedBuffer{}
	cfg.Name, cfg.Address = "PLAINTEXT", "127.0.0.1:0"
	cfg.Logger = slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	l, err := Listen(cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, logs
}

func dial(t testing.TB, l *Listener) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// request is a whole frame with a v1 header and the client id "test".
func request(key, version int16, correlationID int32, body []byte) []byte {
	var b []byte
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	b = binary.BigEndian.AppendUint32(b, uint32(correlationID))
	b = append(b, 0, 4)
	b = append(b, "test"...)
	if wire.FlexibleRequest(key, version) {
		b = append(b, 0)
	}
	b = append(b, body...)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// readAnswer reads one answer: its correlation id and body.
func readAnswer(t testing.TB, c net.Conn) (int32, []byte) {
	t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		t.Fatalf("answer's size: %v", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatalf("answer of %d bytes: %v", len(b), err)
	}
	return int32(binary.BigEndian.Uint32(b)), b[4:]
}

func wantAnswer(t testing.TB, c net.Conn, id int32, body []byte) {
	t.Helper()
	gotID, got := readAnswer(t, c)
	if gotID != id || !bytes.Equal(got, body) {
		t.Fatalf("answer %d with %d bytes, want %d with %d bytes", gotID, len(got), id, len(body))
	}
}

// wantClosed waits until the peer closes without sending anything.
func wantClosed(t testing.TB, c net.Conn) {
	t.Helper()
	n, err := io.Copy(io.Discard, c)
	if n != 0 {
		t.Fatalf("%d bytes before the close, want none", n)
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatal("the connection is still open")
	}
}

func write(t testing.TB, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func TestRequestsAreAnsweredInOrder(t *testing.T) {
	l, _ := listen(t, Config{}, &testHandler{})
	c := dial(t, l)
	var all []byte
	for i := range 300 {
		all = append(all, request(keyEcho, 1, int32(i), fmt.Appendf(nil, "body %d", i))...)
	}
	write(t, c, all)
	for i := range 300 {
		wantAnswer(t, c, int32(i), fmt.Appendf(nil, "body %d", i))
	}
}

func TestAnswersDoNotDependOnHowBytesArrive(t *testing.T) {
	l, _ := listen(t, Config{}, &testHandler{})
	frame := request(keyEcho, 1, 7, []byte("split at every byte"))
	for cut := 1; cut < len(frame); cut++ {
		c := dial(t, l)
		write(t, c, frame[:cut])
		write(t, c, append(frame[cut:len(frame):len(frame)], frame...))
		wantAnswer(t, c, 7, []byte("split at every byte"))
		wantAnswer(t, c, 7, []byte("split at every byte"))
		c.Close()
	}
}

func TestFramesOfEverySizeClassArriveWhole(t *testing.T) {
	l, _ := listen(t, Config{}, &testHandler{})
	c := dial(t, l)
	for round := range 2 {
		for _, size := range []int{0, 1, 4 << 10, firstRead - 14, firstRead, secondRead, largestClass - 14, largestClass, 5 << 20} {
			body := bytes.Repeat([]byte{byte(size), byte(round), 3}, size/3+1)[:size]
			go c.Write(append(request(keyEcho, 1, int32(size), body), request(keyEcho, 1, 1, nil)...))
			wantAnswer(t, c, int32(size), body)
			wantAnswer(t, c, 1, []byte{})
		}
	}
}

func TestMalformedInputClosesItsConnectionOnly(t *testing.T) {
	const limit = 1 << 20
	tests := []struct {
		name   string
		input  []byte
		reason string
	}{
		{"negative size", []byte{0xff, 0xff, 0xff, 0xff}, ReasonFrameSize},
		{"size above the limit", binary.BigEndian.AppendUint32(nil, limit+1), ReasonFrameSize},
		{"TLS on a plain port", []byte{0x16, 0x03, 0x01, 0x02}, ReasonFrameSize},
		{"HTTP on a plain port", []byte("GET / HTTP/1.1\r\n"), ReasonFrameSize},
		{"empty frame", []byte{0, 0, 0, 0}, ReasonParse},
		{"header cut short", []byte{0, 0, 0, 9, 0, 3, 0, 1, 0, 0, 0, 1, 0}, ReasonParse},
		{"client id longer than the frame", []byte{0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 1, 0, 1}, ReasonParse},
		{"a million tags", []byte{0, 0, 0, 13, 0, 3, 0, 9, 0, 0, 0, 1, 0, 0, 0xc0, 0x84, 0x3d}, ReasonParse},
		{"refused by the handler", request(keyRefuse, 0, 1, nil), ReasonParse},
	}
	l, logs := listen(t, Config{MaxRequestBytes: limit}, &testHandler{})
	healthy := dial(t, l)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := strings.Count(logs.String(), "reason="+tt.reason)
			c := dial(t, l)
			write(t, c, tt.input)
			wantClosed(t, c)
			eventually(t, "one log record", func() bool {
				return strings.Count(logs.String(), "reason="+tt.reason) == before+1
			})
			write(t, healthy, request(keyEcho, 1, 5, []byte("still here")))
			wantAnswer(t, healthy, 5, []byte("still here"))
		})
	}
	if !strings.Contains(logs.String(), "TLS on a plain port") || !strings.Contains(logs.String(), "speaks HTTP") {
		t.Errorf("log has no hints:\n%s", logs)
	}
}

// eventually waits for what another goroutine is about to do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestFrameAtTheLimitIsServed(t *testing.T) {
	l, _ := listen(t, Config{MaxRequestBytes: 4096}, &testHandler{})
	c := dial(t, l)
	frame := request(keyEcho, 1, 1, make([]byte, 4096-14))
	write(t, c, frame)
	wantAnswer(t, c, 1, make([]byte, 4096-14))
}

func TestNoReplyLeavesTheNextAnswerToTheNextRequest(t *testing.T) {
	l, _ := listen(t, Config{}, &testHandler{})
	c := dial(t, l)
	write(t, c, append(request(keySilent, 3, 1, []byte("x")), request(keyEcho, 1, 2, []byte("y"))...))
	wantAnswer(t, c, 2, []byte("y"))
}

func TestResponseHeaderFollowsTheVersion(t *testing.T) {
	l, _ := listen(t, Config{}, &testHandler{})
	c := dial(t, l)
	write(t, c, request(keyEcho, 9, 1, []byte("flexible")))
	wantAnswer(t, c, 1, []byte("\x00flexible"))
	write(t, c, request(wire.APIVersionsKey, 3, 2, []byte("v0 header")))
	wantAnswer(t, c, 2, []byte("v0 header"))
	write(t, c, request(wire.APIVersionsKey, -1, 3, []byte("unknown version")))
	wantAnswer(t, c, 3, []byte("unknown version"))
}

func TestEarlierAnswersGoOutBeforeAHandlerWaits(t *testing.T) {
	h := &testHandler{release: make(chan struct{})}
	l, _ := listen(t, Config{}, h)
	c := dial(t, l)
	var b []byte
	b = append(b, request(keyEcho, 1, 1, []byte("before"))...)
	b = append(b, request(keyWait, 4, 2, []byte("waits"))...)
	b = append(b, request(keyEcho, 1, 3, []byte("after"))...)
	write(t, c, b)
	wantAnswer(t, c, 1, []byte("before"))
	close(h.release)
	wantAnswer(t, c, 2, []byte("waits"))
	wantAnswer(t, c, 3, []byte("after"))
}

func TestAfterWriteRunsOnceTheAnswerIsWrittenOrQueuedBehindInput(t *testing.T) {
	var mu sync.Mutex
	var order []int32
	h := &testHandler{}
	h.served = func(r *Request) {
		id := r.Header.CorrelationID
		r.AfterWrite(func() {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, id)
		})
	}
	l, _ := listen(t, Config{}, h)
	c := dial(t, l)
	write(t, c, append(request(keyEcho, 1, 1, nil), request(keySilent, 3, 2, nil)...))
	wantAnswer(t, c, 1, []byte{})
	eventually(t, "hooks of both requests", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(order) == 2
	})
	mu.Lock()
	defer mu.Unlock()
	if order[0] != 1 || order[1] != 2 {
		t.Errorf("hooks ran in order %v, want [1 2]", order)
	}
}

func TestShutdownLetsTheRunningRequestFinish(t *testing.T) {
	served := make(chan struct{}, 1)
	h := &testHandler{release: make(chan struct{})}
	h.served = func(r *Request) {
		if r.Header.Key == keyWait {
			served <- struct{}{}
		}
	}
	l, logs := listen(t, Config{}, h)
	idle, busy := dial(t, l), dial(t, l)
	write(t, idle, request(keyEcho, 1, 1, nil))
	wantAnswer(t, idle, 1, []byte{})
	write(t, busy, append(request(keyWait, 4, 2, []byte("answered")), request(keyEcho, 1, 3, nil)...))
	<-served
	if err := l.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantAnswer(t, busy, 2, []byte("answered"))
	wantClosed(t, busy)
	wantClosed(t, idle)
	if n := strings.Count(logs.String(), "reason=stop"); n != 2 {
		t.Errorf("%d connections closed for the stop, want 2:\n%s", n, logs)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("a stopped listener takes connections")
	}
}

func TestConnectionsOverTheLimitsAreClosed(t *testing.T) {
	a := NewAdmission(Limits{MaxConnections: 3, MaxConnectionsPerIP: 2})
	l, logs := listen(t, Config{Admission: a}, &testHandler{})
	first, second := dial(t, l), dial(t, l)
	for i, c := range []net.Conn{first, second} {
		write(t, c, request(keyEcho, 1, int32(i), nil))
		wantAnswer(t, c, int32(i), []byte{})
	}
	wantClosed(t, dial(t, l))
	if !strings.Contains(logs.String(), "reason=per-ip") {
		t.Errorf("no refusal in the log:\n%s", logs)
	}
	first.Close()
	eventually(t, "room", func() bool { return a.Connections() == 1 })
	third := dial(t, l)
	write(t, third, request(keyEcho, 1, 9, nil))
	wantAnswer(t, third, 9, []byte{})
}

func TestSilentConnectionsMakeRoomForLiveOnes(t *testing.T) {
	a := NewAdmission(Limits{MaxFresh: 3, MaxFreshPerIP: 3})
	l, _ := listen(t, Config{Admission: a}, &testHandler{})
	live := dial(t, l)
	write(t, live, request(keyEcho, 1, 1, nil))
	wantAnswer(t, live, 1, []byte{})
	oldest := dial(t, l)
	eventually(t, "the oldest", func() bool { return a.Connections() == 2 })
	for range 3 {
		dial(t, l)
	}
	wantClosed(t, oldest)
	write(t, live, request(keyEcho, 1, 2, nil))
	wantAnswer(t, live, 2, []byte{})
}

// Many clients behind one address come back at once: none is closed for it.
func TestABurstOfOneAddressIsServed(t *testing.T) {
	a := NewAdmission(Limits{MaxFresh: 100, MaxFreshPerIP: 3})
	l, _ := listen(t, Config{Admission: a}, &testHandler{})
	var burst []net.Conn
	for range 20 {
		burst = append(burst, dial(t, l))
	}
	for i, c := range burst {
		write(t, c, request(keyEcho, 1, int32(i), nil))
		wantAnswer(t, c, int32(i), []byte{})
	}
	// Who has been silent for a while makes room all the same.
	now := time.Now()
	old := &Conn{id: 1, opened: now.Add(-freshGrace)}
	b := NewAdmission(Limits{MaxFresh: 100, MaxFreshPerIP: 1})
	if evicted := b.enter(old); evicted != nil {
		t.Error("the first had to go")
	}
	if evicted := b.enter(&Conn{id: 2, opened: now}); evicted != old {
		t.Error("the silent one stays")
	}
}

func TestSweeperClosesWhatWaitsTooLong(t *testing.T) {
	l, logs := listen(t, Config{IdleTimeout: time.Hour, FirstRequestTimeout: time.Minute, ReadTimeout: 2 * time.Minute}, &testHandler{})
	silent, idle, half := dial(t, l), dial(t, l), dial(t, l)
	for _, c := range []net.Conn{idle, half} {
		write(t, c, request(keyEcho, 1, 1, nil))
		wantAnswer(t, c, 1, []byte{})
	}
	write(t, half, []byte{0, 0, 0, 100, 0, 3})
	parked := func(n int) func() bool {
		return func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			got := 0
			for c := range l.conns {
				if c.due.Load() != never {
					got++
				}
			}
			return got == n
		}
	}
	eventually(t, "three parked connections", parked(3))
	steps := []struct {
		after  time.Duration
		conn   net.Conn
		reason string
	}{
		{61 * time.Second, silent, ReasonAuthTimeout},
		{122 * time.Second, half, ReasonRequestTimeout},
		{61 * time.Minute, idle, ReasonIdle},
	}
	now := time.Now()
	for i, step := range steps {
		l.expire(now.Add(step.after - 2*time.Second))
		if n := strings.Count(logs.String(), "conn-closed"); n != i {
			t.Fatalf("%d connections closed before %v, want %d", n, step.after, i)
		}
		l.expire(now.Add(step.after))
		wantClosed(t, step.conn)
		eventually(t, "record of "+step.reason, func() bool { return strings.Contains(logs.String(), "reason="+step.reason) })
	}
}

func TestADrippingRequestIsClosed(t *testing.T) {
	const step = 50 * time.Millisecond
	for _, greeted := range []bool{false, true} {
		cfg := Config{ReadTimeout: 4 * step, FirstRequestTimeout: 4 * step}
		l, logs := listen(t, cfg, &testHandler{})
		c := dial(t, l)
		if greeted {
			write(t, c, request(keyEcho, 1, 1, nil))
			wantAnswer(t, c, 1, []byte{})
		}
		// One byte a step: the time of the request is up long before it is
		// complete, although something comes all the time.
		for _, b := range append([]byte{0, 100, 0, 0}, make([]byte, 12)...) {
			time.Sleep(step)
			c.Write([]byte{b})
			l.expire(time.Now())
		}
		wantClosed(t, c)
		eventually(t, "record of the closing", func() bool { return strings.Contains(logs.String(), "reason="+ReasonRequestTimeout) })
	}
}

func TestARequestThatComesSlowlyButSteadilyIsServed(t *testing.T) {
	const step = 20 * time.Millisecond
	l, _ := listen(t, Config{ReadTimeout: 10 * step, FirstRequestTimeout: 10 * step}, &testHandler{})
	c := dial(t, l)
	frame := request(keyEcho, 1, 1, make([]byte, 160_000))
	for len(frame) > 0 { // 200 KB a second, 40 steps
		n := min(4_000, len(frame))
		write(t, c, frame[:n])
		frame = frame[n:]
		time.Sleep(step)
		l.expire(time.Now())
	}
	wantAnswer(t, c, 1, make([]byte, 160_000))
}

func TestAWaitEndsWhenThePeerIsGone(t *testing.T) {
	waits := make(chan struct{}, 2)
	l, logs := listen(t, Config{}, &testHandler{served: func(*Request) { waits <- struct{}{} }})
	stays, goes := dial(t, l), dial(t, l)
	write(t, stays, request(keyWait, 4, 1, nil))
	write(t, goes, append(request(keyWait, 4, 1, nil), 0, 0, 1)) // something unread is behind it
	<-waits
	<-waits
	l.endGone()
	goes.Close()
	eventually(t, "end of the wait", func() bool {
		l.endGone()
		return l.cfg.Admission.Connections() == 1
	})
	eventually(t, "record of the end", func() bool {
		return strings.Contains(logs.String(), "reason="+ReasonEOF) || strings.Contains(logs.String(), "reason="+ReasonNetwork)
	})
	l.endGone()
	if n := l.cfg.Admission.Connections(); n != 1 {
		t.Errorf("%d connections, want the one whose peer is there", n)
	}
}

func TestRequestMemoryIsWaitedForAndGivenBack(t *testing.T) {
	a := NewAdmission(Limits{RequestBytes: 1 << 20})
	release := make(chan struct{})
	h := &testHandler{release: release}
	l, _ := listen(t, Config{Admission: a}, h)
	body := make([]byte, 3<<20)
	conns := make([]*net.TCPConn, 4)
	for i := range conns {
		conns[i] = dial(t, l)
		go conns[i].Write(request(keyWait, 4, int32(i), body))
	}
	// One request goes over the limit; the others wait for its memory.
	eventually(t, "memory in use", func() bool { return a.RequestBytes() >= 3<<20 })
	if used := a.RequestBytes(); used > 6<<20 {
		t.Errorf("%d bytes of requests held, want one request and a little", used)
	}
	close(release)
	for i := range conns {
		wantAnswer(t, conns[i], int32(i), body)
		conns[i].Close()
	}
	eventually(t, "memory given back", func() bool { return a.RequestBytes() == 0 })
}

func TestClaimedSizesTakeNoMemory(t *testing.T) {
	a := NewAdmission(Limits{})
	l, _ := listen(t, Config{Admission: a}, &testHandler{})
	for range 8 {
		c := dial(t, l)
		write(t, c, append(binary.BigEndian.AppendUint32(nil, 100<<20), 0, 3, 0, 1))
	}
	c := dial(t, l)
	write(t, c, request(keyEcho, 1, 1, make([]byte, 1<<20)))
	wantAnswer(t, c, 1, make([]byte, 1<<20))
	c.Close()
	eventually(t, "memory of the answered request given back", func() bool { return a.RequestBytes() == 0 })
}

func TestClientIDsAreRemembered(t *testing.T) {
	ids := make(chan string, 2)
	h := &testHandler{served: func(r *Request) { ids <- r.ClientID() }}
	l, _ := listen(t, Config{}, h)
	c := dial(t, l)
	write(t, c, request(keyEcho, 1, 1, nil))
	null := []byte{0, 0, 0, 10, 0, 3, 0, 1, 0, 0, 0, 2, 0xff, 0xfe}
	write(t, c, null)
	for _, want := range []string{"test", ""} {
		if got := <-ids; got != want {
			t.Errorf("client id %q, want %q", got, want)
		}
	}
}

func TestRecordsAboutConnectionsAreFew(t *testing.T) {
	logs := &lockedBuffer{}
	few := events.New(slog.NewTextHandler(logs, nil))
	l, err := Listen(Config{Name: "PLAINTEXT", Address: "127.0.0.1:0", Logger: slog.New(few)}, &testHandler{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	const conns = events.MaxSimilar + 5
	for range conns {
		c := dial(t, l)
		write(t, c, []byte{0xff, 0xff, 0xff, 0xff})
		wantClosed(t, c)
	}
	eventually(t, "the connections' ends", func() bool { return l.cfg.Admission.Connections() == 0 })
	c := dial(t, l)
	write(t, c, request(keyRefuse, 0, 1, nil))
	wantClosed(t, c)
	eventually(t, "record of another kind", func() bool { return strings.Contains(logs.String(), "reason="+ReasonParse) })
	if n := strings.Count(logs.String(), "reason="+ReasonFrameSize); n != events.MaxSimilar {
		t.Errorf("%d records of %d like ends, want %d", n, conns, events.MaxSimilar)
	}
	few.Log().Close(time.Time{})
	if !strings.Contains(logs.String(), "(5 similar in the last minute)") {
		t.Errorf("no record of how many were left out:\n%s", logs)
	}
}
