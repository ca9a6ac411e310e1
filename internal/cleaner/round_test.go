package cleaner

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/tracefs"
)

// testWorld is a world with small segments that is closed at the end of the test.
func testWorld(t *testing.T, change ...func(w *world)) *world {
	t.Helper()
	w, err := newWorld(worldConfig())
	must(t, err)
	for _, f := range change {
		f(w)
	}
	t.Cleanup(func() {
		if err := w.log.Close(); err != nil && w.log.Failure() == nil {
			t.Errorf("close: %v", err)
		}
	})
	return w
}

// cleanNow does a round and holds the log against the model.
func cleanNow(t *testing.T, w *world) Stats {
	t.Helper()
	s, err := w.clean()
	must(t, err)
	must(t, w.check())
	return s
}

// offsets of the records that are in the log.
func offsets(t *testing.T, w *world) []kafka.Offset {
	t.Helper()
	recs, err := w.read(false)
	must(t, err)
	return offsetsOf(recs)
}

func offsetsOf(recs []appended) []kafka.Offset {
	var list []kafka.Offset
	for _, r := range recs {
		list = append(list, r.offset)
	}
	return list
}

// batchesOf describes the batches of a log: base-last, count, and c for control.
func batchesOf(t *testing.T, w *world) []string {
	t.Helper()
	var list []string
	for _, s := range w.log.Segments() {
		_, err := s.Scan(0, s.Size(), func(h *record.Header, _ []byte, _ int64) error {
			text := fmt.Sprintf("%d-%d:%d", h.BaseOffset, h.LastOffset, h.Count)
			if h.IsControl() {
				text += "c"
			}
			list = append(list, text)
			return nil
		})
		must(t, err)
	}
	return list
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The names below are those of public bug reports in other brokers; each test
// does what its report tells.

func TestKAFKA8351MarkersStayWhileARecordOfTheirTransactionDoes(t *testing.T) {
	// The transaction's records lie in one group of segments, its marker in the next.
	w := testWorld(t, func(w *world) { w.cfg.SegmentBytes = 600; w.log.SetConfig(w.cfg) })
	must(t, steps(w.append(1, true, record.None, kv("a", value(80)), kv("b", value(81)), kv("c", value(82)), kv("d", value(83))), w.log.Roll()))
	must(t, steps(w.put(kv("x", value(80)), kv("y", value(81)), kv("z", value(82)), kv("u", value(89))), w.end(1, true), w.log.Roll()))
	must(t, steps(w.append(2, true, record.None, kv("e", value(80))), w.end(2, false)))
	must(t, steps(w.append(2, true, record.None, kv("f", value(80))), w.end(2, true), w.log.Roll()))
	for range 4 {
		cleanNow(t, w)
		w.now += 2 * w.cfg.DeleteRetentionMs
		must(t, steps(w.put(kv("tick", value(1))), w.log.Roll()))
	}
	if got := strings.Join(batchesOf(t, w), " "); !strings.Contains(got, "8-8:1c") || strings.Contains(got, "10-10:1c") {
		t.Errorf("batches %s, want the commit marker 8 of a transaction with records, and not the abort marker 10 of one without", got)
	}
}

func TestKAFKA14055KeysLikeThoseOfMarkersAreKeys(t *testing.T) {
	w := testWorld(t)
	abort, commit := record.ControlKey(record.AbortMarker), record.ControlKey(record.CommitMarker)
	must(t, steps(w.put(item{abort, []byte("1")}, item{commit, []byte("2")}), w.append(1, true, record.None, kv("t", "1")), w.end(1, true), w.log.Roll()))
	must(t, steps(w.put(item{commit, []byte("3")}), w.log.Roll()))
	cleanNow(t, w)
	want(t, "batches", batchesOf(t, w), []string{"0-1:1", "2-2:1", "3-3:1c", "4-4:1"})
}

func TestKAFKA7385ARoundThatKeepsOnlyAnEmptyBatch(t *testing.T) {
	w := testWorld(t)
	must(t, steps(w.append(1, true, record.None, kv("a", "1"), kv("b", "2")), w.log.Roll(), w.end(1, false), w.log.Roll()))
	for range 3 {
		cleanNow(t, w)
		w.checkpoint = kafka.NoOffset // again
		w.now += 2 * w.cfg.DeleteRetentionMs
	}
	// Sequences of producer 1, and the end of what was cleaned, are still known.
	want(t, "batches", batchesOf(t, w), []string{"0-1:0", "2-2:1c"})
	want(t, "end offset", w.log.EndOffset(), 3)
	must(t, w.reopen(false))
	want(t, "end offset after a restart", w.log.EndOffset(), 3)
	must(t, w.append(1, true, record.None, kv("a", "3"))) // the next sequence is taken
}

func TestTheLastBatchOfARoundStaysWithoutRecords(t *testing.T) {
	w := testWorld(t)
	must(t, steps(w.put(kv("a", "1")), w.put(tombstone("a")), w.log.Roll()))
	for range 2 {
		cleanNow(t, w)
		w.now += 2 * w.cfg.DeleteRetentionMs
		w.checkpoint = kafka.NoOffset
	}
	want(t, "batches", batchesOf(t, w), []string{"1-1:0"})
}

func TestKAFKA4529TombstonesStayForDeleteRetention(t *testing.T) {
	w := testWorld(t)
	must(t, steps(w.put(kv("a", "1"), kv("b", "1")), w.put(tombstone("a")), w.log.Roll()))
	cleanNow(t, w)
	want(t, "after the first round", offsets(t, w), []kafka.Offset{1, 2})
	for _, step := range []struct {
		pass int64
		want []kafka.Offset
	}{{w.cfg.DeleteRetentionMs - 1, []kafka.Offset{1, 2}}, {1, []kafka.Offset{1}}} {
		w.now = w.round + step.pass
		w.checkpoint = kafka.NoOffset
		first := w.round
		cleanNow(t, w)
		want(t, fmt.Sprintf("%d ms after the round at %d", step.pass, first), offsets(t, w), step.want)
	}
}

func TestKAFKA6854BatchesThatAreDroppedWholeDoNotStopTheRound(t *testing.T) {
	w := testWorld(t, func(w *world) { w.mem.bufferBytes = record.HeaderSize; w.lowered = 100 })
	for range 5 {
		must(t, w.append(1, true, record.None, kv("a", value(88)), kv("b", value(89)), kv("c", value(87))))
	}
	must(t, steps(w.end(1, false), w.put(kv("a", "1")), w.log.Roll()))
	s := cleanNow(t, w)
	want(t, "next dirty offset", s.NextDirty, 17)
	want(t, "records", offsets(t, w), []kafka.Offset{16})
}

func TestKAFKA8764HolesAtTheEndOfTheDirtyPart(t *testing.T) {
	w := testWorld(t)
	must(t, steps(w.put(kv("a", "1")), w.log.Roll()))
	must(t, w.put(kv("a", "2"), kv("b", "2")))
	must(t, w.log.Roll())
	// As a cleaner without empty batches left it: the segment from 1 has no batch any more.
	s := w.log.Segments()[1]
	must(t, w.log.Close())
	f, err := w.disk.OpenFile(s.Path(), os.O_RDWR, 0)
	must(t, err)
	must(t, errors.Join(f.Truncate(0), f.Close()))
	w.recs = w.recs[:1]
	must(t, w.open(true))
	stats, err := w.clean()
	must(t, err)
	_, err = w.checkReaders()
	must(t, err)
	want(t, "next dirty offset", stats.NextDirty, w.log.Segments()[len(w.log.Segments())-1].BaseOffset())
}

func TestKAFKA9133ALogStartInTheActiveSegmentIsNoError(t *testing.T) {
	w := testWorld(t, func(w *world) { w.cfg.CleanupDelete = true; w.log.SetConfig(w.cfg) })
	must(t, steps(w.put(kv("a", "1")), w.log.Roll(), w.put(kv("a", "2"), kv("b", "2"))))
	_, err := w.log.DeleteRecordsTo(2)
	must(t, err)
	s := cleanNow(t, w)
	want(t, "cleaned", s.BytesBefore, 0)
}

func TestKAFKA12840CompactIsTakenFromThePolicyDuringARound(t *testing.T) {
	w := testWorld(t)
	must(t, fillPlain(w))
	before := offsets(t, w)
	onRead(w, ".log", 3, func() {
		c := w.cfg
		c.CleanupCompact, c.CleanupDelete = false, true
		w.log.SetConfig(c)
	})
	if _, err := w.clean(); !errors.Is(err, errAborted) {
		t.Fatalf("round: %v, want aborted", err)
	}
	want(t, "records", offsets(t, w), before)
	wantNoLeftovers(t, w)
}

func TestKAFKA2024FarOffsetsAreNotJoined(t *testing.T) {
	w := testWorld(t)
	must(t, steps(w.put(kv("a", "1")), w.put(kv("b", "1"))))
	far := follower(t, 1<<31+5, kv("a", "2"), kv("c", "2"))
	_, err := w.log.AppendAsFollower(far, 0)
	must(t, err)
	w.log.MaybeIncrementHighWatermark(w.log.EndOffset())
	w.recs = append(w.recs,
		appended{offset: 1<<31 + 5, ts: 1, key: []byte("a"), value: []byte("2")}, appended{offset: 1<<31 + 6, ts: 2, key: []byte("c"), value: []byte("2")})
	must(t, w.log.Roll())
	cleanNow(t, w)
	want(t, "records", offsets(t, w), []kafka.Offset{1, 1<<31 + 5, 1<<31 + 6})
	if n := len(w.log.Segments()); n != 3 {
		t.Errorf("%d segments, want 3", n)
	}
	must(t, w.reopen(false))
	must(t, w.check())
}

func TestRedpanda3636FilesOfAKilledRoundAreRemovedAtLoad(t *testing.T) {
	w := testWorld(t)
	must(t, fillPlain(w))
	s, err := w.log.NewCleanedSegment(0)
	must(t, err)
	must(t, s.Abandon())
	if left, _ := w.leftovers(); len(left) == 0 {
		t.Fatal("no file of a round is there to begin with")
	}
	must(t, w.reopen(true))
	wantNoLeftovers(t, w)
	cleanNow(t, w)
}

func TestRedpanda17019DeleteRecordsDuringARound(t *testing.T) {
	w := testWorld(t, func(w *world) { w.cfg.CleanupDelete = true; w.cfg.RetentionMs = -1; w.log.SetConfig(w.cfg) })
	must(t, fillPlain(w))
	var to kafka.Offset
	onRead(w, ".log", 8, func() {
		before := len(w.log.Segments())
		to = w.log.Segments()[2].BaseOffset() + 1
		_, err := w.log.DeleteRecordsTo(to) // does not wait for the round
		must(t, err)
		if n := len(w.log.Segments()); n != before-2 {
			t.Errorf("%d segments are left of %d, want two fewer", n, before)
		}
	})
	if _, err := w.clean(); !errors.Is(err, errAborted) && err != nil {
		t.Fatalf("round: %v", err)
	}
	must(t, w.check())
	wantNoLeftovers(t, w)
	if got := offsets(t, w)[0]; got < to {
		t.Errorf("record %d is back below the log start %d", got, to)
	}
	must(t, w.reopen(false))
	must(t, w.check())
	cleanNow(t, w)
}

func TestTruncationDuringARoundEndsIt(t *testing.T) {
	w := testWorld(t)
	must(t, fillPlain(w))
	cut := w.log.Segments()[3].BaseOffset()
	onRead(w, ".log", 6, func() {
		_, err := w.log.TruncateTo(cut)
		must(t, err)
		w.recs = w.recs[:cut]
		must(t, steps(w.put(kv("new", "1")), w.log.Roll(), w.put(kv("new", "2")), w.log.Roll()))
	})
	if _, err := w.clean(); !errors.Is(err, errAborted) {
		t.Fatalf("round: %v, want aborted", err)
	}
	must(t, w.check())
	wantNoLeftovers(t, w)
	cleanNow(t, w)
}

func TestAStaleEntryOfTheTransactionIndexTakesNoCommittedRecordsAlong(t *testing.T) {
	w := testWorld(t)
	must(t, steps(w.append(1, true, record.None, kv("a", "1")), w.end(1, true), w.append(1, true, record.None, kv("b", "1")), w.end(1, true), w.log.Roll()))
	must(t, w.log.Segments()[0].AppendTxn(index.AbortedTxn{ProducerID: 1, FirstOffset: 0, LastOffset: 0, LastStable: 1}))
	_, err := w.clean()
	must(t, err)
	want(t, "records", offsets(t, w), []kafka.Offset{2})
}

func TestABatchWithMoreKeysThanTheMapHolds(t *testing.T) {
	w := testWorld(t, func(w *world) { w.mem.mapBytes = 4 * entrySize })
	var items []item
	for i := range 12 {
		items = append(items, kv(fmt.Sprint("k", i), "1"))
	}
	must(t, steps(w.put(items...), w.put(items...), w.log.Roll()))
	rounds := 0
	for w.checkpoint < 24 {
		if rounds++; rounds > 12 {
			t.Fatalf("twelve rounds came to offset %d", w.checkpoint)
		}
		cleanNow(t, w)
	}
	w.mem.mapBytes = 1 << 20
	w.checkpoint = kafka.NoOffset
	cleanNow(t, w)
	if got := offsets(t, w); len(got) != 12 || got[0] != 12 {
		t.Errorf("records %v, want those from 12 on", got)
	}
}

// A map that holds a tenth of the keys: each round takes what fits and gets on,
// and the rounds together leave what one with room for all of them leaves.
func TestMoreKeysThanMemoryTakeSeveralRounds(t *testing.T) {
	const keys = 300
	compacted := func(mapBytes int64) (records []kafka.Offset, rounds int) {
		w := testWorld(t, func(w *world) { w.mem.mapBytes = mapBytes })
		for i := range 3 {
			for k := 0; k < keys; k += 10 {
				var items []item
				for n := range 10 {
					items = append(items, kv(fmt.Sprint("k", (k+n+7*i)%keys), fmt.Sprint(i)))
				}
				must(t, w.put(items...))
			}
			must(t, w.log.Roll())
		}
		before := w.checkpoint
		for w.checkpoint < 3*keys {
			cleanNow(t, w)
			if rounds++; w.checkpoint <= before {
				t.Fatalf("round %d did not get on from offset %d", rounds, before)
			}
			before = w.checkpoint
		}
		return offsets(t, w), rounds
	}
	all, one := compacted(1 << 20)
	some, many := compacted(keys / 10 * entrySize)
	if one != 1 || many < 20 || many > 60 {
		t.Errorf("%d rounds with room for all keys, %d with room for a tenth", one, many)
	}
	if len(all) != keys || !slices.Equal(all, some) {
		t.Errorf("%d records with room for all keys, %d with room for a tenth:\n%v\n%v", len(all), len(some), all, some)
	}
}

func TestADamagedBatchIsNeitherDroppedNorPassed(t *testing.T) {
	w := testWorld(t)
	must(t, fillPlain(w))
	before := w.log.Size()
	s := w.log.Segments()[2]
	f, err := w.disk.OpenFile(s.Path(), os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("damage"), s.Size()/2)
	must(t, errors.Join(err, f.Close()))
	_, err = w.clean()
	if !errors.Is(err, record.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), path.Base(s.Path())) {
		t.Fatalf("round: %v, want corrupt with the name of the file", err)
	}
	want(t, "bytes", w.log.Size(), before)
	wantNoLeftovers(t, w)
}

