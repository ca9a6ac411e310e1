package server

import (
	"encoding/binary"
	"io"
	"runtime/debug"
	"testing"
	"time"
)

// TestStalledRequestsGiveWayToThoseThatWait: three peers stop in the middle of
// large requests and hold all the memory there is; one that sends gets through
// once the sweeper has seen it wait.
func TestStalledRequestsGiveWayToThoseThatWait(t *testing.T) {
	const large = 4 << 20
	admission := NewAdmission(Limits{RequestBytes: 8 << 20})
	l, logs := listen(t, Config{Admission: admission}, &testHandler{})
	held := func(more int64) {
		t.Helper()
		for admission.RequestBytes() < more {
			time.Sleep(time.Millisecond) // until the other goroutine has read
		}
	}
	for i := range 3 {
		c := dial(t, l)
		// A first request, so that the second one has the longer time limit.
		if _, err := c.Write(request(keyEcho, 0, 1, []byte("hello"))); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 4+4+5)); err != nil {
			t.Fatal(err)
		}
		frame := binary.BigEndian.AppendUint32(nil, large)
		go c.Write(append(frame, make([]byte, large*3/4)...))
		held(int64(i+1) << 20)
	}
	honest := dial(t, l)
	honest.SetDeadline(time.Now().Add(25 * time.Second))
	body := make([]byte, large)
	go honest.Write(request(keyEcho, 0, 7, body))
	if _, err := io.ReadFull(honest, make([]byte, 4+4+large)); err != nil {
		t.Fatalf("the request that came whole is not answered: %v\n%s", err, logs)
	}
}

func TestTheRequestBudgetFollowsTheMemoryLimit(t *testing.T) {
	old := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(old)
	tests := []struct{ limit, want int64 }{
		{1 << 62, 1 << 61}, {1 << 30, 512 << 20}, {64 << 20, 32 << 20}, {32 << 20, 16 << 20}, {1 << 20, 4 << 20},
	}
	for _, tt := range tests {
		debug.SetMemoryLimit(tt.limit)
		a := NewAdmission(Limits{})
		if a.RequestBytesLimit() != tt.want {
			t.Errorf("Go limit %d: budget %d, want %d", tt.limit, a.RequestBytesLimit(), tt.want)
		}
		want := int32(min(100<<20, tt.want))
		if tt.want >= 64<<20 {
			want = 100 << 20
		}
		if got := a.MaxFrame(100 << 20); got != want {
			t.Errorf("Go limit %d: MaxFrame = %d, want %d", tt.limit, got, want)
		}
	}
}
