package commitlog

// What a load finds out again from the batches themselves: producer state and
// leader epochs.

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// producersAt is the producer state at the start of a segment under recovery.
func (ld *loader) producersAt(base kafka.Offset) (*producer.State, error) {
	if st := ld.producers; st != nil && st.MapEnd() == base {
		st.Expire(ld.l.now()) // as if it were read from its snapshot
		return st, nil
	}
	st, err := producer.Open(ld.l.producerConfig())
	if err != nil {
		return nil, err
	}
	return st, ld.l.rebuildProducers(st, ld.segs, ld.logStart, base, false)
}

// recoveredBatch takes one good batch of a segment under recovery: its leader epoch
// and what it means for producers and transactions.
func (ld *loader) recoveredBatch(s *segment.Segment, st *producer.State, h *record.Header, b []byte) error {
	if h.Magic < record.MagicV2 {
		return nil
	}
	if h.LeaderEpoch >= 0 {
		e := checkpoint.Epoch{Epoch: h.LeaderEpoch, Start: h.BaseOffset}
		if n := len(ld.epochs); !ld.noEpochs {
			if err := ld.assignEpochs([]checkpoint.Epoch{e}); err != nil {
				return err
			}
		} else if n == 0 || ld.epochs[n-1].Epoch < e.Epoch {
			ld.epochs = append(ld.epochs, e)
		}
	}
	if h.HasProducerID() {
		st.Begin()
		if err := addProducer(st, h, b, producer.Replication, producer.UnknownTxnVersion, 0); err != nil {
			return ld.strange(s, h, err)
		}
		completed := st.Completed()
		st.Commit()
		for _, c := range completed {
			if c.Aborted {
				err := s.AppendTxn(index.AbortedTxn{
					ProducerID: c.ProducerID, FirstOffset: c.FirstOffset, LastOffset: c.LastOffset, LastStable: st.LastStableAfter(c)})
				if err != nil {
					return err
				}
			}
			st.Complete(c)
		}
	}
	st.SetMapEnd(h.LastOffset + 1)
	return nil
}

// strange lets a batch pass whose checksum is right and whose meaning for
// producers is not: it is there, so it is kept.
func (ld *loader) strange(s *segment.Segment, h *record.Header, err error) error {
	ld.l.event("producer-state-skipped", s.Path(), fmt.Sprintf("batch at offset %d: %v", h.BaseOffset, err))
	return nil
}

// epochsMissing reports whether the first batch names an epoch and the
// checkpoint none at all, as after a crash that lost its content.
func (ld *loader) epochsMissing(list *segmentList) bool {
	if len(ld.l.epochs.load()) > 0 {
		return false
	}
	missing := false
	errStop := errors.New("stop")
	for _, s := range list.segs {
		if s.Size() == 0 {
			continue
		}
		_, err := s.Scan(0, 1, func(h *record.Header, _ []byte, _ int64) error {
			missing = h.Magic >= record.MagicV2 && h.LeaderEpoch >= 0
			return errStop
		})
		return missing && errors.Is(err, errStop)
	}
	return false
}

// epochsContradicted says why the last leader epoch of the checkpoint cannot be
// that of the batches: both the first batch that it is for and the last of the log
// have a lower one. One alone may be damaged, because no checksum covers the epoch
// of a batch. The next leader's epoch would drop such an entry, and with it every
// word about the batches that are there.
func (ld *loader) epochsContradicted(list *segmentList, end kafka.Offset) (why string, err error) {
	latest, ok := ld.l.epochs.latest()
	if !ok || latest.Start >= end {
		return "", nil
	}
	var seen [2]record.Header
	for i, offset := range []kafka.Offset{end - 1, max(latest.Start, list.bases[0])} { // a start reads the end in any case
		h, found, err := headerAt(list, offset, end)
		if err != nil || !found || h.Magic < record.MagicV2 || h.LeaderEpoch < 0 || h.LeaderEpoch >= latest.Epoch {
			return "", err
		}
		seen[i] = h
	}
	return fmt.Sprintf("epoch %d from offset %d on, but the batch at offset %d has %d, and the last one, at %d, has %d",
		latest.Epoch, latest.Start, seen[1].BaseOffset, seen[1].LeaderEpoch, seen[0].BaseOffset, seen[0].LeaderEpoch), nil
}

