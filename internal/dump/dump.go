// Package dump prints the files of a Kafka data directory as kafka-dump-log
// (DumpLogSegments of Apache Kafka 4.4.0) prints them: .log, .index,
// .timeindex, .txnindex, .snapshot and .checkpoint, with the decoders of the
// internal topics.
//
// Before it on the path: internal/cli, which calls Main for `varve dump-log`
// and the alias kafka-dump-log. It reads through vfs only and never writes.
package dump

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/vfs"
)

// KafkaVersion is the release whose output this package has.
const KafkaVersion = "4.4.0"

// Main runs kafka-dump-log with the arguments behind its name and returns the
// exit status: 0, or 1 after an error or the help. Relative paths are below
// the working directory.
func Main(args []string, stdout, stderr io.Writer) int {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	t := Tool{FS: vfs.Following(), Dir: dir, Version: buildVersion(), Stdout: stdout, Stderr: stderr}
	return t.Run(args)
}

func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// Tool is kafka-dump-log on a given disk.
type Tool struct {
	FS      vfs.FS
	Dir     string // absolute; Kafka prints absolute paths in its findings
	Version string // of the product, for --version
	Stdout  io.Writer
	Stderr  io.Writer

	opts *options
	out  *bufio.Writer
	at   string // the file that is being dumped

	// Findings are printed after all files, by absolute path.
	indexMismatch  findings
	timeMismatch   findings
	timeOrder      findings
	offsetNotFound findings
	gaps           findings
}

// pair is the two numbers of a finding.
type pair struct{ a, b int64 }

type findings map[string][]pair

func (f *findings) add(path string, p pair) {
	if *f == nil {
		*f = findings{}
	}
	(*f)[path] = append((*f)[path], p)
}

// Run is Main on the tool's disk.
func (t *Tool) Run(args []string) int {
	t.out = bufio.NewWriterSize(t.Stdout, 64<<10)
	err := t.run(args)
	if flushErr := t.out.Flush(); err == nil && flushErr != nil {
		fmt.Fprintf(t.Stderr, "write: %v\n", flushErr)
		return 1
	}
	if err == nil {
		return 0
	}
	var usage *usageError
	if errors.As(err, &usage) {
		fmt.Fprintln(t.Stderr, usage.message)
		printHelp(t.Stderr)
	} else {
		fmt.Fprintf(t.Stderr, "Exception in thread \"main\" %v\n", err)
	}
	return 1
}

// Failure is why Dump ended before its end, without Java's names.
type Failure struct {
	File string // empty when the arguments are wrong
	Why  string
}

// Error is what the user sees.
func (f *Failure) Error() string {
	if f.File == "" {
		return f.Why
	}
	return f.File + ": " + f.Why
}

// Dump is Run for who does not want the words of a JVM: what ends it is
// returned, a *Failure, and not printed.
func (t *Tool) Dump(args []string) error {
	t.out = bufio.NewWriterSize(t.Stdout, 64<<10)
	err := t.run(args)
	if flushErr := t.out.Flush(); err == nil && flushErr != nil {
		return &Failure{Why: "write: " + flushErr.Error()}
	}
	if err == nil {
		return nil
	}
	f := &Failure{File: t.at, Why: err.Error()}
	var java *javaError
	if errors.As(err, &java) {
		f.Why = java.plain()
	}
	return f
}

// plain says what an exception says in words.
func (e *javaError) plain() string {
	switch e.class {
	case "java.nio.file.NoSuchFileException":
		return e.message + ": no such file"
	case "java.nio.file.AccessDeniedException":
		return e.message + ": permission denied"
	case "java.nio.BufferUnderflowException":
		return "a record ends before its fields do"
	case "java.util.NoSuchElementException":
		return "no batch is where the index points"
	case "java.lang.NumberFormatException":
		return "the name does not begin with an offset: " + e.message
	}
	return e.message
}

