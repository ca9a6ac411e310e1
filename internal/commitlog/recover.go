package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"

	"github.com/varvelog/varve/internal/checkpoint"
	"github.com/varvelog/varve/internal/index"
	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/producer"
	"github.com/varvelog/varve/internal/record"
	"github.com/varvelog/varve/internal/segment"
	"github.com/varvelog/varve/internal/vfs"
)

// loader is one Open while it runs (Kafka's LogLoader). Its order of steps
// decides what a crash in the middle of anything turns into.
type loader struct {
	l             *Log
	clean         bool
	recoveryPoint kafka.Offset // of the checkpoint
	logStart      kafka.Offset // of the checkpoint

	segs     []*segment.Segment
	bases    []kafka.Offset // of all segments in the directory, rising
	changed  bool           // names in the directory went or came
	unfit    bool           // the indexes of the last segment do not fit it
	tailNext kafka.Offset   // next offset as the check of a clean tail found it; NoOffset: not checked
	after    []func()       // unlinking of what was renamed

	// keep is the lowest offset at which the log may be cut: what lies below had
	// reached the disk, and is kept whatever is wrong with it. reached is up to
	// where all had: what is cut off below it is damage, and set aside.
	keep      kafka.Offset
	reached   kafka.Offset
	noEpochs  bool               // no leader epoch is known: they are found in the end, from the first batch on
	epochs    []checkpoint.Epoch // met in recovered batches meanwhile
	producers *producer.State    // behind the segment that was recovered last; nil at first
	recovered []*segment.Segment // checked, but not yet flushed
	bytes     int64              // of those
	flushed   kafka.Offset       // below it everything was checked and flushed
}

func (ld *loader) load() error {
	l := ld.l
	ld.tailNext, ld.keep, ld.reached = kafka.NoOffset, ld.recoveryPoint, ld.recoveryPoint
	swaps, err := ld.removeTemporary()
	if err != nil {
		return err
	}
	if err := ld.completeSwaps(swaps); err != nil {
		return err
	}
	rebuildEpochs, why, err := l.loadEpochs()
	if err != nil {
		return err
	}
	ld.noEpochs = rebuildEpochs || len(l.epochs.load()) == 0
	if err := ld.splitting(ld.loadSegments); err != nil {
		return err
	}
	if err := ld.splitting(ld.recoverLog); err != nil {
		return err
	}
	end, err := ld.end()
	if err != nil {
		return err
	}
	list := newSegmentList(ld.segs)
	active := list.active()
	if err := active.Activate(); err != nil {
		return err
	}
	start := max(ld.logStart, list.bases[0])
	if !rebuildEpochs {
		if why, err = ld.epochsContradicted(list, end); err != nil {
			return err
		}
	}
	if rebuildEpochs || why != "" || ld.epochsMissing(list) {
		l.epochs.clear()
		if err := ld.withoutRoom("leader epochs", l.rebuildEpochs(list)); err != nil {
			return err
		}
		if why != "" || len(l.epochs.load()) > 0 {
			l.checkpointRebuilt(l.path(checkpoint.EpochFile), cmp.Or(why, "missing or empty, and the batches have leader epochs"))
		}
	} else if err := ld.assignEpochs(ld.epochs); err != nil {
		return err
	}
	if l.epochs.truncateFromEnd(end) || l.epochs.truncateFromStart(ld.logStart) {
		l.epochs.truncateFromStart(ld.logStart)
		l.epochOwed = true // until it is written each load does this again
	}
	l.segments.Store(list)
	l.start.set(start)
	l.end.store(end, active.BaseOffset(), active.Size())
	l.highWatermark.set(start)
	l.recoveryPoint.set(min(max(ld.recoveryPoint, ld.flushed), end))
	if ld.clean {
		l.recoveryPoint.set(end)
	}
	if err := l.producers.RemoveStray(list.bases); err != nil {
		return err
	}
	if err := l.rebuildProducers(l.producers, ld.segs, start, end, ld.clean); err != nil {
		return err
	}
	if err := l.settleCompactedTxns(list, start); err != nil {
		return err
	}
	if l.producers.Dropped() || ld.changed {
		return l.fs.SyncDir(l.Dir())
	}
	return nil
}

// splitting runs a step again after a segment with too wide offsets was split.
func (ld *loader) splitting(step func() error) error {
	for {
		err := step()
		var over *overflow
		if !errors.As(err, &over) {
			return err
		}
		if err := ld.split(over.segment); err != nil {
			return err
		}
	}
}

