package cleaner

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// TestReadersAndAppendsBesideTheCleaner appends and reads while rounds go on and
// replaced files are unlinked at once. Each value names its offset, so a reader
// notices bytes that are not those of the offset it asked for; consumers that
// keep hints, as fetch sessions do, and regions that are read late, as by a slow
// socket, are among them.
func TestReadersAndAppendsBesideTheCleaner(t *testing.T) {
	t.Run("memory disk", func(t *testing.T) {
		disk := memfs.New()
		must(t, disk.MkdirAll("/d/t-0", 0o755))
		besideTheCleaner(t, disk, "/d/t-0")
	})
	t.Run("real disk", func(t *testing.T) { besideTheCleaner(t, vfs.OS(), t.TempDir()) })
}

func besideTheCleaner(t *testing.T, disk vfs.FS, dir string) {
	cfg := worldConfig()
	cfg.SegmentBytes, cfg.DeleteRetentionMs = 4000, 1
	l, err := commitlog.Open(commitlog.Options{
		FS: disk, Dir: dir, Partition: kafka.TopicPartition{Topic: "t"}, Config: cfg, Now: time.Now,
		Background: func(f func()) { go f() },
	})
	must(t, err)
	const appends, keys = 4000, 17
	done := make(chan struct{})
	var wg sync.WaitGroup
	rounds := 0
	wg.Go(func() {
		mem, checkpoint := testMemory(), kafka.NoOffset
		for more := true; more; {
			select {
			case <-done:
				more = false // one last round
			default:
			}
			generation, now := l.Generation(), kafka.TimestampOf(time.Now())
			v, segs, err := look(l, checkpoint)
			if err != nil {
				t.Errorf("look: %v", err)
				return
			}
			e := v.extentOf(checkpoint, now)
			if e.dirtyBytes == 0 {
				continue
			}
			r := newRound(l, generation, segs, e, now, mem)
			if err := r.run(); err != nil {
				t.Errorf("round: %v", err)
				return
			}
			checkpoint = r.stats.NextDirty
			rounds++
		}
	})
	for range 3 {
		wg.Go(func() { consume(t, l, done) })
	}
	newest := map[string]string{}
	for n := range appends {
		key := fmt.Sprint("k", n*n%keys)
		v := fmt.Sprintf("%d.%s", n, strings.Repeat("x", n*7%100))
		newest[key] = v
		_, err := l.AppendAsLeader(follower(t, 0, kv(key, v)), 0, commitlog.AppendOptions{})
		must(t, err)
		l.MaybeIncrementHighWatermark(l.EndOffset())
	}
	close(done)
	wg.Wait()
	if rounds < 2 {
		t.Errorf("%d rounds, want at least 2", rounds)
	}
	got := map[string]string{}
	read(t, l, 0, commitlog.Hint{}, func(r *record.Record) { got[string(r.Key)] = string(r.Value) })
	if !maps.Equal(got, newest) {
		t.Errorf("after %d rounds: %s", rounds, firstDifference(newest, got))
	}
	must(t, l.Close())
}

// consume reads the log over and over, from its start and from where it was.
func consume(t *testing.T, l *commitlog.Log, done <-chan struct{}) {
	var hint commitlog.Hint
	var next kafka.Offset
	for {
		select {
		case <-done:
			return
		default:
		}
		if l.EndOffset()%3 == 0 {
			next, hint = 0, commitlog.Hint{}
		}
		next, hint = read(t, l, next, hint, func(*record.Record) {})
	}
}

// read goes from an offset to the end and wants every record where it belongs.
func read(t *testing.T, l *commitlog.Log, next kafka.Offset, hint commitlog.Hint, visit func(r *record.Record)) (kafka.Offset, commitlog.Hint) {
	var it record.Iterator
	for next < l.HighWatermark() {
		info, err := l.Read(next, commitlog.ReadOptions{MaxBytes: 3000, MinOneBatch: true, Hint: hint})
		if err != nil {
			t.Errorf("read %d: %v", next, err)
			return next, hint
		}
		hint = info.Next
		buf := make([]byte, info.Region.Length)
		if len(buf) == 0 {
			return next, hint
		}
		_, err = info.Region.File.ReadAt(buf, info.Region.Offset)
		if info.Region.Release != nil {
			info.Region.Release()
		}
		if err != nil {
			t.Errorf("read %d: %v", next, err)
			return next, hint
		}
		for len(buf) > 0 {
			size, ok, err := record.NextBatch(buf)
			if err == nil && !ok {
				break
			}
			if err == nil {
				err = errors.Join(record.Check(buf[:size]), it.Reset(buf[:size], nil))
			}
			if err != nil {
				t.Errorf("batch at %d: %v", next, err)
				return next, hint
			}
			for it.Next() {
				r := it.Record()
				if want := fmt.Sprintf("%d.", r.Offset); !bytes.HasPrefix(r.Value, []byte(want)) {
					t.Errorf("offset %d has %.20q", r.Offset, r.Value)
					return next, hint
				}
				visit(r)
			}
			next = record.Batch(buf[:size]).NextOffset()
			buf = buf[size:]
		}
	}
	return next, hint
}
