// Package verify checks a Kafka data directory without changing a byte of it:
// checksums and framing of every batch, the order of offsets, indexes against
// the log, transaction indexes, producer snapshots, leader epochs, checkpoints
// and meta.properties. It says which file and which byte is wrong.
//
// Before it on the path: internal/cli (`varve verify`) and tests that have
// written a directory. It reads by pread through vfs, maps nothing, and looks
// at a directory in use as at one whose broker was killed.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/vfs"
)

// Severity says what a finding means.
type Severity int

// An Error is damage: data or state that is not what was written. A Warning is
// what Kafka puts right by itself when it starts, or what may be lost without
// harm. A Note is worth knowing.
const (
	Note Severity = iota
	Warning
	Error
)

// String is the word at the start of a line.
func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Warning:
		return "warning"
	}
	return "note"
}

// Finding is one thing that is wrong.
type Finding struct {
	Severity Severity
	Code     Code
	File     string // path as it was reached from the paths given
	Position int64  // byte of the file; -1 when the file as a whole is meant
	Message  string
}

// String is the line that varve verify prints.
func (f Finding) String() string {
	place := f.File
	if f.Position >= 0 {
		place = fmt.Sprintf("%s:%d", f.File, f.Position)
	}
	return fmt.Sprintf("%v  %s  %s  %s", f.Severity, f.Code, place, f.Message)
}

// Options say what is checked and how.
type Options struct {
	FS vfs.FS
	// Paths are data directories (entries of log.dirs), partition directories,
	// or single files of one.
	Paths []string
	// Deep decompresses and parses every record. Fast reads the headers of
	// batches alone: framing and order, no checksums.
	Deep, Fast bool
	// Parallel is how many partitions are read at once; 0 is the number of processors.
	Parallel int
	// Node says that Paths are all data directories of a node: that they have
	// what a broker needs to start is checked too.
	Node bool
	// InUse, when not nil, tells whether a broker holds the lock of a data
	// directory: what it is writing at this moment is then no finding.
	InUse func(dir string) bool
	// Progress, when not nil, is called after each partition, by one goroutine
	// at a time.
	Progress func(done, total int)
}

// Result is what a check found.
type Result struct {
	Findings   []Finding // sorted by file and byte
	Partitions int
	Segments   int
	Bytes      int64 // of .log files and snapshots of the metadata log
}

// Count is how many findings have the severity.
func (r *Result) Count(s Severity) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Severity == s {
			n++
		}
	}
	return n
}

// NotKafkaError says that a path is nothing that could be checked.
type NotKafkaError struct{ Path string }

// Error is what the user sees.
func (e *NotKafkaError) Error() string {
	return e.Path + ": not a Kafka data directory, partition or file"
}

// Check reads everything below the paths. An error is a path that cannot be
// read at all (fs.ErrNotExist) or is not Kafka's (*NotKafkaError), or the
// context's; what is wrong inside is in the Result.
func Check(ctx context.Context, o Options) (Result, error) {
	var r Result
	jobs, findings, err := plan(&o)
	if err != nil {
		return r, err
	}
	workers := o.Parallel
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	var next atomic.Int64
	var group sync.WaitGroup
	var mu sync.Mutex // guards r, findings and done
	done := 0
	for range min(workers, len(jobs)) {
		group.Go(func() {
			w := newWorker(&o)
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					break
				}
				w.partition(jobs[i])
				mu.Lock()
				done++
				if o.Progress != nil {
					o.Progress(done, len(jobs))
				}
				mu.Unlock()
			}
			mu.Lock()
			defer mu.Unlock()
			findings = append(findings, w.findings...)
			r.Partitions += w.partitions
			r.Segments += w.segments
			r.Bytes += w.bytes
		})
	}
	group.Wait()
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Position, b.Position), cmp.Compare(a.Code, b.Code),
			strings.Compare(a.Message, b.Message))
	})
	r.Findings = findings
	return r, ctx.Err()
}

// Exit statuses of Run.
const (
	ExitClean    = 0
	ExitFailed   = 1 // could not be checked
	ExitMissing  = 4 // nothing of Kafka's was named
	ExitProblems = 3 // errors were found
)

// Run checks, prints one line for each finding and one for the whole, and
// returns the exit status: 3 when there is an error among the findings.
func Run(ctx context.Context, o Options, stdout, stderr io.Writer) int {
	start := time.Now()
	r, err := Check(ctx, o)
	var foreign *NotKafkaError
	if errors.As(err, &foreign) {
		fmt.Fprintf(stderr, "varve: %v\n", err)
		return ExitMissing
	}
	if err != nil {
		fmt.Fprintf(stderr, "varve: verify: %v\n", err)
		return ExitFailed
	}
	for _, f := range r.Findings {
		fmt.Fprintln(stdout, f)
	}
	failures := r.Count(Error)
	fmt.Fprintf(stdout, "verified %s, %s, %s in %v: %s, %s\n", plural(r.Partitions, "partition"), plural(r.Segments, "segment"),
		size(r.Bytes), time.Since(start).Round(time.Millisecond), plural(failures, "error"), plural(r.Count(Warning), "warning"))
	if failures > 0 {
		return ExitProblems
	}
	return ExitClean
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "ch") {
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, prefix := float64(n)/unit, "KMGTPE"
	for value >= unit && len(prefix) > 1 {
		value, prefix = value/unit, prefix[1:]
	}
	return fmt.Sprintf("%.1f %ciB", value, prefix[0])
}

// report collects findings below one directory.
type report struct{ findings []Finding }

func (r *report) add(s Severity, c Code, file string, position int64, format string, args ...any) {
	r.findings = append(r.findings, Finding{s, c, file, position, fmt.Sprintf(format, args...)})
}

func join(dir, name string) string { return filepath.Join(dir, name) }
