package floor

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Placement says on which processors the server and the load generator run.
type Placement struct {
	Name         string
	Server, Load int    // processors; -1 is any
	Procs        int    // Go processors of the server; 0 is all
	Calls        string // announced or raw, see calls.go
}

// placements: both on one processor (small spread, for comparing code), one processor each (capacity),
// and wherever the kernel puts them (what a user sees).
func (e *Env) Placements() []Placement {
	p := []Placement{{"same", e.Cores[0], e.Cores[0], 1, "announced"}}
	if len(e.Cores) > 1 {
		p = append(p, Placement{"cross", e.Cores[0], e.Cores[1], 1, "announced"})
	}
	return append(p, Placement{"free", -1, -1, 0, "announced"})
}

// Rig is a running server and load generator.
type Rig struct {
	Server, Load *Child
	ready        serverReady
	where        string
}

func (e *Env) Rig(p Placement) (*Rig, error) {
	data, err := e.data()
	if err != nil {
		return nil, err
	}
	r := &Rig{where: p.Name}
	if r.Server, err = Spawn(p.Server, p.Procs, "child:serve", data, e.Dir, p.Calls); err != nil {
		return nil, err
	}
	if err := r.Server.ReadJSON(&r.ready); err != nil {
		return nil, err
	}
	r.Load, err = Spawn(p.Load, 0, "child:load")
	return r, err
}

func (r *Rig) Stop() error { return errors.Join(r.Load.Stop(), r.Server.Stop()) }

// Do runs one job and returns what the load generator saw and the CPU seconds that the server used.
func (r *Rig) Do(j Job) (Answer, float64, error) {
	var a Answer
	if j.Port == 0 {
		j.Port = r.ready.Port
	}
	pid := r.Server.Cmd.Process.Pid
	before, err := ProcessCPU(pid)
	if err != nil {
		return a, 0, err
	}
	if err := json.NewEncoder(r.Load.In).Encode(j); err != nil {
		return a, 0, err
	}
	if err := r.Load.ReadJSON(&a); err != nil {
		return a, 0, err
	}
	if a.Err != "" {
		return a, 0, errors.New(a.Err)
	}
	time.Sleep(time.Millisecond) // let the server finish its last system call
	after, err := ProcessCPU(pid)
	return a, after - before, err
}

// withRigs runs f once per round and placement, rounds outermost, so that the placements are interleaved.
func (e *Env) withRigs(places []Placement, f func(r *Rig, round int) error) (err error) {
	rigs := make([]*Rig, len(places))
	for i, p := range places {
		if rigs[i], err = e.Rig(p); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rigs[i].Stop()) }()
	}
	for round := -1; e.More(round); round++ { // round -1 warms up
		for _, r := range rigs {
			if err := f(r, round); err != nil {
				return fmt.Errorf("%s: %w", r.where, err)
			}
		}
	}
	return nil
}

var depths = map[int]int{1 << 10: 64, 4 << 10: 64, 16 << 10: 32, 32 << 10: 16, 64 << 10: 16, 256 << 10: 4, 1 << 20: 4}

func runSend(e *Env) error {
	type test struct {
		size, depth, method int
		name                string
	}
	var tests []test
	for _, n := range []int{1 << 10, 4 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20} {
		tests = append(tests, test{n, depths[n], bySendfile, "sendfile"}, test{n, depths[n], byPread, "pread+write"}, test{n, depths[n], byWritev, "writev mmap"})
		if n <= 16<<10 {
			tests = append(tests, test{n, depths[n], bySendfileTwice, "header apart"})
		}
	}
	for _, n := range []int{4 << 10, 16 << 10, 64 << 10, 1 << 20} { // as a consumer fetches: one at a time
		tests = append(tests, test{n, 1, bySendfile, "sendfile, one at a time"}, test{n, 1, byPread, "pread+write, one at a time"})
	}
	places := e.Placements()[:len(e.Placements())-1]
	var keys []string
	err := e.withRigs(places, func(r *Rig, round int) error {
		for _, t := range tests {
			if r.where == "cross" && t.depth > 1 && t.size != 64<<10 && t.size != 1<<20 {
				continue
			}
			a, cpu, err := r.Do(Job{Kind: "fetch", Method: t.method, Size: t.size, Depth: t.depth, Seconds: 0.05})
			if err != nil {
				return err
			}
			key := fmt.Sprintf("send/%s %s %s", r.where, size(t.size), t.name)
			if round < 0 {
				keys = append(keys, key+" cost", key+" rate")
				continue
			}
			e.Add(key+" cost", "CPU µs per response", cpu/a.Responses*1e6)
			e.Add(key+" cpu", "CPU s/GB", cpu/a.Bytes*1e9)
			e.Add(key+" rate", "GB/s", a.Bytes/a.Seconds/1e9)
		}
		return nil
	})
	e.Show(keys...)
	return err
}

