package cleaner

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// owner is a few logs on one memory disk, as logdir keeps them.
type owner struct {
	t     *testing.T
	disk  *memfs.FS
	fault func(op faultfs.Op) error

	mu      sync.Mutex
	logs    []*commitlog.Log
	cleaned map[*commitlog.Log]kafka.Offset
	lines   bytes.Buffer
	rounds  []string // of OnRound: topic and range
}

func newOwner(t *testing.T, topics ...string) *owner {
	o := &owner{t: t, disk: memfs.New(), cleaned: map[*commitlog.Log]kafka.Offset{}}
	o.disk.SetNow(time.Now)
	for _, name := range topics {
		o.add(name, worldConfig())
	}
	t.Cleanup(func() {
		for _, l := range o.logs {
			if err := l.Close(); err != nil && l.Failure() == nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	return o
}

func (o *owner) add(name string, cfg commitlog.Config) *commitlog.Log {
	o.t.Helper()
	tp := kafka.TopicPartition{Topic: name}
	dir := "/d/" + tp.String()
	must(o.t, o.disk.MkdirAll(dir, 0o755))
	l, err := commitlog.Open(commitlog.Options{
		FS: faultfs.Wrap(o.disk, o.inject), Dir: dir, Partition: tp, Config: cfg, Now: time.Now, AfterDelay: func(time.Duration, func()) {},
	})
	must(o.t, err)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.logs = append(o.logs, l)
	return l
}

func (o *owner) inject(op faultfs.Op) faultfs.Fault {
	o.mu.Lock()
	fault := o.fault
	o.mu.Unlock()
	if fault == nil {
		return faultfs.Fault{}
	}
	return faultfs.Fault{Err: fault(op)}
}

func (o *owner) setFault(f func(op faultfs.Op) error) {
	o.mu.Lock()
	o.fault = f
	o.mu.Unlock()
}

// fill appends n batches to a log, each into a segment of its own, and an active one.
func (o *owner) fill(i, n int) {
	o.t.Helper()
	l := o.logs[i]
	for range n {
		_, err := l.AppendAsLeader(follower(o.t, 0, kv("a", value(50)), kv("b", value(60))), 0, commitlog.AppendOptions{})
		must(o.t, err)
		l.MaybeIncrementHighWatermark(l.EndOffset())
		must(o.t, l.Roll())
	}
}

func (o *owner) options() Options {
	return Options{
		Logs: func() []Candidate {
			o.mu.Lock()
			defer o.mu.Unlock()
			var list []Candidate
			for _, l := range o.logs {
				c := Candidate{l, kafka.NoOffset}
				if first, ok := o.cleaned[l]; ok {
					c.Cleaned = first
				}
				list = append(list, c)
			}
			return list
		},
		SetCleaned: func(l *commitlog.Log, generation uint64, offset kafka.Offset) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			if l.Generation() == generation {
				o.cleaned[l] = offset
			}
			return nil
		},
		Now:    time.Now,
		Logger: slog.New(slog.NewTextHandler(lockedWriter{o}, &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnRound: func(l *commitlog.Log, s Stats) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.rounds = append(o.rounds, fmt.Sprintf("%s %d-%d", l.Partition().Topic, s.FirstDirty, s.NextDirty))
		},
	}
}

// lockedWriter collects what is logged.
type lockedWriter struct{ o *owner }

func (w lockedWriter) Write(b []byte) (int, error) {
	w.o.mu.Lock()
	defer w.o.mu.Unlock()
	return w.o.lines.Write(b)
}

func (o *owner) logged(text string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Count(o.lines.String(), text)
}

func (o *owner) takeRounds() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := o.rounds
	o.rounds = nil
	return list
}

func (o *owner) leftovers() (list []string) {
	for _, l := range o.logs {
		names, _ := o.disk.ReadDir(l.Dir())
		for _, d := range names {
			if strings.HasSuffix(d.Name(), ".cleaned") || strings.HasSuffix(d.Name(), ".swap") {
				list = append(list, path.Join(l.Dir(), d.Name()))
			}
		}
	}
	return list
}

// started runs a cleaner in a bubble of time of its own.
func started(t *testing.T, config Config, topics []string, f func(t *testing.T, o *owner, c *Cleaner)) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwner(t, topics...)
		c := New(o.options(), config)
		defer c.Stop()
		f(t, o, c)
	})
}

