package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// allRows lists the rows in the order they run.
func allRows() []row {
	return []row{
		{name: "kill", what: "SIGKILL at random moments and inside recovery, idempotent producers, acks=all", run: kill},
		{name: "cuts", what: "power cuts on ext4 and XFS, synced and unsynced mode", root: true, run: cuts},
		{name: "states", what: "crash after every file operation, any subset of what was not synced"},
		{name: "tails", what: "the tail of a log cut at every byte"},
		{name: "flips", what: "every bit of a small directory"},
		{name: "damage", what: "random damage to whole directories"},
		{name: "sweep-in-process", what: "every file operation fails, on a memory disk"},
		{name: "fsync", what: "failed syncs, on a memory disk"},
		{name: "clock", what: "jumps of the wall clock of the real binary, beside retention by time", run: clock},
		{name: "sweep", what: "system calls of the real binary fail, are cut short or are its last", run: sweepBinary},
		{name: "fsync-binary", what: "failed syncs of the real binary: each must end it", run: fsyncBinary},
		{name: "full", what: "full disks: no crash, no SIGBUS, resumes by itself; starts on a full disk", root: true, run: full},
		{name: "disk", what: "read-only, dead, hung and slow disks; one of two", root: true, run: disk},
		{name: "stops", what: "SIGTERM at random moments, with SIGKILL after it, in a restart loop; a second one", run: stops},
		{name: "fds", what: "file descriptors used up", run: fds},
		{name: "maps", what: "no more memory maps; mapped indexes cut short under load", run: mapFaults},
		{name: "fuse", what: "reads, page faults and syncs that fail inside the kernel", root: true, run: fuse},
		{name: "memory", what: "64 and 128 MiB of memory under hostile connections", root: true, run: memory},
		{name: "locks", what: "racing starts on one directory; a lock that Kafka would hold", run: locks},
		{name: "idle", what: "idle connections", run: idle},
		{name: "hostile", what: "slow, half, silent and storming connections beside healthy traffic", run: hostile},
		{name: "net", what: "loss, one-way loss, partitions and resets", root: true, run: network},
	}
}

// plan picks the rows: those named, else all that the environment is to run: as
// a user those without root, and without /dev/fuse no file system of our own.
func plan(names string, root bool) ([]row, error) {
	_, noFuse := os.Stat("/dev/fuse")
	var picked []row
	known := map[string]row{}
	for _, r := range allRows() {
		known[r.name] = r
		if names == "" && (root || !r.root) && (r.name != "fuse" || noFuse == nil) {
			picked = append(picked, r)
		}
	}
	if names == "" {
		return picked, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		r, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("there is no row %q; -list lists them", name)
		}
		picked = append(picked, r)
	}
	return picked, nil
}

// small makes segments roll and index entries common.
var small = []string{"log.segment.bytes=1048576", "log.index.interval.bytes=512"}

// synced is small with every batch on the disk before its answer.
var synced = append([]string{"log.flush.interval.messages=1"}, small...)

// chunks splits n cycles into loops of at most 250, each on a directory of its
// own: every check reads everything back, and an image is not to fill up.
func chunks(n, least int) []int {
	count := max(least, (n+249)/250)
	var list []int
	for i := range min(count, n) {
		list = append(list, n/count+max(0, min(1, n%count-i)))
	}
	return list
}

// kill: half of the kills come within 30 ms, most of them inside the start.
func kill(r *run) {
	var parts []func()
	for i, n := range chunks(r.of(500, 10_000), 8) {
		r.plan(n)
		most := "200"
		if i%2 == 1 {
			most = "30"
		}
		parts = append(parts, func() {
			res := r.judge(script{
				name: "killloop.sh", settings: small,
				flags:   []string{"--cycles", fmt.Sprint(n), "--seed", fmt.Sprint(r.seed + uint64(i)), "--max-ms", most, "--keep", r.kept("kill"), "--verify", r.check()},
				command: r.broker("work"),
			}, n, "kills")
			if most == "30" {
				r.count("early", float64(res.number("kills")))
			}
		})
	}
	parallel(parts...)
}

// cuts: with flush.messages=1 nothing acknowledged may be gone; without, the
// end of each partition may.
func cuts(r *run) {
	n := r.of(100, 5_000)
	kinds := []struct {
		fs, size, mount string
		share           int
		sync            bool
	}{
		{"ext4", "256M", "", 30, true},
		{"xfs", "400M", "", 20, true},
		{"ext4", "256M", "data=writeback,noauto_da_alloc", 20, true},
		{"ext4", "256M", "noauto_da_alloc", 20, false},
		{"xfs", "400M", "", 10, false},
	}
	var parts []func()
	for i, k := range kinds {
		for j, cycles := range chunks(max(1, n*k.share/100), 1) {
			r.plan(cycles)
			s := script{name: "powercut.sh", settings: small, command: r.broker("work")}
			s.flags = []string{"--fs", k.fs, "--size", k.size, "--cycles", fmt.Sprint(cycles), "--seed", fmt.Sprint(r.seed + uint64(i+100*j)), "--max-ms", "500", "--term", "20", "--keep", r.kept("cuts")}
			if k.mount != "" {
				s.flags = append(s.flags, "--mount", k.mount)
			}
			if k.sync {
				s.settings = synced
				s.flags = append(s.flags, "--verify", r.check())
			} else {
				s.flags = append(s.flags, "--verify", r.check("-prefix"))
			}
			parts = append(parts, func() {
				res := r.judge(s, cycles, "cuts")
				for _, figure := range []string{"in_recovery", "in_stop", "journal_flushed", "pages_written_back"} {
					r.count(figure, float64(res.number(figure)))
				}
				r.count(k.fs, float64(res.number("cuts")))
			})
		}
	}
	parallel(parts...)
}