func TestAPartialBatchAtTheEndOfASegmentIsNotCutOff(t *testing.T) {
	w := testWorld(t)
	must(t, steps(w.put(kv("a", "1")), w.put(kv("a", "2")), w.log.Roll()))
	s := w.log.Segments()[0]
	must(t, w.log.Close())
	f, err := w.disk.OpenFile(s.Path(), os.O_RDWR, 0)
	must(t, err)
	must(t, errors.Join(f.Truncate(s.Size()-1), f.Close()))
	must(t, w.open(true))
	if _, err := w.clean(); !errors.Is(err, record.ErrCorrupt) {
		t.Fatalf("round: %v, want corrupt", err)
	}
}

func TestAFullDiskEndsTheRoundAndLeavesNothing(t *testing.T) {
	for _, kind := range []faultfs.Kind{faultfs.Create, faultfs.Write, faultfs.Truncate, faultfs.Rename} {
		t.Run(string(kind), func(t *testing.T) {
			for n := 1; ; n++ {
				w := testWorld(t)
				must(t, fillPlain(w))
				seen := 0
				w.fault = func(op faultfs.Op) error {
					touches := strings.HasSuffix(op.Name, ".cleaned") || strings.HasSuffix(op.New, ".swap")
					if op.Kind != kind || !touches {
						return nil
					}
					if seen++; seen >= n && seen < n+3 {
						return syscall.ENOSPC
					}
					return nil
				}
				_, err := w.clean()
				if seen < n {
					if n == 1 {
						t.Fatalf("no %s in a round", kind)
					}
					return
				}
				if err != nil && w.log.Failure() != nil {
					t.Fatalf("failure %d of %s: the log is offline: %v", n, kind, err)
				}
				w.fault = nil
				if err != nil {
					wantNoLeftovers(t, w)
				}
				_, err = w.checkReaders() // some groups may be through
				must(t, err)
				cleanNow(t, w)
			}
		})
	}
}

