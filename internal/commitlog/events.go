package commitlog

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Event is something about a log's files that an operator may want to know.
type Event struct {
	Name   string // tail-cut, index-rebuilt, corrupt-batch, checkpoint-rebuilt, finished, ...
	File   string
	Detail string // the attributes, or a sentence
}

// say writes a record about the log. Whose it is comes first, but for the event;
// an error is called "err".
func (l *Log) say(level slog.Level, message string, attrs ...any) {
	at := 0
	if len(attrs) > 1 && attrs[0] == "event" {
		at = 2
	}
	l.logger.Log(context.Background(), level, message, slices.Insert(attrs, at, any("topic"), any(l.partition.Topic), any("partition"), any(l.partition.Partition))...)
}

// event tells of what load found and did: one log record and one call.
func (l *Log) event(name, file, detail string) {
	l.say(slog.LevelWarn, strings.ReplaceAll(name, "-", " "), "event", name, "file", file, "reason", detail)
	if l.opts.OnEvent != nil {
		l.opts.OnEvent(Event{Name: name, File: file, Detail: detail})
	}
}

// report is event for the events that have attributes of their own
// (docs/operations.md).
func (l *Log) report(level slog.Level, name, message, file string, attrs ...any) {
	l.say(level, message, append([]any{"event", name, "file", file}, attrs...)...)
	if l.opts.OnEvent == nil {
		return
	}
	var detail []string
	for i := 0; i+1 < len(attrs); i += 2 {
		detail = append(detail, fmt.Sprintf("%v=%v", attrs[i], attrs[i+1]))
	}
	l.opts.OnEvent(Event{Name: name, File: file, Detail: strings.Join(detail, " ")})
}

// finished tells that load brought work to its end that a crash had cut short.
func (l *Log) finished(what string, files int) {
	if files > 0 {
		l.report(slog.LevelInfo, "finished", "finished interrupted work", l.Dir(), "what", what, "files", files)
	}
}

func (l *Log) indexRebuilt(file, reason string, entries int, since time.Time) {
	l.report(slog.LevelWarn, "index-rebuilt", "index rebuilt", file,
		"reason", reason, "entries", entries, "durationMs", l.opts.Now().Sub(since).Milliseconds())
}

func (l *Log) checkpointRebuilt(file, reason string) {
	l.report(slog.LevelWarn, "checkpoint-rebuilt", "checkpoint rebuilt", file, "reason", reason)
}
