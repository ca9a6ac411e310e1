// Command soak runs one varve for hours under a small mixed load and watches
// that nothing is lost and nothing grows.
//
// Load: idempotent, plain and compressed producers, a group whose members come
// and go, readers at the end and at the beginning, compacted topics, retention
// by size and by time, DeleteRecords, a topic created and deleted under one
// name, connections opened and dropped, clean stops and kill -9. What is read
// is held against what was acknowledged (model.go, keyed.go); memory,
// descriptors, maps, threads and files are sampled and their growth is judged
// (sample.go, trend.go). Exit status 0: all held; 1: something did not; 2: the
// soak itself could not run.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

type options struct {
	duration     time.Duration
	rate         int
	restartEvery time.Duration
	seed         uint64
	out          string
	binary       string
	dir          string
	keep         bool
}

func main() {
	var o options
	flag.DurationVar(&o.duration, "for", 2*time.Hour, "how long to run")
	flag.IntVar(&o.rate, "rate", 150, "records a second, of all producers together")
	flag.DurationVar(&o.restartEvery, "restart-every", 0, "a restart, clean or by kill -9, about this often; 0 takes 4m, or a quarter of a short run")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of what is random; 0 takes one from the clock")
	flag.StringVar(&o.out, "out", "", "file for the report as JSON")
	flag.StringVar(&o.binary, "varve", "", "the binary under test; default bin/varve of the checkout, or $E2E_VARVE")
	flag.StringVar(&o.dir, "dir", "", "an empty directory for data and logs; default a temporary one")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory after a good run too")
	flag.Parse()
	if err := o.complete(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r, err := run(ctx, o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	r.print(os.Stdout)
	if o.out != "" {
		b, err := json.MarshalIndent(r, "", " ")
		if err == nil {
			err = os.WriteFile(o.out, append(b, '\n'), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			os.Exit(2)
		}
	}
	if !r.Passed {
		os.Exit(1)
	}
}

func (o *options) complete() error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.duration < 30*time.Second || o.rate < 20 {
		return fmt.Errorf("-for must be 30s at least and -rate 20")
	}
	if o.restartEvery == 0 {
		o.restartEvery = min(4*time.Minute, max(o.duration/4, 20*time.Second))
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	if o.binary == "" {
		o.binary = os.Getenv("E2E_VARVE")
	}
	if o.binary == "" {
		o.binary = filepath.Join("..", "bin", "varve")
	}
	var err error
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return err
	}
	if _, err := os.Stat(o.binary); err != nil {
		return fmt.Errorf("%w: run make build first", err)
	}
	if o.dir == "" {
		o.dir, err = os.MkdirTemp("", "varve-soak-")
		return err
	}
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if entries, _ := os.ReadDir(o.dir); len(entries) > 0 {
		return fmt.Errorf("%s is not empty", o.dir)
	}
	return os.MkdirAll(o.dir, 0o755)
}

// pacing are the times of the load, shorter in a short run.
type pacing struct {
	unit      time.Duration // a tick of everything that happens now and then
	segment   time.Duration // segment.ms of the topics that roll by time
	retention time.Duration // retention.ms
	check     time.Duration // log.retention.check.interval.ms
	warm      time.Duration // of the run: until everything has reached its level
}

// short is a run that shows that the load works and that nothing leaks grossly.
func (o options) short() bool { return o.duration < 20*time.Minute }

func (o options) pacing() pacing {
	if o.short() {
		return pacing{unit: 2 * time.Second, segment: time.Second, retention: 6 * time.Second, check: 500 * time.Millisecond, warm: o.duration / 5}
	}
	return pacing{unit: 10 * time.Second, segment: 10 * time.Second, retention: time.Minute, check: 5 * time.Second, warm: 10 * time.Minute}
}

// settle is the time after a start in which values move: until retention has
// replaced the segments that the last process left.
func (p pacing) settle() time.Duration { return p.retention + 2*p.segment + 3*p.check }

// soak is one run.
type soak struct {
	options
	pacing
	broker   *broker
	findings *findings
	model    *model
	keyed    []*keyed
	group    *group
	admin    *kadm.Client // asks and changes; one for the whole run
	started  time.Time
	counts   counts
}

func run(ctx context.Context, o options) (*report, error) {
	s := &soak{options: o, pacing: o.pacing(), findings: &findings{}, started: time.Now()}
	s.broker = newBroker(o, s.pacing, s.findings)
	s.model = newModel(s.findings)
	s.group = newGroup(s)
	fmt.Printf("soak of %s for %v at %d records/s, a restart every %v, seed %d, in %s\n", o.binary, o.duration, o.rate, o.restartEvery, o.seed, o.dir)
	if err := s.broker.start(ctx); err != nil {
		return nil, err
	}
	defer s.broker.kill()
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s.admin = kadm.NewClient(c)
	if err := s.createTopics(ctx); err != nil {
		return nil, err
	}
	load, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var producers, rest sync.WaitGroup
	quiet := make(chan struct{}) // closed: producers stop and flush
	if err := s.startProducers(load, &producers, quiet); err != nil {
		return nil, err
	}
	s.startReaders(load, &rest)
	s.startChurn(load, &rest)
	samples := s.startSampling(load, &rest)

	rnd := rand.New(rand.NewPCG(o.seed, 1))
	end := time.After(o.duration)
	for live := true; live; {
		select {
		case <-ctx.Done():
			live = false
		case <-end:
			live = false
		case err := <-s.broker.ended():
			s.broker.gone()
			s.findings.add("the broker ended by itself: %v", err)
			live = false
		case <-time.After(s.untilRestart(rnd)):
			if err := s.restart(ctx, rnd); err != nil {
				s.findings.add("restart: %v", err)
				live = false
			}
		}
	}
	if ctx.Err() == nil && s.broker.running() {
		s.finish(ctx, &producers, quiet)
	}
	stopLoad()
	producers.Wait()
	rest.Wait()
	if s.broker.running() {
		if err := s.broker.stop(); err != nil {
			s.findings.add("last stop: %v", err)
		}
		s.verify("after the last stop")
	}
	r := s.report(<-samples)
	if ctx.Err() != nil {
		r.Passed = false
		r.Interrupted = true
	}
	if r.Passed && !o.keep {
		if err := os.RemoveAll(o.dir); err != nil {
			return nil, err
		}
	} else {
		fmt.Printf("data and logs are in %s\n", o.dir)
	}
	return r, nil
}

// untilRestart draws the length of a life. In the third quarter of a run of
// half an hour or more the broker is left alone, so that slow growth within
// one life can show.
func (s *soak) untilRestart(rnd *rand.Rand) time.Duration {
	d := s.restartEvery*3/4 + time.Duration(rnd.Int64N(int64(s.restartEvery/2)))
	since := time.Since(s.started)
	if s.duration >= 30*time.Minute && since >= s.duration/2 && since < s.duration*3/4 {
		return s.duration*3/4 - since
	}
	return d
}

func (s *soak) restart(ctx context.Context, rnd *rand.Rand) error {
	how := "kill"
	if rnd.IntN(2) == 0 {
		how = "stop"
	}
	acked := s.group.acknowledged()
	starts := s.model.starts()
	if how == "kill" {
		s.broker.kill()
		s.counts.kills.Add(1)
	} else {
		s.counts.stops.Add(1)
		if err := s.broker.stop(); err != nil {
			return err
		}
	}
	s.verify("after a " + how)
	if err := s.broker.start(ctx); err != nil {
		return err
	}
	s.group.checkCommitted(ctx, acked)
	s.checkStarts(ctx, starts)
	fmt.Printf("%8v %s and start %d: up after %v, %d records acknowledged, %d findings\n", time.Since(s.started).Round(time.Second), how, s.broker.lives(), s.broker.startTook().Round(time.Millisecond), s.model.acked.Load(), s.findings.count())
	return nil
}

// verify has varve verify read the directory of a broker that does not run.
func (s *soak) verify(when string) {
	if out, code := s.broker.verify(); code != 0 {
		s.findings.add("varve verify %s: exit %d\n%.2000s", when, code, out)
	}
}

// finish lets the producers end, and holds everything that is left in the
// topics against the model.
func (s *soak) finish(ctx context.Context, producers *sync.WaitGroup, quiet chan struct{}) {
	close(quiet)
	done := make(chan struct{})
	go func() { producers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		s.findings.add("producers could not flush within a minute of the end")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s.model.waitRead(ctx)
	for _, k := range s.keyed {
		s.checkKeyed(ctx, k, true)
	}
	s.readEverything(ctx)
}

// findings are what did not hold; the first of them are kept word for word.
type findings struct {
	mu    sync.Mutex
	n     int
	Texts []string
}

func (f *findings) add(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	if len(f.Texts) < 50 {
		text := fmt.Sprintf("%s %s", time.Now().UTC().Format(time.TimeOnly), fmt.Sprintf(format, args...))
		f.Texts = append(f.Texts, text)
		fmt.Println("FINDING", text)
	}
}

func (f *findings) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}