func runProduce(e *Env) error {
	const whole = doCRC | doAppend
	tests := []struct {
		size, depth, conns int
		name               string
		what               int
	}{
		{100, 1, 64, "64 connections, receive+crc+append, allocated ahead", whole | doPrealloc},
		{1 << 10, 64, 1, "receive", 0},
		{1 << 10, 64, 1, "receive+crc+append", whole},
		{1 << 10, 64, 1, "receive+crc+append, allocated ahead", whole | doPrealloc},
		{16 << 10, 5, 1, "receive", 0},
		{16 << 10, 5, 1, "receive+crc", doCRC},
		{16 << 10, 5, 1, "receive+crc+append", whole},
		{16 << 10, 5, 1, "receive+crc+append, allocated ahead", whole | doPrealloc},
		{64 << 10, 5, 1, "receive", 0},
		{64 << 10, 5, 1, "receive+crc+append, allocated ahead", whole | doPrealloc},
		{1 << 20, 5, 1, "receive+crc+append, allocated ahead", whole | doPrealloc},
	}
	places := e.Placements()[:len(e.Placements())-1]
	var keys []string
	err := e.withRigs(places, func(r *Rig, round int) error {
		for _, t := range tests {
			a, cpu, err := r.Do(Job{Kind: "put", Method: t.what, Size: t.size, Depth: t.depth, Conns: t.conns, Seconds: 0.08})
			if err != nil {
				return err
			}
			key := fmt.Sprintf("produce/%s %s %s", r.where, size(t.size), t.name)
			if round < 0 {
				keys = append(keys, key+" cost", key+" requests")
				continue
			}
			e.Add(key+" cost", "CPU µs per request", cpu/a.Responses*1e6)
			e.Add(key+" cpu", "CPU s/GB", cpu/a.Bytes*1e9)
			e.Add(key+" rate", "GB/s", a.Bytes/a.Seconds/1e9)
			e.Add(key+" requests", "requests/s", a.Responses/a.Seconds)
		}
		return nil
	})
	e.Show(keys...)
	return err
}

func runRTT(e *Env) error {
	modes := []struct {
		name string
		what int
	}{{"echo", 0}, {"echo by queue", doQueue}, {"append", doCRC | doAppend | doPrealloc}}
	var keys []string
	places := append(e.Placements(), Placement{"same, raw calls", e.Cores[0], e.Cores[0], 1, "raw"})
	err := e.withRigs(places, func(r *Rig, round int) error {
		for _, m := range modes {
			if r.where == "same, raw calls" && m.what&doQueue != 0 {
				continue
			}
			a, cpu, err := r.Do(Job{Kind: "ping", Method: m.what, Size: 170, Times: 2000, Seconds: 0.2})
			if err != nil {
				return err
			}
			key := fmt.Sprintf("rtt/%s 170B %s", r.where, m.name)
			if round < 0 {
				keys = append(keys, key+" p50", key+" p99", key+" cost")
				continue
			}
			e.Add(key+" p50", "µs", a.P50)
			e.Add(key+" p99", "µs", a.P99)
			e.Add(key+" cost", "CPU µs per request", cpu/a.Responses*1e6)
		}
		return nil
	})
	e.Show(keys...)
	return err
}

func runWake(e *Env) error {
	p := e.Placements()
	places := []Placement{p[0], p[len(p)-1], {"same, raw calls", e.Cores[0], e.Cores[0], 1, "raw"}}
	var keys []string
	err := e.withRigs(places, func(r *Rig, round int) error {
		for _, waiters := range []int{1, 10, 100} {
			a, cpu, err := r.Do(Job{Kind: "wake", Method: byPread, Size: 1 << 10, Waiters: waiters, Times: 20 + 300/waiters, PauseUSec: 300 + 20*waiters, Seconds: 0.25})
			if err != nil {
				return err
			}
			key := fmt.Sprintf("wake/%s 1KiB %d waiting", r.where, waiters)
			if round < 0 {
				keys = append(keys, key+" p50", key+" p99", key+" cost")
				continue
			}
			e.Add(key+" p50", "µs", a.P50)
			e.Add(key+" p99", "µs", a.P99)
			e.Add(key+" cost", "CPU µs per delivery", cpu/a.Responses*1e6)
		}
		return nil
	})
	e.Show(keys...)
	return err
}

func runTLS(e *Env) error {
	p := e.Placements()
	place := p[0]
	if len(p) > 2 {
		place = p[1]
	}
	var keys []string
	err := e.withRigs([]Placement{place}, func(r *Rig, round int) error {
		for _, n := range []int{16 << 10, 64 << 10, 1 << 20} {
			a, cpu, err := r.Do(Job{Kind: "tls", Port: r.ready.TLSPort, Size: n, Depth: depths[n], Seconds: 0.15})
			if err != nil {
				return err
			}
			key := fmt.Sprintf("tls/%s %s pread+write", r.where, size(n))
			if round < 0 {
				keys = append(keys, key+" cost", key+" rate")
				continue
			}
			e.Add(key+" cost", "CPU µs per response", cpu/a.Responses*1e6)
			e.Add(key+" cpu", "CPU s/GB", cpu/a.Bytes*1e9)
			e.Add(key+" rate", "GB/s", a.Bytes/a.Seconds/1e9)
		}
		return nil
	})
	e.Show(keys...)
	return err
}
