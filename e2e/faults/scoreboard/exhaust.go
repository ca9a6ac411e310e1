package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func killPid(pid int, signal string) error {
	return exec.Command("kill", "-"+signal, strconv.Itoa(pid)).Run()
}

// crowd holds connections of one kind; it returns when they are gone.
func (r *run) crowd(v *server, mode string, n int, hold time.Duration, more ...string) result {
	args := append([]string{"conns", "-addr", v.addr, "-mode", mode, "-n", fmt.Sprint(n), "-for", hold.String()}, more...)
	return r.script(r.ctx, script{name: r.tool, flags: args, limit: hold + time.Minute})
}

// fds gives the broker fewer descriptors than its clients and files want.
func fds(r *run) {
	n := r.of(20, 500)
	var parts []func()
	for i := range n {
		r.plan(1)
		limit := 40 + rand.New(rand.NewPCG(r.seed, uint64(i))).IntN(160)
		parts = append(parts, func() {
			if r.case1(fmt.Sprintf("%d descriptors", limit), func(dir, log string) bool { return r.fewDescriptors(dir, log, limit) }) {
				r.done(1, 0)
			}
		})
	}
	parallel(parts...)
}

// case1 gives a case its directories, and keeps them when it fails.
func (r *run) case1(what string, body func(dir, log string) bool) bool {
	dir, log, err := r.dirs()
	if err != nil {
		r.violation("%v", err)
		return false
	}
	if body(dir, log) {
		os.RemoveAll(filepath.Dir(dir))
		return true
	}
	kept := r.kept(r.line.Row)
	if err := os.MkdirAll(kept, 0o755); err == nil {
		_ = exec.Command("cp", "-a", filepath.Dir(dir), kept).Run()
	}
	fmt.Printf("%s: %s: kept in %s\n", r.line.Row, what, kept)
	return false
}

// fewDescriptors: the broker starts or says how many it needs; it stays alive
// and its directory online under a crowd, and works when the crowd is gone.
func (r *run) fewDescriptors(dir, log string, limit int) bool {
	v, err := r.start(dir, log, script{settings: small, prefix: fmt.Sprintf("prlimit --nofile=%d:%d ", limit, limit)})
	if err != nil {
		if v != nil && v.ended() && v.cmd.ProcessState.ExitCode() == 1 && strings.Contains(v.tail(), "descriptors") {
			r.count("refused", 1)
			return true
		}
		r.violation("%d descriptors: %v", limit, err)
		return false
	}
	defer v.kill()
	var crowd sync.WaitGroup
	crowd.Go(func() { r.crowd(v, "idle", 300, 3*time.Second) })
	time.Sleep(300 * time.Millisecond)
	r.ack(v, 2*time.Second, "produce", "-records", "100", "-partitions", "8") // may fail
	crowd.Wait()
	if v.ended() {
		r.violation("%d descriptors: the broker ended: %s\n%s", limit, v.state(), v.tail())
		return false
	}
	if v.logged("dir-offline") {
		r.violation("%d descriptors: a directory went offline\n%s", limit, v.tail())
		return false
	}
	if v.logged("fd-low") {
		r.count("fd-low", 1)
	}
	if res := r.ack(v, 30*time.Second, "produce", "-strict", "-topic", "after", "-partitions", "1", "-records", "200"); res.status != 0 {
		r.violation("%d descriptors: after the crowd: status %d: %s\n%s", limit, res.status, res.text, v.tail())
		return false
	}
	return r.readBack(v, "-topic", "after") && r.stopped(v)
}

// stopped wants a clean stop.
func (r *run) stopped(v *server) bool {
	if status := v.stop(20 * time.Second); status != 0 {
		r.violation("the stop: status %d\n%s", status, v.tail())
		return false
	}
	return true
}

// mapFaults: the kernel gives no more maps; mapped indexes are cut to nothing.
func mapFaults(r *run) {
	setup, err := r.prepared(false, small)
	if err != nil {
		r.violation("%v", err)
		return
	}
	n := r.of(10, 100)
	r.sweep(sweeping{faults: "ENOMEM", calls: "mmap", survive: "ENOMEM", setup: setup, command: r.broker("work", "-records", "200", "-rate", "0"), max: n}, small, 0)
	for i := range r.of(4, 100) {
		r.plan(1)
		if r.case1("indexes cut", func(dir, log string) bool { return r.cutIndexes(dir, log, uint64(i)) }) {
			r.done(1, 0)
		}
	}
}