func TestTheDirtiestLogIsCleanedFirst(t *testing.T) {
	started(t, Config{}, []string{"half", "most", "little", "delete"}, func(t *testing.T, o *owner, c *Cleaner) {
		for i, n := range []int{4, 4, 4, 4} {
			o.fill(i, n)
		}
		o.cleaned[o.logs[0]] = o.logs[0].Segments()[1].BaseOffset()
		o.cleaned[o.logs[2]] = o.logs[2].Segments()[3].BaseOffset() // a quarter is dirty: below the ratio
		plain := worldConfig()
		plain.CleanupCompact, plain.CleanupDelete = false, true
		o.logs[3].SetConfig(plain)
		c.Start()
		synctest.Wait()
		want(t, "rounds", o.takeRounds(), []string{"most 0-8", "half 2-8"})
		want(t, "checkpoint", o.cleaned[o.logs[1]], 8)
		if o.logged(`msg="log compacted" event=compacted topic=most partition=0 bytesBefore=`) != 1 {
			t.Errorf("no line about the round in\n%s", o.lines.String())
		}
	})
}

func TestNothingToDoIsLookedForAgainAfterTheBackoff(t *testing.T) {
	started(t, Config{Backoff: 15 * time.Second}, []string{"t"}, func(t *testing.T, o *owner, c *Cleaner) {
		c.Start()
		synctest.Wait()
		o.fill(0, 3)
		time.Sleep(15*time.Second - 1)
		synctest.Wait()
		want(t, "rounds before the backoff is over", len(o.takeRounds()), 0)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		want(t, "rounds", o.takeRounds(), []string{"t 0-6"})
	})
}

func TestAnOverdueLogIsCleanedWhateverItsRatio(t *testing.T) {
	started(t, Config{}, []string{"t"}, func(t *testing.T, o *owner, c *Cleaner) {
		cfg := worldConfig()
		cfg.MinCleanableRatio, cfg.MaxCompactionLagMs = 1, 60_000
		o.logs[0].SetConfig(cfg)
		o.fill(0, 3)
		c.Start()
		synctest.Wait() // its records are of 1970, so it is overdue
		want(t, "rounds", o.takeRounds(), []string{"t 0-6"})
	})
}

func TestADamagedLogIsLeftAloneUntilTheNextStart(t *testing.T) {
	started(t, Config{}, []string{"bad", "good"}, func(t *testing.T, o *owner, c *Cleaner) {
		o.fill(0, 4)
		o.fill(1, 4)
		f, err := o.disk.OpenFile(o.logs[0].Segments()[1].Path(), 2, 0)
		must(t, err)
		_, err = f.WriteAt([]byte("damage"), 70)
		must(t, errors.Join(err, f.Close()))
		c.Start()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		want(t, "rounds", o.takeRounds(), []string{"good 0-8"})
		want(t, "errors logged", o.logged(`level=ERROR msg="log cannot be compacted until the next start" event=corrupt-batch topic=bad`), 1)
		if err := c.Uncleanable()[o.logs[0].Partition()]; !errors.Is(err, record.ErrCorrupt) {
			t.Errorf("Uncleanable() = %v", c.Uncleanable())
		}
		o.mu.Lock()
		gone := o.logs[0]
		o.logs = o.logs[1:]
		o.mu.Unlock()
		defer gone.Abandon()
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, "uncleanable logs once it is gone", len(c.Uncleanable()), 0)
	})
}

