package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/bench/floor"
)

// job tells the load generator what to send to the broker. It is the same program as the floor's generator:
// one thread, raw blocking system calls, frames encoded before, no collector.
type job struct {
	Kind    string // produce, fetch, ping, wake
	Port    int
	Topic   [16]byte
	Size    int   // bytes of a produced batch; of the records in a fetch response
	Records int   // in a produced batch; in a fetch response
	Depth   int   // requests in flight on a connection
	Conns   int   // connections; connection i uses partition i, or i/Share
	Share   int   // connections that use the same partition; 0 is 1
	Count   int   // requests in all
	End     int64 // fetches begin again at offset 0 from here on
	Acks    int16
	Waiters int
	Offset  int64 // where the waiting fetches begin
	PauseUS int
}

// childMain runs one of the child programs and says whether the arguments asked for one.
func childMain(args []string) bool {
	var err error
	switch args[0] {
	case "child:load-broker":
		err = load()
	case "child:pinned":
		err = pinned(args[1], args[2:])
	default:
		return false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, args[0]+":", err)
		os.Exit(1)
	}
	return true
}

func load() error {
	runtime.LockOSThread()
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var j job
		if err := json.Unmarshal(in.Bytes(), &j); err != nil {
			return err
		}
		a, err := j.run()
		if err != nil {
			a.Err = err.Error()
		}
		if err := floor.PrintJSON(a); err != nil {
			return err
		}
	}
	return in.Err()
}

func (j job) run() (floor.Answer, error) {
	switch j.Kind {
	case "produce":
		return j.produce()
	case "fetch":
		return j.fetch()
	case "ping":
		return j.ping()
	case "wake":
		return j.wake()
	}
	return floor.Answer{}, fmt.Errorf("no job %q", j.Kind)
}

// frames reads whole responses from a connection.
type frames struct {
	floor.RawConn
	buf  []byte
	have int // bytes of buf that are filled
}

// next returns the next response without its size; it is valid until the following call.
func (f *frames) next() ([]byte, error) {
	for f.have < 4 {
		if err := f.more(); err != nil {
			return nil, err
		}
	}
	n := 4 + int(binary.BigEndian.Uint32(f.buf))
	for f.have < n {
		if n > len(f.buf) {
			f.buf = append(f.buf[:f.have], make([]byte, n-f.have)...)
		}
		if err := f.more(); err != nil {
			return nil, err
		}
	}
	return f.buf[4:n], nil
}

func (f *frames) more() error {
	n, err := f.Read(f.buf[f.have:])
	f.have += n
	return err
}

// drop forgets the response that next returned.
func (f *frames) drop() {
	n := 4 + int(binary.BigEndian.Uint32(f.buf))
	f.have = copy(f.buf, f.buf[n:f.have])
}

// whole says whether a whole response is in the buffer.
func (f *frames) whole() bool {
	return f.have >= 4 && f.have >= 4+int(binary.BigEndian.Uint32(f.buf))
}

// dialAll opens the connections.
func (j job) dialAll(n int) ([]*frames, error) {
	list := make([]*frames, n)
	for i := range list {
		c, err := floor.Dial(j.Port)
		if err != nil {
			return nil, err
		}
		list[i] = &frames{RawConn: c, buf: make([]byte, 256<<10)}
	}
	return list, nil
}

func closeAll(list []*frames) {
	for _, c := range list {
		c.Close()
	}
}

// produce keeps Depth requests in flight on each connection until Count were acknowledged.
func (j job) produce() (a floor.Answer, err error) {
	conns, err := j.dialAll(max(1, j.Conns))
	if err != nil {
		return a, err
	}
	defer closeAll(conns)
	b := batch(j.Size, j.Records, time.Now().UnixMilli())
	reqs := make([][]byte, len(conns))
	for i := range reqs {
		reqs[i] = produceFrame(j.Topic, int32(i/max(1, j.Share)), b, j.Acks)
	}
	begin := time.Now()
	sent, size := 0, 0 // size of a good answer
	pending := make([]int, len(conns))
	for i, c := range conns {
		for sent < j.Count && pending[i] < j.Depth {
			if err := c.Write(reqs[i]); err != nil {
				return a, err
			}
			sent++
			pending[i]++
		}
	}
	for int(a.Responses) < j.Count {
		for i, c := range conns {
			for first := true; pending[i] > 0 && (first || c.whole()); first = false {
				body, err := c.next()
				if err != nil {
					return a, err
				}
				if size == 0 {
					size = len(body)
					err = checkProduce(body)
				} else if len(body) != size {
					err = errors.Join(fmt.Errorf("answer %.0f has %d bytes instead of %d", a.Responses, len(body), size), checkProduce(body))
				}
				if err != nil {
					return a, err
				}
				c.drop()
				a.Responses++
				if pending[i]--; sent < j.Count {
					if err := c.Write(reqs[i]); err != nil {
						return a, err
					}
					sent++
					pending[i]++
				}
			}
		}
	}
	a.Seconds = time.Since(begin).Seconds()
	a.Bytes = a.Responses * float64(j.Size)
	return a, nil
}

