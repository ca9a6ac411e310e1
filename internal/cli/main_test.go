package cli

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestASignalThatIsSentTwiceAtOnceIsOne(t *testing.T) {
	at := time.Unix(1000, 0)
	tests := []struct {
		name  string
		again os.Signal
		after time.Duration
		want  bool
	}{
		{"the same at once", syscall.SIGTERM, time.Millisecond, true},
		{"the same after a second", syscall.SIGTERM, time.Second, false},
		{"another one at once", syscall.SIGINT, time.Millisecond, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := repeats(syscall.SIGTERM, at, tt.again, at.Add(tt.after)); got != tt.want {
				t.Errorf("repeats = %v, want %v", got, tt.want)
			}
		})
	}
}
