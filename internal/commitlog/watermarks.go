package commitlog

import (
	"fmt"

	"github.com/varvelog/varve/internal/kafka"
)

// StartOffset is the first offset that may be read.
func (l *Log) StartOffset() kafka.Offset { return l.start.get() }

// HighWatermark is the offset below which records are committed.
func (l *Log) HighWatermark() kafka.Offset { return l.highWatermark.get() }

// EndOffset is the offset of the next append.
func (l *Log) EndOffset() kafka.Offset { return l.end.get() }

// RecoveryPoint is the offset below which everything is durable.
func (l *Log) RecoveryPoint() kafka.Offset { return l.recoveryPoint.get() }

// LastStable is the offset below which records are committed and their
// transactions decided.
func (l *Log) LastStable() kafka.Offset {
	hw := l.highWatermark.get() // before firstUnstable, which is stored before it
	return l.lastStable(hw)
}

func (l *Log) lastStable(hw kafka.Offset) kafka.Offset {
	if first := l.firstUnstable.get(); first != kafka.NoOffset && first < hw {
		return first
	}
	return hw
}

// UpdateHighWatermark sets the high watermark, which may go back, within
// [StartOffset, EndOffset] and returns what it is now. A follower uses it.
func (l *Log) UpdateHighWatermark(hw kafka.Offset) kafka.Offset {
	l.mu.Lock()
	defer l.unlock()
	return l.setHighWatermarkLocked(hw)
}

func (l *Log) setHighWatermarkLocked(hw kafka.Offset) kafka.Offset {
	hw = max(min(hw, l.end.get()), l.start.get())
	l.highWatermark.set(hw)
	l.highWatermarkMovedLocked()
	return hw
}

// MaybeIncrementHighWatermark raises the high watermark to hw, at most to the
// end offset; raised is false when it is there already. It takes no lock unless
// a transaction was waiting for it.
func (l *Log) MaybeIncrementHighWatermark(hw kafka.Offset) (raised bool) {
	hw = min(hw, l.end.get())
	for {
		old := l.highWatermark.Load()
		if int64(hw) <= old {
			return false
		}
		if l.highWatermark.CompareAndSwap(old, int64(hw)) {
			break
		}
	}
	if l.unreplicated.Load() {
		l.mu.Lock()
		l.highWatermarkMovedLocked()
		l.unlock()
	}
	return true
}

// highWatermarkMovedLocked lets decided transactions go that the high watermark passed.
func (l *Log) highWatermarkMovedLocked() {
	l.producers.HighWatermarkPassed(l.highWatermark.get())
	l.publishUnstableLocked()
}

// publishUnstableLocked makes the first unstable offset visible.
func (l *Log) publishUnstableLocked() {
	first, ok := l.producers.FirstUnstable()
	if ok {
		first = max(first, l.start.get())
	} else {
		first = kafka.NoOffset
	}
	l.unreplicated.Store(l.producers.Unreplicated())
	l.firstUnstable.set(first)
}

// MaybeIncrementStartOffset raises the log start offset: a follower adopts its
// leader's, retention and DeleteRecords raise it. It does not remove segments.
// An offset above the high watermark is ErrOffsetOutOfRange.
func (l *Log) MaybeIncrementStartOffset(offset kafka.Offset) (raised bool, err error) {
	l.mu.Lock()
	defer l.unlock()
	if err := l.writableLocked(); err != nil {
		return false, err
	}
	return l.raiseStartLocked(offset)
}

func (l *Log) raiseStartLocked(offset kafka.Offset) (raised bool, err error) {
	if hw := l.highWatermark.get(); offset > hw {
		return false, fmt.Errorf("%w: Cannot increment the log start offset to %d of partition %s since it is larger than the high watermark %d",
			ErrOffsetOutOfRange, offset, l.partition, hw)
	}
	if offset <= l.start.get() {
		return false, nil
	}
	l.setStartLocked(offset)
	if l.opts.PersistLogStart == nil {
		l.epochsChangedLocked(l.epochs.truncateFromStart(offset))
	}
	l.producers.LogStartRaised(offset)
	l.publishUnstableLocked()
	return true, nil
}

// setStartLocked moves the log start offset and what may not lie below it.
func (l *Log) setStartLocked(offset kafka.Offset) {
	l.start.set(offset)
	if l.highWatermark.get() < offset {
		l.highWatermark.set(offset)
	}
	if l.recoveryPoint.get() < offset {
		l.recoveryPoint.set(offset)
	}
}

// DeleteRecordsTo raises the log start offset for DeleteRecords; -1 means the
// high watermark. It returns the log start offset afterwards, durable when the
// owner gave PersistLogStart. An offset above the high watermark, or below -1,
// is ErrOffsetOutOfRange; a topic that is only compacted is ErrPolicyViolation.
func (l *Log) DeleteRecordsTo(offset kafka.Offset) (kafka.Offset, error) {
	if c := l.Config(); c.CleanupCompact && !c.CleanupDelete {
		return 0, fmt.Errorf("%w: records of partition %s can not be deleted due to the configured policy", ErrPolicyViolation, l.partition)
	}
	if offset == kafka.NoOffset {
		offset = l.HighWatermark()
	}
	if offset < 0 {
		return 0, fmt.Errorf("%w: The offset %d for partition %s is not valid", ErrOffsetOutOfRange, offset, l.partition)
	}
	if _, err := l.MaybeIncrementStartOffset(offset); err != nil {
		return 0, err
	}
	// Also when somebody else has raised it: what they made durable may not be yet.
	if err := l.persistStart(); err != nil {
		return 0, err
	}
	start := l.StartOffset()
	// The files go at once, as Kafka's do. What cannot be renamed now is left to
	// retention: the records are deleted whatever becomes of the files.
	if _, err := l.deleteBelowStart(); err != nil && l.Failure() != nil {
		return 0, err
	}
	return start, nil
}

// deleteBelowStart removes the segments below the log start offset.
func (l *Log) deleteBelowStart() (int, error) {
	return l.deleteOld(func(segs []aged) int {
		return deletable(segs, l.highWatermark.get(), belowStart(l.start.get()))
	}, false)
}

// persistStart has the owner write the log start offset (order O9), unless that
// was done for one as high. Called without mu.
func (l *Log) persistStart() error {
	start := l.StartOffset()
	if l.opts.PersistLogStart == nil || l.startKept.get() >= start {
		return nil
	}
	if err := l.opts.PersistLogStart(start); err != nil {
		return l.writeErrorLocked("log start offset checkpoint", err)
	}
	for {
		kept := l.startKept.Load()
		if kept >= int64(start) || l.startKept.CompareAndSwap(kept, int64(start)) {
			break
		}
	}
	// Only now: with the epochs gone first, a crash that brings the old log start
	// back would leave its records without one. Kafka writes the two in any order.
	l.mu.Lock()
	defer l.unlock()
	l.epochsChangedLocked(l.epochs.truncateFromStart(start))
	return nil
}
