package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/bench/floor"
)

// subject is a broker that is measured from its start on.
type subject struct {
	kafka bool
	// start runs it on a directory, which may be one that it has used; settings are lines of server.properties.
	start func(dir string, settings ...string) (*broker, error)
}

// subjects are varve and, where it is measured too, Apache Kafka.
func subjects(o options) []subject {
	list := []subject{{start: func(dir string, settings ...string) (*broker, error) { return start(o.varve, dir, -1, 0, settings...) }}}
	if o.classPath != "" {
		list = append(list, subject{kafka: true, start: func(dir string, settings ...string) (*broker, error) {
			return startKafka(o.classPath, dir, -1, settings...)
		}})
	}
	return list
}

// add puts a sample where it belongs.
func (s subject) add(f *figure, v float64) {
	if s.kafka {
		f.Kafka = append(f.Kafka, v)
	} else {
		f.Varve = append(f.Varve, v)
	}
}

// kill ends a broker as the loss of its process does.
func (b *broker) kill() error {
	err := b.cmd.Process.Kill()
	_ = b.cmd.Wait() // says that it was killed
	return errors.Join(err, b.log.Close())
}

// ackOn produces one record until it is acknowledged, as a client does that waits for its partition.
func ackOn(b *broker, topic [16]byte, partition int32) error {
	k, err := b.wait()
	if err != nil {
		return err
	}
	defer func() { k.close() }()
	records := batch(170, 1, time.Now().UnixMilli())
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		if err = k.produce(topic, partition, records, 1); err == nil {
			return nil
		}
		if time.Since(begin) > 2*time.Minute {
			return err
		}
		var gone *net.OpError
		if errors.Is(err, io.EOF) || errors.As(err, &gone) {
			k.close()
			if k, err = b.wait(); err != nil {
				return err
			}
		}
	}
}

// startPartitions is how many partitions the start is measured with.
const startPartitions = 1000

// measurePartitions starts a broker that holds many partitions with one batch each, after a clean stop and
// after a kill: exec to an acknowledgement on the last partition.
func measurePartitions(o options, r *report) error {
	clean := figure{Name: fmt.Sprintf("start with %d partitions, clean stop", startPartitions), Unit: "ms"}
	killed := figure{Name: fmt.Sprintf("start with %d partitions, killed", startPartitions), Unit: "ms"}
	memory := figure{Name: fmt.Sprintf("memory, anonymous, with %d partitions", startPartitions), Unit: "MB"}
	for _, s := range subjects(o) {
		if err := s.partitions(o, &clean, &killed, &memory); err != nil {
			return err
		}
	}
	for _, f := range []figure{clean, killed, memory} {
		r.add(f)
	}
	return nil
}

func (s subject) partitions(o options, clean, killed, memory *figure) (err error) {
	dir := filepath.Join(o.dir, "partitions")
	defer func() { err = errors.Join(err, os.RemoveAll(dir), os.Remove(dir+".log")) }()
	b, err := s.start(dir)
	if err != nil {
		return err
	}
	k, err := b.wait()
	if err != nil {
		return errors.Join(err, b.kill())
	}
	topic, err := k.createTopic("many", startPartitions)
	for p := int32(0); err == nil && p < startPartitions; p++ {
		// Apache Kafka answers before the partitions can be written.
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			if err = k.produce(topic, p, batch(170, 1, time.Now().UnixMilli()), 1); err == nil || time.Since(begin) > time.Minute {
				break
			}
		}
	}
	k.close()
	if err != nil {
		return errors.Join(err, b.kill())
	}
	rounds := 5
	if s.kafka {
		rounds = 1
	}
	for i := range 2 * rounds {
		if i%2 == 0 {
			err = b.stop()
		} else {
			err = b.kill()
		}
		if err != nil {
			return err
		}
		if b, err = s.start(dir); err != nil {
			return err
		}
		if err = ackOn(b, topic, startPartitions-1); err != nil {
			return errors.Join(err, b.kill())
		}
		took := ms(time.Since(b.began))
		if i%2 == 0 {
			s.add(clean, took)
		} else {
			s.add(killed, took)
		}
	}
	s.add(memory, floor.StatusKB(b.pid(), "RssAnon")*1024/1e6)
	return b.stop()
}

