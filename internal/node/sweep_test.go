package node

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/config"
	"github.com/varvelog/varve/internal/controller"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/replica"
	"github.com/varvelog/varve/internal/sendfile"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

var sweepAll = flag.Bool("sweep", false, "fail every operation of the node's script, not a choice of them")

// sweptTopic has batches of half a segment, so that each third one rolls.
const (
	sweptTopic = "orders"
	sweptBatch = 400 << 10
)

// sweep is one run of the script: what it did, and what the disk did to it.
type sweep struct {
	t     *testing.T
	disk  *memfs.FS
	n     *Node
	acked map[int32][]uint64 // values of the records that were acknowledged, by partition
	next  uint64

	mu   sync.Mutex
	text strings.Builder
	hit  *faultfs.Op // the operation that failed
}

func (s *sweep) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *sweep) logged(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), what)
}

func (s *sweep) start(disk vfs.FS) error {
	var flags []config.Setting
	for _, kv := range [][2]string{
		{"listeners", "PLAINTEXT://127.0.0.1:0"}, {"log.cleaner.enable", "false"}, {"log.index.size.max.bytes", "4096"},
		{"log.segment.bytes", fmt.Sprint(1 << 20)}, {"log.initial.task.delay.ms", "3600000"}, {"varve.disk.reserve", "0"},
		{"log.segment.delete.delay.ms", "3600000"},
	} {
		flags = append(flags, config.Setting{Key: kv[0], Value: kv[1]})
	}
	cfg, _, err := config.Load(config.Sources{DataDir: "/data", Flags: flags})
	if err != nil {
		s.t.Fatal(err)
	}
	s.n, err = Start(context.Background(), cfg, Options{FS: disk, Logger: slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	return err
}

func (s *sweep) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s.n.Stop(ctx)
}

func (s *sweep) createTopic(name string) error {
	results, err := s.n.controller.CreateTopics([]controller.NewTopic{{Name: name, Partitions: 2, ReplicationFactor: 1}}, false)
	if err == nil && results[0].Err != nil {
		err = errors.New(results[0].Err.Error())
	}
	return err
}

func (s *sweep) deleteTopic(name string) error {
	topic := s.n.quorum.Image().Topic(name)
	if topic == nil {
		return fmt.Errorf("no topic %s", name)
	}
	_, err := s.n.controller.DeleteTopics([]kafka.TopicID{topic.ID})
	return err
}

func (s *sweep) partition(p int32) *replica.Partition {
	return s.n.replicas.Get(kafka.TopicPartition{Topic: sweptTopic, Partition: p})
}

// produce sends one record with the next value.
func (s *sweep) produce(p int32) error {
	part := s.partition(p)
	if part == nil {
		return fmt.Errorf("no partition %d", p)
	}
	s.next++
	var b record.Builder
	b.Reset(record.NewBuildOptions())
	b.Append(kafka.TimestampOf(time.Now()), nil, binary.BigEndian.AppendUint64(make([]byte, sweptBatch), s.next), nil)
	batch, err := b.Finish()
	if err == nil {
		_, err = part.Append(batch, replica.AppendOptions{Acks: -1})
	}
	if err == nil {
		s.acked[p] = append(s.acked[p], s.next)
	}
	return err
}

// read returns the values of a partition, which must be in the order sent.
func (s *sweep) read(p int32) ([]uint64, error) {
	part := s.partition(p)
	if part == nil {
		return nil, fmt.Errorf("no partition %d", p)
	}
	if part.Log() == nil {
		return nil, part.Err()
	}
	var values []uint64
	for next := part.Log().StartOffset(); next < part.Log().EndOffset(); {
		info, err := part.Read(replica.ReadOptions{
			ReadOptions: commitlog.ReadOptions{MaxBytes: 8 << 20, Bound: commitlog.LogEnd, MinOneBatch: true},
			Offset:      next, CurrentEpoch: kafka.NoLeaderEpoch, LastFetchedEpoch: kafka.NoLeaderEpoch,
		})
		if err != nil {
			return values, err
		}
		buf, err := sendfile.AppendRegion(nil, info.Region)
		if info.Region.Release != nil {
			info.Region.Release()
		}
		if err != nil {
			return values, err
		}
		before := next
		for len(buf) > 0 {
			size, ok, err := record.NextBatch(buf)
			if err != nil || !ok {
				break
			}
			b := record.Batch(buf[:size])
			if err := b.Check(); err != nil {
				return values, err
			}
			var it record.Iterator
			if err := it.Reset(b, nil); err != nil {
				return values, err
			}
			for it.Next() {
				r := it.Record()
				if r.Offset != next {
					return values, fmt.Errorf("offset %d, want %d", r.Offset, next)
				}
				values = append(values, binary.BigEndian.Uint64(r.Value[len(r.Value)-8:]))
				next++
			}
			buf = buf[size:]
		}
		if next == before {
			return values, fmt.Errorf("nothing at offset %d of %d", next, part.Log().EndOffset())
		}
	}
	return values, nil
}

// script is what the broker is made to do. A step that fails does not end it.
func (s *sweep) script() (errs []error) {
	note := func(err error) { errs = append(errs, err) }
	for range 3 {
		note(s.produce(0))
		note(s.produce(1))
	}
	note(s.createTopic("more"))
	if p := s.partition(0); p != nil && p.Log() != nil {
		note(p.Log().Roll())
		_, err := p.DeleteRecords(1)
		note(err)
		if len(s.acked[0]) > 0 {
			s.acked[0] = s.acked[0][1:] // when it failed, the record may be there or not
		}
		_, err = p.Log().DeleteOldSegments()
		note(err)
	}
	note(s.n.quorum.WriteSnapshot())
	note(s.deleteTopic("more"))
	note(s.produce(0))
	_, err := s.read(1)
	note(err)
	return errs
}

// check compares what is there with what was acknowledged: all of it, in order,
// and nothing twice.
func (s *sweep) check(when string) {
	for p := range int32(2) {
		got, err := s.read(p)
		if err != nil {
			s.t.Errorf("%s: %s: read of partition %d: %v", s.what(), when, p, err)
			continue
		}
		at := 0
		for _, want := range s.acked[p] {
			for at < len(got) && got[at] != want {
				at++
			}
			if at == len(got) {
				s.t.Errorf("%s: %s: partition %d holds %d, and not the acknowledged %d in its place; acknowledged %d", s.what(), when, p, got, want, s.acked[p])
				break
			}
			at++
		}
		for i := 1; i < len(got); i++ {
			if got[i] <= got[i-1] {
				s.t.Errorf("%s: %s: partition %d is out of order: %d", s.what(), when, p, got)
			}
		}
	}
}

func (s *sweep) what() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hit == nil {
		return "no fault"
	}
	return fmt.Sprintf("%s of %s %s", s.hit.Kind, s.hit.Name, s.hit.New)
}