func TestAFailedSyncTakesTheLogOffline(t *testing.T) {
	w := testWorld(t)
	must(t, fillPlain(w))
	w.fault = func(op faultfs.Op) error {
		if op.Kind == faultfs.Sync && strings.HasSuffix(op.Name, ".cleaned") {
			return syscall.EIO
		}
		return nil
	}
	_, err := w.clean()
	if err == nil || w.log.Failure() == nil {
		t.Fatalf("round: %v, log: %v, want both failed", err, w.log.Failure())
	}
}

func TestAPositionInARewrittenFileIsNotUsedAgain(t *testing.T) {
	w := testWorld(t)
	for range 3 {
		must(t, w.put(kv("a", value(60))))
	}
	must(t, w.put(kv("d", value(60)), kv("e", value(60))))
	info, err := w.log.Read(5, commitlog.ReadOptions{MaxBytes: 1000})
	must(t, err)
	if !info.Next.Valid {
		t.Fatal("no hint at the end of the log")
	}
	for i := range 9 {
		must(t, w.put(kv(fmt.Sprint("b", i), value(60))))
	}
	must(t, w.log.Roll())
	cleanNow(t, w)
	info, err = w.log.Read(5, commitlog.ReadOptions{MaxBytes: 1000, Hint: info.Next})
	must(t, err)
	b := make([]byte, info.Region.Length)
	_, err = info.Region.File.ReadAt(b, info.Region.Offset)
	must(t, err)
	info.Region.Release()
	want(t, "offset of the first batch", record.Batch(b).BaseOffset(), 5)
	must(t, record.Check(b[:record.Batch(b).Size()]))
}

