package sim

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/logdir"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/scrub"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// outcome is what became of a damaged directory.
type outcome int

const (
	harmless outcome = iota // every read as before
	repaired                // every read as before, and an event
	limited                 // a loss that is named: an event, an error, or a checksum that the client refuses
	refused                 // the directory or the partition is not served
)

func (o outcome) String() string {
	return [...]string{"harmless", "repaired", "limited", "refused"}[o]
}

// verdict is an outcome with what was lost.
type verdict struct {
	outcome outcome
	lost    int // batches that are not served any more
	events  []string
	why     error // of a refusal
	epochs  int   // batches served with a wrong leader epoch
	moved   bool  // the last batch of a killed log is served at another offset; told by an event
	// atFirst is what was wrong before a scrub had looked; nil when nothing was.
	atFirst error
}

// openDamaged starts a broker on a damaged disk and reads everything. The error
// is a violation: a wrong record, or a loss of which nothing is said.
func (m *moment) openDamaged(disk *memfs.FS) (v verdict, err error) {
	w := newWatch()
	dirs, err := m.open(disk, w)
	if err != nil {
		return verdict{outcome: refused, why: err, events: w.names()}, nil
	}
	defer func() {
		if cerr := dirs.Close(9); cerr != nil && err == nil && !expectedAtStop(cerr) {
			err = fmt.Errorf("stop: %w", cerr)
		}
	}()
	if v, err = m.readAll(dirs); err != nil || errors.Is(v.why, errSilent) && !w.any() {
		// What a sealed segment holds is checked at its first touch as far as its
		// indexes go, and whole by the scrub.
		first := err
		v.atFirst = first
		for _, log := range logsOf(dirs) { // the active segment's turn comes when it is sealed
			err := log.Roll()
			if err == nil {
				err = log.Flush(log.EndOffset()) // the scrub looks below the recovery point
			}
			if err != nil {
				return v, fmt.Errorf("roll: %w", err)
			}
		}
		scrub.New(scrub.Options{Logs: func() []*commitlog.Log { return logsOf(dirs) }, Now: func() time.Time { return m.now }, Logger: w.logger()}).Pass()
		if v, err = m.readAll(dirs); err != nil {
			return v, fmt.Errorf("%w (events %v)", err, w.names())
		}
		v.atFirst = first
		if first == nil {
			v.atFirst = errSilent
		}
	}
	v.events = w.names()
	if v.moved && !slices.Contains(v.events, "offset-gap") {
		return v, fmt.Errorf("the last batch is served at another offset, and nothing says so (events %v)", v.events)
	}
	if v.outcome == harmless && w.any() {
		v.outcome = repaired
	}
	return v, nil
}

func logsOf(dirs *logdir.Manager) (list []*commitlog.Log) {
	for _, tp := range dirs.Partitions() {
		list = append(list, dirs.Log(tp))
	}
	return list
}

func (m *moment) readAll(dirs *logdir.Manager) (v verdict, err error) {
	for _, tp := range sortedParts(m.parts) {
		one, err := m.parts[tp].readDamaged(dirs)
		if err != nil {
			return v, fmt.Errorf("%s: %w", tp, err)
		}
		v.outcome = max(v.outcome, one.outcome)
		v.lost += one.lost
		v.epochs += one.epochs
		v.moved = v.moved || one.moved
		v.why = errors.Join(v.why, one.why)
	}
	return v, nil
}

// expectedAtStop: a directory that went offline while it was read does not stop cleanly.
func expectedAtStop(err error) bool { return errors.Is(err, logdir.ErrOffline) }

// errSilent is a loss that nothing was said about; the caller knows the events.
var errSilent = errors.New("records are gone and nothing says so")

func (p *part) readDamaged(dirs *logdir.Manager) (v verdict, err error) {
	log := dirs.Log(p.tp)
	if log == nil {
		if err := dirs.Failure(p.tp); err != nil {
			return verdict{outcome: refused, lost: len(p.batches), why: err}, nil
		}
		return verdict{outcome: limited, lost: len(p.batches)}, nil // set aside; the caller wants an event
	}
	log.MaybeIncrementHighWatermark(log.EndOffset())
	byBase := map[kafka.Offset]*batch{}
	whole, silent := true, false
	var lostAt []int
	for i := range p.batches {
		b := &p.batches[i]
		byBase[b.base] = b
		if b.last < p.start {
			continue
		}
		served, loud, err := p.serve(log, b)
		var epoch *epochError
		if errors.As(err, &epoch) && b.base >= p.durable {
			// Above the recovery point nothing else tells the epoch of a batch: the
			// checksum does not cover it.
			v.epochs++
			served, loud, err = false, true, nil
		}
		if err != nil {
			return v, err
		}
		if !served {
			whole = false
			lostAt = append(lostAt, i)
			v.lost++
			v.outcome = max(v.outcome, limited)
			silent = silent || !loud
		}
	}
	// The end of a killed log may be gone as a power cut takes it: nothing can tell.
	suffix := len(lostAt) > 0 && lostAt[0]+len(lostAt) == len(p.batches) && p.batches[lostAt[0]].base >= p.durable && log.EndOffset() <= p.batches[lostAt[0]].base
	if silent && !suffix {
		v.why = errSilent
	}
	// As a consumer walks it: no batch with a right checksum that was not sent.
	_, rerr := read(log, commitlog.LogEnd, 1<<20, func(b []byte, h *record.Header, _ []commitlog.AbortedTxn) error {
		if record.Check(b) != nil {
			return errRefused
		}
		want := byBase[h.BaseOffset]
		if want == nil && p.movedLast(b, h) {
			v.moved = true
			return nil
		}
		if want == nil || !bytes.Equal(b[covered:], want.raw[covered:]) {
			return &wrongError{fmt.Sprintf("a batch %d to %d is served that was not sent", h.BaseOffset, h.LastOffset)}
		}
		return nil
	})
	var wrong *wrongError
	if errors.As(rerr, &wrong) {
		return v, wrong
	}
	if rerr != nil {
		v.outcome = max(v.outcome, limited)
		whole = false
	}
	if whole && log.EndOffset() == p.end && log.StartOffset() == p.start {
		found := make([]int, 0, len(p.batches))
		for i := range p.batches {
			if p.batches[i].last >= log.StartOffset() {
				found = append(found, i)
			}
		}
		if err := p.judgeCommitted(log, found); err != nil {
			return v, err
		}
		if err := p.judgeLookups(log, found, rand.New(rand.NewPCG(1, uint64(len(found))))); err != nil {
			return v, err
		}
		if err := p.judgeProducers(log, found); err != nil {
			return v, err
		}
	}
	return v, nil
}

