// Package repair mends a data directory that no broker runs on, from what
// package verify finds in it. It plans first: each step is tried on a view of
// the disk, and checked again there, so that a plan is whole before a byte is
// written. Applied, it keeps what it drops or replaces in a file beside it
// (docs/format/cut.md), and it can be stopped at any operation and run again.
//
// Before it on the path: internal/cli (`varve repair`). After it: verify for
// what is wrong, segment and producer for what is built anew, and vfs.
package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/verify"
	"github.com/varvelog/varve/internal/vfs"
)

// Kind is what a step does.
type Kind string

// All kinds of steps.
const (
	RebuildIndex      Kind = "rebuild index"
	RebuildSnapshot   Kind = "rebuild snapshot"
	RewriteCheckpoint Kind = "rewrite checkpoint"
	Truncate          Kind = "truncate"
	MoveAside         Kind = "move aside"
)

// Step is one change of one file.
type Step struct {
	Kind Kind
	File string
	// From and To are the sizes of a .log before and after; -1 for other files.
	From, To int64
	// First and Last are the offsets that are no longer in the log; NoOffset:
	// none. Last is NoOffset when it is not known how far they went.
	First, Last kafka.Offset
	Why         string // or what is in the file afterwards
	// Loses says that records may go with it, although good ones follow: it is
	// done only when that is allowed.
	Loses bool

	rank  int
	data  []byte   // new content of a small file
	spans []span   // of the .log that are kept
	syncs []string // directories whose files are made durable before
	key   string   // tells a second step for a file from the first; "" is the file
}

// String is the line of the plan.
func (s *Step) String() string {
	line := fmt.Sprintf("%s %s", s.Kind, s.File)
	if s.Kind == Truncate {
		line += fmt.Sprintf(" from %d to %d", s.From, s.To)
	}
	if s.From >= 0 {
		line += ": drops " + s.offsets()
		if s.Why != "" {
			line += ", " + s.Why
		}
		return line
	}
	if s.Why != "" {
		line += ": " + s.Why
	}
	return line
}

func (s *Step) offsets() string {
	switch {
	case s.First == kafka.NoOffset:
		return "no offsets"
	case s.Last == kafka.NoOffset:
		return fmt.Sprintf("offsets from %d on", s.First)
	}
	return fmt.Sprintf("offsets %d..%d", s.First, s.Last)
}

// Options say what is repaired and how far.
type Options struct {
	FS vfs.FS
	// Paths are data directories or partition directories.
	Paths []string
	// AllowDataLoss also does what takes records out of the log although good
	// ones follow.
	AllowDataLoss bool
	// Node says that Paths are all data directories of a node: a metadata log that
	// is lost is left, and told.
	Node bool
	// Parallel is how many partitions are checked at once; 0 is the number of processors.
	Parallel int
	// Progress is told of every check, as verify tells it. May be nil.
	Progress func(done, total int)
	// Done is told of each step that was taken. May be nil.
	Done func(s *Step)
}

// Plan is what would be done.
type Plan struct {
	Steps []Step
	// Held are steps that lose records and were not allowed to.
	Held []Step
	// Left are errors for which there is no step: what is lost cannot be told
	// from the files.
	Left []verify.Finding
}

// maxRounds bounds how often the result of the steps is checked again. A cut
// log makes snapshots and checkpoints wrong, and those nothing more.
const maxRounds = 8

// Make plans and writes nothing. An error is a path that cannot be read, or the
// context's.
func Make(ctx context.Context, o Options) (Plan, error) {
	p := &planner{o: o, view: newView(o.FS), at: map[string]int{}, held: map[string]bool{}, tried: map[string]bool{}, force: map[segmentKey]bool{}}
	for range maxRounds {
		r, err := verify.Check(ctx, verify.Options{FS: p.view, Paths: o.Paths, Node: o.Node, Parallel: o.Parallel, Progress: o.Progress})
		if err != nil {
			return Plan{}, err
		}
		before := p.changes
		if err := p.round(r.Findings); err != nil {
			return Plan{}, err
		}
		if p.changes == before {
			p.leave(r.Findings)
			break
		}
	}
	slices.SortStableFunc(p.plan.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.rank/100, b.rank/100), strings.Compare(filepath.Dir(a.File), filepath.Dir(b.File)), cmp.Compare(a.rank, b.rank),
			strings.Compare(a.File, b.File))
	})
	return p.plan, nil
}

// leave notes the errors that no step is for.
func (p *planner) leave(findings []verify.Finding) {
	for _, f := range findings {
		if f.Severity == verify.Error && !p.held[f.File] {
			p.plan.Left = append(p.plan.Left, f)
		}
	}
}

// ErrInUse is wrapped when a broker, or another repair, has the directory.
var ErrInUse = errors.New("the directory is in use")