// cutIndexes empties live index files again and again under a producer and a reader.
func (r *run) cutIndexes(dir, log string, i uint64) bool {
	v, err := r.start(dir, log, script{settings: []string{"log.segment.bytes=1048576", "log.index.interval.bytes=256"}})
	if err != nil {
		r.violation("%v", err)
		return false
	}
	defer v.kill()
	ctx, cancel := context.WithCancel(r.ctx)
	var work sync.WaitGroup
	work.Go(func() {
		r.script(ctx, script{name: r.client, flags: []string{"produce", "-addr", v.addr, "-log", log, "-rate", "2000", "-size", "2000"}, limit: time.Minute})
	})
	rng := rand.New(rand.NewPCG(r.seed, i))
	for range 20 {
		time.Sleep(150 * time.Millisecond)
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && (strings.HasSuffix(path, ".index") || strings.HasSuffix(path, ".timeindex")) && strings.Contains(path, "acked-") && rng.IntN(2) == 0 {
				if os.Truncate(path, 0) == nil {
					r.count("truncated", 1)
				}
			}
			return nil
		})
		// Lookups by offset and by time meet the holes.
		r.script(ctx, script{name: r.client, flags: []string{"verify", "-addr", v.addr, "-log", log, "-size", "2000", "-wait", "3s"}, limit: 5 * time.Second})
	}
	cancel()
	work.Wait()
	if v.ended() {
		r.violation("the broker ended: %s\n%s", v.state(), v.tail())
		return false
	}
	if v.logged("map-fault") || v.logged("index-rebuilt") {
		r.count("noticed", 1)
	}
	if !r.readBack(v, "-size", "2000") {
		return false
	}
	v.kill()
	again, err := r.start(dir, log, script{settings: small})
	if err != nil {
		r.violation("%v", err)
		return false
	}
	defer again.kill()
	return r.readBack(again, "-size", "2000") && r.stopped(again)
}

// memory runs every hostile crowd against a broker in a small control group.
func memory(r *run) {
	n := r.of(1, 10)
	var parts []func()
	for range n {
		for _, limit := range []string{"64M", "128M"} {
			for _, mode := range []string{"half", "silent", "slow", "noread"} {
				r.plan(1)
				parts = append(parts, func() {
					if r.case1(limit+" "+mode, func(dir, log string) bool { return r.littleMemory(dir, log, limit, mode) }) {
						r.done(1, 0)
					}
				})
			}
		}
	}
	parallel(parts...)
}

func (r *run) littleMemory(dir, log, limit, mode string) bool {
	v, err := r.start(dir, log, script{name: "memlimit.sh", flags: []string{"--limit", limit}})
	if err != nil {
		if v != nil && v.ended() && v.cmd.ProcessState.ExitCode() == 77 {
			r.skip(lastLine(strings.TrimSpace(v.tail())))
			return true
		}
		r.violation("%v", err)
		return false
	}
	defer v.kill()
	if res := r.ack(v, time.Minute, "produce", "-strict", "-records", "3000", "-size", "4000"); res.status != 0 {
		r.violation("%s: produce: status %d: %s\n%s", limit, res.status, res.text, v.tail())
		return false
	}
	var crowd sync.WaitGroup
	crowd.Go(func() { r.crowd(v, mode, 1000, 4*time.Second) })
	if mode == "half" {
		crowd.Go(func() {
			r.script(r.ctx, script{name: r.tool, flags: []string{"probe", "-addr", v.addr}, limit: time.Minute})
		})
	}
	time.Sleep(time.Second)
	res := r.ack(v, time.Minute, "produce", "-strict", "-records", "1000", "-size", "4000")
	crowd.Wait()
	if v.ended() || res.status != 0 {
		r.violation("%s, %s: beside the crowd: status %d: %s; broker %s\n%s", limit, mode, res.status, res.text, v.state(), v.tail())
		return false
	}
	if !r.readBack(v, "-size", "4000") || !r.stopped(v) {
		return false
	}
	var peak int
	if at := strings.LastIndex(v.tail(), `"peak":`); at >= 0 {
		fmt.Sscanf(v.tail()[at:], `"peak":%d`, &peak)
	}
	r.most("peak_MiB_of_"+limit, float64(peak>>20))
	return true
}

