package quorum

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/vfs"
)

// Names of snapshot files.
const (
	snapshotSuffix = ".checkpoint"
	partSuffix     = ".part"
	bootstrapFile  = "bootstrap.checkpoint" // in the root; written by releases before 4.4
	snapshotMode   = 0o400
)

// snapshotID names a snapshot: the offset after the last record in it and the
// epoch of that record (OffsetAndEpoch).
type snapshotID struct {
	end   kafka.Offset
	epoch kafka.LeaderEpoch
}

func (id snapshotID) name() string {
	return fmt.Sprintf("%020d-%010d%s", id.end, id.epoch, snapshotSuffix)
}

func (id snapshotID) compare(other snapshotID) int {
	return cmp.Or(cmp.Compare(id.end, other.end), cmp.Compare(id.epoch, other.epoch))
}

func parseSnapshotName(name string) (id snapshotID, ok bool) {
	stem, ok := strings.CutSuffix(name, snapshotSuffix)
	if !ok || len(stem) != 31 || stem[20] != '-' {
		return id, false
	}
	end, err1 := strconv.ParseUint(stem[:20], 10, 63)
	epoch, err2 := strconv.ParseUint(stem[21:], 10, 31)
	return snapshotID{kafka.Offset(end), kafka.LeaderEpoch(epoch)}, err1 == nil && err2 == nil
}

// readSnapshot replays a snapshot file into the empty image.
func (l *loaded) readSnapshot(fsys vfs.FS, path string) error {
	r := replayer{delta: metadata.NewDelta(l.image)}
	if l.snapshot.end == 0 {
		r.seen = func(rec metadata.Record) { l.first = append(l.first, rec) }
	}
	timestamp, err := replaySnapshot(fsys, path, &r)
	if err != nil {
		return err
	}
	l.kraft, l.epoch = r.kraft, l.snapshot.epoch
	l.kraft.told = l.kraft.told && l.snapshot.end > 0
	l.image = r.delta.Finish(l.snapshot.end, l.snapshot.epoch, timestamp)
	return nil
}

// readBootstrapFile takes the feature levels of a directory that was formatted
// by a release before 4.4 and never started.
func (l *loaded) readBootstrapFile(fsys vfs.FS, path string) error {
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	r := replayer{delta: metadata.NewDelta(metadata.NewImage())}
	r.seen = func(rec metadata.Record) { l.first = append(l.first, rec) }
	_, err := replaySnapshot(fsys, path, &r)
	return err
}

// replaySnapshot applies a whole snapshot file: a header, data batches and a
// footer. It returns the time of the last record that went into it.
func replaySnapshot(fsys vfs.FS, path string, r *replayer) (kafka.Timestamp, error) {
	data, err := vfs.ReadFile(fsys, path)
	if err != nil {
		return 0, err
	}
	damaged := func(at int, reason string) error {
		return &DamagedError{Path: path, Offset: kafka.NoOffset, Byte: int64(at), Reason: reason}
	}
	var header *record.SnapshotHeader
	ended := false
	for at := 0; at < len(data); {
		size, ok, err := record.NextBatch(data[at:])
		if err != nil || !ok {
			return 0, damaged(at, "no whole batch")
		}
		b := record.Batch(data[at : at+size])
		if err := b.Check(); err != nil {
			return 0, damaged(at, err.Error())
		}
		if ended {
			return 0, damaged(at, "a batch after the footer")
		}
		if b.IsControl() {
			if header, ended, err = readMarks(b, header); err != nil {
				return 0, damaged(at, err.Error())
			}
		}
		if header == nil {
			return 0, damaged(at, "no snapshot header")
		}
		if err := r.batch(b); err != nil {
			return 0, replayFailure(path, err)
		}
		at += size
	}
	if !ended {
		return 0, damaged(len(data), "no snapshot footer")
	}
	return header.LastContainedLogTimestamp, nil
}

// readMarks finds the header and the footer in a control batch.
func readMarks(b record.Batch, header *record.SnapshotHeader) (_ *record.SnapshotHeader, ended bool, err error) {
	var it record.Iterator
	if err := it.Reset(b, nil); err != nil {
		return nil, false, err
	}
	for it.Next() {
		switch kind, err := record.ParseControl(it.Record().Key); {
		case err != nil:
			return nil, false, err
		case kind == record.SnapshotStart:
			h, err := record.ParseSnapshotHeader(it.Record().Value)
			if err != nil {
				return nil, false, err
			}
			header = &h
		case kind == record.SnapshotEnd:
			ended = true
		}
	}
	return header, ended, it.Err()
}

// snapshotContent is what goes into a snapshot file.
type snapshotContent struct {
	epoch         kafka.LeaderEpoch
	kraft         kraftState
	lastContained kafka.Timestamp
	now           kafka.Timestamp
	records       iter.Seq[metadata.Record]
	level         int16 // metadata.version
}

// encode builds the file: offsets count from 0 within it.
func (c *snapshotContent) encode() ([]byte, error) {
	var file []byte
	var b record.Builder
	next := kafka.Offset(0)
	begin := func(control bool) {
		o := record.NewBuildOptions()
		o.BaseOffset, o.LeaderEpoch, o.Control = next, c.epoch, control
		b.Reset(o)
	}
	end := func() error {
		batch, err := b.Finish()
		file = append(file, batch...)
		next = batch.NextOffset()
		return err
	}
	begin(true)
	header := record.SnapshotHeader{LastContainedLogTimestamp: c.lastContained}
	b.Append(c.now, record.ControlKey(record.SnapshotStart), header.Append(nil), nil)
	if c.kraft.version > 0 {
		c.kraft.append(&b, c.now)
	}
	if err := end(); err != nil {
		return nil, err
	}
	begin(false)
	var value []byte
	for r := range c.records {
		value = metadata.AppendRecord(value[:0], r, metadata.RecordVersion(r, c.level))
		if b.Count() > 0 && b.UncompressedSize()+len(value)+64 > MaxBatchBytes {
			if err := end(); err != nil {
				return nil, err
			}
			begin(false)
		}
		b.Append(c.now, nil, value, nil)
	}
	if b.Count() > 0 {
		if err := end(); err != nil {
			return nil, err
		}
	}
	begin(true)
	footer := record.SnapshotFooter{}
	b.Append(c.now, record.ControlKey(record.SnapshotEnd), footer.Append(nil), nil)
	err := end()
	return file, err
}

// writeSnapshotFile makes the file appear whole or not at all: written as
// .part, synced, renamed, and the directory synced.
func writeSnapshotFile(fsys vfs.FS, dir string, id snapshotID, content []byte) error {
	path := filepath.Join(dir, id.name())
	part := path + partSuffix
	if err := fsys.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_EXCL, snapshotMode)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = fsys.Remove(part)
		return err
	}
	if err := fsys.Rename(part, path); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}