func TestAFullDiskIsTriedAgain(t *testing.T) {
	started(t, Config{Backoff: time.Second}, []string{"t"}, func(t *testing.T, o *owner, c *Cleaner) {
		o.fill(0, 4)
		o.setFault(func(op faultfs.Op) error {
			if op.Kind == faultfs.Write && strings.HasSuffix(op.Name, ".cleaned") {
				return syscall.ENOSPC
			}
			return nil
		})
		c.Start()
		time.Sleep(3*time.Second - 1)
		synctest.Wait()
		want(t, "rounds on a full disk", len(o.takeRounds()), 0)
		want(t, "warnings", o.logged(`level=WARN msg="compaction put off"`), 3)
		want(t, "files left behind", o.leftovers(), nil)
		o.setFault(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, "rounds", o.takeRounds(), []string{"t 0-8"})
		must(t, o.logs[0].Failure())
	})
}

// Faults E3: a sector that cannot be read now is no damage for good.
func TestALogThatCannotBeReadIsTriedAgain(t *testing.T) {
	started(t, Config{Backoff: time.Second}, []string{"t"}, func(t *testing.T, o *owner, c *Cleaner) {
		told := 0
		c.o.OnReadError = func(l *commitlog.Log, err error) {
			if l != o.logs[0] || !errors.Is(err, syscall.EIO) {
				t.Errorf("OnReadError(%v, %v)", l.Partition(), err)
			}
			told++
		}
		o.fill(0, 4)
		o.setFault(func(op faultfs.Op) error {
			if op.Kind == faultfs.Read && strings.HasSuffix(op.Name, ".log") {
				return syscall.EIO
			}
			return nil
		})
		c.Start()
		time.Sleep(3*time.Second - 1)
		synctest.Wait()
		want(t, "rounds while it cannot be read", len(o.takeRounds()), 0)
		want(t, "times told", told, 3)
		want(t, "logs given up", len(c.Uncleanable()), 0)
		o.setFault(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, "rounds", o.takeRounds(), []string{"t 0-8"})
	})
}

func TestAFailedSyncEndsTheRoundForGood(t *testing.T) {
	started(t, Config{Backoff: time.Second}, []string{"t"}, func(t *testing.T, o *owner, c *Cleaner) {
		o.fill(0, 4)
		o.setFault(func(op faultfs.Op) error {
			if op.Kind == faultfs.Sync && strings.HasSuffix(op.Name, ".cleaned") {
				return syscall.EIO
			}
			return nil
		})
		c.Start()
		time.Sleep(time.Minute)
		synctest.Wait()
		want(t, "rounds", len(o.takeRounds()), 0)
		if o.logs[0].Failure() == nil {
			t.Error("the log is not offline")
		}
	})
}

func TestPauseEndsARoundAndKeepsTheLogFromBeingCleaned(t *testing.T) {
	// Slow enough that a round would take hours.
	started(t, Config{BytesPerSecond: 10, Backoff: time.Second}, []string{"t"}, func(t *testing.T, o *owner, c *Cleaner) {
		o.fill(0, 40)
		c.Start()
		time.Sleep(time.Second)
		before := time.Now()
		resume := c.Pause(o.logs[0])
		again := c.Pause(o.logs[0])
		want(t, "time to pause", time.Since(before), 0)
		want(t, "files left behind", o.leftovers(), nil)
		time.Sleep(time.Hour)
		synctest.Wait()
		resume()
		resume() // a second call does nothing
		time.Sleep(time.Hour)
		synctest.Wait()
		want(t, "rounds while paused", len(o.takeRounds()), 0)
		again()
		c.Configure(Config{Backoff: time.Second})
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		want(t, "rounds", o.takeRounds(), []string{"t 0-80"})
	})
}

