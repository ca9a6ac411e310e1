package cli

import (
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// levelTrace is below slog's levels.
const levelTrace = slog.Level(-8)

func parseLevel(name string) slog.Level {
	switch name {
	case "trace":
		return levelTrace
	case "debug":
		return slog.LevelDebug
	case "warn":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	}
	return slog.LevelInfo
}

func levelName(l slog.Level) string {
	if l < slog.LevelDebug {
		return "TRACE"
	}
	return l.String()
}

// newLogger makes the broker's logger. journal is set under systemd, which adds
// the time itself and takes the level from a priority before the line.
func newLogger(w io.Writer, format string, level slog.Leveler, journal bool) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: jsonAttr}))
	}
	return slog.New(&textHandler{w: w, mu: &sync.Mutex{}, level: level, journal: journal})
}

// jsonAttr gives times three digits after the second and levels their names.
func jsonAttr(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch v := a.Value.Any().(type) {
	case time.Time:
		return slog.String(a.Key, v.UTC().Format(logTime))
	case slog.Level:
		return slog.String(a.Key, strings.ToLower(levelName(v)))
	}
	return a
}

const logTime = "2006-01-02T15:04:05.000Z07:00"

// componentKey is the attribute that names the part of the broker that speaks.
// It comes before the message.
const componentKey = "component"

// textHandler writes one line a record: TIME LEVEL component: message key=value.
type textHandler struct {
	w         io.Writer
	mu        *sync.Mutex // one line at a time; shared by all handlers of w
	level     slog.Leveler
	journal   bool
	component string
	attrs     string // rendered, each with a blank before it
	group     string // prefix of keys: the groups that are open, each with a dot
}

// Enabled implements slog.Handler.
func (h *textHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

// Handle implements slog.Handler.
func (h *textHandler) Handle(_ context.Context, r slog.Record) error {
	component := h.component
	var attrs strings.Builder
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == componentKey {
			component = a.Value.String()
			return true
		}
		writeAttr(&attrs, h.group, a)
		return true
	})
	var b strings.Builder
	if h.journal {
		b.WriteString(priority(r.Level))
	} else {
		b.WriteString(r.Time.UTC().Format(logTime) + " ")
	}
	name := levelName(r.Level)
	b.WriteString(name + strings.Repeat(" ", max(0, 6-len(name))))
	if component != "" {
		b.WriteString(component + ": ")
	}
	b.WriteString(oneLine(r.Message))
	b.WriteString(h.attrs)
	b.WriteString(attrs.String())
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, b.String())
	return err
}

// WithAttrs implements slog.Handler.
func (h *textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	var b strings.Builder
	b.WriteString(h.attrs)
	for _, a := range attrs {
		if a.Key == componentKey {
			next.component = a.Value.String()
			continue
		}
		writeAttr(&b, h.group, a)
	}
	next.attrs = b.String()
	return &next
}

// WithGroup implements slog.Handler.
func (h *textHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.group += name + "."
	return &next
}

func writeAttr(b *strings.Builder, group string, a slog.Attr) {
	v := a.Value.Resolve()
	if a.Equal(slog.Attr{}) {
		return
	}
	if v.Kind() == slog.KindGroup {
		prefix := group
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, member := range v.Group() {
			writeAttr(b, prefix, member)
		}
		return
	}
	b.WriteString(" " + group + a.Key + "=")
	text := v.String()
	if v.Kind() == slog.KindTime {
		text = v.Time().UTC().Format(logTime)
	}
	if needsQuotes(text) {
		text = strconv.Quote(text)
	}
	b.WriteString(text)
}

func needsQuotes(s string) bool {
	if s == "" {
		return true
	}
	for _, r := range s {
		if r <= ' ' || r == '"' || r == '=' || r == 0x7f || r == utf8.RuneError {
			return true
		}
	}
	return false
}

// oneLine keeps a message on its line whatever is in it.
func oneLine(s string) string {
	if strings.ContainsAny(s, "\n\r") {
		return strings.ReplaceAll(strings.ReplaceAll(s, "\r", ""), "\n", " | ")
	}
	return s
}

// priority is the prefix that the journal reads (sd-daemon(3)).
func priority(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "<3>"
	case l >= slog.LevelWarn:
		return "<4>"
	case l >= slog.LevelInfo:
		return "<6>"
	}
	return "<7>"
}