// overflow is a segment that holds an offset which its base cannot express.
type overflow struct {
	segment *segment.Segment
	err     error
}

func (e *overflow) Error() string { return e.err.Error() }

// loadSegments opens the segments in the order of their names. Kafka recovers
// one without an offset index or with a damaged transaction index; here also
// one without a time index is, because retention and lookups by time would take
// the age of the file for that of its records.
func (ld *loader) loadSegments() error {
	l := ld.l
	for _, s := range ld.segs {
		if err := s.Abandon(); err != nil {
			return err
		}
	}
	ld.segs, ld.producers, ld.recovered = ld.segs[:0], nil, nil
	names, err := l.fs.ReadDir(l.Dir())
	if err != nil {
		return err
	}
	files := make(map[segment.FileName]bool, len(names))
	ld.bases = ld.bases[:0]
	unflushed := kafka.Offset(math.MaxInt64) // from this segment on recoverLog recovers all
	for _, d := range names {
		n, ok := segment.ParseName(d.Name())
		if !ok || !d.Type().IsRegular() {
			continue
		}
		files[n] = true
		if n.Ext == segment.LogExt && n.Suffix == "" {
			ld.bases = append(ld.bases, n.Base)
			if !ld.clean && (n.Base <= ld.recoverFrom() || unflushed == math.MaxInt64) {
				unflushed = n.Base
			}
		}
	}
	slices.Sort(ld.bases)
	var orphans []segment.FileName
	for _, d := range names {
		n, ok := segment.ParseName(d.Name())
		if !ok || n.Suffix != "" || n.Ext != segment.LogExt && !d.Type().IsRegular() {
			continue
		}
		switch {
		case n.Ext == segment.LogExt && !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", l.path(d.Name()))
		case n.Ext != segment.LogExt && !files[segment.FileName{Base: n.Base, Ext: segment.LogExt}]:
			orphans = append(orphans, n)
		case n.Ext == segment.LogExt:
			has := files[segment.FileName{Base: n.Base, Ext: segment.TimeIndexExt}]
			if err := ld.loadSegment(n.Base, has, n.Base < unflushed); err != nil {
				return err
			}
		}
	}
	if err := ld.missing(orphans, unflushed); err != nil {
		return err
	}
	for _, n := range orphans {
		if n.Ext == segment.SnapshotExt {
			continue // of a clean stop, perhaps: see RemoveStray
		}
		l.say(slog.LevelWarn, "orphaned index removed", "file", l.path(n.String()))
		if err := ld.remove(n); err != nil {
			return err
		}
	}
	return nil
}

// below is the base offset of the segment behind s; 0 when s is the last.
func (ld *loader) below(s *segment.Segment) kafka.Offset {
	i, found := slices.BinarySearch(ld.bases, s.BaseOffset())
	if found {
		i++
	}
	if i < len(ld.bases) {
		return ld.bases[i]
	}
	return 0
}

func (ld *loader) loadSegment(base kafka.Offset, hasTimeIndex, check bool) error {
	l := ld.l
	s, err := segment.Open(l.fs, l.Dir(), base, l.segmentOptions())
	if err != nil {
		return err
	}
	ld.segs = append(ld.segs, s)
	if !check {
		return nil
	}
	err = s.SanityCheck()
	if err == nil && !hasTimeIndex && s.Size() > 0 {
		err = &index.CorruptError{Path: s.Times().Path(), Reason: "the file is missing"}
	}
	if err == nil {
		return nil
	}
	var version *index.VersionError // of an entry of the transaction index
	if !errors.Is(err, index.ErrCorrupt) && !errors.As(err, &version) {
		return err
	}
	reason, since := err, l.opts.Now()
	var corrupt *index.CorruptError
	inIndex := errors.As(reason, &corrupt)
	ld.segs = ld.segs[:len(ld.segs)-1] // the producer state before it is built from those below
	var found segment.Recovered
	if err = s.BuildIndexesBeside(); err == nil {
		if found, err = ld.recoverSegment(s, nil, math.MaxInt64); err == nil {
			err = s.PutIndexesInPlace()
		}
	}
	if vfs.IsFull(err) && inIndex && corrupt.Path != s.Txns().Path() {
		return ld.withoutIndexes(s, err)
	}
	ld.segs = append(ld.segs, s)
	if err != nil {
		return err
	}
	if inIndex {
		l.indexRebuilt(corrupt.Path, corrupt.Reason, found.Entries, since)
		return nil
	}
	l.indexRebuilt(s.Txns().Path(), reason.Error(), found.Entries, since)
	return nil
}