// headerAt is the header of the first batch that ends at or behind an offset.
func headerAt(list *segmentList, offset, end kafka.Offset) (h record.Header, found bool, err error) {
	errStop := errors.New("stop")
	for _, s := range list.span(offset, end) {
		at, ok, err := s.Locate(offset)
		if err == nil && ok {
			_, err = s.Scan(at.Byte, at.Byte+1, func(b *record.Header, _ []byte, _ int64) error {
				h, found = *b, true
				return errStop
			})
		}
		switch {
		case found:
			return h, true, nil
		case errors.Is(err, record.ErrCorrupt):
			return h, false, nil // it says nothing
		case err != nil:
			return h, false, err
		}
	}
	return h, false, nil
}

// assignEpochs adds those that are newer than what is known.
func (ld *loader) assignEpochs(list []checkpoint.Epoch) error {
	l := ld.l
	for _, e := range list {
		if latest, ok := l.epochs.latest(); ok && e.Epoch <= latest.Epoch || !l.epochs.assign(e.Epoch, e.Start) {
			continue
		}
		if err := ld.withoutRoom("leader epochs", l.writeEpochs()); err != nil {
			return err
		}
	}
	return nil
}

// rebuildProducers brings the producer state to end: from a snapshot, and by
// replaying what it does not cover (UnifiedLog.rebuildProducerState). A log that
// was closed cleanly and has no snapshot is taken by Kafka for one without
// producers; here it is replayed as any other, and left with the same files.
func (l *Log) rebuildProducers(st *producer.State, segs []*segment.Segment, logStart, end kafka.Offset, clean bool) (err error) {
	wasEmpty := st.Len() == 0 && st.MapEnd() >= end
	_, hadSnapshot := st.LatestSnapshot()
	if err := st.Reload(logStart, end, l.now()); err != nil {
		return err
	}
	if clean && !hadSnapshot {
		st.ForgetLastSnapshot()
	}
	defer func() {
		if clean && !hadSnapshot && err == nil && st.Len() > 0 {
			l.report(slog.LevelWarn, "snapshot-rebuilt", "producers read from the log", l.path(producer.SnapshotName(end)), "reason", "no snapshot after a clean stop", "producers", st.Len())
		}
	}()
	if end > st.MapEnd() && !wasEmpty && len(segs) > 0 {
		snapshotAt := make([]kafka.Offset, 0, 2)
		for _, s := range segs[max(0, len(segs)-2):] {
			snapshotAt = append(snapshotAt, s.BaseOffset())
		}
		list := newSegmentList(segs)
		for _, s := range list.span(st.MapEnd(), end) {
			from := max(s.BaseOffset(), st.MapEnd(), logStart)
			st.SetMapEnd(from)
			if slices.Contains(snapshotAt, s.BaseOffset()) {
				if err := l.snapshot(st); err != nil {
					return err
				}
			}
			if err := l.replay(st, s, from, end); err != nil {
				return err
			}
		}
	}
	st.SetMapEnd(end)
	return l.snapshot(st)
}

var errReplayed = errors.New("replayed")

// replay gives the batches of s that hold offsets in [from, to) to the producer state.
func (l *Log) replay(st *producer.State, s *segment.Segment, from, to kafka.Offset) error {
	at, ok, err := s.Locate(from)
	if errors.Is(err, record.ErrCorrupt) {
		return nil
	}
	if err != nil || !ok {
		return err
	}
	_, err = s.Scan(at.Byte, s.Size(), func(h *record.Header, b []byte, _ int64) error {
		if h.LastOffset >= to {
			return errReplayed
		}
		if !h.HasProducerID() {
			return nil
		}
		st.Begin()
		if err := addProducer(st, h, b, producer.Replication, producer.UnknownTxnVersion, 0); err != nil {
			l.event("producer-state-skipped", s.Path(), fmt.Sprintf("batch at offset %d: %v", h.BaseOffset, err))
			return nil
		}
		completed := st.Completed()
		st.Commit()
		for _, c := range completed {
			st.Complete(c)
		}
		return nil
	})
	if errors.Is(err, errReplayed) || errors.Is(err, record.ErrCorrupt) {
		return nil // damage below the recovery point is kept and reported where it is read
	}
	return err
}

// snapshot writes the producer state, unless the disk is full.
func (l *Log) snapshot(st *producer.State) error {
	_, err := st.TakeSnapshot(true)
	if vfs.IsFull(err) {
		l.say(slog.LevelWarn, "no producer snapshot: the disk is full", "offset", st.MapEnd(), "err", err)
		return nil
	}
	return err
}