// movedLast tells the last batch above the recovery point with a base offset that
// is higher by one bit, by less than a truncation inside a batch can leave out:
// no checksum covers it, nothing stands behind it, and Kafka writes such logs.
func (p *part) movedLast(b []byte, h *record.Header) bool {
	last := &p.batches[len(p.batches)-1]
	return last.base >= p.durable && h.BaseOffset > last.base && h.BaseOffset-last.base < 1<<20 &&
		bits.OnesCount64(uint64(h.BaseOffset^last.base)) == 1 && bytes.Equal(b[covered:], last.raw[covered:])
}

// errRefused is a batch that every client refuses by its checksum.
var errRefused = errors.New("checksum")

// wrongError is a wrong record.
type wrongError struct{ what string }

func (e *wrongError) Error() string { return e.what }

// epochError is a right record with a wrong leader epoch.
type epochError struct{ wrongError }

// serve asks for the batch as a consumer that is at its base offset does. loud
// says that the consumer is told when it is not served.
func (p *part) serve(log *commitlog.Log, b *batch) (served, loud bool, err error) {
	info, rerr := log.Read(max(b.base, p.start), commitlog.ReadOptions{MaxBytes: 1, MinOneBatch: true, Bound: commitlog.LogEnd})
	if rerr != nil {
		return false, !errors.Is(rerr, commitlog.ErrOffsetOutOfRange), nil
	}
	got := make([]byte, info.Region.Length)
	if len(got) > 0 {
		_, rerr = info.Region.File.ReadAt(got, info.Region.Offset)
	}
	if info.Region.Release != nil {
		info.Region.Release()
	}
	if rerr != nil {
		return false, true, nil
	}
	if len(got) == 0 {
		return false, false, nil
	}
	h, perr := record.ParseHeader(got)
	if perr != nil || len(got) < h.Size || record.Check(got[:h.Size]) != nil {
		return false, true, nil // the client's own check tells
	}
	switch {
	case h.BaseOffset == b.base && bytes.Equal(got[covered:h.Size], b.raw[covered:]):
		if h.LeaderEpoch != b.epoch {
			return false, false, &epochError{wrongError{fmt.Sprintf("the batch %d to %d is served with leader epoch %d, written with %d", b.base, b.last, h.LeaderEpoch, b.epoch)}}
		}
		return true, true, nil
	case h.BaseOffset > b.last:
		return false, false, nil // skipped: the record is gone
	}
	return false, false, &wrongError{fmt.Sprintf("offset %d is answered with the batch %d to %d, which was not sent", b.base, h.BaseOffset, h.LastOffset)}
}

// judge is openDamaged with the rule that a loss is never silent.
func (m *moment) judgeDamaged(disk *memfs.FS) (verdict, error) {
	var v verdict
	err := guard(func() error {
		var err error
		v, err = m.openDamaged(disk)
		return err
	})
	if err == nil && v.outcome == limited && len(v.events) == 0 && errors.Is(v.why, errSilent) {
		err = fmt.Errorf("%d batches: %w", v.lost, errSilent)
	}
	return v, err
}

// pool runs cases on all processors. A case that does not end is named, and
// ends the run.
type pool struct {
	row  *Row
	jobs chan poolJob
	wg   sync.WaitGroup
	stop chan struct{}
	busy []atomic.Pointer[poolJob]
}

type poolJob struct {
	name  func() string
	run   func()
	began time.Time
}

// hang is how long a case may take on a busy machine.
const hang = time.Minute

func newPool(row *Row) *pool {
	n := runtime.GOMAXPROCS(0)
	p := &pool{row: row, jobs: make(chan poolJob, 4*n), stop: make(chan struct{}), busy: make([]atomic.Pointer[poolJob], n)}
	for i := range n {
		p.wg.Go(func() {
			for j := range p.jobs {
				j.began = time.Now()
				p.busy[i].Store(&j)
				j.run()
				p.busy[i].Store(nil)
			}
		})
	}
	go p.watch()
	return p
}

func (p *pool) watch() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var m runtime.MemStats
	for {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		for i := range p.busy {
			if j := p.busy[i].Load(); j != nil && time.Since(j.began) > hang {
				panic("a case does not end: " + j.name())
			}
		}
		runtime.ReadMemStats(&m)
		p.row.AtLeast("peak heap MiB", int(m.HeapAlloc>>20))
	}
}

func (p *pool) do(name func() string, run func()) { p.jobs <- poolJob{name: name, run: run} }

func (p *pool) wait() {
	close(p.jobs)
	p.wg.Wait()
	close(p.stop)
}
