// Package events stands between the broker and its log: it counts the events
// that are logged, holds back what repeats too often, and bounds the text that
// records take over from peers.
//
// Before it on the path: every package that logs. After it: the handler that
// writes, chosen by the command line or by the program that embeds a broker.
package events

import (
	"context"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// Of each kind of record so many are written within Window of the first one;
// then one that says how many were not (conventions.md LOG-7).
const (
	MaxSimilar = 10
	Window     = time.Minute
)

// MaxForeignText bounds, in bytes, what a record takes over from a peer.
const MaxForeignText = 256

// maxKinds bounds the kinds that are told apart within a Window; beyond it all
// further ones count as one kind.
const maxKinds = 1024

// Handler is a slog.Handler in front of another one. Records below INFO pass
// without a limit: they were asked for.
type Handler struct {
	next slog.Handler
	log  *Log
	with identity // of WithAttrs
}

// Log is what all handlers made from one New share: counts and limits.
type Log struct {
	mu     sync.Mutex
	counts map[string]uint64 // by event, suppressed records included
	errors map[string]uint64 // those of level ERROR
	kinds  map[kind]*similar
}

// identity are the attributes that tell records of one message apart. A reason
// does when it is a name, such as frame-size; as a text it may hold numbers, and
// then no two records are alike.
type identity struct{ event, reason, dir string }

type kind struct {
	level   slog.Level
	message string
	identity
}

// similar are the records of one kind since the first one.
type similar struct {
	since time.Time // of the record's own clock reading
	n     int
	to    slog.Handler // where the closing record goes
}

// New returns a handler that writes to next.
func New(next slog.Handler) *Handler {
	return &Handler{next: next, log: &Log{counts: map[string]uint64{}, errors: map[string]uint64{}, kinds: map[kind]*similar{}}}
}

// Log is the state that the handler shares with those made from it.
func (h *Handler) Log() *Log { return h.log }

// Enabled implements slog.Handler. Events are counted also where the handler
// behind does not write them.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelInfo || h.next.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	k := kind{level: r.Level, message: r.Message, identity: h.with}
	bounded := true
	r.Attrs(func(a slog.Attr) bool {
		k.note(a)
		bounded = bounded && fits(a)
		return true
	})
	if !h.log.admit(k, r, h.next) || !h.next.Enabled(ctx, r.Level) {
		return nil
	}
	if !bounded {
		r = boundedRecord(r)
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	attrs = append([]slog.Attr(nil), attrs...)
	for i, a := range attrs {
		next.with.note(a)
		attrs[i] = bound(a)
	}
	next.next = h.next.WithAttrs(attrs)
	return &next
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	next := *h
	next.next = h.next.WithGroup(name)
	return &next
}

func (i *identity) note(a slog.Attr) {
	switch a.Key {
	case "event":
		i.event = a.Value.String()
	case "reason":
		i.reason = ""
		if reason := a.Value.String(); isName(reason) {
			i.reason = reason
		}
	case "dir":
		i.dir = a.Value.String()
	}
}

// isName reports whether s is one of the names that code has for reasons: lower
// case letters and hyphens.
func isName(s string) bool {
	for _, c := range []byte(s) {
		if c != '-' && (c < 'a' || c > 'z') {
			return false
		}
	}
	return len(s) <= 32
}

// admit counts a record and reports whether it is to be written.
func (l *Log) admit(k kind, r slog.Record, to slog.Handler) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.event != "" {
		l.counts[k.event]++
		if r.Level >= slog.LevelError {
			l.errors[k.event]++
		}
	}
	if r.Level < slog.LevelInfo {
		return true
	}
	s := l.kinds[k]
	if s == nil && len(l.kinds) >= maxKinds {
		k = kind{level: slog.LevelInfo, message: "other records"}
		s = l.kinds[k]
	}
	if s == nil {
		s = &similar{since: r.Time, to: to}
		l.kinds[k] = s
	}
	s.n++
	return s.n <= MaxSimilar
}

// Counts is how often each event was logged, or would have been but for the limit.
func (l *Log) Counts() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// Errors is how many of the Counts were of level ERROR.
func (l *Log) Errors() map[string]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.errors)
}

// Close writes for each kind whose Window is over at now how many records of it
// were held back, and counts that kind anew. Its owner calls it every few
// seconds. The zero time closes all kinds: the process ends.
func (l *Log) Close(now time.Time) {
	type closing struct {
		kind
		left int
		to   slog.Handler
	}
	var list []closing
	l.mu.Lock()
	for k, s := range l.kinds {
		if !now.IsZero() && now.Sub(s.since) < Window {
			continue
		}
		delete(l.kinds, k)
		if left := s.n - MaxSimilar; left > 0 {
			list = append(list, closing{k, left, s.to})
		}
	}
	l.mu.Unlock()
	for _, c := range list {
		at := now
		if at.IsZero() {
			at = time.Now()
		}
		r := slog.NewRecord(at, c.level, c.message+" ("+strconv.Itoa(c.left)+" similar in the last minute)", 0)
		for _, a := range []slog.Attr{slog.String("event", c.event), slog.String("reason", c.reason), slog.String("dir", c.dir)} {
			if a.Value.String() != "" {
				r.AddAttrs(a)
			}
		}
		if !c.to.Enabled(context.Background(), c.level) {
			continue
		}
		_ = c.to.Handle(context.Background(), r) // a log that cannot be written has nowhere to say so
	}
}

// foreign are the attributes whose text a peer chooses.
func foreign(key string) bool {
	switch key {
	case "client", "clientId", "remote", "group", "groupId", "member", "memberId", "instance", "user", "principal", "software", "topic", "transactionalId", "key", "host":
		return true
	}
	return false
}

// maxText bounds every other text, such as an error that quotes a peer.
const maxText = 1024

func limitOf(key string) int {
	if foreign(key) {
		return MaxForeignText
	}
	return maxText
}

// fits reports whether an attribute can be written as it is.
func fits(a slog.Attr) bool {
	switch a.Value.Kind() {
	case slog.KindString:
		s := a.Value.String()
		return len(s) <= limitOf(a.Key) && (!foreign(a.Key) || printable(s))
	case slog.KindAny:
		err, ok := a.Value.Any().(error)
		return !ok || len(err.Error()) <= maxText
	}
	return true
}

// bound cuts the text of an attribute, and quotes foreign text that holds
// anything but printable characters.
func bound(a slog.Attr) slog.Attr {
	if fits(a) {
		return a
	}
	s := a.Value.String()
	if limit := limitOf(a.Key); len(s) > limit {
		for limit > 0 && !utf8.RuneStart(s[limit]) {
			limit--
		}
		s = s[:limit] + "…"
	}
	if foreign(a.Key) && !printable(s) {
		s = strconv.Quote(s)
	}
	return slog.String(a.Key, s)
}

func boundedRecord(r slog.Record) slog.Record {
	next := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		next.AddAttrs(bound(a))
		return true
	})
	return next
}

func printable(s string) bool {
	for _, r := range s {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return false
		}
	}
	return true
}
