package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/varvelog/varve/bench/floor"
)

func measureSize(o options, r *report) error {
	info, err := os.Stat(o.varve)
	if err != nil {
		return err
	}
	r.add(figure{Name: "size of the binary", Unit: "MB", Varve: []float64{float64(info.Size()) / 1e6}, Limit: 20})
	return nil
}

// measureStart starts the broker in an empty directory again and again: exec to ApiVersions answered, exec to
// the first acknowledged produce (of a topic that Metadata creates), CPU to there, and the clean stop.
func measureStart(o options, r *report) error {
	answered := figure{Name: "start: exec to ApiVersions answered", Unit: "ms"}
	acked := figure{Name: "start: exec to first acknowledged produce", Unit: "ms", Limit: 25}
	cpu := figure{Name: "start: CPU to the first acknowledged produce", Unit: "ms", Limit: 15}
	stop := figure{Name: "stop: SIGTERM to exit", Unit: "ms", Limit: 50}
	tool := figure{Name: "start: varve version, exec to exit", Unit: "ms", Limit: 20}
	for i := 0; i <= o.starts; i++ {
		dir := filepath.Join(o.dir, fmt.Sprintf("start-%d", i))
		t, err := startOnce(o, dir)
		if err != nil {
			return err
		}
		bare, err := bareStart()
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := exec.Command(o.varve, "version").Run(); err != nil {
			return err
		}
		took := ms(time.Since(begin))
		if i == 0 {
			continue // it read the program in
		}
		answered.Varve, answered.Floor = append(answered.Varve, t.answered), append(answered.Floor, bare)
		acked.Varve, acked.Floor = append(acked.Varve, t.acked), append(acked.Floor, bare)
		cpu.Varve = append(cpu.Varve, t.cpu)
		stop.Varve = append(stop.Varve, t.stopped)
		tool.Varve = append(tool.Varve, took)
	}
	if o.classPath != "" {
		if err := measureKafkaStart(o, &answered, &acked, &cpu, &stop); err != nil {
			return err
		}
	}
	for _, f := range []figure{answered, acked, cpu, stop, tool} {
		r.add(f)
	}
	return nil
}

// startTimes are milliseconds since the exec; stopped since the signal.
type startTimes struct{ answered, acked, cpu, stopped float64 }

func startOnce(o options, dir string) (t startTimes, err error) {
	begin := time.Now()
	b, err := start(o.varve, dir, -1, 0)
	if err != nil {
		return t, err
	}
	defer func() {
		signalled := time.Now()
		err = errors.Join(err, b.stop())
		t.stopped = ms(time.Since(signalled))
		err = errors.Join(err, os.RemoveAll(dir), os.Remove(dir+".log"))
	}()
	return b.startTimes(begin)
}

// startTimes measures the way to the first acknowledged produce.
func (b *broker) startTimes(begin time.Time) (t startTimes, err error) {
	k, err := b.wait()
	if err != nil {
		return t, err
	}
	defer k.close()
	if err := k.apiVersions(); err != nil {
		return t, err
	}
	t.answered = ms(time.Since(begin))
	for {
		id, code, err := k.metadata("first")
		if err != nil {
			return t, err
		}
		if code != 0 { // the topic is being made
			if time.Since(begin) > 60*time.Second {
				return t, failed(code, "metadata")
			}
			continue
		}
		if err := k.produce(id, 0, batch(170, 1, begin.UnixMilli()), 1); err != nil {
			return t, err
		}
		break
	}
	t.acked = ms(time.Since(begin))
	used, err := floor.ProcessCPU(b.pid())
	t.cpu = used * 1e3
	return t, err
}

// bareStart is the smallest Go program that listens and answers.
func bareStart() (float64, error) {
	begin := time.Now()
	c, err := floor.Spawn(-1, 0, "child:start")
	if err != nil {
		return 0, err
	}
	var port int
	if err := c.ReadJSON(&port); err != nil {
		return 0, err
	}
	k, err := floor.Dial(port)
	if err != nil {
		return 0, err
	}
	err = k.Drain(2, make([]byte, 2))
	took := ms(time.Since(begin))
	k.Close()
	return took, errors.Join(err, c.Stop())
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// measureIdle watches a broker that has served one produce and then nothing.
func measureIdle(o options, r *report) error {
	dir := filepath.Join(o.dir, "idle")
	b, err := start(o.varve, dir, -1, 0)
	if err != nil {
		return err
	}
	err = watchIdle(o, r, b)
	return errors.Join(err, b.stop(), os.RemoveAll(dir))
}

func watchIdle(o options, r *report, b *broker) error {
	k, err := b.wait()
	if err != nil {
		return err
	}
	err = k.apiVersions()
	k.close()
	if err != nil {
		return err
	}
	before, err := floor.ProcessCPU(b.pid())
	if err != nil {
		return err
	}
	time.Sleep(o.idle)
	after, err := floor.ProcessCPU(b.pid())
	if err != nil {
		return err
	}
	if err := b.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		return err
	}
	what := fmt.Sprintf("idle %v: ", o.idle)
	r.add(figure{Name: what + "resident memory", Unit: "MB", Varve: []float64{floor.StatusKB(b.pid(), "VmRSS") * 1024 / 1e6}, Limit: 25})
	r.add(figure{Name: what + "anonymous memory", Unit: "MB", Varve: []float64{floor.StatusKB(b.pid(), "RssAnon") * 1024 / 1e6}, Limit: 10})
	r.add(figure{Name: what + "CPU", Unit: "ms/s", Varve: []float64{(after - before) * 1e3 / o.idle.Seconds()}, Limit: 1})
	return nil
}
