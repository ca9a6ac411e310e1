package quorum

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/internal/commitlog"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/metadata"
	"github.com/varvelog/varve/internal/record"
)

// operation is the records of one Update on their way to the disk. Its fields
// are set before it is queued; done and err belong to Quorum.mu.
type operation struct {
	values    [][]byte // encoded records
	size      int      // of the values
	timestamp kafka.Timestamp
	base      kafka.Offset
	delta     *metadata.Delta
	next      *metadata.Image

	done bool
	err  error
}

// recordOverhead is more than what a record adds to its value in a batch.
const recordOverhead = 32

// Append writes records as one atomic step. See Update.
func (q *Quorum) Append(records []metadata.Record) (kafka.Offset, error) {
	return q.Update(func(*metadata.Image) ([]metadata.Record, error) { return records, nil })
}

// Update writes the records that decide returns for the newest state as one
// atomic step, and returns the offset of the first. The state's End is the
// offset that this will be. When Update returns the records are durable, in
// Image, and known to every subscriber.
//
// decide runs under the quorum's lock and must be quick. It may see state that
// is not yet durable; therefore Update also waits for that when decide returns
// no records. An error of decide is returned as it is.
func (q *Quorum) Update(decide func(*metadata.Image) ([]metadata.Record, error)) (kafka.Offset, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed != nil {
		return kafka.NoOffset, q.failed
	}
	records, decideErr := decide(q.head)
	if decideErr != nil || len(records) == 0 {
		base := q.head.End
		if err := q.waitLocked(); err != nil {
			return kafka.NoOffset, err
		}
		return base, decideErr
	}
	op, err := q.prepareLocked(records)
	if err != nil {
		return kafka.NoOffset, err
	}
	q.head = op.next
	q.queue, q.last = append(q.queue, op), op
	q.finishLocked(op)
	return op.base, op.err
}

// waitLocked waits until the operation that was queued last is committed, and
// with it the state that the caller saw.
func (q *Quorum) waitLocked() error {
	last := q.last
	if last == nil {
		return nil
	}
	q.finishLocked(last)
	return last.err
}

// finishLocked returns when op is committed or has failed. Who finds nobody
// writing writes for all.
func (q *Quorum) finishLocked(op *operation) {
	for !op.done {
		if q.writing {
			q.changed.Wait()
		} else {
			q.writeLocked()
		}
	}
}

// prepareLocked encodes the records and computes the state after them.
func (q *Quorum) prepareLocked(records []metadata.Record) (*operation, error) {
	op := &operation{timestamp: kafka.TimestampOf(q.o.Now()), base: q.head.End, delta: metadata.NewDelta(q.head)}
	level := q.head.Feature(metadata.MetadataVersion)
	for i, r := range records {
		if f, ok := r.(*metadata.FeatureLevelRecord); ok && f.Name == metadata.MetadataVersion {
			level = f.Level
		}
		value := metadata.AppendRecord(nil, r, metadata.RecordVersion(r, level))
		op.values = append(op.values, value)
		op.size += len(value) + recordOverhead
		// What is applied is what was written, so that a replay gives the same.
		written, _, err := metadata.DecodeRecord(value)
		if err == nil {
			err = op.delta.Apply(written)
		}
		if err != nil {
			return nil, fmt.Errorf("record %d of %d: %w", i, len(records), err)
		}
	}
	if op.size > MaxBatchBytes-record.HeaderSize {
		return nil, fmt.Errorf("%d records of %d bytes: %w", len(records), op.size, ErrTooLarge)
	}
	op.next = op.delta.Finish(q.head.End+kafka.Offset(len(records)), q.epoch, op.timestamp)
	return op, nil
}

// writeLocked writes what waits in the queue as one batch, makes it durable and
// publishes it. It gives the lock up meanwhile.
func (q *Quorum) writeLocked() {
	q.writing = true
	ops := q.takeLocked()
	subscribers := q.subscribers
	old := q.Image()
	q.mu.Unlock()
	err := q.appendBatch(ops)
	if err == nil {
		for _, op := range ops {
			q.committed.Store(op.next)
			for _, s := range subscribers {
				s(old, op.next, op.delta)
			}
			old = op.next
		}
	}
	q.mu.Lock()
	if err != nil {
		q.failLocked(err)
	}
	for _, op := range ops {
		op.done, op.err = true, err
		if err == nil {
			q.maintenance.bytes += int64(op.size)
		}
	}
	q.maintenance.lastWrite = q.o.Now()
	q.writing = false
	q.changed.Broadcast()
}

// takeLocked takes the operations from the front of the queue that fit a batch.
func (q *Quorum) takeLocked() []*operation {
	size, n := record.HeaderSize, 0
	for _, op := range q.queue {
		if n > 0 && size+op.size > MaxBatchBytes {
			break
		}
		size += op.size
		n++
	}
	ops := q.queue[:n:n]
	q.queue = q.queue[n:]
	return ops
}

// appendBatch writes the operations as one batch and makes it durable.
func (q *Quorum) appendBatch(ops []*operation) error {
	o := record.NewBuildOptions()
	o.BaseOffset, o.LeaderEpoch = ops[0].base, q.epoch
	var b record.Builder
	b.Reset(o)
	for _, op := range ops {
		for _, value := range op.values {
			b.Append(op.timestamp, nil, value, nil)
		}
	}
	batch, err := b.Finish()
	if err != nil {
		return err
	}
	return q.put(batch)
}

func (q *Quorum) appendDurably(batch record.Batch) error {
	if _, err := q.log.AppendAsLeader(batch, q.epoch, commitlog.AppendOptions{Origin: commitlog.RaftLeader}); err != nil {
		return fmt.Errorf("append metadata: %w", err)
	}
	end := q.log.EndOffset()
	if err := q.log.Flush(end); err != nil {
		return fmt.Errorf("sync metadata: %w", err)
	}
	q.log.UpdateHighWatermark(end)
	return nil
}

// failLocked takes back what could not be written, and what was decided upon
// it. A full disk is over when there is room again; after any other error what
// the disk holds is not known and the log takes no more.
func (q *Quorum) failLocked(err error) {
	q.head, q.last = q.Image(), nil
	for _, op := range q.queue {
		op.done, op.err = true, err
	}
	q.queue = nil
	if errors.Is(err, commitlog.ErrFull) {
		q.o.Logger.Error("metadata log: disk full, records refused", "offset", q.head.End, "err", err)
		return
	}
	q.failed = err
	q.o.Logger.Error("metadata log failed", "offset", q.head.End, "err", err)
	if q.o.OnFailure != nil {
		go q.o.OnFailure(err)
	}
}
