package coordinator

import (
	"errors"
	"time"

	"github.com/varvelog/varve/internal/group"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
)

// errBatchTooLarge is returned when records that belong into one batch do not fit.
var errBatchTooLarge = errors.New("records of one operation exceed the largest batch")

// applyLocked carries out what an operation asks for, and what follows from it
// until something has to be waited for.
func (s *shard) applyLocked(fx group.Effects) {
	for {
		end, err := s.appendLocked(&fx)
		s.timersLocked(fx.Timers)
		s.repliesLocked(fx.Replies)
		if fx.Then == nil {
			if err != nil {
				s.logger.Warn("group records not written", "partition", s.partition, "records", len(fx.Records), "err", err)
			}
			return
		}
		out := group.Outcome{Now: s.now()}
		if err != nil {
			out.Err = s.code(err)
			s.logger.Warn("group records not written", "partition", s.partition, "records", len(fx.Records), "code", out.Err.String(), "err", err)
		} else if !s.isCommittedLocked(end) {
			s.pending = append(s.pending, pending{end, time.Now().Add(s.opts.CommitTimeout), fx.Then})
			return
		}
		fx = fx.Then(out)
	}
}

// isCommittedLocked reports whether the high watermark has reached end. The
// flag is raised before the look, so that an advance after it is not missed.
func (s *shard) isCommittedLocked(end kafka.Offset) bool {
	if end == 0 {
		return true
	}
	s.uncommitted.Store(true)
	done := end <= s.log.HighWatermark()
	if done && len(s.pending) == 0 {
		s.uncommitted.Store(false)
	}
	return done
}

// appendLocked appends the records of an operation as one batch, or several if
// they may be divided, and applies them where that is asked for. It returns how
// far the log must be committed for the operation to be.
func (s *shard) appendLocked(fx *group.Effects) (end kafka.Offset, err error) {
	end = fx.After
	for rest := fx.Records; len(rest) > 0; {
		n, batch, err := s.batchLocked(rest, fx.Divisible)
		if err != nil {
			return end, err
		}
		base, err := s.log.Append(batch)
		if err != nil {
			return end, err
		}
		if fx.Replay {
			s.replayLocked(rest[:n], base)
		}
		end = max(end, base+kafka.Offset(n))
		rest = rest[n:]
	}
	return end, nil
}

// batchLocked builds the batch of as many records as fit: all of them, unless
// they are divisible. Kafka's coordinators write base sequence 0 without a producer.
func (s *shard) batchLocked(records []group.Record, divisible bool) (n int, batch record.Batch, err error) {
	o := record.NewBuildOptions()
	o.BaseSequence, o.Codec = 0, s.opts.Codec
	now := s.now()
	s.builder.Reset(o)
	for n = 0; n < len(records); n++ {
		r := records[n]
		if divisible && n > 0 && s.builder.UncompressedSize()+len(r.Key)+len(r.Value)+maxRecordOverhead > s.opts.MaxBatch {
			break
		}
		s.builder.Append(now, r.Key, r.Value, nil)
	}
	batch, err = s.builder.Finish()
	if err == nil && len(batch) > s.opts.MaxBatch {
		err = errBatchTooLarge
	}
	return n, batch, err
}

// maxRecordOverhead bounds what a record takes besides its key and value: five
// varints of an int32, one of an int64 and the attributes byte.
const maxRecordOverhead = 5*5 + 10 + 1

// replayLocked applies records that have just been appended.
func (s *shard) replayLocked(records []group.Record, base kafka.Offset) {
	for i, r := range records {
		err := s.machine.Replay(group.Logged{
			Record:   r,
			Offset:   base + kafka.Offset(i),
			Producer: kafka.NoProducerID,
			Now:      s.now(),
		})
		if err != nil { // it was encoded a moment ago
			s.logger.Error("own group record cannot be read back", "partition", s.partition, "offset", base+kafka.Offset(i), "err", err)
		}
	}
}

func (s *shard) timersLocked(set []group.Timer) {
	now := time.Now()
	for _, t := range set {
		if t.Cancel {
			s.timers.cancel(t.Key)
		} else {
			s.timers.set(t.Key, now.Add(t.After))
		}
	}
}

func (s *shard) repliesLocked(replies []group.Reply) {
	for _, r := range replies {
		if answer, ok := s.waiters[r.To]; ok {
			delete(s.waiters, r.To)
			answer <- r.Response // buffered: one answer a waiter
		}
	}
}

// committedLocked goes on with operations that have been committed, in order,
// and gives up those that never will be, because the sync that they waited for
// failed, and those that have waited for offsets.commit.timeout.ms.
func (s *shard) committedLocked() {
	hw, now := s.log.HighWatermark(), time.Now()
	failure := s.log.Failure()
	for len(s.pending) > 0 {
		p := s.pending[0]
		out := group.Outcome{Appended: true, Now: s.now()}
		switch {
		case p.end <= hw:
		case failure != nil:
			out.Err = s.code(failure)
		case !now.Before(p.deadline):
			out.Err = kafka.ErrRequestTimedOut
		default:
			return
		}
		s.pending = s.pending[1:]
		s.applyLocked(p.then(out))
	}
	s.pending = nil
	s.uncommitted.Store(false)
}

// code names the error of an append in the protocol's terms.
func (s *shard) code(err error) kafka.ErrorCode {
	if errors.Is(err, errBatchTooLarge) {
		return kafka.ErrRecordListTooLarge
	}
	return s.opts.ErrorCode(err)
}