// measureRecovery kills a broker that has written a log and not flushed it, and starts it again: exec to the
// next acknowledgement. The floor reads the same file in pieces of 1 MiB and sums it up.
func measureRecovery(o options, r *report) error {
	f := figure{Name: fmt.Sprintf("recovery of %d MiB of 16 KiB batches, page cache warm", recoveryBytes/mib), Unit: "ms"}
	for _, s := range subjects(o) {
		if err := s.recovery(o, &f); err != nil {
			return err
		}
	}
	r.add(f)
	return nil
}

const recoveryBytes = 512 * mib

func (s subject) recovery(o options, f *figure) (err error) {
	dir := filepath.Join(o.dir, "recovery")
	defer func() { err = errors.Join(err, os.RemoveAll(dir), os.Remove(dir+".log")) }()
	// Nothing flushes or rolls meanwhile, and nothing writes a recovery point.
	b, err := s.start(dir, "log.flush.offset.checkpoint.interval.ms=3600000")
	if err != nil {
		return err
	}
	rig, err := rigOf(b, floor.Placement{Server: -1, Load: -1})
	if err != nil {
		return errors.Join(err, b.kill())
	}
	topic, err := rig.control.createTopic("log", 1)
	if err == nil {
		err = ackOn(b, topic, 0)
	}
	if err == nil {
		_, _, err = rig.do(job{Kind: "produce", Topic: topic, Size: 16 * kib, Records: 16, Depth: 5, Conns: 1, Count: recoveryBytes / (16 * kib), Acks: 1})
	}
	rig.control.close()
	if err := errors.Join(err, rig.load.Stop()); err != nil {
		return errors.Join(err, b.kill())
	}
	rounds := 3
	if s.kafka {
		rounds = 1
	}
	for range rounds {
		if err := b.kill(); err != nil {
			return err
		}
		if !s.kafka {
			took, err := sumFile(filepath.Join(b.dir, "log-0", "00000000000000000000.log"))
			if err != nil {
				return err
			}
			f.Floor = append(f.Floor, took)
		}
		if b, err = s.start(dir, "log.flush.offset.checkpoint.interval.ms=3600000"); err != nil {
			return err
		}
		if err := ackOn(b, topic, 0); err != nil {
			return errors.Join(err, b.kill())
		}
		s.add(f, ms(time.Since(b.began)))
	}
	return b.kill()
}