func (t *Tool) run(args []string) error {
	opts, err := parseOptions(args)
	if err != nil {
		return err
	}
	t.opts = opts
	switch {
	case opts.help:
		return &usageError{"Prints the content of log segments, indexes and snapshots, for looking into a log that seems damaged."}
	case opts.version:
		fmt.Fprintf(t.out, "%s (varve %s)\n", KafkaVersion, t.Version)
		return nil
	}
	for _, name := range opts.files {
		t.at = name
		fmt.Fprintf(t.out, "Dumping %s\n", name)
		if err := t.file(name); err != nil {
			return err
		}
	}
	if err := t.out.Flush(); err != nil { // what is found comes after what is printed
		return err
	}
	t.printFindings()
	return nil
}

func (t *Tool) file(name string) error {
	switch filepath.Ext(name) {
	case ".log", ".checkpoint":
		return t.log(name)
	case ".index":
		return t.offsetIndex(name)
	case ".timeindex":
		return t.timeIndex(name)
	case ".txnindex":
		return t.txnIndex(name)
	case ".snapshot":
		return t.snapshot(name)
	}
	fmt.Fprintf(t.Stderr, "Ignoring unknown file %s\n", name)
	return nil
}

// printFindings writes what was wrong with each file, files sorted by path.
func (t *Tool) printFindings() {
	t.print(t.indexMismatch, "Mismatches in :", "  Index offset: %d, log offset: %d\n", byFirst(-1))
	t.print(t.timeMismatch, "Found timestamp mismatch in :", "  Index timestamp: %d, log timestamp: %d\n", nil)
	t.print(t.timeOrder, "Found out of order timestamp in :", "  Index timestamp: %d, Previously indexed timestamp: %d\n", nil)
	t.print(t.offsetNotFound, "The following indexed offsets are not found in :", "Indexed offset: %d, found log offset: %d\n", nil)
	t.print(t.gaps, "Non-consecutive offsets in ", "  %d is followed by %d\n", byFirst(1))
}

// byFirst sorts as Kafka's tree maps do: by the first number, of which the
// last entry counts.
func byFirst(sign int) func([]pair) []pair {
	return func(pairs []pair) []pair {
		slices.SortStableFunc(pairs, func(x, y pair) int {
			switch {
			case x.a < y.a:
				return -sign
			case x.a > y.a:
				return sign
			}
			return 0
		})
		kept := pairs[:0]
		for i, p := range pairs {
			if i+1 == len(pairs) || pairs[i+1].a != p.a {
				kept = append(kept, p)
			}
		}
		return kept
	}
}

func (t *Tool) print(found findings, title, line string, order func([]pair) []pair) {
	paths := make([]string, 0, len(found))
	for path := range found {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		pairs := found[path]
		if order != nil {
			pairs = order(pairs)
		}
		fmt.Fprintf(t.Stderr, "%s%s\n", title, path)
		for _, p := range pairs {
			fmt.Fprintf(t.Stderr, line, p.a, p.b)
		}
	}
}

// absolute is java.io.File.getAbsolutePath, which does not clean the path.
func (t *Tool) absolute(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return t.Dir + "/" + name
}

// sibling is the file of the same segment with another extension.
func (t *Tool) sibling(name, ext string) string {
	abs := t.absolute(name)
	base, _, _ := strings.Cut(filepath.Base(abs), ".")
	return filepath.Dir(abs) + "/" + base + ext
}

// javaError is an exception as the JVM prints it.
type javaError struct{ class, message string }

func (e *javaError) Error() string {
	if e.message == "" {
		return e.class
	}
	return e.class + ": " + e.message
}

// javaIOError is the exception that Java throws for an error of the disk.
func javaIOError(name string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &javaError{"java.nio.file.NoSuchFileException", name}
	case errors.Is(err, fs.ErrPermission):
		return &javaError{"java.nio.file.AccessDeniedException", name}
	}
	return &javaError{"java.io.IOException", err.Error()}
}
