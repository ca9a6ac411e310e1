package sim

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/varvelog/varve/internal/kafka"
)

// watch is a slog.Handler that notes what is logged at WARN and above, by event
// name, or by message where a record has none.
type watch struct {
	mu     sync.Mutex
	events map[string]int
}

func newWatch() *watch { return &watch{events: map[string]int{}} }

func (h *watch) logger() *slog.Logger { return slog.New(h) }

// any reports whether anything was logged.
func (h *watch) any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.events) > 0
}

// names lists what was logged.
func (h *watch) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.events))
}

// Enabled implements slog.Handler.
func (h *watch) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (h *watch) Handle(_ context.Context, r slog.Record) error {
	name := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" {
			name = a.Value.String()
			return false
		}
		return true
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events[name]++
	return nil
}

// WithAttrs implements slog.Handler; the attributes are not kept.
func (h *watch) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler.
func (h *watch) WithGroup(string) slog.Handler { return h }

func sortedParts(parts map[kafka.TopicPartition]*part) []kafka.TopicPartition {
	return slices.SortedFunc(maps.Keys(parts), func(a, b kafka.TopicPartition) int {
		if a.Topic != b.Topic {
			if a.Topic < b.Topic {
				return -1
			}
			return 1
		}
		return int(a.Partition - b.Partition)
	})
}