// withoutIndexes takes a segment into the log whose indexes could not be made anew
// on a full disk. Its first reader finds them to be wrong, and does without.
func (ld *loader) withoutIndexes(s *segment.Segment, full error) error {
	l := ld.l
	ld.producers = nil
	if err := s.GiveUpIndexesBeside(); err != nil {
		return err
	}
	s, err := segment.Open(l.fs, l.Dir(), s.BaseOffset(), l.segmentOptions())
	if err != nil {
		return err
	}
	ld.segs = append(ld.segs, s)
	return ld.withoutRoom("indexes of "+s.Path(), full)
}

// recoverLog recovers what may not have reached the disk: every segment from the
// recovery point on, unless the last stop was clean and the end of the log
// agrees with that.
func (ld *loader) recoverLog() error {
	if ld.clean {
		ok, err := ld.tailIsWhole()
		if err != nil {
			return err
		}
		if !ok {
			ld.clean = false
			ld.recoveryPoint = min(ld.recoveryPoint, ld.segs[len(ld.segs)-1].BaseOffset())
		}
	}
	if ld.clean || len(ld.segs) == 0 {
		return nil
	}
	list := newSegmentList(ld.segs)
	ld.bases = list.bases // a segment may have been split
	unflushed := list.span(ld.recoverFrom(), math.MaxInt64)
	since := ld.l.opts.Now()
	for i, s := range unflushed {
		later := unflushed[i+1:]
		found, err := ld.recoverSegment(s, later, ld.keep)
		if err != nil {
			return err
		}
		if ld.unfit {
			ld.l.indexRebuilt(s.Offsets().Path(), "the indexes do not fit the log", found.Entries, since)
			ld.unfit = false
		}
		ld.tailNext = found.Next
		if found.Cut > 0 {
			return nil
		}
		if len(later) > 0 && found.Next < later[0].BaseOffset() && !ld.mayMiss(s.BaseOffset()) {
			return ld.cutAtHole(s, later, found.Next)
		}
		if err := ld.keepUp(s, later); err != nil {
			return err
		}
	}
	return nil
}

// recoverFrom is where recovery begins. What lies below the log start is only
// left to be unlinked: the renames of a deletion reach the disk in any order, and
// a hole between such segments, or damage in one, must not end the log before its
// first record. Kafka's recovery point is never below the log start either, but
// for its checkpoint, which may be older.
func (ld *loader) recoverFrom() kafka.Offset { return max(ld.recoveryPoint, ld.logStart) }

// recoveredBytes is how much is checked before it is made durable, so that a
// start that is killed goes on from there: some milliseconds of checking, and a
// sync less for most partitions, which end in less.
const recoveredBytes = 32 << 20

// keepUp moves the recovery point of a start that takes long.
func (ld *loader) keepUp(s *segment.Segment, later []*segment.Segment) error {
	ld.recovered, ld.bytes = append(ld.recovered, s), ld.bytes+s.Size()
	if ld.bytes < recoveredBytes || len(later) == 0 {
		return nil
	}
	for _, s := range ld.recovered {
		if err := s.Flush(); err != nil {
			return err
		}
	}
	if err := ld.l.fs.SyncDir(ld.l.Dir()); err != nil {
		return err
	}
	ld.recovered, ld.bytes = ld.recovered[:0], 0
	ld.flushed = later[0].BaseOffset()
	if ld.l.opts.OnRecovered != nil {
		ld.l.opts.OnRecovered(ld.flushed)
	}
	return nil
}

