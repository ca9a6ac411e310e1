package logtest

import (
	"syscall"
	"testing"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// workloads are what the machine is stopped in, at each of their file operations.
var workloads = []struct {
	name string
	run  func(*CrashRun)
}{
	{"append, flush and roll", func(r *CrashRun) {
		r.Epoch(0)
		for i := range 12 {
			r.Append(1+i%4, kafka.NoProducerID, kafka.NoSequence, false)
			if i%3 == 2 {
				r.Flush()
			}
			if i%5 == 4 {
				r.Roll()
			}
		}
		r.Epoch(2)
		r.Append(2, kafka.NoProducerID, kafka.NoSequence, false)
		r.Flush()
	}},
	{"producers and transactions over rolls", func(r *CrashRun) {
		r.Epoch(0)
		r.Append(2, 1, 0, false)
		r.Append(2, 2, 0, true)
		r.Flush()
		r.Roll()
		r.Append(3, 2, 2, true)
		r.End(2, false)
		r.Flush()
		r.Append(1, 3, 0, true)
		r.Append(1, 1, 2, false)
		r.Roll()
		r.End(3, true)
		r.Flush()
		r.Append(4, 2, 5, true)
		r.End(2, false)
		r.Append(1, 1, 3, false)
	}},
	{"deletion", func(r *CrashRun) {
		r.Epoch(0)
		for i := range 4 {
			r.Append(3, kafka.NoProducerID, kafka.NoSequence, false)
			r.Append(2, 7, kafka.Sequence(i*2), false)
			r.Roll()
		}
		r.Append(3, kafka.NoProducerID, kafka.NoSequence, false)
		r.Flush()
		r.DeleteTo(4)
		r.DeleteTo(9)
		r.Append(1, kafka.NoProducerID, kafka.NoSequence, false)
		r.Flush()
		r.DeleteTo(14)
	}},
	{"truncation", func(r *CrashRun) {
		r.Epoch(0)
		for i := range 6 {
			r.Append(3, 5, kafka.Sequence(i*3), false)
			if i%2 == 1 {
				r.Roll()
			}
		}
		r.Flush()
		r.Truncate(14)
		r.Append(3, kafka.NoProducerID, kafka.NoSequence, false)
		r.Flush()
		r.Truncate(3)
		r.Append(2, kafka.NoProducerID, kafka.NoSequence, false)
		r.Append(2, kafka.NoProducerID, kafka.NoSequence, false)
		r.Flush()
	}},
	{"clean stops", func(r *CrashRun) {
		r.Epoch(0)
		r.Append(3, 5, 0, false)
		r.Restart()
		r.Append(3, 5, 3, false)
		r.Roll()
		r.Append(1, 5, 6, false)
		r.Restart()
		r.Roll()
		r.Append(2, kafka.NoProducerID, kafka.NoSequence, false)
		r.Restart()
	}},
}

// choices are what a power cut keeps of the work that was not synced.
func choices(seed uint64) map[string]memfs.Choice {
	return map[string]memfs.Choice{
		"everything": memfs.KeepAll(), "nothing": memfs.DropAll(),
		"a tenth": memfs.Random(0.1, seed), "half": memfs.Random(0.5, seed+1), "most": memfs.Random(0.9, seed+2),
	}
}

// TestStoppedAfterEachOperation stops the machine after every file operation of
// each workload, keeps what was synced and any part of the rest, and wants
// every record that was durable, no other, and a log that goes on.
func TestStoppedAfterEachOperation(t *testing.T) {
	cfg := commitlog.DefaultConfig()
	cfg.IndexInterval = 100
	cfg.SegmentIndexBytes = 4096
	cfg.RetentionMs = -1
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			whole := NewCrashRun(cfg, -1, false)
			w.run(whole)
			if whole.Err() != nil {
				t.Fatal(whole.Err())
			}
			crashes := 0
			for limit := range whole.Ops() + 1 {
				for _, torn := range []bool{false, true} {
					r := NewCrashRun(cfg, limit, torn)
					w.run(r)
					if torn && !r.AtWrite() {
						continue
					}
					if r.Err() != nil {
						t.Fatalf("stopped after %d of %d operations: %v", limit, whole.Ops(), r.Err())
					}
					for name, c := range choices(uint64(limit) * 10) {
						again := -1
						if limit%3 == 0 {
							again = limit / 3 % 12
						}
						if err := r.Verify(c, again); err != nil {
							t.Errorf("stopped after %d of %d operations (torn write: %v, recovery stopped after %d), %s of the rest kept: %v",
								limit, whole.Ops(), torn, again, name, err)
						}
						crashes++
					}
				}
				if t.Failed() {
					return
				}
			}
			t.Logf("%d operations, %d crashes", whole.Ops(), crashes)
		})
	}
}

// TestEachOperationFailsOnce lets every file operation of each workload fail in
// turn, with a full disk or a broken one, and wants every acknowledged record.
func TestEachOperationFailsOnce(t *testing.T) {
	cfg := commitlog.DefaultConfig()
	cfg.IndexInterval = 100
	cfg.SegmentIndexBytes = 4096
	cfg.RetentionMs = -1
	for _, w := range workloads {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			whole := NewFaultRun(cfg, -1, syscall.ENOSPC, false)
			w.run(whole)
			if whole.Err() != nil {
				t.Fatal(whole.Err())
			}
			for limit := range whole.Ops() {
				for _, fault := range []error{syscall.ENOSPC, syscall.EIO} {
					for _, torn := range []bool{false, true} {
						r := NewFaultRun(cfg, limit, fault, torn)
						w.run(r)
						if torn && !r.AtWrite() {
							continue
						}
						err := r.Err()
						if err == nil {
							err = r.VerifyProcess()
						}
						if err != nil {
							t.Errorf("operation %d of %d failed with %v (torn write: %v): %v", limit+1, whole.Ops(), fault, torn, err)
						}
					}
				}
			}
		})
	}
}
