// Package floor measures what the kernel, the processor and the Go runtime cost when nothing but the bare
// system calls of a commit log runs: no protocol, no metadata, no recovery. A broker's own figures are read
// as ratios to these, taken in the same run on the same machine.
package floor

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sort"
	"syscall"
	"time"
)

// group is one named set of measurements.
type group struct {
	name    string
	what    string
	seconds float64 // after which no further round begins
	run     func(*Env) error
}

func groups() []group {
	return []group{
		{"kernel", "system calls, page faults, mappings", 2, runKernel},
		{"crc", "CRC-32C, memory copy, record walk, log scan", 3, runCRC},
		{"append", "page-cache append", 5, runAppend},
		{"durable", "append followed by fdatasync", 4, runDurable},
		{"index", "sparse index lookup: warm, CPU-cold, page-cold", 6, runIndex},
		{"send", "fetch response: sendfile, pread+write, writev", 8, runSend},
		{"produce", "receive, CRC, append, acknowledge", 6, runProduce},
		{"rtt", "request and response, one at a time", 5, runRTT},
		{"wake", "append to delivery at waiting fetches", 2.5, runWake},
		{"cold", "cold file data and the Go scheduler", 3, runCold},
		{"tls", "fetch response through crypto/tls", 2, runTLS},
		{"conns", "memory of an idle connection", 2, runConns},
		{"start", "exec to first response, resident memory", 3, runStart},
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: floor [-dir DIR] [-rounds N] [-json FILE] all | GROUP…")
	for _, g := range groups() {
		fmt.Fprintf(os.Stderr, "  %-8s %s\n", g.name, g.what)
	}
	flag.PrintDefaults()
}

// Main is the command of its own, ./cmd/floor.
func Main() {
	dir := flag.String("dir", "", "folder for the data files, on the file system to measure (default: a temporary one)")
	rounds := flag.Int("rounds", 3, "interleaved rounds of each measurement; fewer where a group's time is over")
	out := flag.String("json", "", "also write the figures to this file, as JSON")
	flag.Usage = usage
	flag.Parse()
	if flag.NArg() == 0 {
		usage()
		os.Exit(2)
	}
	if err := measure(*dir, *rounds, *out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func measure(dir string, rounds int, out string, names []string) (err error) {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp(dir, "floor-")
	if err != nil {
		return err
	}
	defer func() {
		if e := os.RemoveAll(work); err == nil {
			err = e
		}
	}()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		_ = os.RemoveAll(work) // the children end when their pipe closes
		os.Exit(130)
	}()
	debug.SetGCPercent(400)
	e, err := NewEnv(work, rounds)
	if err != nil {
		return err
	}
	e.PrintFacts()
	start := time.Now()
	for _, g := range chosen {
		fmt.Printf("\n%s: %s\n", g.name, g.what)
		begin := time.Now()
		e.Deadline = begin.Add(time.Duration(g.seconds * float64(time.Second)))
		if err := g.run(e); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		e.Seconds[g.name] = time.Since(begin).Seconds()
		runtime.GC()
	}
	e.PrintRatios()
	fmt.Printf("\nelapsed %.1f s\n", time.Since(start).Seconds())
	if out != "" {
		return e.WriteJSON(out)
	}
	return nil
}

func choose(names []string) ([]group, error) {
	all := groups()
	if len(names) == 1 && names[0] == "all" {
		return all, nil
	}
	var chosen []group
	for _, n := range names {
		found := false
		for _, g := range all {
			if g.name == n {
				chosen, found = append(chosen, g), true
			}
		}
		if !found {
			return nil, fmt.Errorf("no group named %q", n)
		}
	}
	return chosen, nil
}

// writeJSON writes every figure by key, for a benchmark that puts its own figures beside them.
func (e *Env) WriteJSON(name string) error {
	type figure struct {
		Key    string  `json:"key"`
		Unit   string  `json:"unit"`
		Median float64 `json:"median"`
		Min    float64 `json:"min"`
		Max    float64 `json:"max"`
	}
	doc := struct {
		Facts   map[string]string  `json:"facts"`
		Seconds map[string]float64 `json:"seconds"`
		Figures []figure           `json:"figures"`
	}{e.Facts, e.Seconds, nil}
	keys := make([]string, 0, len(e.Figures))
	for k := range e.Figures {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	for _, k := range keys {
		f := e.Figures[k]
		lo, hi := Extremes(f.Samples)
		doc.Figures = append(doc.Figures, figure{k, f.Unit, Median(f.Samples), lo, hi})
	}
	b, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Clean(name), append(b, '\n'), 0o644)
}