// end makes sure that there is a segment and that the log does not end below
// its start, and returns the log end offset.
func (ld *loader) end() (kafka.Offset, error) {
	l := ld.l
	if n := len(ld.segs); n > 0 {
		next := ld.tailNext
		if next == kafka.NoOffset {
			var err error
			if next, err = ld.segs[n-1].ReadNextOffset(); err != nil {
				return 0, err
			}
		}
		if next >= ld.logStart {
			return next, nil
		}
		// Whether the records were deleted or the checkpoint is wrong, which has no
		// checksum, is not known: Kafka deletes them, here they are set aside.
		if err := l.producers.Reset(ld.logStart); err != nil {
			return 0, err
		}
		var a aside
		if err := ld.dropAfterCut(slices.Clone(ld.segs), &a); err != nil {
			return 0, err
		}
		l.report(slog.LevelWarn, "log-start-above-end", "the log ends below its start", l.Dir(),
			"logStartOffset", ld.logStart, "offset", next, "kept", strings.Join(a.files, " "))
		if l.epochs.clear() {
			if err := ld.withoutRoom("leader epochs", l.writeEpochs()); err != nil {
				return 0, err
			}
		}
	}
	s, err := l.createSegment(ld.logStart)
	if err != nil {
		return 0, err
	}
	ld.segs = append(ld.segs, s)
	ld.changed = true
	return ld.logStart, nil
}

func (ld *loader) discard(gone []*segment.Segment) error {
	l := ld.l
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	for _, s := range gone {
		if derr := l.discardLocked(l.producers, s); derr != nil {
			err = errors.Join(err, derr)
			continue
		}
		err = errors.Join(err, s.Retire()) // closed, should nobody come to unlink it
	}
	ld.after = append(ld.after, func() { l.unlinkLater(gone) })
	return err
}

// recoverSegment checks and rebuilds one segment. The producer state before it
// comes from the newest snapshot below it and the segments in between, and is
// left as a snapshot at its end, so that the next segment starts from there.
//
// later are the segments behind it: when the log ends in this one they go, and
// they go first. A crash in between then leaves the damage where it is, and not
// a log with a hole in it. Below keep nothing is cut.
func (ld *loader) recoverSegment(s *segment.Segment, later []*segment.Segment, keep kafka.Offset) (found segment.Recovered, err error) {
	l := ld.l
	l.say(slog.LevelDebug, "recovering segment", "base", s.BaseOffset())
	st, err := ld.producersAt(s.BaseOffset())
	if err != nil {
		return found, err
	}
	var tail aside
	found, err = s.RecoverWith(segment.RecoverOptions{
		Visit: func(h *record.Header, b []byte, _ int64) error { return ld.recoveredBatch(s, st, h, b) },
		Keep:  keep, Below: ld.below(s), Gaps: l.Config().CleanupCompact || ld.mayMiss(s.BaseOffset()),
		Scanned: func(bytes int64) { ld.scanned(0, bytes) },
		BeforeCut: func(c segment.Cut) error {
			if tail, err = ld.beforeCut(s, c); err != nil {
				return err
			}
			return ld.dropAfterCut(later, &tail)
		},
	})
	ld.scanned(1, 0)
	var misnamed *segment.MisnamedError
	switch {
	case errors.Is(err, segment.ErrOverflow):
		return found, &overflow{s, err}
	case errors.As(err, &misnamed):
		return found, &MisnamedError{Path: s.Path(), Base: s.BaseOffset(), Found: misnamed.Found}
	case err != nil:
		return found, err
	}
	if found.Cut == 0 && len(later) > 0 && found.Next > later[0].BaseOffset() {
		return found, &MisnamedError{Path: later[0].Path(), Base: later[0].BaseOffset(), Found: found.Next, Below: s.Path()}
	}
	if g := found.Gap; g != (segment.OffsetGap{}) {
		l.event("offset-gap", s.Path(), fmt.Sprintf("no batch has the offsets %d to %d: they are missing, or the base offset of the batch behind them, the last one, is damaged", g.From, g.To-1))
	}
	st.SetMapEnd(max(st.MapEnd(), found.Next))
	ld.producers, ld.changed = st, ld.changed || st.Dropped()
	if found.Cut > 0 {
		// Durable before anything is appended: bytes that were cut off must not
		// come back behind what is written in their place.
		if err := s.Flush(); err != nil {
			return found, err
		}
		ld.tailCut(s, found.From, found.From+found.Cut, found.Next, found.Reason, &tail)
	}
	return found, l.snapshot(st)
}

func (ld *loader) scanned(segments int, bytes int64) {
	if ld.l.opts.OnScan != nil {
		ld.l.opts.OnScan(segments, bytes)
	}
}

// withoutRoom lets a full disk pass: a log must be readable on it, and what
// could not be written is found anew at the next start.
func (ld *loader) withoutRoom(what string, err error) error {
	if vfs.IsFull(err) {
		ld.l.say(slog.LevelWarn, "not written: the disk is full", "what", what, "err", err)
		return nil
	}
	return err
}