// template is a directory with a topic, some records, and a clean stop.
func template(t *testing.T) (*memfs.FS, map[int32][]uint64, uint64) {
	t.Helper()
	s := &sweep{t: t, disk: memfs.New(), acked: map[int32][]uint64{}}
	err := s.start(s.disk)
	if err == nil {
		err = errors.Join(s.createTopic(sweptTopic), s.produce(0), s.produce(1), s.produce(0), s.stop())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s.disk.Crash(memfs.KeepAll()), s.acked, s.next
}

// TestEveryOperation fails one operation of the disk after the other while a
// broker starts, works and stops on it, and sees that what was acknowledged is
// there afterwards and that the error was taken for what it is (faults S2, S3,
// S6, S7, E1, E2, E3, R1).
func TestEveryOperation(t *testing.T) {
	base, acked, next := template(t)
	clone := func() *sweep {
		s := &sweep{t: t, disk: base.Crash(memfs.KeepAll()), acked: map[int32][]uint64{}, next: next}
		for p, values := range acked {
			s.acked[p] = append([]uint64(nil), values...)
		}
		return s
	}
	space := func(op faultfs.Op) bool {
		switch op.Kind {
		case faultfs.Create, faultfs.Mkdir, faultfs.Rename, faultfs.Write, faultfs.Reserve:
			return true
		}
		return false
	}
	syncs := func(op faultfs.Op) bool {
		return op.Kind == faultfs.Sync || op.Kind == faultfs.SyncDir || op.Kind == faultfs.Flush
	}
	opens := func(op faultfs.Op) bool { return op.Kind == faultfs.Open || op.Kind == faultfs.Create }
	reads := func(op faultfs.Op) bool { return op.Kind == faultfs.Read }
	changes := func(op faultfs.Op) bool { return op.Kind.Changes() && !syncs(op) }
	for _, tt := range []struct {
		name    string
		match   faultfs.Match
		err     error
		times   int  // how many in a row; 0: all until the end of the script
		passes  bool // the directory stays online, and all is well when the fault has passed
		samples int  // in a short run
	}{
		{"no room once", space, syscall.ENOSPC, 1, true, 16},
		{"no room from then on", space, syscall.ENOSPC, 0, true, 10},
		{"quota", space, syscall.EDQUOT, 3, true, 4},
		{"file too large", func(op faultfs.Op) bool { return op.Kind == faultfs.Write || op.Kind == faultfs.Truncate }, syscall.EFBIG, 1, true, 6},
		{"no descriptor once", opens, syscall.EMFILE, 1, true, 10},
		{"a read fails once", reads, syscall.EIO, 1, true, 10},
		{"a change fails", changes, syscall.EIO, 1, false, 10},
		{"read-only from then on", changes, syscall.EROFS, 0, false, 4},
		{"a sync fails", syncs, syscall.EIO, 1, false, 8},
		{"a sync finds no room", syncs, syscall.ENOSPC, 1, false, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			count := clone()
			counter := &faultfs.Counter{Match: tt.match}
			if err := count.start(faultfs.Wrap(count.disk, counter.Inject)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(count.script()...); err != nil {
				t.Fatalf("without a fault: %v", err)
			}
			if err := count.stop(); err != nil {
				t.Fatal(err)
			}
			total := counter.Seen()
			step := 1
			if !*sweepAll {
				step = max(1, total/tt.samples)
			}
			runs := 0
			for nth := 1; nth <= total; nth += step {
				s := clone()
				s.t = t
				s.run(tt.match, tt.err, nth, tt.times, tt.passes)
				if runs++; t.Failed() {
					t.Logf("operation %d of %d, log:\n%s", nth, total, s.text.String())
					return
				}
			}
			t.Logf("%d of %d operations failed in turn", runs, total)
		})
	}
}

// run is one life with a fault, and one after it without.
func (s *sweep) run(match faultfs.Match, fault error, nth, times int, passes bool) {
	var seen atomic.Int64
	var over atomic.Bool
	disk := faultfs.Wrap(s.disk, func(op faultfs.Op) faultfs.Fault {
		if over.Load() || !match(op) {
			return faultfs.Fault{}
		}
		n := int(seen.Add(1))
		if n < nth || times > 0 && n >= nth+times {
			return faultfs.Fault{}
		}
		s.mu.Lock()
		if s.hit == nil {
			s.hit = &op
		}
		s.mu.Unlock()
		return faultfs.Fault{Err: fault, Done: op.Length / 2}
	})
	err := s.start(disk)
	if err == nil {
		s.script()
		over.Store(true)
		if passes {
			s.settled()
		}
		err = s.stop()
	} else if passes && !s.startMayFail() {
		s.t.Errorf("%s: start: %v", s.what(), err)
	}
	if passes && s.logged("event=dir-offline") {
		s.t.Errorf("%s: %v took the directory offline", s.what(), fault)
	}
	if passes && s.n != nil && err != nil && !s.startMayFail() {
		s.t.Errorf("%s: stop: %v", s.what(), err)
	}
	over.Store(true)
	// The process is gone, and the disk is as it left it.
	if err := s.start(s.disk); err != nil {
		s.t.Errorf("%s: the next start: %v", s.what(), err)
		return
	}
	s.check("after the next start")
	for p := range int32(2) {
		if err := s.produce(p); err != nil {
			s.t.Errorf("%s: produce after the next start: %v", s.what(), err)
		}
	}
	s.check("at the end")
	if err := s.stop(); err != nil {
		s.t.Errorf("%s: the next stop: %v", s.what(), err)
	}
}

// startMayFail says where a start has no way around the fault: a descriptor is
// wanted by what the start itself needs, or the metadata log's index cannot get
// its length, for which no block is needed.
func (s *sweep) startMayFail() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n != nil || s.hit == nil {
		return false
	}
	return s.hit.Kind == faultfs.Open || s.hit.Kind == faultfs.Create || s.hit.Kind == faultfs.Truncate && strings.Contains(s.hit.Name, "__cluster_metadata-0")
}

// settled waits until the broker works as if nothing had been: partitions that
// could not be opened are there, and each can be read and written.
func (s *sweep) settled() {
	deadline := time.Now().Add(20 * time.Second)
	for p := range int32(2) {
		for {
			err := s.produce(p)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				s.t.Errorf("%s: partition %d cannot be written although the fault has passed: %v", s.what(), p, err)
				return
			}
			s.next--
			select { // the broker tries again by itself
			case <-s.n.failed:
				s.t.Errorf("%s: the broker failed: %v", s.what(), s.n.Err())
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	s.check("when the fault has passed")
}