func TestStopEndsARoundAtOnce(t *testing.T) {
	started(t, Config{BytesPerSecond: 10}, []string{"t"}, func(t *testing.T, o *owner, c *Cleaner) {
		o.fill(0, 40)
		c.Start()
		time.Sleep(time.Second)
		before := time.Now()
		c.Stop()
		c.Stop()
		want(t, "time to stop", time.Since(before), 0)
		want(t, "files left behind", o.leftovers(), nil)
		c.Configure(Config{})
		c.Start()
		synctest.Wait()
		want(t, "rounds after another start", o.takeRounds(), []string{"t 0-80"})
	})
}

func TestThreadsCleanDifferentLogs(t *testing.T) {
	started(t, Config{BytesPerSecond: 2000}, []string{"a", "b", "c"}, func(t *testing.T, o *owner, c *Cleaner) {
		for i := range 3 {
			o.fill(i, 20)
		}
		c.Start()
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, "logs that one thread works on", c.busy(), 1)
		c.Configure(Config{Threads: 3, BytesPerSecond: 2000})
		time.Sleep(time.Second)
		synctest.Wait()
		want(t, "logs that three threads work on", c.busy(), 3)
		time.Sleep(time.Hour)
		synctest.Wait()
		want(t, "rounds", len(o.takeRounds()), 3)
		for _, l := range o.logs {
			want(t, l.Partition().Topic, o.cleaned[l], 40)
		}
	})
}

func (c *Cleaner) busy() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.states {
		if s.cancel != nil {
			n++
		}
	}
	return n
}

func TestTheRateIsKept(t *testing.T) {
	started(t, Config{BytesPerSecond: 1000}, []string{"t"}, func(t *testing.T, o *owner, c *Cleaner) {
		o.fill(0, 40)
		dirty := o.logs[0].Size()
		before := time.Now()
		var took time.Duration
		c.o.OnRound = func(_ *commitlog.Log, s Stats) {
			took = time.Since(before)
			// Read twice, for the keys and for the records, and written once.
			bytes := 2*dirty + s.BytesAfter
			if rate := float64(bytes) / took.Seconds(); math.Abs(rate-1000) > 20 {
				t.Errorf("%d bytes in %v, %.0f a second, want 1000", bytes, took, rate)
			}
		}
		c.Start()
		time.Sleep(time.Hour)
		synctest.Wait()
		if took == 0 {
			t.Error("no round came to its end")
		}
	})
}

func TestRetentionGoesOverCompactedLogsToo(t *testing.T) {
	started(t, Config{Backoff: time.Second}, []string{"both", "below"}, func(t *testing.T, o *owner, c *Cleaner) {
		cfg := worldConfig()
		cfg.MinCleanableRatio = 1
		o.logs[1].SetConfig(cfg) // only compacted; its log start is raised by a leader, say
		cfg.CleanupDelete, cfg.RetentionMs = true, 1000
		o.logs[0].SetConfig(cfg)
		o.fill(0, 5)
		o.fill(1, 5)
		_, err := o.logs[1].MaybeIncrementStartOffset(4)
		must(t, err)
		c.Start()
		synctest.Wait()
		want(t, "segments of compact,delete", len(o.logs[0].Segments()), 1)
		want(t, "first segment of compact", o.logs[1].Segments()[0].BaseOffset(), 4)
	})
}

func TestACheckpointThatDoesNotFitIsPutRight(t *testing.T) {
	started(t, Config{}, []string{"t"}, func(t *testing.T, o *owner, c *Cleaner) {
		cfg := worldConfig()
		cfg.MinCleanableRatio = 1
		o.logs[0].SetConfig(cfg)
		o.fill(0, 2)
		o.cleaned[o.logs[0]] = 77
		c.Start()
		synctest.Wait()
		want(t, "checkpoint", o.cleaned[o.logs[0]], 0)
		want(t, "warnings", o.logged(`level=WARN msg="cleaner checkpoint does not fit the log`), 1)
	})
}
