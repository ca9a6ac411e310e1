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
func (l *Log) rebuildProducers(st *producer.State, segs []*segment.Segment, logStart, end kafka.Offset, clean bool) error {
	wasEmpty := st.Len() == 0 && st.MapEnd() >= end
	_, hadSnapshot := st.LatestSnapshot()
	if err := st.Reload(logStart, end, l.now()); err != nil {
		return err
	}
	if clean && !hadSnapshot {
		st.ForgetLastSnapshot()
	}
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
