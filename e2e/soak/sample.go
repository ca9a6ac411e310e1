package main

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// sample is what one moment showed. Bytes unless said.
type sample struct {
	At         float64 `json:"at"`    // seconds of the run
	Life       int     `json:"life"`  // start of the broker, from 1
	Since      float64 `json:"since"` // seconds since that start
	Anon       float64 `json:"rssAnon"`
	File       float64 `json:"rssFile"`
	FDs        float64 `json:"fds"`
	Maps       float64 `json:"maps"`
	Threads    float64 `json:"threads"`
	Files      float64 `json:"files"`
	Disk       float64 `json:"diskBytes"`
	BrokerCPU  float64 `json:"brokerCpuSeconds"`
	LoadCPU    float64 `json:"loadCpuSeconds"`
	LoadAnon   float64 `json:"loadRssAnon"`
	Acked      int64   `json:"acked"`
	Generation int64   `json:"topicsDeleted"`
}

// startSampling samples until ctx ends, and then delivers all samples.
func (s *soak) startSampling(ctx context.Context, wg *sync.WaitGroup) chan []sample {
	out := make(chan []sample, 1)
	every := min(5*time.Second, s.restartEvery/20)
	wg.Go(func() {
		var all []sample
		for s.pause(ctx, every) {
			if x, ok := s.sample(); ok {
				all = append(all, x)
			}
		}
		out <- all
	})
	return out
}

// sample is false while the broker is down.
func (s *soak) sample() (sample, bool) {
	pid, life, since := s.broker.pid()
	if pid == 0 {
		return sample{}, false
	}
	x := sample{At: time.Since(s.started).Seconds(), Life: life, Since: time.Since(since).Seconds(), Acked: s.model.acked.Load(), Generation: s.counts.reborn.Load()}
	proc := fmt.Sprintf("/proc/%d", pid)
	status, err := statusOf(proc)
	if err != nil {
		return x, false
	}
	x.Anon, x.File, x.Threads = status["RssAnon"]*1024, status["RssFile"]*1024, status["Threads"]
	if own, err := statusOf("/proc/self"); err == nil {
		x.LoadAnon = own["RssAnon"] * 1024
	}
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return x, false
	}
	x.FDs = float64(len(fds))
	maps, err := os.ReadFile(proc + "/maps")
	if err != nil {
		return x, false
	}
	x.Maps = float64(strings.Count(string(maps), "\n"))
	x.BrokerCPU = s.broker.cpu(pid)
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
		x.LoadCPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
	}
	x.Files, x.Disk = tree(s.broker.data)
	if now, _, _ := s.broker.pid(); now != pid {
		return x, false // went away under the sampling
	}
	return x, true
}

func statusOf(proc string) (map[string]float64, error) {
	f, err := os.Open(proc + "/status")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]float64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 {
			if n, err := strconv.ParseFloat(fields[1], 64); err == nil {
				out[strings.TrimSuffix(fields[0], ":")] = n
			}
		}
	}
	if out["RssAnon"] == 0 {
		return nil, fmt.Errorf("%s has no RssAnon", proc)
	}
	return out, nil
}

// tree counts the files below a directory and the blocks they take.
func tree(dir string) (files, bytes float64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // deleted meanwhile
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		files++
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += float64(st.Blocks * 512)
		}
		return nil
	})
	return files, bytes
}

// cpu is the CPU of all lives so far, in seconds.
func (b *broker) cpu(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		if _, rest, ok := strings.Cut(string(text), ") "); ok {
			if f := strings.Fields(rest); len(f) > 13 {
				user, _ := strconv.ParseInt(f[11], 10, 64)
				system, _ := strconv.ParseInt(f[12], 10, 64)
				b.sampled = (user + system) * int64(10*time.Millisecond) // USER_HZ is 100
			}
		}
	}
	return time.Duration(b.ticks + b.sampled).Seconds()
}
