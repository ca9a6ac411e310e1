package commitlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"log/slog"
	"path"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// aging is a log of three sealed segments of two batches each and an active one,
// with retention by age of a minute, and what it logs.
func aging(t *testing.T, change func(*Options)) (*bench, *bytes.Buffer) {
	t.Helper()
	var lines bytes.Buffer
	b := newBench(t, func(o *Options) {
		o.Config.RetentionMs, o.Config.IndexInterval = 60_000, 1
		o.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		if change != nil {
			change(o)
		}
	})
	for range 3 {
		b.append(2)
		b.append(2)
		b.roll()
	}
	b.append(1)
	return b, &lines
}

// A time index that makes a segment look old, or new, is made anew from the log
// before anything is deleted by age.
func TestNothingIsDeletedOnTheWordOfATimeIndex(t *testing.T) {
	at := path.Join(testDir, segment.Name(0, segment.TimeIndexExt))
	for name, ts := range map[string]int64{"the year 1970": 1, "zero": 0, "the year 2100": 4_102_444_800_000} {
		t.Run(name, func(t *testing.T) {
			b, lines := aging(t, nil)
			if err := b.log.Close(); err != nil {
				t.Fatal(err)
			}
			entry := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, uint64(ts)), 3)
			good, err := vfs.ReadFile(b.disk, at)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, b.disk, at, entry)
			b.opts.RecoveryPoint = 13
			b.open(true)
			b.log.MaybeIncrementHighWatermark(13)
			if n, err := b.log.DeleteOldSegments(); n != 0 || err != nil {
				t.Errorf("DeleteOldSegments = %d, %v of young segments", n, err)
			}
			if now, err := vfs.ReadFile(b.disk, at); err != nil || !bytes.Equal(now, good) || strings.Count(lines.String(), "event=index-rebuilt") != 1 {
				t.Errorf("the time index is %x, %v, it was %x; log:\n%s", now, err, good, lines)
			}
			if strings.Contains(lines.String(), "future-timestamp") {
				t.Errorf("log:\n%s", lines)
			}
			b.now += 120_000
			if n, err := b.log.DeleteOldSegments(); n != 4 || err != nil {
				t.Errorf("DeleteOldSegments = %d, %v once all is old, want 4", n, err)
			}
		})
	}
}

// KAFKA-6482, KAFKA-18929: records with a timestamp in microseconds pin their
// segment and all behind it for millennia. That is told, once a segment.
func TestRecordsFromTheFutureThatKeepASegmentAreTold(t *testing.T) {
	b, lines := aging(t, func(o *Options) { o.Config.TimestampAfterMax = 1 << 62 })
	now := b.now
	b.now *= 1000
	b.append(1)
	b.now = now
	b.roll()
	b.append(1)
	b.now += 120_000
	for range 3 {
		if _, err := b.log.DeleteOldSegments(); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(lines.String(), "event=future-timestamp topic=test partition=0 file=/d/test-0/00000000000000000013.log timestamp=1750000000000000"); n != 1 || b.log.StartOffset() != 13 {
		t.Errorf("told %d times, log start %d, want once and 13:\n%s", n, b.log.StartOffset(), lines)
	}
}

// countingFS counts the files that are open.
type countingFS struct {
	vfs.FS
	open *atomic.Int64
}

func (c countingFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := c.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return countedFile{f, c.open}, nil
}

type countedFile struct {
	vfs.File
	open *atomic.Int64
}

func (f countedFile) Close() error {
	f.open.Add(-1)
	return f.File.Close()
}

// The files of a deleted segment are closed when its last reader is done: a stop
// that forgets the delayed unlinking leaves no descriptor open in a program that
// goes on.
func TestDeletedSegmentsAreClosedBeforeTheyAreUnlinked(t *testing.T) {
	var open atomic.Int64
	b, _ := aging(t, func(o *Options) { o.FS = countingFS{o.FS, &open} })
	for o := range kafka.Offset(13) {
		info, err := b.log.Read(o, ReadOptions{MaxBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if info.Region.Release != nil {
			info.Region.Release()
		}
	}
	info, err := b.log.Read(0, ReadOptions{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b.now += 120_000
	if n, err := b.log.DeleteOldSegments(); n != 4 || err != nil {
		t.Fatalf("DeleteOldSegments = %d, %v, want 4", n, err)
	}
	sent := make([]byte, info.Region.Length)
	if _, err := info.Region.File.ReadAt(sent, info.Region.Offset); err != nil || record.Check(sent[:record.Batch(sent).Size()]) != nil {
		t.Errorf("a region on its way when its segment was deleted: %v", err)
	}
	info.Region.Release()
	if _, err := b.log.Read(0, ReadOptions{MaxBytes: 1}); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("Read(0) = %v, want ErrOffsetOutOfRange", err)
	}
	if err := b.log.Close(); err != nil {
		t.Fatal(err)
	}
	if n := open.Load(); n != 0 {
		t.Errorf("%d files are open after the stop", n)
	}
	for _, f := range b.due {
		f()
	}
	if files := b.files(); strings.Contains(files, ".deleted") {
		t.Errorf("left: %s", files)
	}
}
