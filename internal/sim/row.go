// Package sim is the in-process half of the fault harness: crash states of a
// memory disk after every file operation, every bit of a directory flipped,
// every cut of a tail, random damage, every operation made to fail, and a clock
// that jumps. Each row holds what the broker makes of a fault against a model
// outside it, and adds one line to the scoreboard.
//
// Only tests import it. Its layers: logdir and what is below, verify and repair.
package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

// Scale says how much a row does: Test in plain `go test`, Short in each
// change's run, Long at night and before a release.
type Scale string

// The three scales.
const (
	Test  Scale = "test"
	Short Scale = "short"
	Long  Scale = "long"
)

// Of picks the figure of the scale.
func (s Scale) Of(test, short, long int) int {
	switch s {
	case Long:
		return long
	case Short:
		return short
	}
	return test
}

// Line is a row of the scoreboard, one JSON object a run.
type Line struct {
	Row        string         `json:"row"`
	Commit     string         `json:"commit"`
	Seed       uint64         `json:"seed"`
	Planned    int            `json:"planned"`
	Done       int            `json:"done"`
	Skipped    string         `json:"skipped"`
	Violations int            `json:"violations"`
	Acked      int            `json:"acked"`
	Seconds    float64        `json:"seconds"`
	Detail     map[string]int `json:"detail"`
}

// maxKinds and maxEach bound the violations that are told in full: so many of
// each kind, which is the text without its numbers.
const (
	maxKinds = 25
	maxEach  = 2
)

// Row collects what a run finds. Its methods may be called by several goroutines.
type Row struct {
	mu       sync.Mutex
	line     Line
	failures []string
	kinds    map[string]int
	began    time.Time
}

// NewRow begins a row.
func NewRow(name string, seed uint64, now time.Time) *Row {
	return &Row{line: Line{Row: name, Commit: commit(), Seed: seed, Detail: map[string]int{}}, kinds: map[string]int{}, began: now}
}

// commit is the revision that the test binary was built from.
func commit() string {
	if v := os.Getenv("FAULTS_COMMIT"); v != "" {
		return v
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

// Plan adds to what is planned.
func (r *Row) Plan(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Planned += n
}

// Done counts cases that were judged, and acknowledged records among them.
func (r *Row) Done(n, acked int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Done += n
	r.line.Acked += acked
}

// Count adds to a figure of the detail.
func (r *Row) Count(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Detail[what] += n
}

// AtLeast raises a figure of the detail to n.
func (r *Row) AtLeast(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Detail[what] = max(r.line.Detail[what], n)
}

// Violation notes what must not be, with what is needed to see it again.
func (r *Row) Violation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.Violations++
	text := fmt.Sprintf(format, args...)
	kind, _, _ := strings.Cut(text, "\n")
	kind = numbers.ReplaceAllString(kind, "#")
	r.kinds[kind]++
	if r.kinds[kind] <= maxEach && len(r.kinds) <= maxKinds {
		r.failures = append(r.failures, text)
	}
}

var numbers = regexp.MustCompile(`[0-9]+`)

// Violations is how many there are so far.
func (r *Row) Violations() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.line.Violations
}

// Failures are the violations in words, the first ones.
func (r *Row) Failures() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.failures)
	for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
		if n := r.kinds[kind]; n > maxEach {
			all = append(all, fmt.Sprintf("%d times: %s", n, kind))
		}
	}
	return all
}

// Finish returns the line of the scoreboard, and appends it to file unless that
// is empty.
func (r *Row) Finish(now time.Time, file string) (Line, error) {
	r.mu.Lock()
	line := r.line
	line.Detail = maps.Clone(r.line.Detail)
	r.mu.Unlock()
	line.Seconds = float64(now.Sub(r.began).Milliseconds()) / 1000
	if file == "" {
		return line, nil
	}
	text, err := json.Marshal(line)
	if err != nil {
		return line, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return line, err
	}
	_, err = f.Write(append(text, '\n'))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return line, err
}

var errPanic = errors.New("panic")

// guard runs f and turns a panic into an error: a broker must not end by what it reads.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack())
		}
	}()
	return f()
}
