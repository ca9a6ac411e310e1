// Scoreboard runs the fault harness and prints what it found: one JSON line a
// row in a file, and a table at the end with seeds and the command that runs a
// row again. A row is green when everything planned was done without a
// violation; a planned row that could not run is not.
//
// Rows on a memory disk run through the tests of internal/sim; the others put
// the real binary under the scripts of the folder above.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Line is a row of the scoreboard.
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
	Detail     map[string]any `json:"detail"`
}

func (l *Line) green() bool {
	return l.Skipped == "" && l.Violations == 0 && l.Planned > 0 && l.Done >= l.Planned
}

// bench holds what all rows share.
type bench struct {
	root    string // of the checkout
	scripts string
	varve   string
	tool    string // faulttool
	client  string // ackclient
	seams   string // varve with the seams of faults, empty when no row needs it
	sim     string // test binary of internal/sim, empty when no row needs it
	commit  string
	scale   string
	percent int
	seed    uint64
	out     string
	keep    string // evidence of failures
	work    string // temporary
}

func main() {
	b := &bench{}
	flag.StringVar(&b.scale, "scale", "short", "short: minutes, for every change | long: hours, for the night")
	rows := flag.String("rows", "", "names with commas; empty: all that this environment plans")
	flag.Uint64Var(&b.seed, "seed", 0, "seed of every choice; 0: of the day")
	flag.StringVar(&b.out, "out", "", "file the JSON lines are appended to (bin/faults.jsonl)")
	flag.StringVar(&b.keep, "keep", "", "directory for what failures leave (bin/faults-kept)")
	flag.StringVar(&b.varve, "varve", "", "binary under test; empty: build it")
	flag.IntVar(&b.percent, "percent", 100, "do so much of the counts, to try the harness itself")
	self := flag.String("self-test", "", "run planted bugs, which must be found: short or long")
	list := flag.Bool("list", false, "list the rows")
	flag.Parse()
	if flag.NArg() > 0 || b.scale != "short" && b.scale != "long" || b.percent < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if *list {
		for _, r := range allRows() {
			fmt.Printf("%-14s %s\n", r.name, r.what)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code, err := b.main(ctx, *rows, *self)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(2)
	}
	os.Exit(code)
}

// main returns the exit status: 0 all green, 1 not.
func (b *bench) main(ctx context.Context, rows, self string) (int, error) {
	planned, err := plan(rows, os.Geteuid() == 0)
	if err != nil {
		return 0, err
	}
	if b.seed == 0 {
		year, month, day := time.Now().Date()
		b.seed = uint64(year*10000 + int(month)*100 + day)
	}
	if self != "" {
		planned = nil
	}
	if err := b.prepare(ctx, planned); err != nil {
		return 0, err
	}
	defer os.RemoveAll(b.work)
	if self != "" {
		return b.selfTest(ctx, self == "long")
	}
	environment := "root"
	if os.Geteuid() != 0 {
		environment = "user: rows that need root are not planned"
	} else if _, err := os.Stat("/dev/fuse"); err != nil {
		environment = "root, without /dev/fuse: row fuse is not planned"
	}
	fmt.Printf("faults: scale %s, seed %d, commit %s, as %s\n", b.scale, b.seed, b.commit, environment)
	var lines []Line
	for _, p := range planned {
		if ctx.Err() != nil {
			break
		}
		lines = append(lines, b.row(ctx, p))
	}
	if len(lines) < len(planned) {
		fmt.Println("faults: stopped before the end")
	}
	if b.table(lines) && len(lines) == len(planned) {
		return 0, nil
	}
	return 1, nil
}

// prepare finds the checkout and builds what the planned rows need.
func (b *bench) prepare(ctx context.Context, planned []row) error {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("not inside the checkout: %w", err)
	}
	b.root = strings.TrimSpace(string(out))
	b.scripts = filepath.Join(b.root, "e2e", "faults")
	if out, err = exec.CommandContext(ctx, "git", "-C", b.root, "describe", "--always", "--dirty").Output(); err != nil {
		return fmt.Errorf("name the commit: %w", err)
	}
	b.commit = strings.TrimSpace(string(out))
	if b.out == "" {
		b.out = filepath.Join(b.root, "bin", "faults.jsonl")
	}
	if b.keep == "" {
		b.keep = filepath.Join(b.root, "bin", "faults-kept")
	}
	if b.out, err = filepath.Abs(b.out); err != nil {
		return err
	}
	if b.keep, err = filepath.Abs(b.keep); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(b.out), 0o755); err != nil {
		return err
	}
	if b.work, err = os.MkdirTemp("", "varve-faults."); err != nil {
		return err
	}
	build := func(dir, name, pkg string) (string, error) {
		path := filepath.Join(b.work, name)
		return path, b.build(ctx, dir, "build", "-o", path, pkg)
	}
	if b.varve == "" {
		if b.varve, err = build(b.root, "varve", "./cmd/varve"); err != nil {
			return err
		}
	} else if b.varve, err = filepath.Abs(b.varve); err != nil {
		return err
	}
	tools := filepath.Join(b.work, "tools")
	for _, name := range []string{"faulttool", "ackclient", "fusefault"} {
		if err := b.build(ctx, filepath.Join(b.scripts, name), "build", "-o", filepath.Join(tools, name), "."); err != nil {
			return err
		}
	}
	b.tool, b.client = filepath.Join(tools, "faulttool"), filepath.Join(tools, "ackclient")
	for _, p := range planned {
		switch {
		case p.run == nil && b.sim == "":
			b.sim = filepath.Join(b.work, "sim.test")
			err = b.build(ctx, b.root, "test", "-c", "-o", b.sim, "./internal/sim")
		case p.name == "clock":
			b.seams = filepath.Join(b.work, "varve-seams")
			err = b.build(ctx, b.root, "build", "-tags", "faults", "-o", b.seams, "./cmd/varve")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) build(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// row runs one row and appends its line to the file.
func (b *bench) row(ctx context.Context, p row) Line {
	began := time.Now()
	r := &run{bench: b, ctx: ctx, line: Line{Row: p.name, Commit: b.commit, Seed: b.seed, Detail: map[string]any{}}}
	fmt.Printf("\n--- %s: %s\n", p.name, p.what)
	if p.run == nil {
		r.inProcess(p.name)
	} else {
		p.run(r)
		r.line.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
		if err := appendLine(b.out, &r.line); err != nil {
			r.violation("the line cannot be written: %v", err)
		}
	}
	state := "green"
	if !r.line.green() {
		state = "NOT GREEN"
	}
	fmt.Printf("%s: %s, %d of %d, %d violations, %.0f s %s\n", p.name, state, r.line.Done, r.line.Planned, r.line.Violations, r.line.Seconds, r.line.Skipped)
	return r.line
}

func appendLine(name string, l *Line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}

// table prints the scoreboard and reports whether every row is green.
func (b *bench) table(lines []Line) bool {
	fmt.Printf("\n%-14s %9s %9s %10s %10s %8s  %s\n", "row", "planned", "done", "violations", "acked", "seconds", "figures")
	all, acked, bad := true, 0, 0
	for i := range lines {
		l := &lines[i]
		detail, err := json.Marshal(l.Detail)
		if err != nil {
			detail = []byte(err.Error())
		}
		note := string(detail)
		if !l.green() {
			all = false
			note = "NOT GREEN " + l.Skipped + " " + note
		}
		acked += l.Acked
		bad += l.Violations
		fmt.Printf("%-14s %9d %9d %10d %10d %8.1f  %s\n", l.Row, l.Planned, l.Done, l.Violations, l.Acked, l.Seconds, note)
	}
	fmt.Printf("%-14s %9s %9s %10d %10d  records judged by an outside witness or a model\n", "history", "", "", bad, acked)
	for i := range lines {
		if l := &lines[i]; !l.green() {
			fmt.Printf("again: cd e2e && go run ./faults/scoreboard -scale %s -rows %s -seed %d\n", b.scale, l.Row, l.Seed)
		}
	}
	if !all {
		fmt.Printf("what failures left: %s\n", b.keep)
	}
	return all && len(lines) > 0
}

// inProcess runs a row of internal/sim; it appends its line itself.
func (r *run) inProcess(name string) {
	before, err := os.ReadFile(r.out)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.violation("%v", err)
		return
	}
	cmd := exec.CommandContext(r.ctx, r.sim, "-test.run", "^TestRow$/^"+name+"$", "-test.timeout", "3h",
		"-faults.scale="+r.scale, fmt.Sprintf("-faults.seed=%d", r.seed), "-faults.out="+r.out, "-faults.keep="+r.keep)
	cmd.Dir = filepath.Join(r.root, "internal", "sim")
	cmd.Env = append(os.Environ(), "FAULTS_COMMIT="+r.commit)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	failed := cmd.Run()
	after, err := os.ReadFile(r.out)
	var line Line
	if err == nil && len(after) > len(before) {
		lines := strings.Split(strings.TrimSpace(string(after[len(before):])), "\n")
		err = json.Unmarshal([]byte(lines[len(lines)-1]), &line)
	}
	if err == nil && line.Row == name {
		r.line = line
	} else {
		r.line.Skipped = "no line was written"
	}
	if failed != nil {
		io.WriteString(os.Stdout, text.String())
		if r.line.Violations == 0 {
			r.violation("internal/sim: %v", failed)
		}
	}
}
