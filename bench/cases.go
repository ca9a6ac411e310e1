package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/bench/floor"
)

// loadCase is a load on the broker and the load of the floor that it is compared with.
type loadCase struct {
	name   string
	unit   string // one CPU figure for each of these
	quick  bool
	target float64 // most that the ratio of CPU may be; 0: not set
	broker job
	floor  floor.Job
	topic  string // of a fetch: the log it reads
}

const (
	kib = 1 << 10
	mib = 1 << 20
	// The logs that fetches read: their names and how many bytes they hold.
	log16k, log16kBytes = "log-16k", 192 * mib
	log1k, log1kBytes   = "log-1k", 16 * mib
)

func loadCases() []loadCase {
	// As many requests as the broker gets, into a file that was emptied before.
	put := func(size, depth, conns, count int) floor.Job {
		return floor.Job{Kind: "put", Method: floor.PutAhead, Size: size, Depth: depth, Conns: conns, Times: count, Fresh: true}
	}
	get := func(size, depth, method int) floor.Job {
		return floor.Job{Kind: "fetch", Method: method, Size: size, Depth: depth, Seconds: 0.15}
	}
	const one = "one at a time"
	return []loadCase{
		{"produce 16KiB, 16 records, depth 5", "request", true, 1.5,
			job{Kind: "produce", Size: 16 * kib, Records: 16, Depth: 5, Conns: 1, Count: 3000, Acks: 1}, put(16*kib, 5, 1, 3000), ""},
		{"produce 1MiB, 1000 records, depth 5", "request", true, 1.5,
			job{Kind: "produce", Size: mib, Records: 1000, Depth: 5, Conns: 1, Count: 80, Acks: 1}, put(mib, 5, 1, 80), ""},
		{"produce 16KiB, 16 records, depth 5, acks=all", "request", false, 0,
			job{Kind: "produce", Size: 16 * kib, Records: 16, Depth: 5, Conns: 1, Count: 3000, Acks: -1}, put(16*kib, 5, 1, 3000), ""},
		{"produce 1KiB, 1 record, depth 64", "request", true, 0,
			job{Kind: "produce", Size: kib, Records: 1, Depth: 64, Conns: 1, Count: 10000, Acks: 1}, put(kib, 64, 1, 10000), ""},
		{"produce 100B, 1 record, 64 connections", "request", false, 0,
			job{Kind: "produce", Size: 170, Records: 1, Depth: 1, Conns: 64, Count: 10000, Acks: 1}, put(170, 1, 64, 10000), ""},
		{"fetch 4KiB, " + one, "response", true, 0,
			job{Kind: "fetch", Size: 4 * kib, Records: 4, Depth: 1, Count: 4000}, get(4*kib, 1, floor.ByPread), log1k},
		{"fetch 16KiB, " + one, "response", true, 1.5,
			job{Kind: "fetch", Size: 16 * kib, Records: 16, Depth: 1, Count: 4000}, get(16*kib, 1, floor.ByPread), log16k},
		{"fetch 64KiB, " + one, "response", false, 0,
			job{Kind: "fetch", Size: 64 * kib, Records: 64, Depth: 1, Count: 3000}, get(64*kib, 1, floor.BySendfile), log16k},
		{"fetch 1MiB, " + one, "response", true, 1.5,
			job{Kind: "fetch", Size: mib, Records: 1024, Depth: 1, Count: 500}, get(mib, 1, floor.BySendfile), log16k},
		{"fetch 1MiB, depth 4", "response", true, 1.5,
			job{Kind: "fetch", Size: mib, Records: 1024, Depth: 4, Count: 500}, get(mib, 4, floor.BySendfile), log16k},
		{"round trip, 1 record of 100 bytes", "request", true, 0,
			job{Kind: "ping", Size: 170, Records: 1, Count: 3000, Acks: 1}, floor.Job{Kind: "ping", Method: floor.PutAhead, Size: 170, Times: 3000, Seconds: 1}, ""},
		{"wake 1 waiting, 1KiB", "delivery", false, 0,
			job{Kind: "wake", Size: kib, Records: 1, Count: 300, Waiters: 1, PauseUS: 320, Acks: 1},
			floor.Job{Kind: "wake", Method: floor.ByPread, Size: kib, Waiters: 1, Times: 300, PauseUSec: 320, Seconds: 1}, ""},
		{"wake 10 waiting, 1KiB", "delivery", false, 0,
			job{Kind: "wake", Size: kib, Records: 1, Count: 60, Waiters: 10, PauseUS: 500, Acks: 1},
			floor.Job{Kind: "wake", Method: floor.ByPread, Size: kib, Waiters: 10, Times: 60, PauseUSec: 500, Seconds: 1}, ""},
	}
}

