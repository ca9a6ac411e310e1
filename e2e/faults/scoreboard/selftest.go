package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// planted is a bug that a script must find, or with good a run that must pass.
type planted struct {
	what string
	s    script
	good bool
	long bool // not in the short self-test
	root bool
	says string // part of what it must say
}

// selfTest runs the planted bugs. A harness that does not see them shows nothing.
func (b *bench) selfTest(ctx context.Context, long bool) (int, error) {
	check := b.tool + " check"
	writer := func(flags ...string) []string { return append([]string{b.tool, "writer"}, flags...) }
	seed := fmt.Sprint(b.seed)
	loop := func(name, cycles, verify string, more ...string) script {
		s := script{name: name, flags: []string{"--cycles", cycles, "--seed", seed, "--verify", verify}, limit: 5 * time.Minute}
		s.flags = append(s.flags, more...)
		return s
	}
	with := func(s script, command []string, settings ...string) script {
		s.command, s.settings = command, settings
		return s
	}
	records := []string{"-records", "600", "-segment", "100000"}
	tests := []planted{
		{what: "killloop, correct writer", good: true, s: with(loop("killloop.sh", "10", check), writer())},
		{what: "killloop, acknowledged before written", s: with(loop("killloop.sh", "300", check), writer("-bug", "ack-first"))},
		{what: "powercut, correct writer", root: true, good: true, s: with(loop("powercut.sh", "6", check), writer())},
		{what: "powercut, no fsync", root: true, s: with(loop("powercut.sh", "10", check), writer("-sync=false"))},
		{what: "powercut, acknowledged before written", root: true, long: true, s: with(loop("powercut.sh", "200", check), writer("-bug", "ack-first"))},
		{what: "powercut, renamed without fsync", root: true, long: true, s: with(loop("powercut.sh", "200", check+" && "+b.tool+" writer -records 5", "--mount", "noauto_da_alloc"), writer("-segment", "100000", "-bug", "rename-nosync"))},
		{what: "powercut, the broker without a sync before its answer", root: true, says: `"lost":`, s: with(loop("powercut.sh", "10", b.check(), "--min-ms", "300", "--max-ms", "600"), b.broker("work"))},
		{what: "fulldisk, correct writer", root: true, good: true, s: with(loop("fulldisk.sh", "3", check), writer())},
		{what: "fulldisk, gives up", root: true, s: with(loop("fulldisk.sh", "3", check), writer("-bug", "enospc-exit"))},
		{what: "fulldisk, stores through a sparse map", root: true, s: with(loop("fulldisk.sh", "40", check), writer("-bug", "mmap-index")), says: "SIGBUS"},
		{what: "sweep, correct writer", good: true, s: script{name: "sysfault.sh", limit: 5 * time.Minute, flags: []string{"--sweep", "-faults", "EIO,ENOSPC,kill,torn,short", "-max", "4", "--verify", check}, command: writer(records...)}},
		{what: "sweep, a failed fsync tried again", says: "ran on", s: script{name: "sysfault.sh", limit: 5 * time.Minute, flags: []string{"--sweep", "-faults", "EIO", "-calls", "fsync,fdatasync", "-max", "10", "--verify", check}, command: writer("-records", "600", "-bug", "fsync-retry")}},
		{what: "sweep, acknowledged before written", s: script{name: "sysfault.sh", limit: 5 * time.Minute, flags: []string{"--sweep", "-faults", "kill,torn", "-max", "20", "--verify", check}, command: writer("-records", "600", "-bug", "ack-first")}},
		{what: "diskstate, no fsync", root: true, long: true, s: script{name: "diskstate.sh", limit: 5 * time.Minute, flags: []string{"--at", "500:dead", "--for", "1500", "--expect", "dead", "--verify", check}, command: writer("-sync=false")}},
		{what: "diskstate, correct writer", root: true, long: true, good: true, s: script{name: "diskstate.sh", limit: 5 * time.Minute, flags: []string{"--at", "500:dead", "--for", "1500", "--expect", "dead", "--verify", check}, command: writer()}},
		{what: "the witness: a record altered in the log", says: `"first"`, s: script{name: filepath.Join(b.scripts, "killloop.sh"), limit: time.Minute,
			flags:   []string{"--cycles", "2", "--min-ms", "800", "--max-ms", "900", "--seed", seed, "--verify", `sed -i 's/^ok \([0-9]*\) \([0-9]*\) /ok \1 1\2 /' "$FAULT_LOG/acked.acked"; ` + b.check()},
			command: b.broker("work")}},
	}
	missed := 0
	for _, t := range tests {
		if t.long && !long || ctx.Err() != nil {
			continue
		}
		if t.root && os.Geteuid() != 0 {
			fmt.Printf("self-test: %s: not planned without root\n", t.what)
			continue
		}
		res := b.script(ctx, t.s)
		want := 1
		if t.good {
			want = 0
		}
		state := "as it must be"
		if res.status != want || !strings.Contains(res.text, t.says) {
			state = fmt.Sprintf("WRONG: status %d, want %d\n%s\nagain: %s", res.status, want, tail(res.text, 2000), res.line)
			missed++
		}
		fmt.Printf("self-test: %s: %s\n", t.what, state)
	}
	if missed > 0 || ctx.Err() != nil {
		fmt.Printf("self-test: %d wrong: the harness is not to be believed\n", missed)
		return 1, nil
	}
	fmt.Println("self-test: every planted bug was found")
	return 0, nil
}
