package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// errStopped ends a load whose partition is being given up.
var errStopped = errors.New("load stopped")

// load replays the partition and makes the shard active. Until then requests
// are answered that it is loading.
func (s *shard) load() {
	start := time.Now()
	l := loader{s: s, machine: group.New(s.opts.Group), dec: new(record.Decompressor)}
	err := l.run()

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != loading {
		return
	}
	if err != nil {
		// Serving part of the groups would let the others lose their offsets.
		s.logger.Error("groups not loaded", "partition", s.partition, "offset", l.next, "err", err)
		s.state = unloaded
		s.stopWatch()
		return
	}
	s.state, s.machine = active, l.machine
	s.expiry = time.Now().Add(s.opts.CheckInterval)
	s.applyLocked(s.machine.Loaded(s.now()))
	s.rearmLocked()
	if n := s.machine.Counts(); n.Groups > 0 || l.skipped > 0 {
		s.logger.Info("groups loaded", "partition", s.partition, "groups", n.Groups, "offsets", n.Offsets,
			"records", l.records, "skipped", l.skipped, "durationMs", time.Since(start).Milliseconds())
	}
}

// loader replays a partition into a machine.
type loader struct {
	s       *shard
	machine *group.Machine
	dec     *record.Decompressor
	next    kafka.Offset
	records int
	skipped int // records of a type or version that is not known, or damaged ones
}

func (l *loader) run() error {
	var buf []byte
	log := l.s.log
	l.next = log.StartOffset()
	for l.next < log.EndOffset() {
		if l.stopped() {
			return errStopped
		}
		batches, err := log.Read(l.next, l.s.opts.LoadBuffer, buf)
		if err != nil {
			return fmt.Errorf("read at offset %d: %w", l.next, err)
		}
		if len(batches) == 0 {
			return nil
		}
		buf = batches
		if err := l.batches(batches); err != nil {
			return err
		}
	}
	return nil
}

func (l *loader) stopped() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.state != loading
}

func (l *loader) batches(b []byte) error {
	var it record.Iterator
	read := false
	for len(b) > 0 {
		size, ok, err := record.NextBatch(b)
		if err != nil {
			return fmt.Errorf("batch after offset %d: %w", l.next, err)
		}
		if !ok {
			break // the last batch was cut by the byte limit
		}
		if err := l.batch(b[:size], &it); err != nil {
			return err
		}
		read = true
		b = b[size:]
	}
	if !read {
		return fmt.Errorf("no whole batch at offset %d", l.next)
	}
	return nil
}

func (l *loader) batch(b []byte, it *record.Iterator) error {
	h, err := record.ParseHeader(b)
	if err != nil {
		return err
	}
	if h.Magic >= record.MagicV2 {
		if err := record.Batch(b).Check(); err != nil {
			return err
		}
		if record.Batch(b).IsControl() {
			err = l.control(b, it)
			l.next = max(l.next, h.LastOffset+1)
			return err
		}
	}
	if err := it.Reset(b, l.dec); err != nil {
		return fmt.Errorf("batch at offset %d: %w", h.BaseOffset, err)
	}
	producer := kafka.NoProducerID
	if h.Magic >= record.MagicV2 && record.Batch(b).IsTransactional() {
		producer = h.ProducerID
	}
	for it.Next() {
		if r := it.Record(); r.Offset >= l.next && r.Key != nil {
			l.replay(r, producer)
		}
	}
	l.next = max(l.next, h.LastOffset+1)
	return it.Err()
}

func (l *loader) replay(r *record.Record, producer kafka.ProducerID) {
	l.records++
	err := l.machine.Replay(group.Logged{
		Record:   group.Record{Key: r.Key, Value: r.Value},
		Offset:   r.Offset,
		Producer: producer,
		Now:      r.Timestamp,
	})
	if err != nil {
		// The record stays in the log: whoever wrote it may be able to read it.
		l.skipped++
		l.s.logger.Warn("group record passed over", "partition", l.s.partition, "offset", r.Offset, "err", err)
	}
}

// control applies the marker that ends a transaction.
func (l *loader) control(b []byte, it *record.Iterator) error {
	if err := it.Reset(b, l.dec); err != nil {
		return err
	}
	for it.Next() {
		t, err := record.ParseControl(it.Record().Key)
		if err != nil {
			return fmt.Errorf("control record at offset %d: %w", it.Record().Offset, err)
		}
		if t == record.CommitMarker || t == record.AbortMarker {
			l.machine.ReplayEndTransaction(record.Batch(b).ProducerID(), t == record.CommitMarker)
		}
	}
	return it.Err()
}