// fetch keeps Depth fetches in flight, each at the offset behind the one before.
func (j job) fetch() (a floor.Answer, err error) {
	c, err := floor.Dial(j.Port)
	if err != nil {
		return a, err
	}
	defer c.Close()
	req, at := fetchFrame(j.Topic, 0, int32(j.Size), 1, 1000)
	offset := int64(0)
	ask := func() error {
		if offset+int64(j.Records) > j.End {
			offset = 0
		}
		binary.BigEndian.PutUint64(req[at:], uint64(offset))
		offset += int64(j.Records)
		return c.Write(req)
	}
	buf := make([]byte, 256<<10)
	begin := time.Now()
	sent := 0
	for ; sent < min(j.Depth, j.Count); sent++ {
		if err := ask(); err != nil {
			return a, err
		}
	}
	size := 0 // of a response with its size; all are the same
	for int(a.Responses) < j.Count {
		if size, err = drainFrame(c, size, buf); err != nil {
			return a, fmt.Errorf("response %.0f: %w", a.Responses, err)
		}
		if size < j.Size {
			return a, fmt.Errorf("a response has %d bytes, fewer than the records asked for", size)
		}
		a.Responses++
		if sent < j.Count {
			if err := ask(); err != nil {
				return a, err
			}
			sent++
		}
	}
	a.Seconds = time.Since(begin).Seconds()
	a.Bytes = a.Responses * float64(j.Size)
	return a, nil
}

// drainFrame reads and drops a response of size bytes, its size field included, as few reads as there are;
// the first time, with size 0, it finds the size out.
func drainFrame(c floor.RawConn, size int, buf []byte) (int, error) {
	limit := max(size, 4)
	have := 0
	for have < 4 {
		n, err := c.Read(buf[have:min(limit, len(buf))])
		if err != nil {
			return 0, err
		}
		have += n
	}
	says := 4 + int(binary.BigEndian.Uint32(buf))
	if size != 0 && says != size {
		return 0, fmt.Errorf("%d bytes instead of %d", says, size)
	}
	return says, c.Drain(says-have, buf)
}

// ping produces one batch at a time and times each.
func (j job) ping() (a floor.Answer, err error) {
	conns, err := j.dialAll(1)
	if err != nil {
		return a, err
	}
	defer closeAll(conns)
	c := conns[0]
	req := produceFrame(j.Topic, 0, batch(j.Size, j.Records, time.Now().UnixMilli()), j.Acks)
	var lat []float64
	for i := range j.Count {
		begin := time.Now()
		if err := c.Write(req); err != nil {
			return a, err
		}
		body, err := c.next()
		if err != nil {
			return a, err
		}
		if i == 0 {
			if err := checkProduce(body); err != nil {
				return a, err
			}
		}
		c.drop()
		if i >= 20 {
			lat = append(lat, float64(time.Since(begin).Nanoseconds())/1e3)
		}
		a.Responses++
	}
	latencies(&a, lat)
	return a, nil
}

// wake produces one batch at a time while Waiters long polls wait for it; it times produce to last delivery.
func (j job) wake() (a floor.Answer, err error) {
	readers, err := j.dialAll(j.Waiters)
	if err != nil {
		return a, err
	}
	defer closeAll(readers)
	producers, err := j.dialAll(1)
	if err != nil {
		return a, err
	}
	defer closeAll(producers)
	producer := producers[0]
	put := produceFrame(j.Topic, 0, batch(j.Size, j.Records, time.Now().UnixMilli()), j.Acks)
	wait, at := fetchFrame(j.Topic, 0, 1<<20, 1, 30_000)
	var lat []float64
	for i := range j.Count {
		binary.BigEndian.PutUint64(wait[at:], uint64(j.Offset+int64(i*j.Records)))
		for _, r := range readers {
			if err := r.Write(wait); err != nil {
				return a, err
			}
		}
		pause := unix.NsecToTimespec(int64(j.PauseUS) * 1000)
		_ = unix.Nanosleep(&pause, nil)
		begin := time.Now()
		if err := producer.Write(put); err != nil {
			return a, err
		}
		for _, r := range readers {
			body, err := r.next()
			if err != nil {
				return a, err
			}
			if len(body) < j.Size {
				return a, fmt.Errorf("a waiting fetch got %d bytes, fewer than the batch", len(body))
			}
			r.drop()
			a.Responses++
		}
		lat = append(lat, float64(time.Since(begin).Nanoseconds())/1e3)
		if _, err := producer.next(); err != nil {
			return a, err
		}
		producer.drop()
	}
	latencies(&a, lat)
	return a, nil
}

func latencies(a *floor.Answer, lat []float64) {
	slices.Sort(lat)
	a.P50, a.P99, a.P999 = floor.Quantile(lat, 0.5), floor.Quantile(lat, 0.99), floor.Quantile(lat, 0.999)
}
