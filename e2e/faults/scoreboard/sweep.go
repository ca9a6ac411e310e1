package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// prepared makes a directory with a topic in it and the acknowledgements for
// it, left by a clean stop or by a kill, and returns the shell line that copies
// both to where a case works.
func (r *run) prepared(clean bool, settings []string) (setup string, err error) {
	dir, log, err := r.dirs()
	if err != nil {
		return "", err
	}
	v, err := r.start(dir, log, script{settings: settings})
	if err != nil {
		return "", err
	}
	if res := r.ack(v, time.Minute, "produce", "-strict", "-records", "300"); res.status != 0 {
		v.kill()
		return "", fmt.Errorf("prepare a directory: status %d: %s", res.status, res.text)
	}
	if !clean {
		v.kill()
	} else if status := v.stop(10 * time.Second); status != 0 {
		return "", fmt.Errorf("prepare a directory: the broker ended with %d\n%s", status, v.tail())
	}
	return fmt.Sprintf(`cp -a %s/. "$FAULT_DIR" && cp %s/acked.acked "$FAULT_LOG"`, dir, log), nil
}

// sweeping is one sweep over a command.
type sweeping struct {
	faults, calls string
	survive       string
	fatal         string // calls whose failure must end it; empty: fsync, fdatasync
	setup         string
	command       []string
	max           int
	base          string
}

// sweep runs it and counts its runs.
func (r *run) sweep(w sweeping, settings []string, i int) {
	keep := r.kept("sweep")
	if err := os.MkdirAll(keep, 0o755); err != nil {
		r.violation("%v", err)
		return
	}
	s := script{name: "sysfault.sh", settings: settings, command: w.command, env: []string{"READY_S=20"}}
	s.flags = []string{"--sweep", "-faults", w.faults, "-max", fmt.Sprint(w.max), "-seed", fmt.Sprint(r.seed + uint64(i)), "-timeout", "60s", "-keep", keep, "--verify", r.check()}
	for _, f := range [][2]string{{"-calls", w.calls}, {"-survive", w.survive}, {"-fatal", w.fatal}, {"-setup", w.setup}, {"-base", w.base}} {
		if f[1] != "" {
			s.flags = append(s.flags, f[0], f[1])
		}
	}
	res := r.judge(s, 0, "runs")
	if entries, err := os.ReadDir(keep); err == nil && len(entries) == 0 {
		os.Remove(keep)
	}
	if res.status == 2 || res.status == statusHung {
		return
	}
	r.plan(res.number("runs"))
	r.count("injected", float64(res.number("injected")))
	for _, group := range []string{"by_fault", "outcomes"} {
		figures, _ := res.report[group].(map[string]any)
		for name, n := range figures {
			n, _ := n.(float64)
			r.count(strings.ReplaceAll(name, " ", "-"), n)
		}
	}
	if res.number("runs") == 0 {
		r.violation("the sweep of %s did nothing: %s", w.faults, res.line)
	}
}

// sweepBinary fails calls of a producing broker on a directory that is there,
// of its first start, and of its recovery.
func sweepBinary(r *run) {
	clean, err := r.prepared(true, synced)
	if err != nil {
		r.violation("%v", err)
		return
	}
	dead, err := r.prepared(false, synced)
	if err != nil {
		r.violation("%v", err)
		return
	}
	work := r.broker("work", "-records", "200", "-rate", "0")
	recover := r.broker("check")
	few := r.of(3, 60)
	var parts []func()
	for i, w := range []sweeping{
		{faults: "EIO,kill,torn", setup: clean, command: work, max: few},
		{faults: "ENOSPC,EDQUOT,EMFILE", setup: clean, command: work, max: few},
		{faults: "EINTR,short", survive: "EINTR", fatal: "none", setup: clean, command: work, max: few},
		{faults: "EIO,kill,torn,short,ENOSPC,EMFILE", setup: dead, command: recover, max: few},
		{faults: "kill,torn,ENOSPC", command: work, max: few},
	} {
		parts = append(parts, func() { r.sweep(w, synced, i) })
	}
	parallel(parts...)
}

// fsyncBinary fails the syncs of data, indexes, checkpoints and directories.
func fsyncBinary(r *run) {
	clean, err := r.prepared(true, synced)
	if err != nil {
		r.violation("%v", err)
		return
	}
	n := r.of(13, 250)
	parallel(
		func() {
			r.sweep(sweeping{faults: "EIO,ENOSPC", calls: "fsync,fdatasync,msync,sync_file_range", setup: clean, command: r.broker("work", "-records", "100", "-rate", "0"), max: n}, synced, 0)
		},
		func() {
			r.sweep(sweeping{faults: "EIO,EDQUOT", calls: "fsync,fdatasync,msync,sync_file_range", command: r.broker("work", "-records", "100", "-rate", "0"), max: n}, synced, 1)
		},
	)
}