// sumFile is the bare loop of a recovery: read and checksum.
func sumFile(name string) (float64, error) {
	file, err := os.Open(name)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	buf := make([]byte, mib)
	sum := uint32(0)
	began := time.Now()
	for {
		n, err := file.Read(buf)
		sum = crc32.Update(sum, castagnoli, buf[:n])
		if err == io.EOF {
			return ms(time.Since(began)), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// measureDurable produces to topics with flush.messages=1. The floor writes and syncs pieces of the same size,
// one after the other.
func measureDurable(o options, r *report) error {
	cases := []struct {
		name       string
		conns, per int // connections, and how many of them share a partition
		count      int
	}{
		{"durable produce 16KiB, 1 producer", 1, 1, 300},
		{"durable produce 16KiB, 16 producers, 1 partition", 16, 16, 2000},
		{"durable produce 16KiB, 64 producers, 16 partitions", 64, 4, 4000},
	}
	figures := make([]figure, len(cases))
	for i, c := range cases {
		figures[i] = figure{Name: c.name, Unit: "ms per request"}
	}
	for _, s := range subjects(o) {
		err := func() (err error) {
			dir := filepath.Join(o.dir, "durable")
			defer func() { err = errors.Join(err, os.RemoveAll(dir), os.Remove(dir+".log")) }()
			b, err := s.start(dir, "log.flush.interval.messages=1")
			if err != nil {
				return err
			}
			rig, err := rigOf(b, floor.Placement{Server: -1, Load: -1})
			if err != nil {
				return errors.Join(err, b.kill())
			}
			defer func() { err = errors.Join(err, rig.stop()) }()
			for i, c := range cases {
				topic, err := rig.control.createTopic(fmt.Sprintf("durable-%d", i), int32(c.conns/c.per))
				for p := 0; err == nil && p < c.conns/c.per; p++ {
					err = ackOn(b, topic, int32(p))
				}
				if err != nil {
					return err
				}
				for round := range 4 {
					if !s.kafka && round > 0 {
						took, err := syncedWrites(filepath.Join(o.dir, "bare"), 100)
						if err != nil {
							return err
						}
						figures[i].Floor = append(figures[i].Floor, took)
					}
					a, _, err := rig.do(job{Kind: "produce", Topic: topic, Size: 16 * kib, Records: 16, Depth: 1, Conns: c.conns, Share: c.per, Count: c.count, Acks: -1})
					if err != nil {
						return err
					}
					if round > 0 {
						s.add(&figures[i], a.Seconds*1e3/a.Responses)
					}
				}
			}
			return nil
		}()
		if err != nil {
			return err
		}
	}
	for _, f := range figures {
		r.add(f)
	}
	return nil
}

// syncedWrites is the time of one write of 16 KiB at the end of a file with its fdatasync, in ms.
func syncedWrites(name string, n int) (float64, error) {
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	defer os.Remove(name)
	buf := make([]byte, 16*kib)
	fill(buf, 1)
	began := time.Now()
	for i := range n {
		if _, err := f.WriteAt(buf, int64(i*len(buf))); err != nil {
			return 0, errors.Join(err, f.Close())
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return 0, errors.Join(err, f.Close())
		}
	}
	return ms(time.Since(began)) / float64(n), f.Close()
}

// measureConnections is the memory of connections that each asked once and then nothing.
func measureConnections(o options, r *report) error {
	const connections = 5000
	f := figure{Name: fmt.Sprintf("memory, anonymous, a connection of %d idle ones", connections), Unit: "KB", Limit: 8.2}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	for _, s := range subjects(o) {
		dir := filepath.Join(o.dir, "connections")
		b, err := s.start(dir)
		if err != nil {
			return err
		}
		err = s.connections(b, connections, &f)
		if err := errors.Join(err, b.stop(), os.RemoveAll(dir), os.Remove(dir+".log")); err != nil {
			return err
		}
	}
	r.add(f)
	return nil
}

func (s subject) connections(b *broker, n int, f *figure) error {
	first, err := b.wait()
	if err != nil {
		return err
	}
	defer first.close()
	if err := first.apiVersions(); err != nil {
		return err
	}
	time.Sleep(time.Second)
	before := floor.StatusKB(b.pid(), "RssAnon")
	for range n {
		k, err := connect(b.port)
		if err != nil {
			return err
		}
		defer k.close()
		if err := k.apiVersions(); err != nil {
			return err
		}
	}
	time.Sleep(time.Second)
	s.add(f, (floor.StatusKB(b.pid(), "RssAnon")-before)*1024/1e3/float64(n))
	return nil
}

// measureKafkaStart is the start of Apache Kafka in an empty directory, beside that of varve.
func measureKafkaStart(o options, answered, acked, cpu, stopped *figure) error {
	for i := range 3 {
		dir := filepath.Join(o.dir, fmt.Sprintf("kafka-start-%d", i))
		// Formatting the directory is not part of it: varve does it within its own start.
		b, err := startKafka(o.classPath, dir, -1)
		if err != nil {
			return err
		}
		t, err := b.startTimes(b.began)
		signalled := time.Now()
		err = errors.Join(err, b.stop())
		t.stopped = ms(time.Since(signalled))
		if err := errors.Join(err, os.RemoveAll(dir), os.Remove(dir+".log")); err != nil {
			return err
		}
		answered.Kafka = append(answered.Kafka, t.answered)
		acked.Kafka = append(acked.Kafka, t.acked)
		cpu.Kafka = append(cpu.Kafka, t.cpu)
		stopped.Kafka = append(stopped.Kafka, t.stopped)
	}
	return nil
}