// locks: one owner at a time, and the loser has touched nothing.
func locks(r *run) {
	for i := range r.of(20, 500) {
		r.plan(1)
		if r.case1("race", func(dir, log string) bool { return r.race(dir, i) }) {
			r.done(1, 0)
		}
	}
	r.plan(2)
	if r.case1("held by a POSIX lock", r.foreignLock) {
		r.done(1, 0)
	}
	if r.case1("loser", r.loser) {
		r.done(1, 0)
	}
}

// race starts four brokers at once: three must be refused.
func (r *run) race(dir string, i int) bool {
	const starts = 4
	type ending struct {
		v   *server
		err error
	}
	endings := make(chan ending, starts)
	for k := range starts {
		log := filepath.Join(filepath.Dir(dir), fmt.Sprintf("log%d", k))
		if err := os.Mkdir(log, 0o755); err != nil {
			r.violation("%v", err)
			return false
		}
		go func() {
			v, err := r.start(dir, log, script{})
			endings <- ending{v, err}
		}()
	}
	owners, good := 0, true
	for range starts {
		e := <-endings
		switch {
		case e.err == nil:
			owners++
			defer e.v.kill()
		case e.v == nil || !e.v.ended() || e.v.cmd.ProcessState.ExitCode() != 5:
			r.violation("race %d: a loser ended otherwise than with 5: %v", i, e.err)
			good = false
		}
	}
	if owners != 1 {
		r.violation("race %d: %d owners", i, owners)
		return false
	}
	return good
}

// foreignLock holds .lock as the JVM does, by a POSIX record lock.
func (r *run) foreignLock(dir, log string) bool {
	v, err := r.start(dir, log, script{})
	if err != nil {
		r.violation("%v", err)
		return false
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR, 0)
	if err != nil {
		r.violation("%v", err)
		v.kill()
		return false
	}
	defer lock.Close()
	whole := &syscall.Flock_t{Type: syscall.F_WRLCK}
	if err := syscall.FcntlFlock(lock.Fd(), syscall.F_SETLK, whole); err == nil {
		r.violation("a POSIX lock was given while the broker runs: Kafka would start")
		v.kill()
		return false
	}
	if !r.stopped(v) {
		return false
	}
	again, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		r.violation("%v", err)
		return false
	}
	defer again.Close()
	if err := syscall.FcntlFlock(again.Fd(), syscall.F_SETLK, whole); err != nil {
		r.violation("after a stop the lock is still held: %v", err)
		return false
	}
	if v, err := r.start(dir, log, script{}); err == nil || v == nil || !v.ended() || v.cmd.ProcessState.ExitCode() != 5 {
		r.violation("with a POSIX lock held: %v, want exit 5", err)
		return false
	}
	return true
}

// loser compares the directory before and after a start that is refused.
func (r *run) loser(dir, log string) bool {
	v, err := r.start(dir, log, script{})
	if err != nil {
		r.violation("%v", err)
		return false
	}
	defer v.kill()
	if res := r.ack(v, time.Minute, "produce", "-strict", "-records", "300"); res.status != 0 {
		r.violation("produce: %s", res.text)
		return false
	}
	syscall.Kill(v.pid, syscall.SIGSTOP) // the owner changes nothing meanwhile
	before, err := tree(dir)
	if err != nil {
		r.violation("%v", err)
		return false
	}
	other := filepath.Join(filepath.Dir(dir), "log2")
	if err := os.Mkdir(other, 0o755); err != nil {
		r.violation("%v", err)
		return false
	}
	second, err := r.start(dir, other, script{})
	if err == nil || second == nil || !second.ended() || second.cmd.ProcessState.ExitCode() != 5 {
		r.violation("a second broker: %v, want exit 5", err)
		return false
	}
	after, err := tree(dir)
	syscall.Kill(v.pid, syscall.SIGCONT)
	if err != nil || !bytes.Equal(before, after) {
		r.violation("the loser changed the directory: %v", err)
		return false
	}
	return r.readBack(v) && r.stopped(v)
}

// tree lists names, sizes, times and bytes of a directory.
func tree(dir string) ([]byte, error) {
	return exec.Command("bash", "-c", `cd "$1" && find . -printf '%p %s %T@ %m\n' | sort && find . -type f -print0 | sort -z | xargs -0 sha256sum`, "tree", dir).Output()
}

