package server

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// Anybody who reaches the port can have records written. Of each kind so many
// are, within the time from the first one; then one that says how many were not.
const (
	maxSimilar  = 10
	similarTime = time.Minute
)

// similar counts records of each kind. The zero value is ready.
type similar struct {
	mu    sync.Mutex
	kinds map[similarKind]*similarCount
}

// similarKind is what makes records similar.
type similarKind struct{ event, reason string }

type similarCount struct {
	since time.Time
	n     int
}

// allow counts a record of a kind, and reports whether it is to be written.
func (s *similar) allow(k similarKind, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.kinds[k]
	if c == nil {
		if s.kinds == nil {
			s.kinds = make(map[similarKind]*similarCount)
		}
		c = &similarCount{since: now}
		s.kinds[k] = c
	}
	c.n++
	return c.n <= maxSimilar
}

// report writes of each kind whose time is over how many records were left out,
// and counts it anew.
func (s *similar) report(log *slog.Logger, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, c := range s.kinds {
		if now.Sub(c.since) < similarTime {
			continue
		}
		delete(s.kinds, k)
		if left := c.n - maxSimilar; left > 0 {
			log.LogAttrs(context.Background(), slog.LevelInfo, "("+strconv.Itoa(left)+" similar in the last minute)",
				slog.String("event", k.event), slog.String("reason", k.reason))
		}
	}
}