func TestAReaderWithAnOldListNeverReadsAnotherSegmentsFile(t *testing.T) {
	w := testWorld(t)
	must(t, steps(w.put(kv("a", "1"), kv("b", "1")), w.put(kv("a", "2")), w.log.Roll()))
	stale := w.log.Segments()[0]
	reading, ok, err := stale.Read(0, segment.ReadOptions{MaxBytes: 1 << 20, Limit: 1 << 20})
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	for range 2 { // the second gives its `.deleted` names to the files of the first's output
		w.checkpoint = kafka.NoOffset
		cleanNow(t, w)
		if _, _, err := stale.Read(0, segment.ReadOptions{MaxBytes: 1 << 20, Limit: 1 << 20}); !errors.Is(err, segment.ErrClosed) {
			t.Errorf("read of a replaced segment: %v, want closed", err)
		}
	}
	b := make([]byte, reading.Region.Length)
	_, err = reading.Region.File.ReadAt(b, reading.Region.Offset)
	must(t, err)
	want(t, "bytes of a region that was taken before", record.Batch(b[:record.Batch(b).Size()]).Count(), 2)
	reading.Region.Release()
	w.unlink()
	names, err := w.disk.ReadDir(worldDir)
	must(t, err)
	for _, d := range names {
		if strings.HasSuffix(d.Name(), ".deleted") {
			t.Errorf("%s is there still", d.Name())
		}
	}
	must(t, w.check())
}

