package commitlog

import (
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// Bound says up to where a read may go.
type Bound int

// The bounds of a fetch: consumers that read uncommitted and committed
// transactions, and followers.
const (
	HighWatermark Bound = iota
	LastStable
	LogEnd
)

// ReadOptions go with Read.
type ReadOptions struct {
	MaxBytes int64
	Bound    Bound
	// MinOneBatch returns the first batch even when it is larger than MaxBytes.
	MinOneBatch bool
	// Aborted asks for the aborted transactions of the range; they are appended
	// to AbortedBuf[:0].
	Aborted    bool
	AbortedBuf []AbortedTxn
	// Hint is what an earlier read returned as Next.
	Hint Hint
}

// AbortedTxn is one aborted transaction in a read's range.
type AbortedTxn = index.AbortedTxn

// Hint remembers where a batch starts, so that a read there needs no index.
type Hint struct {
	Segment kafka.Offset // base offset of the segment
	Offset  kafka.Offset // first offset at Byte
	Byte    int64
	Valid   bool

	rewrites uint64 // Log.rewrites when it was given
}

// rewrites changes whenever a byte that was in a segment's file may no longer be
// where it was.
func (l *Log) rewrites() uint64 { return l.truncations.Load() + l.replacements.Load() }

// ReadInfo is the answer to a read. The caller sends Region and calls its
// Release, when not nil, exactly once.
type ReadInfo struct {
	Region vfs.Region
	// FirstBatchIncomplete says that the region ends inside its first batch:
	// MaxBytes is too small and MinOneBatch was not asked for.
	FirstBatchIncomplete bool
	// Aborted is in the order of the markers; it may name transactions that lie
	// outside the region. Nil unless asked for.
	Aborted []AbortedTxn
	// Next is valid when the region ends where the log does.
	Next Hint

	// What was sampled before the read.
	StartOffset, HighWatermark, LastStable, EndOffset kafka.Offset
}

// Read finds the bytes that answer a fetch from start: whole batches from the
// one that holds start on, perhaps cut in the last one. An offset at the bound,
// or between it and the log end, gives an empty region; one outside
// [StartOffset, EndOffset] is an *OffsetOutOfRangeError. It takes no lock and
// allocates nothing.
func (l *Log) Read(start kafka.Offset, o ReadOptions) (ReadInfo, error) {
	for {
		info, err := l.read(start, &o)
		if !errors.Is(err, segment.ErrClosed) && !errors.Is(err, index.ErrClosed) {
			return info, err
		}
		// A segment left the list while it was looked at.
		if err := l.usable(); err != nil {
			return info, err
		}
	}
}

func (l *Log) read(start kafka.Offset, o *ReadOptions) (ReadInfo, error) {
	var info ReadInfo
	if err := l.usable(); err != nil {
		return info, err
	}
	// In this order: each of them only rises, and is at most the one loaded after it.
	info.StartOffset = l.start.get()
	info.HighWatermark = l.highWatermark.get()
	info.LastStable = l.lastStable(info.HighWatermark)
	rewrites := l.rewrites()
	endOffset, endBase, endPos := l.end.load()
	info.EndOffset = endOffset
	if o.Aborted {
		info.Aborted = o.AbortedBuf[:0]
		if info.Aborted == nil {
			info.Aborted = []AbortedTxn{}
		}
	}
	if start < info.StartOffset || start > endOffset {
		return info, &OffsetOutOfRangeError{Offset: start, Start: info.StartOffset, End: endOffset, Partition: l.partition}
	}
	bound := info.HighWatermark
	switch o.Bound {
	case LastStable:
		bound = info.LastStable
	case LogEnd:
		bound = endOffset
	}
	if start >= bound {
		if start == endOffset {
			info.Next = Hint{Segment: endBase, Offset: endOffset, Byte: endPos, Valid: true, rewrites: rewrites}
		}
		return info, nil
	}
	list := l.segments.Load()
	first := list.floor(start)
	if first < 0 {
		return info, &OffsetOutOfRangeError{Offset: start, Start: info.StartOffset, End: endOffset, Partition: l.partition}
	}
	for i := first; i < len(list.segs); i++ {
		s := list.segs[i]
		limit, ok, err := l.limit(list, i, bound, endOffset, endBase, endPos)
		if err != nil || !ok {
			return info, l.readError(err)
		}
		ro := segment.ReadOptions{MaxBytes: o.MaxBytes, Limit: limit, MinOneBatch: o.MinOneBatch}
		// After the list was loaded: a segment in it that was rewritten has been counted.
		if o.Hint.Valid && o.Hint.Offset == start && o.Hint.Segment == list.bases[i] && o.Hint.rewrites == l.rewrites() {
			ro.Hint, ro.Known = o.Hint.Byte, true
		}
		found, ok, err := s.Read(start, ro)
		if err != nil {
			return info, l.readError(err)
		}
		if !ok {
			continue // all of its batches end before start
		}
		info.Region, info.FirstBatchIncomplete = found.Region, found.FirstBatchIncomplete
		if list.bases[i] == endBase && found.Region.Offset+found.Region.Length == endPos {
			info.Next = Hint{Segment: endBase, Offset: endOffset, Byte: endPos, Valid: true, rewrites: rewrites}
		}
		if o.Aborted {
			info.Aborted, err = l.collectAborted(list, i, start, &found, info.Aborted)
			if err != nil && info.Region.Release != nil {
				info.Region.Release()
				info.Region = vfs.Region{}
			}
		}
		return info, l.readError(err)
	}
	return info, nil
}

// limit is the byte of segment i at which bound lies; ok is false when the
// bound lies before the segment.
func (l *Log) limit(list *segmentList, i int, bound, endOffset, endBase kafka.Offset, endPos int64) (limit int64, ok bool, err error) {
	base := list.bases[i]
	if bound <= base {
		return 0, false, nil
	}
	if bound == endOffset {
		switch {
		case base < endBase:
			return math.MaxInt64, true, nil
		case base == endBase:
			return endPos, true, nil
		}
		return 0, false, nil
	}
	if i+1 < len(list.bases) && list.bases[i+1] <= bound {
		return math.MaxInt64, true, nil
	}
	at, ok, err := list.segs[i].Locate(bound)
	if err != nil {
		return 0, false, err
	}
	if !ok {
		return list.segs[i].Size(), true, nil
	}
	return at.Byte, true, nil
}

// collectAborted finds the aborted transactions that a reader of the region
// must know of. The range is as wide as the index makes it: up to the first
// entry behind the region (UnifiedLog.collectAbortedTransactions).
func (l *Log) collectAborted(list *segmentList, i int, start kafka.Offset, r *segment.ReadInfo, dst []AbortedTxn) ([]AbortedTxn, error) {
	upper, ok, err := list.segs[i].UpperBound(index.Position{Offset: start, Byte: r.Position}, int32(min(r.Region.Length, math.MaxInt32)))
	if err != nil {
		return dst, err
	}
	if !ok {
		upper = l.end.get()
		if i+1 < len(list.bases) {
			upper = list.bases[i+1]
		}
	}
	for ; i < len(list.segs); i++ {
		var complete bool
		dst, complete, err = list.segs[i].CollectAborted(dst, start, upper)
		if err != nil || complete {
			return dst, err
		}
	}
	return dst, nil
}

// readError names the partition in an error of the disk and tells damaged bytes
// from a disk that does not answer.
func (l *Log) readError(err error) error {
	switch {
	case err == nil, errors.Is(err, segment.ErrClosed), errors.Is(err, ErrStorage):
		return err
	case errors.Is(err, record.ErrCorrupt):
		return fmt.Errorf("%w: %s: %w", ErrCorrupt, l.partition, err)
	}
	return &storageError{fmt.Errorf("%s: read: %w", l.partition, err)}
}