// measureLoad runs the cases, broker and floor in turn within each round.
func measureLoad(o options, r *report) (err error) {
	var cases []loadCase
	for _, c := range loadCases() {
		if o.wants(c.name) && (c.quick || !o.quick || len(o.names) > 0) {
			cases = append(cases, c)
		}
	}
	if len(cases) == 0 {
		return nil
	}
	same := r.env.Placements()[0]
	bare, err := r.env.Rig(same)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Stop()) }()
	varve, err := newRig(o, "load", same)
	if err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			err = errors.Join(err, varve.stop())
		}
	}()
	runs, err := prepare(varve, cases)
	if err != nil {
		return err
	}
	figures := make([]figure, len(runs))
	for round := -1; round < r.env.Rounds; round++ { // round -1 warms up
		for i := range runs {
			if err := runs[i].once(varve, bare, &figures[i], round >= 0); err != nil {
				return fmt.Errorf("%s: %w", runs[i].name, err)
			}
		}
	}
	if err := varve.stop(); err != nil {
		return err
	}
	stopped = true
	if o.classPath != "" {
		if err := beside(o, r, cases, figures); err != nil {
			return err
		}
	}
	for i := range figures {
		r.add(figures[i])
	}
	return nil
}

// measured is a case that is ready to be measured.
type measured struct {
	loadCase
	log  string // the topic it appends to
	next int64  // end offset of that topic, for a wake case
}

// prepare makes the topics and fills the logs that fetches read.
func prepare(varve *rig, cases []loadCase) ([]measured, error) {
	var runs []measured
	logs := map[string][16]byte{}
	for i, c := range cases {
		var err error
		name := ""
		if c.topic == "" {
			name = fmt.Sprintf("case-%d", i)
			c.broker.Topic, err = varve.control.createTopic(name, int32(max(1, c.broker.Conns)))
		} else {
			if _, ok := logs[c.topic]; !ok {
				if logs[c.topic], err = fillLog(varve, c.topic); err != nil {
					return nil, err
				}
			}
			c.broker.Topic = logs[c.topic]
			if c.broker.End, err = varve.control.endOffset(c.topic, 0); err == nil {
				err = checkFetch(varve.control, c.broker)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		runs = append(runs, measured{loadCase: c, log: name})
	}
	return runs, nil
}

func fillLog(varve *rig, name string) ([16]byte, error) {
	id, err := varve.control.createTopic(name, 1)
	if err != nil {
		return id, err
	}
	j := job{Kind: "produce", Topic: id, Size: 16 * kib, Records: 16, Depth: 5, Count: log16kBytes / (16 * kib), Acks: 1}
	if name == log1k {
		j.Size, j.Records, j.Count = kib, 1, log1kBytes/kib
	}
	_, _, err = varve.do(j)
	return id, err
}

// checkFetch makes sure that a case reads what it is compared with.
func checkFetch(k *client, j job) error {
	for _, offset := range []int64{0, int64(j.Records), j.End - int64(j.Records)} {
		n, err := k.fetchBytes(j.Topic, offset, int32(j.Size))
		if err != nil {
			return err
		}
		if n != j.Size {
			return fmt.Errorf("a fetch at %d returns %d bytes of records, want %d", offset, n, j.Size)
		}
	}
	return nil
}

// evict gives the memory of files back just before it is needed again, as emptying its file does for the floor:
// memory that the host of a virtual machine has to back first is several times slower to write.
func evict(pattern string) error {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = errors.Join(unix.Fdatasync(int(f.Fd())), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
		if err != nil {
			return err
		}
	}
	return nil
}

// once measures floor and broker one after the other.
func (c *measured) once(varve *rig, bare *floor.Rig, f *figure, counts bool) error {
	below, cpuBelow, err := bare.Do(c.floor)
	if err != nil {
		return fmt.Errorf("floor: %w", err)
	}
	if c.broker.Kind == "produce" {
		if err := evict(filepath.Join(varve.dir, c.log+"-*", "*.log")); err != nil {
			return err
		}
	}
	c.broker.Offset = c.next
	above, cpu, err := varve.do(c.broker)
	if err != nil {
		return err
	}
	if c.broker.Kind == "wake" {
		c.next += int64(c.broker.Count * c.broker.Records)
	}
	if !counts {
		return nil
	}
	f.Name, f.Unit, f.Target = c.name, "CPU µs per "+c.unit, c.target
	f.Varve = append(f.Varve, cpu/above.Responses*1e6)
	f.Floor = append(f.Floor, cpuBelow/below.Responses*1e6)
	if above.P50 > 0 {
		f.P50 = append(f.P50, above.P50)
		f.P99 = append(f.P99, above.P99)
		f.FloorP50 = append(f.FloorP50, below.P50)
	}
	if above.Seconds > 0 {
		f.Rate = append(f.Rate, above.Responses/above.Seconds)
	}
	return nil
}