func TestTheNewSegmentHasTheTimeOfTheLastOldOne(t *testing.T) {
	w := testWorld(t, func(w *world) { w.cfg.SegmentBytes = 1 << 20; w.log.SetConfig(w.cfg) })
	var last time.Time
	for range 3 {
		must(t, w.put(kv("a", "1")))
		last = w.clock()
		must(t, w.log.Roll())
		w.now += 60_000
	}
	cleanNow(t, w)
	info, err := w.disk.Stat(w.log.Segments()[0].Path())
	must(t, err)
	if got := info.ModTime(); !got.Equal(last) {
		t.Errorf("modified %v, want %v", got, last)
	}
}

func TestSegmentsThatHaveChangedAreNotReplaced(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, w *world) (generation uint64, old []*segment.Segment)
	}{
		{"the log was cut and has grown again", func(t *testing.T, w *world) (uint64, []*segment.Segment) {
			generation, old := w.log.Generation(), w.log.Segments()[:1]
			_, err := w.log.TruncateTo(1)
			must(t, err)
			w.recs = w.recs[:1]
			must(t, steps(w.put(kv("new", "1")), w.log.Roll()))
			return generation, old
		}},
		{"a segment is active", func(t *testing.T, w *world) (uint64, []*segment.Segment) {
			return w.log.Generation(), w.log.Segments()[len(w.log.Segments())-1:]
		}},
		{"a segment was deleted", func(t *testing.T, w *world) (uint64, []*segment.Segment) {
			old := w.log.Segments()[:2]
			_, err := w.log.MaybeIncrementStartOffset(old[1].BaseOffset())
			must(t, err)
			_, err = w.log.DeleteOldSegments()
			must(t, err)
			return w.log.Generation(), old
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := testWorld(t)
			must(t, steps(w.put(kv("a", "1")), w.put(kv("a", "2")), w.log.Roll(), w.put(kv("b", "1")), w.log.Roll(), w.put(kv("c", "1"))))
			generation, old := tt.change(t, w)
			before := w.log.Segments()
			s, err := w.log.NewCleanedSegment(old[0].BaseOffset())
			must(t, err)
			must(t, errors.Join(s.Seal(), s.Flush()))
			if err := w.log.ReplaceSegments(generation, []*segment.Segment{s}, old); !errors.Is(err, commitlog.ErrSegmentsChanged) {
				t.Errorf("ReplaceSegments: %v, want that the segments have changed", err)
			}
			must(t, s.Delete())
			want(t, "segments", len(w.log.Segments()), len(before))
			must(t, w.check())
		})
	}
}

