package commitlog

import (
	"log/slog"

	"github.com/varvelog/varve/internal/segment"
)

// watch has a segment of the log tell what it finds wrong with its files.
func (l *Log) watch(o *segment.Options) {
	o.Clock = l.opts.Now
	o.OnDamage = func(path string, d segment.BadRange) {
		l.report(slog.LevelError, "corrupt-batch", "corrupt batch", path,
			"position", d.Position, "offset", d.First, "reason", d.Reason, "found", d.Found, "expected", d.Want)
	}
	o.OnRebuilt = func(r segment.Rebuilt) {
		l.say(slog.LevelWarn, "index rebuilt", "event", "index-rebuilt", "file", r.Path, "reason", r.Reason, "entries", r.Entries, "durationMs", r.Duration, "inMemory", r.InMemory)
	}
	o.OnRebuildError = func(err error) { l.noteSync("rebuild index", err) }
	o.OnFault = func(path string, page int64, write bool, err error) {
		what := "mapped page cannot be read"
		if write {
			what = "mapped page cannot be written"
		}
		l.say(slog.LevelError, what, "event", "map-fault", "file", path, "page", page, "err", err)
	}
}
