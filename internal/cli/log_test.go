package cli

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func logged(t *testing.T, format string, journal bool, log func(*slog.Logger)) string {
	t.Helper()
	var b bytes.Buffer
	log(newLogger(&b, format, levelTrace, journal))
	line := b.String()
	if journal {
		return line
	}
	at, rest, ok := strings.Cut(line, " ")
	if format == "json" {
		return line
	}
	if _, err := time.Parse(logTime, at); !ok || err != nil {
		t.Fatalf("%q does not begin with a time of milliseconds", line)
	}
	return rest
}

func TestTextLogLines(t *testing.T) {
	tests := []struct {
		name string
		log  func(*slog.Logger)
		want string
	}{
		{"level, message, attributes", func(l *slog.Logger) { l.Info("started", "partitions", 3) }, "INFO  started partitions=3\n"},
		{"the component comes first", func(l *slog.Logger) { l.With("component", "log").Warn("cut torn end", "bytes", 7) }, "WARN  log: cut torn end bytes=7\n"},
		{"a record's own component counts", func(l *slog.Logger) { l.Error("x", "component", "config") }, "ERROR config: x\n"},
		{"values with blanks, quotes and nothing are quoted", func(l *slog.Logger) { l.Debug("x", "a", "b c", "d", `"`, "e", "", "f", "g=h") }, "DEBUG x a=\"b c\" d=\"\\\"\" e=\"\" f=\"g=h\"\n"},
		{"errors are their text", func(l *slog.Logger) { l.Error("x", "err", errors.New("no space")) }, "ERROR x err=\"no space\"\n"},
		{"durations, lists and times", func(l *slog.Logger) {
			l.Info("x", "d", time.Second, "l", []int{1, 2}, "t", time.UnixMilli(1700000000123))
		}, "INFO  x d=1s l=\"[1 2]\" t=2023-11-14T22:13:20.123Z\n"},
		{"groups are prefixes", func(l *slog.Logger) {
			l.WithGroup("a").With("b", 1).Info("x", slog.Group("c", "d", 2))
		}, "INFO  x a.b=1 a.c.d=2\n"},
		{"a message stays on its line", func(l *slog.Logger) { l.Info("a\nb") }, "INFO  a | b\n"},
		{"trace is below debug", func(l *slog.Logger) { l.Log(t.Context(), levelTrace, "x") }, "TRACE x\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := logged(t, "text", false, tt.log); got != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestJournalLinesHaveAPriorityAndNoTime(t *testing.T) {
	for level, want := range map[slog.Level]string{slog.LevelError: "<3>ERROR x\n", slog.LevelWarn: "<4>WARN  x\n", slog.LevelInfo: "<6>INFO  x\n", slog.LevelDebug: "<7>DEBUG x\n"} {
		if got := logged(t, "text", true, func(l *slog.Logger) { l.Log(t.Context(), level, "x") }); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestJSONLogLines(t *testing.T) {
	got := logged(t, "json", false, func(l *slog.Logger) { l.Log(t.Context(), levelTrace, "x", "topic", "orders") })
	if !strings.Contains(got, `"level":"trace","msg":"x","topic":"orders"`) || !strings.Contains(got, `Z","level"`) {
		t.Errorf("got %s", got)
	}
}

func TestLevelsAreKept(t *testing.T) {
	var b bytes.Buffer
	level := &slog.LevelVar{}
	level.Set(parseLevel("warn"))
	l := newLogger(&b, "text", level, false)
	l.Info("no")
	level.Set(parseLevel("info"))
	l.Info("yes")
	if got := b.String(); strings.Contains(got, "no\n") || !strings.Contains(got, "yes\n") {
		t.Errorf("got %q", got)
	}
}
