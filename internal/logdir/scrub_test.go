package logdir

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/faultfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// scrubbed is a partition of six sealed segments of two records each, in a
// directory that is scrubbed at the rate.
func scrubbed(t *testing.T, disk vfs.FS, rate int64) (*Manager, *commitlog.Log, *logLines) {
	t.Helper()
	format(t, disk, "/d")
	var lines logLines
	o := logTo(options(disk, "/d"), &lines)
	o.Now = time.Now
	o.ScrubRate = rate
	m := load(t, o, nil)
	c := testConfig("t")
	c.IndexInterval = 1
	l, err := m.Create(NewPartition{Partition: tpOf("t", 0), TopicID: topicID("t"), Config: c})
	must(t, err)
	var b record.Builder
	for range 6 {
		for i := range 2 { // the second has an index entry
			b.Reset(record.NewBuildOptions())
			b.Append(kafka.TimestampOf(time.Now())+kafka.Timestamp(i), []byte("k"), []byte(strings.Repeat("v", 100)), nil)
			batch, err := b.Finish()
			must(t, err)
			_, err = l.AppendAsLeader(batch, 0, commitlog.AppendOptions{})
			must(t, err)
		}
		l.MaybeIncrementHighWatermark(l.EndOffset())
		must(t, l.Roll())
	}
	return m, l, &lines
}

func changeByte(t *testing.T, disk vfs.FS, path string, at int64) {
	t.Helper()
	f, err := disk.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	must(t, err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], at)
	must(t, err, f.Close())
}

func TestTheScrubFindsWhatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memfs.New()
		m, l, lines := scrubbed(t, disk, 8_000_000)
		changeByte(t, disk, filepath.Join("/d/t-0", segment.Name(4, segment.LogExt)), 100)
		changeByte(t, disk, filepath.Join("/d/t-0", segment.Name(8, segment.TimeIndexExt)), 7)
		fetch := func(o kafka.Offset) error {
			info, err := l.Read(o, commitlog.ReadOptions{MaxBytes: 1 << 20, MinOneBatch: true})
			if info.Region.Release != nil {
				info.Region.Release()
			}
			return err
		}
		for o := range kafka.Offset(12) {
			must(t, fetch(o))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for o := range kafka.Offset(12) {
			if err := fetch(o); errors.Is(err, commitlog.ErrCorrupt) != (o == 4) {
				t.Errorf("fetch from %d: %v", o, err)
			}
		}
		for _, want := range []string{
			"level=ERROR msg=\"corrupt batch\" event=corrupt-batch topic=t partition=0 file=/d/t-0/00000000000000000004.log position=0 offset=4 reason=checksum",
			"level=WARN msg=\"index rebuilt\" event=index-rebuilt topic=t partition=0 file=/d/t-0/00000000000000000008.timeindex",
		} {
			if strings.Count(lines.text(), want) != 1 {
				t.Errorf("log, want once %s:\n%s", want, lines.text())
			}
		}
		if s := m.ScrubStats()["/d"]; s.Passes != 1 || s.Segments != 6 || s.CorruptBatches != 1 || s.IndexesRebuilt != 1 || s.Batches != 11 || s.Bytes < l.Size() {
			t.Errorf("stats %+v of %d bytes", s, l.Size())
		}
		// The next day it is found again, and not told again; once it is right it is served.
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if s := m.ScrubStats()["/d"]; s.Passes != 2 || s.CorruptBatches != 2 || s.IndexesRebuilt != 1 || strings.Count(lines.text(), "event=corrupt-batch") != 1 {
			t.Errorf("stats %+v after a second pass", s)
		}
		changeByte(t, disk, filepath.Join("/d/t-0", segment.Name(4, segment.LogExt)), 100)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		must(t, fetch(4))
		must(t, m.Close(-1))
	})
}

// Virtual time: the pace and the stop are exact.
func TestTheScrubKeepsItsPaceAndStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memfs.New()
		m, l, _ := scrubbed(t, disk, 100)
		least := time.Duration(l.Size()-l.Size()/6) * time.Second / 100
		time.Sleep(scrubDelay + least - time.Second)
		synctest.Wait()
		if s := m.ScrubStats()["/d"]; s.Passes != 0 {
			t.Errorf("%d bytes at 100 a second were read within %v", l.Size(), least)
		}
		time.Sleep(time.Duration(l.Size())*time.Second/100 - least + time.Minute)
		synctest.Wait()
		if s := m.ScrubStats()["/d"]; s.Passes != 1 {
			t.Errorf("%d bytes at 100 a second: %+v", l.Size(), s)
		}
		time.Sleep(24 * time.Hour) // within the next pass
		began := time.Now()
		must(t, m.Close(-1))
		if took := time.Since(began); took > 0 {
			t.Errorf("the stop waited %v", took)
		}
	})
}

// A disk that does not answer is an error of the disk, not damage: the third
// failure within a minute takes the directory offline.
func TestAFailedReadOfTheScrubIsNoDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failing atomic.Bool
		disk := faultfs.Wrap(memfs.New(), func(op faultfs.Op) faultfs.Fault {
			if failing.Load() && op.Kind == faultfs.Read && strings.HasSuffix(op.Name, ".log") {
				return faultfs.Fault{Err: syscall.EIO}
			}
			return faultfs.Fault{}
		})
		m, l, lines := scrubbed(t, disk, 8_000_000)
		failing.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := m.ScrubStats()["/d"]; s.ReadErrors != 3 || s.CorruptBatches != 0 {
			t.Errorf("stats %+v", s)
		}
		if lines.contains("corrupt-batch") || strings.Count(lines.text(), "event=read-failed") != 3 || !lines.contains("event=dir-offline") || l.Failure() == nil {
			t.Errorf("log:\n%s", lines.text())
		}
		_ = m.Close(-1) // not clean
	})
}

// Segments that are compacted away or deleted under the scrub are passed over.
func TestSegmentsMayGoUnderTheScrub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := memfs.New()
		m, l, lines := scrubbed(t, disk, 10)
		time.Sleep(scrubDelay + time.Second)
		if _, err := l.DeleteRecordsTo(8); err != nil {
			t.Fatal(err)
		}
		if _, err := l.DeleteOldSegments(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := m.ScrubStats()["/d"]; s.Passes != 1 || s.CorruptBatches != 0 || s.ReadErrors != 0 {
			t.Errorf("stats %+v:\n%s", s, lines.text())
		}
		must(t, m.Delete(tpOf("t", 0)))
		time.Sleep(48 * time.Hour)
		must(t, m.Close(-1))
	})
}