// kept is where a script leaves what a failure needs.
func (r *run) kept(what string) string {
	return filepath.Join(r.keep, fmt.Sprintf("%s-%d-%d", what, r.seed, time.Now().UnixNano()%1e9))
}

// full runs producers through full disks, then starts on one.
func full(r *run) {
	kinds := []struct{ fs, size, stop string }{
		{"tmpfs", "96M", "TERM"}, {"ext4", "128M", "TERM"}, {"tmpfs", "96M", "KILL"}, {"ext4", "128M", "KILL"},
	}
	if r.scale == "long" {
		kinds = append(kinds, []struct{ fs, size, stop string }{{"xfs", "400M", "TERM"}, {"btrfs", "256M", "KILL"}}...)
	}
	each := max(1, r.of(20, 1_000)/len(kinds))
	// Work has resumed when more is acknowledged.
	const resumed = `f=$FAULT_LOG/acked.acked; a=$(stat -c %s $f); sleep 0.1; [ "$(stat -c %s $f)" -gt "$a" ]`
	// The broker starts, serves and stops on a disk without a free byte, and then with room.
	onFull := r.tool + ` fill -file "$FAULT_DIR/../filler" -for 60s >/dev/null & p=$!; sleep 0.5; ` + r.check() +
		`; s=$?; kill $p; wait $p 2>/dev/null; rm -f "$FAULT_DIR/../filler"; [ $s = 0 ] && ` + r.check()
	var parts []func()
	for i, k := range kinds {
		r.plan(each + 1)
		parts = append(parts, func() {
			res := r.judge(script{
				name: "fulldisk.sh", settings: small,
				flags: []string{"--fs", k.fs, "--size", k.size, "--cycles", fmt.Sprint(each), "--seed", fmt.Sprint(r.seed + uint64(i)), "--stop", k.stop,
					"--free-ms", "400", "--resume-ms", "3000", "--probe", resumed, "--keep", r.kept("full"), "--verify", onFull},
				command: r.broker("work", "-rate", "500"),
			}, each, "fills")
			if res.status == 0 {
				r.done(1, 0)
			}
			r.most("slowest_resume_ms", float64(res.number("slowest_resume_ms")))
		})
	}
	parallel(parts...)
}

// disk changes the state of the disk under a broker that syncs.
func disk(r *run) {
	n := r.of(1, 200)
	kinds := []struct {
		name   string
		flags  []string
		work   []string
		two    bool
		check  []string
		expect string
	}{
		{name: "ro", flags: []string{"--at", "1000:ro", "--for", "4000", "--within", "3000"}, expect: "dead"},
		{name: "dead", flags: []string{"--at", "1000:dead", "--for", "4000", "--within", "3000"}, expect: "dead"},
		{name: "hang", flags: []string{"--at", "1000:hang", "--at", "3000:thaw", "--for", "5000"}, expect: "alive"},
		{name: "slow", flags: []string{"--at", "1000:slow=200000", "--at", "3000:fast", "--for", "4000"}, expect: "alive"},
		{name: "one of two dead", flags: []string{"--at", "1500:dead", "--for", "6000"}, two: true, expect: "alive"},
		{name: "one of two ro", flags: []string{"--at", "1500:ro", "--for", "6000"}, two: true, expect: "alive"},
	}
	var parts []func()
	for i, k := range kinds {
		for j := range n {
			r.plan(1)
			s := script{name: "diskstate.sh", settings: synced, command: r.broker("work")}
			s.flags = append(s.flags, k.flags...)
			s.flags = append(s.flags, "--seed", fmt.Sprint(r.seed+uint64(100*j+i)), "--expect", k.expect, "--keep", r.kept("disk"), "--verify", r.check())
			if k.two {
				// The healthy directory holds the metadata log. A topic made now lies there.
				s.dirs = "$FAULT_LOG/other,$FAULT_DIR"
				s.flags = append(s.flags, "--probe", r.client+` produce -strict -addr 127.0.0.1:$PORT -topic probe -partitions 1 -records 100`)
			}
			parts = append(parts, func() {
				r.judge(s, 1, "")
				r.count(k.name, 1)
			})
		}
	}
	parallel(parts...)
}

// network runs a whole life of producing and reading back through faults of the net.
func network(r *run) {
	kinds := [][]string{
		{"--at", "500:drop=20", "--at", "2500:heal"},
		{"--at", "500:cut", "--at", "1500:heal"},
		{"--at", "500:reset", "--at", "1000:heal"},
		{"--at", "500:in", "--at", "1500:heal"},
		{"--at", "500:out", "--at", "1500:heal"},
	}
	each := max(1, r.of(20, 1_000)/len(kinds))
	var parts []func()
	for _, k := range kinds {
		for range each {
			r.plan(1)
			parts = append(parts, func() {
				dir, log, err := r.dirs()
				if err != nil {
					r.violation("%v", err)
					return
				}
				defer os.RemoveAll(filepath.Dir(dir))
				life := `export FAULT_DIR=` + dir + ` FAULT_LOG=` + log + `; ` + strings.Join(r.broker("work", "-rate", "1000", "-records", "2500"), " ") + ` && ` + r.check()
				s := script{name: "netfault.sh", settings: small, flags: append([]string{"--port", "21900"}, k...), command: []string{"env", "PORT=21900", "bash", "-c", life}, limit: 3 * time.Minute}
				res := r.judge(s, 1, "")
				r.count("packets_lost", float64(res.number("packets_lost")))
				r.count("packets_refused", float64(res.number("packets_refused")))
				if res.status == 0 {
					r.done(0, 2500)
				}
			})
		}
	}
	parallel(parts...)
}