// fuse serves the directory from a file system that fails by rule.
func fuse(r *run) {
	setup, err := r.prepared(true, small)
	if err != nil {
		r.violation("%v", err)
		return
	}
	kinds := []struct {
		rules []string
		evict string
	}{
		{[]string{"op=read,file=*.index,error=EIO,prob=0.2"}, "100ms"},
		{[]string{"op=read,file=*.timeindex,error=EIO,prob=0.2"}, "50ms"},
		{[]string{"op=read,file=*.log,flip,prob=0.02,after=1s"}, "100ms"},
		{[]string{"op=read,file=*.log,error=EIO,prob=0.05,after=1s"}, "100ms"},
		{[]string{"op=fsync,file=*.log,error=EIO,nth=3"}, "0"},
		{[]string{"op=write,file=*.log,error=EIO,nth=30"}, "0"},
	}
	n := r.of(1, 20)
	var parts []func()
	for i, k := range kinds {
		for j := range n {
			r.plan(1)
			parts = append(parts, func() {
				s := script{name: "fusefault.sh", settings: synced, limit: 2 * time.Minute, command: []string{"bash", "-c",
					// A reader beside the producer: what it reads may fail, and must be right.
					strings.Join(r.broker("work", "-rate", "500"), " ") + ` & p=$!; trap 'kill -TERM $p; wait $p' TERM; while kill -0 $p 2>/dev/null; do ` +
						r.client + ` verify -addr 127.0.0.1:$PORT -wait 3s >>"$FAULT_LOG/reader.log" 2>&1; sleep 0.2; done; wait $p`}}
				for _, rule := range k.rules {
					s.flags = append(s.flags, "--rule", rule)
				}
				s.flags = append(s.flags, "--evict", k.evict, "--for", "4000", "--seed", fmt.Sprint(r.seed+uint64(100*j+i)), "--setup", setup, "--keep", r.kept("fuse"), "--verify", r.check())
				res := r.script(r.ctx, s)
				failed := res.number("failed") != 0 || res.report == nil
				text := strings.ToLower(res.text)
				switch {
				case res.status == 77:
					r.skip(lastLine(res.text))
					return
				case failed || strings.Contains(text, "sigbus") || strings.Contains(text, "panic: ") || strings.Contains(text, "fatal error: "):
					r.violation("%v: status %d\n%s\nagain: %s", k.rules, res.status, tail(res.text, 2000), res.line)
				default:
					r.done(1, res.acked())
				}
			})
		}
	}
	parallel(parts...)
}

// stops: a clean stop is status 0 and leaves nothing to recover; a stop that a
// kill cuts short is a kill.
func stops(r *run) {
	n := r.of(60, 2_000)
	loop := r.of(20, 1_000)
	r.plan(1)
	// Nothing temporary may pile up over the restarts.
	tidy := r.check() + ` && ! find "$FAULT_DIR" -name '*.tmp' -o -name '*.cleaned' -o -name '*.swap' -o -name '*.deleted' -o -name '*.cut*' | grep .` +
		` && [ "$(find "$FAULT_DIR" -name '*.snapshot' -path '*/acked-*' | wc -l)" -le "$(($(find "$FAULT_DIR" -name '*.log' -path '*/acked-*' | wc -l) * 2 + 6))" ]`
	// SIGTERM counts from the moment on that broker.sh handles it.
	ready := []string{"--ready", `test -e "$FAULT_LOG/begun.$FAULT_CYCLE"`, "--ready-ms", "20000"}
	var parts []func()
	add := func(cycles int, signal, most, verify string, work ...string) {
		for _, n := range chunks(cycles, 1) {
			r.plan(n)
			seed := r.seed + uint64(len(parts))
			parts = append(parts, func() {
				flags := append([]string{"--signal", signal, "--cycles", fmt.Sprint(n), "--seed", fmt.Sprint(seed), "--max-ms", most, "--keep", r.kept("stops"), "--verify", verify}, ready...)
				res := r.judge(script{name: "killloop.sh", settings: small, flags: flags, command: r.broker(append([]string{"work"}, work...)...)}, 0, "kills")
				r.done(res.number("clean_stops"), 0)
				r.count("clean", float64(res.number("clean_stops")))
				r.count("killed", float64(res.number("kills")))
			})
		}
	}
	add(max(1, n/2), "TERM", "300", tidy)
	add(max(1, n/2), "mixed", "200", r.check())
	add(loop, "KILL", "1000", tidy, "-rate", "200")
	parallel(append(parts, func() { secondSignal(r) })...)
}

// secondSignal sends SIGTERM twice to a broker whose stop takes long, since its syncs do.
func secondSignal(r *run) {
	dir, log, err := r.dirs()
	if err != nil {
		r.violation("%v", err)
		return
	}
	v, err := r.start(dir, log, script{name: "sysfault.sh", flags: []string{"-calls", "fdatasync,fsync", "-base", "*-checkpoint*", "-fault", "delay=5s"}})
	if err != nil {
		r.violation("%v", err)
		return
	}
	defer os.RemoveAll(filepath.Dir(dir))
	defer v.kill()
	res := r.ack(v, time.Minute, "produce", "-strict", "-records", "100")
	if res.status != 0 {
		r.violation("produce: status %d: %s\n%s", res.status, res.text, v.tail())
		return
	}
	for range 2 {
		if err := killPid(v.pid, "TERM"); err != nil {
			r.violation("SIGTERM: %v: %s\n%s", err, v.state(), v.tail())
			return
		}
		time.Sleep(1200 * time.Millisecond)
	}
	select {
	case <-v.end:
	case <-time.After(10 * time.Second):
	}
	if !v.ended() || v.cmd.ProcessState.ExitCode() != 143 || !v.logged("stop-forced") {
		r.violation("after a second SIGTERM: %s, want exit 143 at once and stop-forced\n%s", v.state(), v.tail())
		return
	}
	r.done(1, 0)
}
