// Command mutants plants one deliberate fault after the other into a copy of
// the sources and runs the tests that must notice it. A fault that no test
// notices is a hole in the tests.
//
// It reads mutants.txt beside it; see there for the form. Run by `make mutants`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mutant is one deliberate fault.
type mutant struct {
	id       int
	name     string
	file     string
	old, new string
	packages []string
}

// result is what became of a mutant.
type result struct {
	caught  bool
	by      string // the first test that failed
	seconds float64
	err     error // the fault could not be tried
}

func main() {
	root := flag.String("root", "..", "root of the sources")
	list := flag.String("list", "mutants/mutants.txt", "the faults")
	only := flag.String("only", "", "ids to try, such as 3,7; empty for all")
	some := flag.Int("some", 0, "try this many, others each day; 0 for all")
	need := flag.Int("need", 0, "fail when fewer are caught; 0 for all but two")
	limit := flag.Duration("limit", 5*time.Minute, "time for the tests of one fault")
	flag.Parse()
	if err := run(*root, *list, *only, *some, *need, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(root, list, only string, some, need int, limit time.Duration) error {
	raw, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	all, err := parse(string(raw))
	if err != nil {
		return fmt.Errorf("%s: %w", list, err)
	}
	if only != "" {
		var ids []int
		for _, s := range strings.Split(only, ",") {
			id, err := strconv.Atoi(strings.TrimSpace(s))
			if err != nil {
				return fmt.Errorf("-only %q: want ids such as 3,7", only)
			}
			ids = append(ids, id)
		}
		all = slices.DeleteFunc(all, func(m mutant) bool { return !slices.Contains(ids, m.id) })
	}
	if some > 0 && some < len(all) {
		from := time.Now().YearDay() * some % len(all)
		all = append(all[from:len(all):len(all)], all...)[:some]
		need = some
	}
	if len(all) == 0 {
		return errors.New("no fault to try")
	}
	dir, err := os.MkdirTemp("", "mutants-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := copySources(root, dir); err != nil {
		return err
	}
	if need == 0 {
		need = max(len(all)-2, 1)
	}
	if err := baseline(dir, all, limit); err != nil {
		return err
	}
	caught, broken := 0, 0
	for _, m := range all {
		r := try(dir, &m, limit)
		verdict := "MISSED"
		switch {
		case r.err != nil:
			verdict = "CANNOT BE TRIED: " + r.err.Error()
			broken++
		case r.caught:
			verdict = "caught by " + r.by
			caught++
		}
		fmt.Printf("%2d  %-62s %6.1f s  %s\n", m.id, m.name, r.seconds, verdict)
	}
	fmt.Printf("%d faults, %d caught, %d missed\n", len(all), caught, len(all)-caught-broken)
	if broken > 0 {
		return fmt.Errorf("%d faults could not be tried; put mutants.txt right", broken)
	}
	if caught < need {
		return fmt.Errorf("%d caught, want %d", caught, need)
	}
	return nil
}

// parse reads blocks that are separated by empty lines: a line `ID NAME`, a line
// `file PATH`, lines `-OLD` and `+NEW` of text that is replaced as it stands,
// and a line `test PACKAGE…`. Lines with # in front are comments.
func parse(text string) (all []mutant, err error) {
	for n, block := range regexp.MustCompile(`\n{2,}`).Split(strings.TrimSpace(text), -1) {
		var m mutant
		var olds, news []string
		for _, line := range strings.Split(block, "\n") {
			switch {
			case strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "-"):
				olds = append(olds, line[1:])
			case strings.HasPrefix(line, "+"):
				news = append(news, line[1:])
			case strings.HasPrefix(line, "file "):
				m.file = strings.TrimSpace(line[5:])
			case strings.HasPrefix(line, "test "):
				m.packages = strings.Fields(line[5:])
			default:
				id, name, _ := strings.Cut(line, " ")
				if m.id, err = strconv.Atoi(id); err != nil {
					return nil, fmt.Errorf("block %d: line %q", n+1, line)
				}
				m.name = name
			}
		}
		if m.id == 0 && len(olds) == 0 {
			continue // comments alone
		}
		m.old, m.new = strings.Join(olds, "\n"), strings.Join(news, "\n")
		if m.id == 0 || m.file == "" || m.old == "" || m.old == m.new || len(m.packages) == 0 {
			return nil, fmt.Errorf("block %d (%s): want a name, a file, old and new text, and tests", n+1, m.name)
		}
		all = append(all, m)
	}
	return all, nil
}

// copySources copies what git knows of.
func copySources(root, dir string) error {
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	raw, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed, and not committed yet
	}
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, raw, info.Mode().Perm())
}

// baseline runs the tests on the sources as they are: a test that fails without
// a fault would take the credit for every one.
func baseline(dir string, all []mutant, limit time.Duration) error {
	var packages []string
	for _, m := range all {
		packages = append(packages, m.packages...)
	}
	slices.Sort(packages)
	ctx, cancel := context.WithTimeout(context.Background(), 3*limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1"}, slices.Compact(packages)...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tests fail without a fault: %w\n%s", err, out)
	}
	return nil
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// try plants one fault, runs its tests and takes it out again.
func try(dir string, m *mutant, limit time.Duration) (r result) {
	name := filepath.Join(dir, m.file)
	raw, err := os.ReadFile(name)
	if err != nil {
		return result{err: err}
	}
	if n := strings.Count(string(raw), m.old); n != 1 {
		return result{err: fmt.Errorf("the old text is %d times in %s, want once", n, m.file)}
	}
	defer func() { r.err = errors.Join(r.err, os.WriteFile(name, raw, 0o644)) }()
	if err := os.WriteFile(name, []byte(strings.Replace(string(raw), m.old, m.new, 1)), 0o644); err != nil {
		return result{err: err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	build := exec.CommandContext(ctx, "go", append([]string{"vet"}, m.packages...)...)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		return result{err: fmt.Errorf("it does not build: %s", firstLines(out))}
	}
	test := exec.CommandContext(ctx, "go", append([]string{"test", "-count=1", "-failfast", "-timeout", "4m"}, m.packages...)...)
	test.Dir = dir
	out, err := test.CombinedOutput()
	r.seconds = time.Since(began).Seconds()
	if err == nil {
		return r
	}
	r.caught = true
	r.by = "a panic or the time limit"
	if f := failedTest.FindSubmatch(out); f != nil {
		r.by = string(f[1])
	}
	return r
}

func firstLines(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[:min(len(lines), 3)], "; ")
}