// rss is the anonymous memory of a process in bytes.
func rss(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), "RssAnon:")
	if !ok {
		return 0, fmt.Errorf("no RssAnon in the status of %d", pid)
	}
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	return kb << 10, err
}

// idle holds connections that have asked once, beside a producer.
func idle(r *run) {
	n, hold := r.of(2_000, 15_000), 10*time.Second
	if r.scale == "long" {
		hold = 10 * time.Minute
	}
	r.plan(n)
	r.case1("idle", func(dir, log string) bool {
		v, err := r.start(dir, log, script{settings: []string{"max.connections.per.ip=100000"}})
		if err != nil {
			r.violation("%v", err)
			return false
		}
		defer v.kill()
		healthy := []string{"-strict", "-rate", "500", "-records", "2000"}
		alone := r.ack(v, time.Minute, "produce", healthy...)
		before, err := rss(v.pid)
		if err != nil {
			r.violation("%v", err)
			return false
		}
		var crowd sync.WaitGroup
		var held result
		crowd.Go(func() { held = r.crowd(v, "idle", n, hold, "-addresses", "4") })
		time.Sleep(3 * time.Second)
		beside := r.ack(v, time.Minute, "produce", healthy...)
		after, err := rss(v.pid)
		crowd.Wait()
		if alone.status != 0 || beside.status != 0 || err != nil || v.ended() {
			r.violation("produce alone %d, beside %d: %s; %v; broker %s\n%s", alone.status, beside.status, beside.text, err, v.state(), v.tail())
			return false
		}
		each := float64(after-before) / float64(n)
		r.most("bytes_each", each)
		r.most("p99_ms_alone", floating(alone, "p99_ms"))
		r.most("p99_ms_beside", floating(beside, "p99_ms"))
		if each > 10<<10 {
			r.violation("%.0f bytes of memory for an idle connection, want at most 10240", each)
		}
		if alive := held.number("alive_at_end"); alive != n {
			r.violation("%d of %d idle connections were alive at the end: %s", alive, n, held.text)
		}
		r.done(held.number("alive_at_end"), 0)
		return r.readBack(v) && r.stopped(v)
	})
}

func floating(r result, key string) float64 {
	n, _ := r.report[key].(float64)
	return n
}

// hostile wants 90 % of healthy traffic beside crowds that mean harm.
func hostile(r *run) {
	times, hold := 1, 10*time.Second
	if r.scale == "long" {
		times, hold = 5, 5*time.Minute
	}
	modes := []struct {
		mode string
		n    int
	}{{"slow", 300}, {"half", 200}, {"silent", 200}, {"storm", 50}, {"noread", 20}}
	for _, m := range modes {
		r.plan(times * m.n)
	}
	r.case1("hostile", func(dir, log string) bool {
		v, err := r.start(dir, log, script{})
		if err != nil {
			r.violation("%v", err)
			return false
		}
		defer v.kill()
		var crowd sync.WaitGroup
		for _, m := range modes {
			crowd.Go(func() {
				res := r.crowd(v, m.mode, times*m.n, hold, "-addresses", "4")
				if res.status == 0 {
					r.done(times*m.n, 0)
				}
				r.count(m.mode+"_closed", floating(res, "closed_by_server"))
			})
		}
		crowd.Go(func() {
			r.script(r.ctx, script{name: r.tool, flags: []string{"probe", "-addr", v.addr}, limit: time.Minute})
		})
		time.Sleep(time.Second)
		seconds := (hold - 2*time.Second).Seconds()
		want := int(500 * seconds)
		res := r.ack(v, hold+time.Minute, "produce", "-strict", "-rate", "500", "-records", fmt.Sprint(want))
		crowd.Wait()
		if res.status != 0 || v.ended() {
			r.violation("healthy traffic: status %d: %s; broker %s\n%s", res.status, res.text, v.state(), v.tail())
			return false
		}
		kept := 100 * seconds / max(seconds, floating(res, "seconds"))
		r.most("percent_kept", kept)
		r.most("p99_ms", floating(res, "p99_ms"))
		if kept < 90 {
			r.violation("%.0f %% of the healthy traffic was kept, want 90", kept)
		}
		return r.readBack(v) && r.stopped(v)
	})
}
