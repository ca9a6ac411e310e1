package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestWhoWaitsIsToldWhatFor(t *testing.T) {
	for _, tt := range []struct {
		name, why string
		says      string
		code      int
	}{
		{"nothing is answered", "", "broker not reachable: no answer", exitOffline},
		{"no connection", "connection refused", "broker not reachable: connection refused", exitOffline},
		{"an answer that refuses", refusing, "not acknowledged: the broker answers", exitFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var said bytes.Buffer
			p := patience{a: &app{Process: &Process{Stderr: &said}}, giveUp: time.Minute}
			if err := p.wait("write to t", 10*time.Second, tt.why); err != nil || !strings.Contains(said.String(), tt.says) {
				t.Errorf("after a while: %v, said %q; want %q", err, said.String(), tt.says)
			}
			var f *failure
			if err := p.wait("write to t", time.Minute, tt.why); !errors.As(err, &f) || f.code != tt.code || f.hint == "" {
				t.Errorf("in the end: %+v, want status %d and a hint", err, tt.code)
			}
		})
	}
}
