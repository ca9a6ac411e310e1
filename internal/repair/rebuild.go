package repair

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

// indexInterval is the default of index.interval.bytes. That of the topic is
// not asked for: an index of another density finds the same batches.
const indexInterval = 4096

// buildIndexes recovers a segment of the view, as a start would, into indexes
// on a memory disk. The transaction index needs the producers before the
// segment and is built only when asked for.
func (p *planner) buildIndexes(d *part, base kafka.Offset, txns bool) (map[string][]byte, error) {
	b := &bench{FS: memfs.New(), view: p.view}
	if err := b.MkdirAll(d.dir, 0o755); err != nil {
		return nil, err
	}
	info, err := p.view.Stat(d.path(base, segment.LogExt))
	if err != nil {
		return nil, err
	}
	o := segment.Options{IndexInterval: indexInterval, MaxIndexBytes: int((info.Size()/indexInterval + 8) * 12)}
	s, err := segment.Open(b, d.dir, base, o)
	if err != nil {
		return nil, err
	}
	recover := segment.RecoverOptions{Keep: math.MaxInt64, Gaps: true}
	if txns {
		st, err := p.producers(d, d.bases[0], base)
		if err != nil {
			return nil, errors.Join(err, s.Abandon())
		}
		recover.Visit = func(h *record.Header, batch []byte, _ int64) error { return feed(st, h, batch, s.AppendTxn) }
	}
	_, err = s.RecoverWith(recover)
	if err = errors.Join(err, s.Abandon()); err != nil {
		return nil, fmt.Errorf("rebuild the indexes of segment %d: %w", base, err)
	}
	out := map[string][]byte{}
	for _, ext := range []string{segment.IndexExt, segment.TimeIndexExt, segment.TxnIndexExt} {
		out[ext], err = vfs.ReadFile(b, d.path(base, ext))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return out, nil
}

// feed gives a batch to the producer state; aborted is told of each transaction
// that it aborts. What a batch with a right checksum means wrongly is passed
// over, as a start does.
func feed(st *producer.State, h *record.Header, b record.Batch, aborted func(index.AbortedTxn) error) error {
	if !h.HasProducerID() {
		return nil
	}
	var marker *producer.Marker
	if h.IsControl() {
		m, ok, err := endMarker(b)
		if err != nil {
			return nil // no end of a transaction
		}
		if ok {
			marker = &m
		}
	}
	st.Begin()
	if st.Add(h, marker, producer.Replication, producer.UnknownTxnVersion, 0) != nil {
		return nil
	}
	completed := slices.Clone(st.Completed())
	st.Commit()
	for _, c := range completed {
		if c.Aborted && aborted != nil {
			a := index.AbortedTxn{ProducerID: c.ProducerID, FirstOffset: c.FirstOffset, LastOffset: c.LastOffset, LastStable: st.LastStableAfter(c)}
			if err := aborted(a); err != nil {
				return err
			}
		}
		st.Complete(c)
	}
	return nil
}

// endMarker reads the record of a control batch; ok is false when compaction
// has emptied it.
func endMarker(b record.Batch) (m producer.Marker, ok bool, err error) {
	var it record.Iterator
	if err := it.Reset(b, nil); err != nil {
		return m, false, err
	}
	if !it.Next() {
		return m, false, it.Err()
	}
	r := it.Record()
	kind, err := record.ParseControl(r.Key)
	if err != nil {
		return m, false, err
	}
	m.CoordinatorEpoch, err = record.ParseEndTxnMarker(r.Value)
	m.Commit, m.Timestamp = kind == record.CommitMarker, r.Timestamp
	return m, err == nil, err
}

// errReplayed ends a replay.
var errReplayed = errors.New("replayed")

// producers is the producer state at offset end: from the newest good snapshot
// at or below seed, and the batches behind it.
func (p *planner) producers(d *part, seed, end kafka.Offset) (*producer.State, error) {
	mem := memfs.New()
	if err := mem.MkdirAll(d.dir, 0o755); err != nil {
		return nil, err
	}
	from := kafka.Offset(-1)
	for name := range d.names {
		n, ok := segment.ParseName(name)
		if !ok || n.Suffix != "" || n.Ext != segment.SnapshotExt || n.Base > min(seed, end) || n.Base <= from {
			continue
		}
		data, err := vfs.ReadFile(p.view, filepath.Join(d.dir, name))
		if errors.Is(err, vfs.ErrTooLarge) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if !sound(data, n.Base) {
			continue
		}
		from = n.Base
		if err := checkpoint.WriteFile(mem, filepath.Join(d.dir, name), data); err != nil {
			return nil, err
		}
	}
	st, err := producer.Open(producer.Config{FS: mem, Dir: d.dir, Partition: d.tp})
	if err != nil {
		return nil, err
	}
	if from > 0 {
		if err := st.Reload(-1, from, 0); err != nil {
			return nil, err
		}
	}
	for i, base := range d.bases {
		if base >= end || i+1 < len(d.bases) && d.bases[i+1] <= from {
			continue
		}
		err := p.scan(d.path(base, segment.LogExt), record.ScanBuffer, func(s *record.Scanner) error {
			h := s.Header()
			if h.LastOffset >= end {
				return errReplayed
			}
			if h.BaseOffset < from || !h.HasProducerID() {
				return nil
			}
			b, err := s.Batch()
			if err != nil {
				return err
			}
			if record.Check(b) != nil {
				return nil
			}
			return feed(st, h, b, nil)
		})
		if err != nil && !errors.Is(err, errReplayed) {
			return nil, err
		}
	}
	return st, nil
}

// sound reports whether a snapshot can be read and is of the log below its offset.
func sound(data []byte, offset kafka.Offset) bool {
	entries, err := producer.DecodeSnapshot(data)
	return err == nil && !slices.ContainsFunc(entries, func(e producer.Entry) bool { return e.LastOffset >= offset || e.TxnFirstOffset >= offset })
}

// snapshot plans for one producer snapshot: anew, or away when the log does not
// reach it.
func (p *planner) snapshot(d *part, name string) error {
	n, ok := segment.ParseName(name)
	path := filepath.Join(d.dir, name)
	if !ok || p.tried[path] {
		return nil
	}
	end, err := p.end(d)
	if err != nil {
		return err
	}
	if n.Base > end {
		p.view.aside(path)
		delete(d.names, name)
		p.add(Step{Kind: MoveAside, File: path, Why: fmt.Sprintf("the log ends at offset %d", end), rank: rankSnapshot})
		return nil
	}
	p.tried[path] = true
	return p.rebuildSnapshot(d, n.Base, n.Base-1)
}

func (p *planner) rebuildSnapshot(d *part, offset, seed kafka.Offset) error {
	st, err := p.producers(d, seed, offset)
	if err != nil {
		return err
	}
	path := d.path(offset, segment.SnapshotExt)
	data := producer.AppendSnapshot(nil, st.Entries())
	old, err := vfs.ReadFile(p.view, path)
	if err == nil && bytes.Equal(old, data) {
		return nil
	}
	return p.put(Step{Kind: RebuildSnapshot, File: path, rank: rankSnapshot, Why: fmt.Sprintf("%d producers", st.Len())}, data)
}
