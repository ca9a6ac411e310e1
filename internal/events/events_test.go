package events_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/events"
)

// logger writes lines without their times.
func logger(level slog.Level) (*slog.Logger, *events.Log, *bytes.Buffer) {
	var b bytes.Buffer
	h := events.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	return slog.New(h), h.Log(), &b
}

func lines(b *bytes.Buffer) int { return strings.Count(b.String(), "\n") }

func TestRecordsThatRepeatAreHeldBackAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, state, out := logger(slog.LevelInfo)
		for i := range 25 {
			log.Info("connection refused", "event", "conn-refused", "reason", "limit", "remote", fmt.Sprint("10.0.0.", i))
		}
		log.Info("connection refused", "event", "conn-refused", "reason", "per-ip")
		log.Warn("disk below reserve", "event", "disk-low", "dir", "/a")
		if lines(out) != 12 {
			t.Fatalf("%d lines were written, want 10 of one kind and 1 of each of two others:\n%s", lines(out), out)
		}
		time.Sleep(events.Window - time.Nanosecond)
		state.Close(time.Now())
		if strings.Contains(out.String(), "similar") {
			t.Errorf("closed before its minute was over:\n%s", out)
		}
		time.Sleep(time.Nanosecond)
		out.Reset()
		state.Close(time.Now())
		want := `level=INFO msg="connection refused (15 similar in the last minute)" event=conn-refused reason=limit` + "\n"
		if out.String() != want {
			t.Errorf("closing record = %q, want %q", out, want)
		}
		out.Reset()
		log.Info("connection refused", "event", "conn-refused", "reason", "limit")
		if lines(out) != 1 {
			t.Errorf("the next minute writes %d lines, want 1", lines(out))
		}
		if got := state.Counts(); got["conn-refused"] != 27 || got["disk-low"] != 1 {
			t.Errorf("Counts = %v, want every record counted, also those held back", got)
		}
	})
}

// TestReasonsInWordsDoNotTellKindsApart: they may hold numbers, and thousands of
// indexes are rebuilt for as many reasons after a crash.
func TestReasonsInWordsDoNotTellKindsApart(t *testing.T) {
	log, state, out := logger(slog.LevelInfo)
	for i := range 3000 {
		log.Warn("index rebuilt", "event", "index-rebuilt", "reason", fmt.Sprint("no entry for the batch at position ", i))
	}
	if lines(out) != events.MaxSimilar {
		t.Errorf("%d lines, want %d", lines(out), events.MaxSimilar)
	}
	out.Reset()
	state.Close(time.Time{})
	if want := `level=WARN msg="index rebuilt (2990 similar in the last minute)" event=index-rebuilt` + "\n"; out.String() != want {
		t.Errorf("closing record %q, want %q", out, want)
	}
}

func TestTheEndOfTheProcessClosesEveryKind(t *testing.T) {
	log, state, out := logger(slog.LevelInfo)
	for range 12 {
		log.Error("corrupt batch", "event", "corrupt-batch")
	}
	out.Reset()
	state.Close(time.Time{})
	if !strings.Contains(out.String(), "(2 similar in the last minute)") {
		t.Errorf("Close wrote %q, want the count of what was held back", out)
	}
}

func TestWhatWasAskedForIsNotHeldBack(t *testing.T) {
	log, _, out := logger(slog.LevelDebug)
	for range 50 {
		log.Debug("connection closed", "event", "conn-closed")
	}
	if lines(out) != 50 {
		t.Errorf("%d DEBUG lines, want all 50", lines(out))
	}
}

func TestAttributesOfTheLoggerTellKindsApart(t *testing.T) {
	log, _, out := logger(slog.LevelInfo)
	for range 20 {
		log.With("dir", "/a").Warn("disk below reserve", "event", "disk-low")
		log.With("dir", "/b").Warn("disk below reserve", "event", "disk-low")
	}
	if lines(out) != 20 {
		t.Errorf("%d lines, want 10 for each directory", lines(out))
	}
}

func TestKindsAreBounded(t *testing.T) {
	log, _, out := logger(slog.LevelInfo)
	for i := range 5000 {
		log.Info(fmt.Sprint("message ", i))
	}
	if n := lines(out); n != 1024+events.MaxSimilar {
		t.Errorf("%d lines of 5000 messages, want 1034: what no longer fits counts as one kind", n)
	}
}

func TestForeignTextIsCutAndQuoted(t *testing.T) {
	tests := []struct {
		name, key, value, want string
	}{
		{"plain text stays", "client", "app-1", "client=app-1"},
		{"long text is cut", "client", strings.Repeat("x", 300), "client=" + strings.Repeat("x", 256) + "…"},
		{"a cut does not split a character", "group", strings.Repeat("x", 255) + "äöü", "group=" + strings.Repeat("x", 255) + "…"},
		{"terminal escapes are quoted", "topic", "a\x1b[2Jb", `topic="\"a\\x1b[2Jb\""`},
		{"a line break cannot forge a record", "member", "a\nlevel=ERROR", `member="\"a\\nlevel=ERROR\""`},
		{"text of our own has a bound too", "hint", strings.Repeat("y", 2000), "hint=" + strings.Repeat("y", 1024) + "…"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, with := range []bool{false, true} {
				log, _, out := logger(slog.LevelInfo)
				if with {
					log.With(tt.key, tt.value).Info("m")
				} else {
					log.Info("m", tt.key, tt.value)
				}
				if want := "level=INFO msg=m " + tt.want + "\n"; out.String() != want {
					t.Errorf("with=%v: %q, want %q", with, out, want)
				}
			}
		})
	}
}

func TestEventsAreCountedThatAreNotWritten(t *testing.T) {
	h := events.New(slog.DiscardHandler)
	slog.New(h).Info("started", "event", "started")
	if n := h.Log().Counts()["started"]; n != 1 {
		t.Errorf("counted %d, want 1", n)
	}
}
