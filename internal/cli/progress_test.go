package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	type step struct {
		after time.Duration // of the step before
		done  int64         // of 100
	}
	tests := []struct {
		name            string
		terminal, quiet bool
		steps           []step
		want            string // in the output; "": nothing at all
		lines           int
	}{
		{"a short step shows no bar", true, false, []step{{time.Second, 10}, {900 * time.Millisecond, 99}}, "", 0},
		{"a step of over two seconds shows a bar", true, false, []step{{2 * time.Second, 40}}, "verify 40 of 100 partitions", -1},
		{"without a terminal there is a line when ten seconds and ten percent have passed", false, false,
			[]step{{9 * time.Second, 50}, {time.Second, 51}, {11 * time.Second, 52}, {time.Second, 61}}, "verify: 61 of 100 partitions, 22 s\n", 2},
		{"quiet shows no bar", true, true, []step{{time.Minute, 40}}, "", 0},
		{"quiet shows no line", false, true, []step{{time.Minute, 40}}, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			now := time.Unix(1_760_000_000, 0)
			p := &progress{what: "verify", unit: "partitions", out: &out, terminal: tt.terminal, quiet: tt.quiet,
				now: func() time.Time { return now }, began: now, said: now}
			for _, s := range tt.steps {
				now = now.Add(s.after)
				p.at(s.done, 100)
			}
			p.end()
			if got := out.String(); !strings.Contains(got, tt.want) || tt.want == "" && got != "" || tt.lines >= 0 && strings.Count(got, "\n") != tt.lines {
				t.Errorf("output %q, want %q", got, tt.want)
			}
		})
	}
}