// TestOrderOfTheSwap is the order of file operations that a crash at any point
// survives (faults O11).
func TestOrderOfTheSwap(t *testing.T) {
	tests := []struct {
		name, golden string
		fill         func(w *world) error
		config       func(w *world)
	}{
		{"two outputs of a group, the last one renamed first", "two-outputs.trace", func(w *world) error {
			return steps(w.put(kv("a", "1")), w.put(kv("b", "1")), w.put(kv("c", "1")), w.log.Roll())
		}, func(w *world) { w.cfg.IndexInterval, w.cfg.SegmentIndexBytes = 0, 12 }},
		{"segments that the output does not reach leave one by one", "not-reached.trace", func(w *world) error {
			return steps(w.put(kv("a", "1")), w.log.Roll(), w.put(kv("b", "1")), w.log.Roll(), w.put(kv("b", "2")), w.log.Roll(), w.put(kv("b", "3")), w.log.Roll())
		}, func(w *world) { w.cfg.SegmentBytes = 3 * 70 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := testWorld(t, func(w *world) { w.cfg.IndexInterval = 0; w.cfg.SegmentIndexBytes = 4096 })
			must(t, w.reopen(true))
			must(t, tt.fill(w))
			tt.config(w)
			var trace tracefs.Log
			w.trace = &trace
			must(t, w.log.Close())
			w.mount(w.disk)
			must(t, w.open(true))
			w.log.SetConfig(w.cfg)
			trace.Reset()
			cleanNow(t, w)
			var got []string
			for _, line := range strings.Split(strings.ReplaceAll(trace.String(), worldDir, "DIR"), "\n") {
				line = strings.ReplaceAll(line, "DIR/", "")
				if (strings.Contains(line, ".log") || strings.Contains(line, ".snapshot") || strings.Contains(line, "syncdir")) && !strings.HasPrefix(line, "re") || strings.HasPrefix(line, "rename") && !strings.Contains(line, "index") {
					got = append(got, line)
				}
			}
			golden := path.Join("testdata", tt.golden)
			text, err := os.ReadFile(golden)
			must(t, err)
			want(t, "file operations, as in "+golden, strings.Join(got, "\n")+"\n", string(text))
		})
	}
}

// onRead calls f once, at the n-th read of a file whose name ends so.
func onRead(w *world, suffix string, n int, f func()) {
	w.fault = func(op faultfs.Op) error {
		if op.Kind == faultfs.Read && strings.HasSuffix(op.Name, suffix) {
			if n--; n == 0 {
				f()
			}
		}
		return nil
	}
}

func wantNoLeftovers(t *testing.T, w *world) {
	t.Helper()
	if left, err := w.leftovers(); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// follower is a batch as a leader would have sent it, at an offset of its own.
func follower(t *testing.T, base kafka.Offset, items ...item) []byte {
	t.Helper()
	o := record.NewBuildOptions()
	o.BaseOffset, o.LeaderEpoch = base, 0
	var b record.Builder
	b.Reset(o)
	for i, it := range items {
		b.Append(kafka.Timestamp(i+1), it.key, it.value, nil)
	}
	out, err := b.Finish()
	must(t, err)
	return out
}
