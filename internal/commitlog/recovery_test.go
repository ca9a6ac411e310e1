package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// damaged is a log of four segments, of offsets 0 to 5, 6 to 11, 12 to 17 and 18
// to 23, each of three batches of two records of producer 7, whose disk is then
// damaged while nobody has it open.
type damaged struct {
	*bench
	size int64 // of a batch
}

func (d *damaged) file(base kafka.Offset, ext string) string {
	return path.Join(testDir, segment.Name(base, ext))
}

func (d *damaged) read(name string) []byte {
	d.t.Helper()
	data, err := vfs.ReadFile(d.disk, name)
	if err != nil {
		d.t.Fatal(err)
	}
	return data
}

// write puts bytes at a place of a file.
func (d *damaged) write(name string, at int64, b ...byte) {
	d.t.Helper()
	f, err := d.disk.OpenFile(name, 2, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := f.WriteAt(b, at); err != nil {
		d.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) truncate(name string, size int64) {
	d.t.Helper()
	f, err := d.disk.OpenFile(name, 2, 0)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		d.t.Fatal(err)
	}
}

func (d *damaged) remove(names ...string) {
	d.t.Helper()
	for _, name := range names {
		if err := d.disk.Remove(name); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *damaged) copy(from, to string) {
	d.t.Helper()
	writeFile(d.t, d.disk, to, d.read(from))
}

// newDamaged makes the log, stopped cleanly or killed.
func newDamaged(t *testing.T, clean bool) *damaged {
	t.Helper()
	d := &damaged{bench: newBench(t, func(o *Options) { o.Config.IndexInterval, o.Config.SegmentIndexBytes = 1, 4096 })}
	for i := range 12 {
		o := record.NewBuildOptions()
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = 7, 0, kafka.Sequence(i*2)
		info, err := d.log.AppendAsLeader(d.records(2, o), 0, AppendOptions{})
		if err != nil {
			t.Fatal(err)
		}
		d.size = int64(info.Size)
		if i%3 == 2 && i < 11 {
			if err := d.log.Roll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if clean {
		if err := d.log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d.disk = d.disk.Crash(memfs.KeepAll())
	d.disk.SetNow(d.clock)
	d.opts.FS, d.due = d.disk, nil
	d.opts.CleanShutdown, d.opts.RecoveryPoint = clean, 0
	if clean {
		d.opts.RecoveryPoint, d.opts.HighWatermark = 24, 24
	}
	return d
}

// recovery is one way in which a directory can be found at start.
type recovery struct {
	name   string
	clean  bool
	damage func(d *damaged)
	// ends is the log end offset, 24 when nothing is lost. refused is part of
	// the reason for which the log is not opened.
	ends    kafka.Offset
	refused string
	// events are the names of what is told, without the ones that follow from it.
	events []string
	// files must be there afterwards, gone must not.
	files, gone []string
	// lost are first offsets of batches below the end that cannot be read. unseen
	// says that a start which believes the segment does not see that: the scrub does.
	lost   []kafka.Offset
	unseen bool
}

func cut(base kafka.Offset) string { return segment.Name(base, segment.LogExt) + CutSuffix }

// recoveries is the table of all (docs/testing.md).
var recoveries = []recovery{
	{name: "a clean marker is believed", clean: true, ends: 24},
	{name: "a killed log is checked from the recovery point on and is whole", ends: 24},
	{name: "a torn tail is cut and there is nothing to keep", ends: 22, events: []string{"tail-cut"}, gone: []string{cut(18)},
		damage: func(d *damaged) { d.truncate(d.file(18, ".log"), 3*d.size-1) }},
	{name: "a tail of zeros is cut", ends: 24, events: []string{"tail-cut"}, gone: []string{cut(18)},
		damage: func(d *damaged) { d.truncate(d.file(18, ".log"), 3*d.size+4096) }},
	{name: "a flipped bit above the recovery point ends the log and what is behind it is kept", ends: 8, events: []string{"tail-cut"},
		files: []string{cut(6), cut(12), cut(18)}, gone: []string{segment.Name(12, ".log"), segment.Name(18, ".index")},
		damage: func(d *damaged) { d.write(d.file(6, ".log"), d.size+70, 0xff) }},
	{name: "a flipped bit below the recovery point costs one batch", ends: 24, events: []string{"corrupt-batch"}, lost: []kafka.Offset{20},
		damage: func(d *damaged) { d.opts.RecoveryPoint = 22; d.write(d.file(18, ".log"), d.size+70, 0xff) }},
	{name: "damage below the recovery point up to the end of a segment does not take the later segments", ends: 24, events: []string{"corrupt-batch"},
		lost: []kafka.Offset{8, 10}, files: []string{segment.Name(12, ".log"), segment.Name(18, ".log")}, gone: []string{cut(6), cut(12)},
		damage: func(d *damaged) {
			d.opts.RecoveryPoint = 10
			d.write(d.file(6, ".log"), d.size+8, bytes.Repeat([]byte{0xff}, int(2*d.size-8))...)
		}},
	{name: "a segment torn below the recovery point does not take the later segments", ends: 24, events: []string{"corrupt-batch"},
		lost: []kafka.Offset{8, 10}, files: []string{segment.Name(12, ".log")}, gone: []string{cut(6), cut(12)},
		damage: func(d *damaged) { d.opts.RecoveryPoint = 10; d.truncate(d.file(6, ".log"), 2*d.size-1) }},
	{name: "a damaged last batch of a segment below the recovery point costs that batch", ends: 24, events: []string{"corrupt-batch"},
		lost: []kafka.Offset{10}, files: []string{segment.Name(12, ".log")}, gone: []string{cut(6)},
		damage: func(d *damaged) { d.opts.RecoveryPoint = 11; d.write(d.file(6, ".log"), 2*d.size+70, 0xff) }},
	{name: "a segment that is nothing but damage below the recovery point does not take the later segments", ends: 24, events: []string{"corrupt-batch"},
		lost: []kafka.Offset{6, 8, 10}, files: []string{segment.Name(12, ".log")}, gone: []string{cut(6)},
		damage: func(d *damaged) {
			d.opts.RecoveryPoint = 11
			d.write(d.file(6, ".log"), 0, bytes.Repeat([]byte{0xff}, int(3*d.size))...)
		}},
	{name: "a damaged segment below the recovery point is not looked at", ends: 24, lost: []kafka.Offset{8},
		damage: func(d *damaged) { d.opts.RecoveryPoint = 18; d.write(d.file(6, ".log"), d.size+70, 0xff) }},
	{name: "a damaged length below the recovery point costs one batch", ends: 24, events: []string{"corrupt-batch"}, lost: []kafka.Offset{20},
		damage: func(d *damaged) { d.opts.RecoveryPoint = 24; d.write(d.file(18, ".log"), d.size+8, 0x7f) }},
	{name: "a damaged base offset in a first batch below the recovery point costs that batch", clean: true, ends: 24,
		events: []string{"corrupt-batch", "index-rebuilt"}, lost: []kafka.Offset{6}, unseen: true,
		damage: func(d *damaged) { d.remove(d.file(6, ".index")); d.write(d.file(6, ".log"), 2, 0xff) }},
	{name: "a base offset that jumped does not take its place in the log", ends: 20, events: []string{"tail-cut"}, files: []string{cut(18)},
		damage: func(d *damaged) { d.write(d.file(18, ".log"), d.size+4, 0x10) }},
	{name: "an empty segment in the middle is a hole that is not served", ends: 6, events: []string{"tail-cut"}, files: []string{cut(12), cut(18)},
		damage: func(d *damaged) { d.truncate(d.file(6, ".log"), 0) }},
	{name: "a short segment in the middle is a hole that is not served", ends: 10, events: []string{"tail-cut"}, files: []string{cut(12), cut(18)},
		damage: func(d *damaged) { d.truncate(d.file(6, ".log"), 2*d.size) }},
	{name: "a missing segment above the recovery point is a hole that is not served", ends: 6, events: []string{"tail-cut"}, files: []string{cut(12), cut(18)},
		damage: func(d *damaged) {
			d.remove(d.file(6, ".log"), d.file(6, ".index"), d.file(6, ".timeindex"), d.file(6, ".snapshot"))
		}},
	{name: "a .log that is missing from the middle refuses the log, with the offsets", clean: true, refused: "offsets 6 to 11, between",
		damage: func(d *damaged) { d.remove(d.file(6, ".log")) }},
	{name: "a .log that is missing below the recovery point refuses the log", refused: "offsets 6 to 11, between",
		damage: func(d *damaged) { d.opts.RecoveryPoint = 20; d.remove(d.file(6, ".log")) }},
	{name: "a segment that was emptied below the recovery point refuses the log", refused: "offsets 6 to 11, between",
		damage: func(d *damaged) { d.opts.RecoveryPoint = 9; d.truncate(d.file(6, ".log"), 0) }},
	{name: "a compacted log may have gaps between its segments", ends: 24,
		damage: func(d *damaged) {
			d.opts.FirstDirty, d.opts.FirstDirtyKnown = 12, true
			d.truncate(d.file(6, ".log"), 2*d.size)
		}},
	{name: "an active segment that is gone is missed", clean: true, ends: 18, events: []string{"records-missing"},
		damage: func(d *damaged) { d.remove(d.file(18, ".log")) }},
	{name: "a missing offset index is rebuilt for its segment", clean: true, ends: 24, events: []string{"index-rebuilt"},
		damage: func(d *damaged) { d.remove(d.file(6, ".index")) }},
	{name: "a missing time index is rebuilt for its segment", clean: true, ends: 24, events: []string{"index-rebuilt"},
		damage: func(d *damaged) { d.remove(d.file(12, ".timeindex")) }},
	{name: "a damaged transaction index is rebuilt for its segment", clean: true, ends: 24, events: []string{"index-rebuilt"},
		damage: func(d *damaged) { writeFile(d.t, d.disk, d.file(6, ".txnindex"), bytes.Repeat([]byte{0xff}, 68)) }},
	{name: "index files of a crashed broker, padded with zeros, are rebuilt", ends: 24,
		damage: func(d *damaged) {
			for _, base := range []kafka.Offset{0, 6, 12, 18} {
				d.truncate(d.file(base, ".index"), 4096)
				d.truncate(d.file(base, ".timeindex"), 4092)
			}
		}},
	{name: "indexes of the active segment that do not fit it are rebuilt", clean: true, ends: 24, events: []string{"index-rebuilt"},
		damage: func(d *damaged) { writeFile(d.t, d.disk, d.file(18, ".index"), bytes.Repeat([]byte{0xff}, 16)) }},
	{name: "a bad end after a clean stop is cut, and the rest is believed", clean: true, ends: 22, events: []string{"tail-damaged", "tail-cut", "records-missing"},
		damage: func(d *damaged) { d.truncate(d.file(18, ".log"), 3*d.size-1) }},
	{name: "a bad last batch after a clean stop had reached the disk and is kept", clean: true, ends: 22,
		events: []string{"tail-damaged", "tail-cut", "records-missing"}, files: []string{cut(18)},
		damage: func(d *damaged) { d.write(d.file(18, ".log"), 2*d.size+70, 0xff) }},
	{name: "a swap that was declared complete is finished", ends: 24, events: []string{"finished"}, gone: []string{segment.Name(6, ".log.swap")},
		damage: func(d *damaged) {
			d.copy(d.file(6, ".log"), d.file(6, ".log.swap"))
			d.copy(d.file(6, ".index"), d.file(6, ".index.swap"))
			d.copy(d.file(6, ".timeindex"), d.file(6, ".timeindex.swap"))
		}},
	{name: "a swap above a .cleaned was not complete and is given up", ends: 24, events: []string{"finished"},
		gone: []string{segment.Name(6, ".log.swap"), segment.Name(6, ".index.cleaned")},
		damage: func(d *damaged) {
			writeFile(d.t, d.disk, d.file(6, ".log.swap"), []byte("part"))
			writeFile(d.t, d.disk, d.file(6, ".index.cleaned"), nil)
		}},
	{name: "a .cleaned alone is given up", ends: 24, events: []string{"finished"}, gone: []string{segment.Name(0, ".log.cleaned")},
		damage: func(d *damaged) { writeFile(d.t, d.disk, d.file(0, ".log.cleaned"), []byte("part")) }},
	{name: "a deletion is finished, of a segment that another has replaced too", ends: 24, events: []string{"finished"},
		gone: []string{segment.Name(0, ".log.deleted"), segment.Name(0, ".snapshot.deleted")},
		damage: func(d *damaged) {
			d.copy(d.file(0, ".log"), d.file(0, ".log.deleted"))
			writeFile(d.t, d.disk, d.file(0, ".snapshot.deleted"), nil)
		}},
	{name: "swaps, cleaned and deleted files in one directory are told apart", ends: 24, events: []string{"finished"},
		gone: []string{segment.Name(0, ".log.swap"), segment.Name(12, ".log.swap"), segment.Name(12, ".log.cleaned"), segment.Name(0, ".log.deleted")},
		damage: func(d *damaged) {
			d.copy(d.file(0, ".log"), d.file(0, ".log.swap"))
			d.copy(d.file(0, ".log"), d.file(0, ".log.deleted"))
			writeFile(d.t, d.disk, d.file(12, ".log.swap"), []byte("part"))
			writeFile(d.t, d.disk, d.file(12, ".log.cleaned"), []byte("part"))
		}},
	{name: "an index without a log at the end is of a roll that was cut short", ends: 24, gone: []string{segment.Name(24, ".index")},
		damage: func(d *damaged) { writeFile(d.t, d.disk, d.file(24, ".index"), nil) }},
	{name: "a missing snapshot after a clean stop is rebuilt by replay", clean: true, ends: 24, events: []string{"snapshot-rebuilt"}, files: []string{producer.SnapshotName(24)},
		damage: func(d *damaged) {
			for _, o := range []kafka.Offset{6, 12, 18, 24} {
				d.remove(path.Join(testDir, producer.SnapshotName(o)))
			}
		}},
	{name: "a damaged snapshot is dropped and the next older one used", clean: true, ends: 24, events: []string{}, files: []string{producer.SnapshotName(24)},
		damage: func(d *damaged) { d.write(path.Join(testDir, producer.SnapshotName(24)), 3, 0xff) }},
	{name: "damaged leader epochs are rebuilt from the batches", clean: true, ends: 24, events: []string{"checkpoint-rebuilt"},
		damage: func(d *damaged) {
			writeFile(d.t, d.disk, path.Join(testDir, checkpoint.EpochFile), []byte("0\n7\nx"))
		}},
	{name: "damaged leader epochs are rebuilt from the first batch on, not from the recovery point on", ends: 24, events: []string{"checkpoint-rebuilt"},
		damage: func(d *damaged) {
			d.opts.RecoveryPoint = 20
			writeFile(d.t, d.disk, path.Join(testDir, checkpoint.EpochFile), []byte("0\n7\nx"))
		}},
	{name: "temporary files that were never named go", ends: 24,
		gone: []string{checkpoint.EpochFile + ".tmp", cut(6) + ".tmp", segment.Name(6, ".index.tmp"), segment.Name(6, ".txnindex.tmp")},
		damage: func(d *damaged) {
			writeFile(d.t, d.disk, d.file(6, ".index.tmp"), []byte("0"))
			writeFile(d.t, d.disk, d.file(6, ".txnindex.tmp"), []byte("0"))
			writeFile(d.t, d.disk, path.Join(testDir, checkpoint.EpochFile+".tmp"), []byte("0"))
			writeFile(d.t, d.disk, path.Join(testDir, cut(6)+".tmp"), []byte("0"))
		}},
	{name: "a recovery point above the end cuts no more than a lower one", ends: 22, events: []string{"tail-cut", "records-missing"}, files: []string{cut(18)},
		damage: func(d *damaged) { d.opts.RecoveryPoint = 1 << 40; d.write(d.file(18, ".log"), 2*d.size+70, 0xff) }},
	{name: "a high watermark above the end is missed", ends: 24, events: []string{"records-missing"},
		damage: func(d *damaged) { d.opts.HighWatermark = 30 }},
	{name: "what was set aside before stays when more is", ends: 8, events: []string{"tail-cut"}, files: []string{cut(6), cut(6) + ".1"},
		damage: func(d *damaged) {
			writeFile(d.t, d.disk, path.Join(testDir, cut(6)), bytes.Repeat([]byte{1}, int(2*d.size)))
			d.write(d.file(6, ".log"), d.size+70, 0xff)
		}},
}

func TestRecovery(t *testing.T) {
	for _, tt := range recoveries {
		t.Run(tt.name, func(t *testing.T) {
			d := newDamaged(t, tt.clean)
			if tt.damage != nil {
				tt.damage(d)
			}
			before := listFiles(t, d.disk, testDir)
			l, err := Open(d.opts)
			if tt.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("Open: %v, want a refusal with %q", err, tt.refused)
				}
				for name, data := range before {
					if strings.HasSuffix(name, ".log") && !bytes.Equal(listFiles(t, d.disk, testDir)[name], data) {
						t.Errorf("%s was changed although the log was refused", name)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			d.log = l
			if l.EndOffset() != tt.ends {
				t.Errorf("the log ends at %d, want %d", l.EndOffset(), tt.ends)
			}
			if !slices.Equal(slices.Compact(d.events), tt.events) && len(d.events)+len(tt.events) > 0 {
				t.Errorf("events %v, want %v", d.events, tt.events)
			}
			files := strings.Fields(d.files())
			for _, name := range tt.files {
				if !slices.Contains(files, name) {
					t.Errorf("%s is not there: %v", name, files)
				}
			}
			for _, name := range tt.gone {
				if slices.Contains(files, name) {
					t.Errorf("%s is still there", name)
				}
			}
			d.readable(tt.lost)
			if e, start, ok := l.EarliestEpoch(); !ok || e != 0 || start != 0 {
				t.Errorf("the first leader epoch is %d from %d on, want 0 from 0 on", e, start)
			}
			if p := l.ActiveProducers(); len(p) != 1 || len(tt.lost) == 0 && p[0].LastSequence != kafka.Sequence(tt.ends-1) {
				t.Errorf("producers %+v, want 7 with sequence %d", p, tt.ends-1)
			}
			d.append(1)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			// A second start finds nothing to do.
			d.events, d.opts.RecoveryPoint, d.opts.HighWatermark = nil, l.RecoveryPoint(), 0
			d.open(true)
			if d.log.EndOffset() != tt.ends+1 || len(d.events) > 0 {
				t.Errorf("after a clean stop the log ends at %d with events %v, want %d and none", d.log.EndOffset(), d.events, tt.ends+1)
			}
			if !tt.unseen {
				d.readable(tt.lost)
			}
		})
	}
}

// readable wants every batch that Open left to be found by its offset, with a
// right checksum, but for those that are lost.
func (d *damaged) readable(lost []kafka.Offset) {
	d.t.Helper()
	for at := kafka.Offset(0); at < d.log.EndOffset(); at += 2 {
		info, err := d.log.Read(at, ReadOptions{MaxBytes: 1, MinOneBatch: true, Bound: LogEnd})
		var b record.Batch
		if err == nil && info.Region.Length > 0 {
			b = make([]byte, info.Region.Length)
			_, err = info.Region.File.ReadAt(b, info.Region.Offset)
		}
		if info.Region.Release != nil {
			info.Region.Release()
		}
		right := err == nil && len(b) >= record.HeaderSize && record.Check(b) == nil && b.BaseOffset() == at
		if right == slices.Contains(lost, at) && !(d.opts.FirstDirtyKnown && at == 10) {
			d.t.Errorf("offset %d: right batch = %v (%v)", at, right, err)
		}
	}
}

// TestRecoveryStoppedAfterEachOperation kills each recovery after every file
// operation, k times in a row, and wants the files of one that ran undisturbed
// (faults I9), and none besides. After a power cut it wants the same records.
func TestRecoveryStoppedAfterEachOperation(t *testing.T) {
	for _, tt := range recoveries {
		if tt.refused != "" {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			start := newDamaged(t, tt.clean)
			if tt.damage != nil {
				tt.damage(start)
			}
			start.sync()
			whole, ops := start.stopped(start.disk.Crash(memfs.KeepAll()), -1, tt.clean)
			for limit := range ops {
				for _, again := range []int{1, 3} {
					disk := start.disk.Crash(memfs.KeepAll())
					for i := range again {
						// The marker is gone before the first log is opened.
						start.stopped(disk, limit, tt.clean && i == 0)
						disk = disk.Crash(memfs.KeepAll())
					}
					got, _ := start.stopped(disk, -1, false)
					start.same(fmt.Sprintf("stopped after %d of %d operations, %d times", limit, ops, again), got, whole, func(name string) bool {
						// What is kept of a log that was stopped cleanly depends on who
						// finds it; an index that was not made to its end is made anew
						// at its first use.
						return !tt.clean || strings.HasSuffix(name, segment.LogExt)
					})
				}
				disk := start.disk.Crash(memfs.KeepAll())
				start.stopped(disk, limit, tt.clean)
				got, _ := start.stopped(disk.Crash(memfs.Random(0.5, uint64(limit))), -1, false)
				start.same(fmt.Sprintf("power cut after %d of %d operations", limit, ops), got, whole, func(name string) bool {
					return strings.HasSuffix(name, segment.LogExt)
				})
				if t.Failed() {
					return
				}
			}
		})
	}
}

var errKilled = errors.New("killed")

// sync makes everything durable that is in the directory.
func (d *damaged) sync() {
	d.t.Helper()
	for _, name := range strings.Fields(d.files()) {
		f, err := d.disk.OpenFile(path.Join(testDir, name), 2, 0)
		if err != nil {
			d.t.Fatal(err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			d.t.Fatal(err)
		}
	}
	for _, dir := range []string{"/", "/d", testDir} {
		if err := d.disk.SyncDir(dir); err != nil {
			d.t.Fatal(err)
		}
	}
}

// stopped opens the log on a disk that does limit operations and no more, and
// returns the files and the operations that were done.
func (d *damaged) stopped(disk *memfs.FS, limit int, clean bool) (map[string][]byte, int) {
	d.t.Helper()
	ops := 0
	o := d.opts
	o.OnEvent, o.AfterDelay, o.CleanShutdown = nil, nil, clean
	o.FS = faultfs.Wrap(disk, func(op faultfs.Op) faultfs.Fault {
		if !op.Kind.Changes() {
			return faultfs.Fault{}
		}
		if ops++; limit >= 0 && ops > limit {
			return faultfs.Fault{Err: errKilled}
		}
		return faultfs.Fault{}
	})
	l, err := Open(o)
	if err == nil && limit < 0 {
		err = l.Close()
	}
	if err != nil && (limit < 0 || !errors.Is(err, errKilled)) {
		d.t.Fatal(err)
	}
	return listFiles(d.t, disk, testDir), ops
}

func (d *damaged) same(what string, got, want map[string][]byte, compared func(name string) bool) {
	d.t.Helper()
	for name, data := range want {
		if compared(name) && !bytes.Equal(got[name], data) {
			d.t.Errorf("%s: %s has %d bytes, want the %d of one that ran through", what, name, len(got[name]), len(data))
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok && compared(name) {
			d.t.Errorf("%s: %s is left over", what, name)
		}
	}
}

// TestALongRecoveryGoesOnWhereItWasKilled recovers segments that are worth a
// sync, and wants the recovery point to follow.
func TestALongRecoveryGoesOnWhereItWasKilled(t *testing.T) {
	b := newBench(t, func(o *Options) { o.Config.SegmentBytes, o.Config.MaxMessageBytes = 20<<20, 20<<20 })
	var builder record.Builder
	for range 3 {
		for range 2 {
			builder.Reset(record.NewBuildOptions())
			builder.Append(kafka.Timestamp(b.now), nil, make([]byte, 9<<20), nil)
			batch, err := builder.Finish()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.log.AppendAsLeader(batch, 0, AppendOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.log.Roll(); err != nil {
			t.Fatal(err)
		}
	}
	var points []kafka.Offset
	b.opts.OnRecovered = func(p kafka.Offset) { points = append(points, p) }
	var scanned int64
	b.opts.OnScan = func(_ int, bytes int64) { scanned += bytes }
	b.opts.RecoveryPoint = 0
	b.killed()
	if !slices.Equal(points, []kafka.Offset{4}) || b.log.RecoveryPoint() != 4 || scanned < 54<<20 {
		t.Fatalf("recovery points %v, in the end %d, after %d bytes; want 4 behind the second segment", points, b.log.RecoveryPoint(), scanned)
	}
	b.opts.RecoveryPoint, scanned = points[0], 0
	b.killed()
	if scanned > 20<<20 || b.log.EndOffset() != 6 {
		t.Errorf("the next start read %d bytes to find the end at %d, want the third segment alone and 6", scanned, b.log.EndOffset())
	}
}

// TestALogStartAboveTheEndKeepsWhatIsThere: a checkpoint has no checksum, so it
// cannot be told whether the records were deleted or the number is wrong.
func TestALogStartAboveTheEndKeepsWhatIsThere(t *testing.T) {
	d := newDamaged(t, false)
	d.opts.LogStartOffset = 30
	before := d.read(d.file(12, ".log"))
	d.open(false)
	if d.log.StartOffset() != 30 || d.log.EndOffset() != 30 || !slices.Contains(d.events, "log-start-above-end") {
		t.Errorf("the log is [%d, %d) with events %v, want [30, 30) and log-start-above-end", d.log.StartOffset(), d.log.EndOffset(), d.events)
	}
	for _, f := range d.due { // the delayed removal of what is deleted
		f()
	}
	if kept := listFiles(t, d.disk, testDir)[cut(12)]; !bytes.Equal(kept, before) {
		t.Errorf("%s has %d bytes, want the %d of the segment; files %s", cut(12), len(kept), len(before), d.files())
	}
	if info := d.append(1); info.FirstOffset != 30 {
		t.Errorf("the next record has offset %d, want 30", info.FirstOffset)
	}
}
